// Package notify tells those who asked that a run or a batch is over. A notice is one such wish: a run or batch, and a place that is told.
// A place is a URL at an origin that the site file lists, which gets a signed POST, a mail address of a domain that it lists, or a receiver
// that it names. An attempt to tell it is a try. Tries are repeated with growing pauses until one is answered well, or a day has passed.
//
// A POST is what https://www.standardwebhooks.com describes, with the asymmetric signature v1a (Ed25519, RFC 8032):
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

// LongestPause is the longest time between two tries of a notice. One whose next try is later was tried while the clock was ahead.
const LongestPause = time.Hour

// Notice is the wish of a principal to be told when a run, or a batch, is over.
type Notice struct {
	ID        string
	RunID     string // empty: of a batch
	WaitedAs  string // the run's other name, under which it was asked for while it waited for its inputs; empty: none
	BatchID   string // empty: of a run
	URL       string // https://…, http://…, mailto:ADDRESS or receiver:NAME
	Origin    string // scheme, host and port of the URL, [Mail], or receiver:NAME
	By, ByID  string // the principal
	AskedAt   time.Time
	DueAt     *time.Time       // when it was over; nil: it is not
	Counts    map[string]int64 // of a batch that was over: its rows by state
	NextAt    *time.Time       // of the next try; nil: there is none
	Tries     int
	Result    string     // of the newest try, in words
	SettledAt *time.Time // delivered or given up
	Delivered bool
}

// Places is what a site allows.
type Places struct {
	Origins   []string            // https://host, https://host:port, http://host:port
	Domains   []string            // of mail addresses
	Receivers map[string]Receiver // by name
}

// plainAddress is an address that goes to its own domain and nowhere else: mail programs read % and ! before the @ as a way to another
// host, | as a program and a leading - as an option.
var plainAddress = regexp.MustCompile(`^[A-Za-z0-9._+='][A-Za-z0-9._+='-]*@[A-Za-z0-9.-]+$`)

// Check returns the origin of a URL that the site allows. The fault is Validation for what is no URL of a place, else Policy.
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
	// DueNotices are those whose next try is due, or later than [LongestPause], of each caller at an origin at most so many, the oldest first.
	DueNotices(ctx context.Context, now time.Time, perCaller int) ([]Notice, error)
	// NoticeEvent returns what a notice tells; nil: it was settled since it was read, or what it tells of is open again.
	NoticeEvent(ctx context.Context, n Notice) (Ended, error)
	// SignNotice signs with the gateway's key.
	SignNotice(ctx context.Context, data []byte) (keyID string, signature []byte, err error)
	// NoticeTried records a try to tell of the end at n.DueAt. next is that of the next one; nil: the notice is settled. A notice that was
	// settled since, or is due for another end, is left as it is.
	NoticeTried(ctx context.Context, n Notice, result string, delivered bool, next *time.Time) error
	// HoldPlace puts off what is due for the notice's URL.
	HoldPlace(ctx context.Context, n Notice, now, until time.Time) error
	// HoldCaller puts off what is due for the notice's caller at its origin.
	HoldCaller(ctx context.Context, n Notice, now, until time.Time) error
	// NoticesDelivered counts those delivered at the notice's origin since a time, of its caller and of all.
	NoticesDelivered(ctx context.Context, n Notice, since time.Time) (caller, all int, err error)
}
