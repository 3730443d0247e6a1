package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Bounds of tries.
const (
	every       = time.Second      // between two looks at the store
	tryTime     = 10 * time.Second // for a place to answer
	firstPause  = 5 * time.Second  // after a failed try; each further pause is twice as long
	longest     = time.Hour
	patience    = 24 * time.Hour // from the end; then a notice is given up
	answerBytes = 4 << 10        // that are read of an answer
	atOnce      = 8              // origins that are told at the same time
	perRound    = 32             // notices of an origin, one after the other
	headerBytes = 16 << 10
)

// Config is what a sender needs. The zero times are this package's own.
type Config struct {
	Places       Places
	MailsPerHour int            // then mails wait
	Sendmail     string         // absolute path of the program that takes mails on its standard input
	From         string         // address of mails
	Roots        *x509.CertPool // authorities of https; nil: the host's
	FirstPause   time.Duration
	Patience     time.Duration
	Log          *slog.Logger
	Now          func() time.Time
}

// Sender tells places that runs and batches are over.
type Sender struct {
	Config
	store  Store
	client *http.Client
}

// NewSender returns a sender over a store.
func NewSender(store Store, c Config) *Sender {
	c.FirstPause, c.Patience = cmp.Or(c.FirstPause, firstPause), cmp.Or(c.Patience, patience)
	return &Sender{Config: c, store: store, client: &http.Client{
		Timeout:       tryTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: headerBytes, // and no proxy
			DialContext:     (&net.Dialer{Timeout: tryTime}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}},
	}}
}

