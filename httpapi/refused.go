package httpapi

import (
	"log/slog"
	"net/http"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Refused logins are in the log in a form that fail2ban reads (packaging/fail2ban): the address is at a fixed place, and nothing in the
// line is written by the caller.
//
//	time=… level=WARN msg="login refused" address=203.0.113.9 face=http reason=bad_credentials

// Reasons for a refused login. Only the first is an attempt with false credentials: chats ask without any to find out
// where to log in, and an expired token was good once.
const (
	badCredentials = "bad_credentials"
	expiredToken   = "expired"
	noCredentials  = "no_credentials"
)

func reasonOf(req *http.Request, err error) string {
	switch {
	case len(req.Header.Values("Authorization")) == 0:
		return noCredentials
	case fault.CodeOf(err) == "token_expired":
		return expiredToken
	}
	return badCredentials
}

// worthALine bounds the lines of a flood from one source: the first twenty in a row, then each hundredth.
func worthALine(n int) bool { return n <= 20 || n%100 == 0 }

// logRefused writes the line. Failures that are not the credentials', as of a provider that cannot be reached, must
// not reach fail2ban.
func logRefused(log *slog.Logger, who gate.Caller, reason string, err error) {
	address := []any{"address", who.Address, "face", who.Face, "reason", reason}
	switch {
	case !fault.Is(err, fault.Auth):
		log.Warn("credentials could not be checked", append(address[:4], "err", err)...)
	case reason == noCredentials:
		log.Info("login refused", address...)
	default:
		log.Warn("login refused", address...)
	}
}
