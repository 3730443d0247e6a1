package signer

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
	"slurmgate/nss"
)

// A connection carries one request and one answer, each a JSON object in one line:
//
//	{"user":"alice","public_key":"ssh-ed25519 AAAA…","run_id":"…","caller":"…","gateway":"…","source_addresses":["127.0.0.1"],"minutes":5}
//	{"certificate":"ssh-ed25519-cert-v01@openssh.com AAAA…","not_after":"2026-01-02T15:04:05Z"}
//	{"error":{"code":"user_refused","message":"…","next":"…","retry_seconds":0}}
//
// {"about":true} asks how the signer is configured; the answer is {"about":{"public_key":"…","minutes":5,"source_addresses":[…]}}.

// Codes of the errors of a signer.
const (
	Away    = "signer_away"    // Transport: the signer does not answer, or cannot sign at the moment
	Refused = "user_refused"   // Policy: it does not sign for this user
	Busy    = "signer_busy"    // Transport, with a time after which to ask again: a rate is used up
	Misfit  = "signer_request" // Transport: it accepts no request of this form or caller; gateway and signer are not configured for each other
)

const (
	maxLine      = 64 << 10 // bytes of a request or an answer
	maxWord      = 128      // bytes of run id, caller and gateway in a key id
	maxText      = 1024     // bytes of run id, caller and gateway in a request
	maxAddresses = 32       // source addresses of a request
	maxMinutes   = 60
)

// Request is a request for a certificate.
type Request struct {
	User            string   `json:"user"`             // login name, the certificate's only principal
	PublicKey       string   `json:"public_key"`       // in the form of authorized_keys
	RunID           string   `json:"run_id"`           // the run that needs it first; may be empty
	Caller          string   `json:"caller"`           // who asked the gateway; may be empty
	Gateway         string   `json:"gateway"`          // name of the gateway's site
	SourceAddresses []string `json:"source_addresses"` // from where it may be used: addresses, or networks as 192.0.2.0/24
	Minutes         int      `json:"minutes"`          // of validity from now; the signer may give less
	About           bool     `json:"about,omitzero"`   // requests [About] instead
}

// About is a signer's configuration.
type About struct {
	PublicKey       string   `json:"public_key"` // the CA's, as TrustedUserCAKeys of sshd has it
	Minutes         int      `json:"minutes"`    // the most that a certificate is valid
	SourceAddresses []string `json:"source_addresses"`
}

type answer struct {
	Certificate string   `json:"certificate,omitempty"`
	NotAfter    string   `json:"not_after,omitempty"` // RFC 3339, UTC
	About       *About   `json:"about,omitempty"`
	Error       *failure `json:"error,omitempty"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
	Retry   int    `json:"retry_seconds,omitempty"`
}

// wanted is a request that was checked.
type wanted struct {
	Request
	key   ssh.PublicKey
	nets  []netip.Prefix
	valid time.Duration
}

// addresses returns the certificate's list of networks.
func (w wanted) addresses() string {
	var out []string
	for _, n := range w.nets {
		out = append(out, n.String())
	}
	return strings.Join(out, ",")
}

// line returns a value as one line of JSON.
func line(v any) ([]byte, error) {
	data, err := json.Marshal(v, jsontext.EscapeForHTML(false))
	return append(data, '\n'), err
}

// parseRequest reads one line and checks everything that needs no query.
func parseRequest(data []byte) (w wanted, err error) {
	if err := json.Unmarshal(bytes.TrimSuffix(data, []byte("\n")), &w.Request, json.RejectUnknownMembers(true)); err != nil {
		return w, misfit("the request is not the JSON object that the signer reads: " + fault.Clip(err.Error()))
	}
	if w.About {
		return w, nil
	}
	if msg := checkName(w.User); msg != "" {
		return w, refuse(w.User, msg)
	}
	for field, text := range map[string]string{"run_id": w.RunID, "caller": w.Caller, "gateway": w.Gateway} {
		if len(text) > maxText {
			return w, misfit(fmt.Sprintf("%s of the request has more than %d bytes", field, maxText))
		}
	}
	if w.Minutes < 1 || w.Minutes > maxMinutes {
		return w, misfit(fmt.Sprintf("the request asks for %d minutes; it may be 1 to %d", w.Minutes, maxMinutes))
	}
	w.valid = time.Duration(w.Minutes) * time.Minute
	if n := len(w.SourceAddresses); n < 1 || n > maxAddresses {
		return w, misfit(fmt.Sprintf("the request names %d source addresses; it may be 1 to %d", n, maxAddresses))
	}
	for _, text := range w.SourceAddresses {
		p, err := parseNetwork(text)
		if err != nil {
			return w, misfit(fmt.Sprintf("%q in source_addresses of the request is neither an address nor a network", fault.Clip(text)))
		}
		w.nets = append(w.nets, p)
	}
	w.key, err = parseKey(w.PublicKey)
	return w, err
}

// parseKey reads the public key to certify. Only ed25519 is accepted: the gateway makes no other, and nothing weak is certified.
func parseKey(text string) (ssh.PublicKey, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil || len(options) > 0 || len(rest) > 0:
		return nil, misfit("public_key of the request is not a public key")
	case key.Type() != ssh.KeyAlgoED25519:
		return nil, misfit("public_key of the request is of the type " + key.Type() + "; only " + ssh.KeyAlgoED25519 + " is signed")
	}
	return key, nil
}

// parseNetwork reads an address, or a network such as 192.0.2.0/24.
func parseNetwork(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err == nil && a.Zone() != "" {
			err = fmt.Errorf("%q has a zone", text)
		}
		if err != nil {
			return netip.Prefix{}, err
		}
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, err
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4 network in the form of IPv6", text)
	case p.Masked() != p:
		return p, fmt.Errorf("%q has bits after its mask", text)
	}
	return p, nil
}

// within reports whether every address of p is in one of the networks.
func within(p netip.Prefix, nets []netip.Prefix) bool {
	for _, n := range nets {
		if n.Bits() <= p.Bits() && n.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// checkName returns why a text is no login name that a certificate can be for, "" if it is one.
func checkName(name string) string {
	switch msg := nss.CheckName(name); {
	case msg != "":
		return msg
	case strings.ContainsAny(name, "/ "):
		return "it has a slash or a space"
	}
	return ""
}

func misfit(msg string) *fault.Error {
	return fault.New(fault.Transport, Misfit, msg).WithNext("give gateway and signer the same version, and compare slurm.caller " +
		"in the site file with the signer's configuration")
}

func refuse(user, why string) *fault.Error {
	return fault.New(fault.Policy, Refused, fmt.Sprintf("the signer issues no certificate for user %q: %s", fault.Clip(user), why))
}

func away(msg string, err error) *fault.Error { return fault.Wrap(fault.Transport, Away, msg, err) }