// Run tells what is due until ctx ends. What a gateway was telling when it ended is told again by the next one: a place may hear of an end
// twice, with the same id.
func (s *Sender) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.Round(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("notices cannot be sent", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Round tells every origin what is due for it, some of it where that is much. The first failure ends an origin's round.
func (s *Sender) Round(ctx context.Context) error {
	due, err := s.store.DueNotices(ctx, s.Now(), perRound)
	if err != nil {
		return err
	}
	of := map[string][]Notice{}
	for _, n := range due {
		of[n.Origin] = append(of[n.Origin], n)
	}
	errs := make(chan error, len(of))
	slots := make(chan struct{}, atOnce)
	for _, list := range of {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			for _, n := range list {
				if goOn, err := s.try(ctx, n); err != nil || !goOn {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range of {
		err = errors.Join(err, <-errs)
	}
	return err
}

// try tells one place; goOn: another notice of the same origin may be tried. A failure of the place is a result; an error is the store's.
func (s *Sender) try(ctx context.Context, n Notice) (goOn bool, err error) {
	now := s.Now()
	if _, err := s.Places.Check(n.URL); err != nil { // the site file has changed since
		return true, s.store.NoticeTried(ctx, n.ID, "given up: the site no longer allows this place", false, nil)
	}
	if n.Origin == Mail {
		sent, err := s.store.NoticesDelivered(ctx, Mail, now.Add(-time.Hour))
		if err != nil {
			return false, err
		}
		if sent >= s.MailsPerHour {
			return false, s.store.HoldNotices(ctx, Mail, now, now.Add(time.Minute))
		}
	}
	data, err := s.store.NoticeEvent(ctx, n)
	if err != nil {
		return false, err
	}
	var result string
	var good, final bool
	if n.Origin == Mail {
		result, good = s.mail(ctx, n, data)
	} else if result, good, final, err = s.post(ctx, n, data); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, nil // the gateway ends; the next one tries again
	}
	since := *n.DueAt
	if n.AskedAt.After(since) { // it was over before somebody asked
		since = n.AskedAt
	}
	if good || final || now.Sub(since) >= s.Patience {
		if !good {
			result = "given up: " + result
		}
		return good, s.store.NoticeTried(ctx, n.ID, result, good, nil)
	}
	next := s.Now().Add(min(s.FirstPause<<min(n.Tries, 12), longest))
	if err := s.store.NoticeTried(ctx, n.ID, result, false, &next); err != nil {
		return false, err
	}
	return false, s.store.HoldNotices(ctx, n.Origin, s.Now(), next) // what is down for one is down for all
}

// post sends a notice. good: it was answered with 2xx; final: the place wants to hear no more of it.
func (s *Sender) post(ctx context.Context, n Notice, d Ended) (result string, good, final bool, err error) {
	now, to, r := s.Now(), n.URL, Receiver{}
	var said any = Event{Type: d.eventType(), Timestamp: now.UTC(), Data: d}
	if name, ok := strings.CutPrefix(n.URL, ReceiverPrefix); ok {
		r = s.Places.Receivers[name]
		if to, err = r.address(); err != nil {
			return "the site's receiver cannot be used: " + err.Error(), false, false, nil
		}
		if r.Text {
			said = map[string]string{"text": d.sentence()}
		}
	}
	body, err := json.Marshal(said)
	if err != nil {
		return "", false, false, err
	}
	at := strconv.FormatInt(now.Unix(), 10)
	signed := Signed(n.ID, at, body)
	key, signature, err := s.store.SignNotice(ctx, signed)
	if err != nil {
		return "", false, false, err
	}
	shared, err := r.shared(signed)
	if err != nil {
		return "the site's receiver cannot be used: " + err.Error(), false, false, nil
	}
	ctx, stop := context.WithTimeout(ctx, tryTime)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return "", false, false, err
	}
	for name, v := range map[string]string{"Content-Type": "application/json", "User-Agent": "slurmgate", "Accept-Encoding": "identity",
		"webhook-id": n.ID, "webhook-timestamp": at, "webhook-key": key,
		"webhook-signature": "v1a," + base64.StdEncoding.EncodeToString(signature) + shared} {
		req.Header.Set(name, v)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "no answer: " + why(err), false, false, nil
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, answerBytes))
	return fmt.Sprintf("answered with status %d", resp.StatusCode), resp.StatusCode/100 == 2, resp.StatusCode == http.StatusGone, nil
}

// Signed is what the signature of a notice covers.
func Signed(id, timestamp string, body []byte) []byte {
	return append([]byte(id+"."+timestamp+"."), body...)
}

// why is an error of net/http without the URL, which is known, and without addresses.
func why(err error) string {
	var refused *net.OpError
	var timeout interface{ Timeout() bool }
	var dns *net.DNSError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("none within %v", tryTime)
	case errors.As(err, &dns):
		return "its name is not found"
	case errors.As(err, &refused):
		return refused.Err.Error()
	}
	text := err.Error()
	if i := strings.LastIndex(text, `": `); i >= 0 { // Post "URL": …
		text = text[i+3:]
	}
	return text
}

func (s *Sender) mail(ctx context.Context, n Notice, d Ended) (result string, good bool) {
	to := strings.TrimPrefix(n.URL, Mail)
	var text bytes.Buffer
	fmt.Fprintf(&text, "From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s.%d@%s>\r\nAuto-Submitted: auto-generated\r\n"+
		"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n", s.From, to, d.subject(),
		s.Now().Format(time.RFC1123Z), n.ID, n.Tries, domainOf(s.From))
	for _, l := range d.details() {
		switch {
		case l[0] == "":
			fmt.Fprintf(&text, "%s\r\n\r\n", l[1])
		case l[1] != "":
			fmt.Fprintf(&text, "%-10s %s\r\n", l[0], l[1])
		}
	}
	ctx, stop := context.WithTimeout(ctx, 3*tryTime)
	defer stop()
	cmd := exec.CommandContext(ctx, s.Sendmail, "-i", "-f", s.From, "--", to)
	cmd.Env, cmd.Stdin, cmd.WaitDelay = []string{"PATH=/usr/sbin:/usr/bin:/bin"}, bytes.NewReader(text.Bytes()), time.Second
	if err := cmd.Run(); err != nil {
		return "the mail program failed: " + err.Error(), false
	}
	return "handed to the mail program", true
}

func domainOf(address string) string {
	_, domain, _ := strings.Cut(address, "@")
	return domain
}
