// Package notify sends a notice to those who asked for it when a run or a batch has ended. A notice is one such
// request: a run or batch, and a place to notify. A place is a URL at an origin that the site file lists, which gets
// a signed POST, a mail address of a listed domain, or a named receiver of the site file. An attempt to notify it is
// a try. Tries are repeated with growing pauses until one succeeds, or a day has passed.
//
// A POST has the form of https://www.standardwebhooks.com, with the asymmetric signature v1a (Ed25519, RFC 8032):
//
//	webhook-id         the notice's id, the same in every try
//	webhook-timestamp  seconds since the Unix epoch, of the try
//	webhook-signature  v1a,<base64 of the signature of ID.TIMESTAMP.BODY>; to a receiver that shares a secret also v1,<of an HMAC-SHA256>
//	webhook-key        id of the gateway's key that signed
package notify

import (
	"context"
	"fmt"
	"maps"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// Mail is the origin of every mail.
const Mail = "mailto:"

// MaxURL is the longest URL of a place, in bytes.
const MaxURL = 2048

// LongestPause is the longest time between two tries of a notice. A later next try means that the last try happened
// while the clock was ahead.
const LongestPause = time.Hour

// Notice is a principal's request to be notified when a run, or a batch, has ended.
type Notice struct {
	ID        string
	RunID     string // empty: of a batch
	WaitedAs  string // the id under which the run waited for its inputs; empty: it did not
	BatchID   string // empty: of a run
	URL       string // https://…, http://…, mailto:ADDRESS or receiver:NAME
	Origin    string // scheme, host and port of the URL, [Mail], or receiver:NAME
	By, ByID  string // the principal
	AskedAt   time.Time
	DueAt     *time.Time       // end of the run or batch; nil: it has not ended
	Counts    map[string]int64 // of a batch that has ended: its rows by state
	NextAt    *time.Time       // time of the next try; nil: none
	Tries     int
	Result    string     // of the latest try, as text
	SettledAt *time.Time // delivered or given up
	Delivered bool
}

// Places lists the places that a site allows.
type Places struct {
	Origins   []string            // https://host, https://host:port, http://host:port
	Domains   []string            // of mail addresses
	Receivers map[string]Receiver // by name
}

// plainAddress matches an address that reaches only its own domain: mail programs read % and ! before the @ as a
// route to another host, | as a program and a leading - as an option.
var plainAddress = regexp.MustCompile(`^[A-Za-z0-9._+='][A-Za-z0-9._+='-]*@[A-Za-z0-9.-]+$`)

// Check returns the origin of a URL that the site allows. The fault is Validation for a text that is not the URL of a
// place, else Policy.
func (p Places) Check(raw string) (origin string, err error) {
	bad := func(rule, msg string) error {
		return fault.Invalid("", fault.Problem{Code: "NOTICE-URL", Field: "url", Rule: rule, Msg: msg})
	}
	u, err := url.Parse(raw)
	if err != nil || len(raw) > MaxURL || strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", bad(fmt.Sprintf("an https, http or mailto URL of at most %d printable ASCII characters", MaxURL),
			"the text is not such a URL")
	}
	if name, ok := strings.CutPrefix(raw, ReceiverPrefix); ok {
		if _, known := p.Receivers[name]; !known {
			return "", p.denied(raw)
		}
		return raw, nil
	}
	if u.Scheme == "mailto" {
		a, err := mail.ParseAddress(u.Opaque)
		if err != nil || a.Address != u.Opaque || u.RawQuery != "" || !plainAddress.MatchString(u.Opaque) {
			return "", bad("mailto: and one mail address, as in mailto:ana@example.org, of letters, digits and . _ + - = ' before the @",
				"what follows mailto: is not such a mail address")
		}
		_, domain, _ := strings.Cut(a.Address, "@")
		if !slices.ContainsFunc(p.Domains, func(d string) bool { return strings.EqualFold(d, domain) }) {
			return "", p.denied(Mail + "…@" + domain)
		}
		return Mail, nil
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.Opaque != "":
		return "", bad("an https, http or mailto URL", "the URL is of another kind")
	case u.User != nil:
		return "", bad("a URL without user and password", "the URL has a user or a password")
	case u.Fragment != "":
		return "", bad("a URL without #", "the URL has a #")
	}
	if origin = Origin(u); !slices.Contains(p.Origins, origin) {
		return "", p.denied(origin)
	}
	return origin, nil
}

func (p Places) denied(what string) error {
	rule := "so far: none"
	list := append(slices.Clone(p.Origins), p.Domains...)
	for _, name := range slices.Sorted(maps.Keys(p.Receivers)) {
		list = append(list, ReceiverPrefix+name)
	}
	if len(list) > 0 {
		rule = strings.Join(list, ", ")
	}
	return fault.New(fault.Policy, "notice_denied", "this site sends no notices to "+fault.Clip(what)).
		WithNext("name a place that it allows (" + rule + "), or ask the administrator to add this one")
}

// Origin returns scheme, host and port of a URL in the form of RFC 6454: in lower case, without the scheme's default
// port.
func Origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if port := u.Port(); port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host
}

// Store stores the notices.
type Store interface {
	// DueNotices returns notices whose next try is due, or later than [LongestPause]: at most perCaller of each
	// caller at an origin, oldest first.
	DueNotices(ctx context.Context, now time.Time, perCaller int) ([]Notice, error)
	// NoticeEvent returns the event of a notice; nil: it was settled since it was read, or its run or batch is open
	// again.
	NoticeEvent(ctx context.Context, n Notice) (Ended, error)
	// SignNotice signs with the gateway's key.
	SignNotice(ctx context.Context, data []byte) (keyID string, signature []byte, err error)
	// NoticeTried records a try to report the end at n.DueAt. next is the time of the next try; nil: the notice is
	// settled. It does not change a notice that was settled since, or that is due for another end.
	NoticeTried(ctx context.Context, n Notice, result string, delivered bool, next *time.Time) error
	// HoldPlace defers the due notices to n's URL.
	HoldPlace(ctx context.Context, n Notice, now, until time.Time) error
	// HoldCaller defers the due notices of n's caller at n's origin.
	HoldCaller(ctx context.Context, n Notice, now, until time.Time) error
	// NoticesDelivered counts the notices delivered at n's origin since a time, of n's caller and of all.
	NoticesDelivered(ctx context.Context, n Notice, since time.Time) (caller, all int, err error)
}
