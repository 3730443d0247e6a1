// Package notify tells those who asked that a run is over. A notice is one such wish: a run, and a place that is told. A place is a URL
// at an origin that the site file lists, which gets a signed POST, or a mail address of a domain that it lists. An attempt to tell it is a
// try. Tries are repeated with growing pauses until one is answered well, or a day has passed.
//
// A POST is what https://www.standardwebhooks.com describes, with the asymmetric signature v1a (Ed25519, RFC 8032):
//
//	webhook-id         the notice's id, the same in every try
//	webhook-timestamp  seconds since the Unix epoch, of the try
//	webhook-signature  v1a,<base64 of the signature of ID.TIMESTAMP.BODY>
//	webhook-key        id of the gateway's key that signed
package notify

import (
	"context"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// Mail is the origin of every mail.
const Mail = "mailto:"

// MaxURL is the longest URL of a place, in bytes.
const MaxURL = 2048

// Notice is the wish of a principal to be told when a run is over.
type Notice struct {
	ID        string
	RunID     string
	URL       string // https://…, http://… or mailto:ADDRESS
	Origin    string // scheme, host and port of the URL, or [Mail]
	By, ByID  string // the principal
	AskedAt   time.Time
	DueAt     *time.Time // when the run was over; nil: it is not
	NextAt    *time.Time // of the next try; nil: there is none
	Tries     int
	Result    string     // of the newest try, in words
	SettledAt *time.Time // delivered or given up
	Delivered bool
}

// Event is what a place is told. It names no file, no host and no user.
type Event struct {
	Type      string    `json:"type"` // run.over
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData is the run as it ended.
type EventData struct {
	NoticeID   string    `json:"notice_id"`
	GatewayID  string    `json:"gateway_id"`
	RunID      string    `json:"run_id"`
	ToolID     string    `json:"tool_id"`
	ProjectID  string    `json:"project_id"`
	State      string    `json:"state"` // succeeded, failed, cancelled
	Reason     string    `json:"reason"`
	Attempt    int       `json:"attempt"`
	SlurmJobID string    `json:"slurm_job_id"`
	FinishedAt time.Time `json:"finished_at"`
}

// Places is what a site allows.
type Places struct {
	Origins []string // https://host, https://host:port, http://host:port
	Domains []string // of mail addresses
}

// Check returns the origin of a URL that the site allows. The fault is Validation for what is no URL of a place, else Policy.
func (p Places) Check(raw string) (origin string, err error) {
	bad := func(rule, msg string) error {
		return fault.Invalid("", fault.Problem{Code: "NOTICE-URL", Field: "url", Rule: rule, Msg: msg})
	}
	u, err := url.Parse(raw)
	if err != nil || len(raw) > MaxURL || strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", bad(fmt.Sprintf("an https, http or mailto URL of at most %d printable ASCII characters", MaxURL), "it is none")
	}
	if u.Scheme == "mailto" {
		a, err := mail.ParseAddress(u.Opaque)
		if err != nil || a.Address != u.Opaque || u.RawQuery != "" || strings.HasPrefix(u.Opaque, "-") {
			return "", bad("mailto: and one mail address, as in mailto:ana@example.org", "it is no mail address")
		}
		_, domain, _ := strings.Cut(a.Address, "@")
		if !slices.ContainsFunc(p.Domains, func(d string) bool { return strings.EqualFold(d, domain) }) {
			return "", p.denied(Mail + "…@" + domain)
		}
		return Mail, nil
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.Opaque != "":
		return "", bad("an https, http or mailto URL", "it is none")
	case u.User != nil:
		return "", bad("a URL without user and password", "it has them")
	case u.Fragment != "":
		return "", bad("a URL without #", "it has one")
	}
	if origin = Origin(u); !slices.Contains(p.Origins, origin) {
		return "", p.denied(origin)
	}
	return origin, nil
}

func (p Places) denied(what string) error {
	rule := "so far: none"
	if list := append(slices.Clone(p.Origins), p.Domains...); len(list) > 0 {
		rule = strings.Join(list, ", ")
	}
	return fault.New(fault.Policy, "notice_denied", "this site sends no notices to "+fault.Clip(what)).
		WithNext("name a place that it allows (" + rule + "), or ask the administrator to add this one")
}

// Origin is scheme, host and port of a URL, as RFC 6454 has them: in lower case, without the scheme's own port.
func Origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if port := u.Port(); port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host
}

// Store keeps the notices.
type Store interface {
	// DueNotices are those whose next try is due, of each origin at most so many, the oldest first.
	DueNotices(ctx context.Context, now time.Time, perOrigin int) ([]Notice, error)
	// NoticeEvent is what is to be said of a notice.
	NoticeEvent(ctx context.Context, n Notice) (EventData, error)
	// SignNotice signs with the gateway's key.
	SignNotice(ctx context.Context, data []byte) (keyID string, signature []byte, err error)
	// NoticeTried records a try. next is that of the next one; nil: the notice is settled.
	NoticeTried(ctx context.Context, id, result string, delivered bool, next *time.Time) error
	// HoldNotices puts off what is due for an origin.
	HoldNotices(ctx context.Context, origin string, now, until time.Time) error
	// NoticesDelivered counts those of an origin since a time.
	NoticesDelivered(ctx context.Context, origin string, since time.Time) (int, error)
}
