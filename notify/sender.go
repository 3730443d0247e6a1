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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of tries.
const (
	every       = time.Second      // between two reads of the store
	tryTime     = 10 * time.Second // limit for a place's answer
	firstPause  = 5 * time.Second  // after a failed try; each later pause is twice as long
	patience    = 24 * time.Hour   // from the end; then a notice is given up
	answerBytes = 4 << 10          // read of an answer
	perOrigin   = 4                // callers whose notices are sent to an origin at the same time
	perTurn     = 32               // notices of a caller at an origin, one after the other
	headerBytes = 16 << 10
)

// Config configures a sender. Zero durations mean this package's defaults.
type Config struct {
	Places         Places
	MailsPerHour   int            // of all callers; then mails wait
	MailsPerCaller int            // of one caller in an hour; then its mails wait
	Sendmail       string         // absolute path of the program that takes mails on its standard input
	From           string         // address of mails
	Roots          *x509.CertPool // authorities of https; nil: the host's
	FirstPause     time.Duration
	Patience       time.Duration
	Log            *slog.Logger
	Now            func() time.Time
}

// Sender notifies places of the ends of runs and batches. Each caller at an origin has a separate worker, which sends
// one notice after the other and ends its turn at the first failure: no caller and no origin waits for another's
// places.
type Sender struct {
	Config
	store  Store
	client *http.Client

	workers sync.WaitGroup
	mu      sync.Mutex
	at      map[string]int  // number of workers, by origin
	busy    map[turn]bool   // turns in progress
	last    map[turn]uint64 // number of the latest turn, counted over all turns
	turns   uint64
	failed  map[string]int // consecutive failures of a place
}

// turn identifies the caller whose notices are sent, and the origin.
type turn struct{ origin, by, byID string }

// NewSender returns a sender over a store.
func NewSender(store Store, c Config) *Sender {
	c.FirstPause, c.Patience = cmp.Or(c.FirstPause, firstPause), cmp.Or(c.Patience, patience)
	return &Sender{Config: c, store: store, at: map[string]int{}, busy: map[turn]bool{}, last: map[turn]uint64{}, failed: map[string]int{},
		client: newClient(c)}
}

func newClient(c Config) *http.Client {
	return &http.Client{
		Timeout:       tryTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: headerBytes, // and no proxy
			DialContext:     (&net.Dialer{Timeout: tryTime}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}},
	}
}

// Run sends due notices until ctx ends. The next gateway repeats the tries that were in progress: a place may get an
// event twice, with the same id.
func (s *Sender) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer s.workers.Wait()
	for {
		s.begin(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Round sends the due notices, and waits for the results.
func (s *Sender) Round(ctx context.Context) {
	s.begin(ctx)
	s.workers.Wait()
}

// begin starts workers for due notices and does not wait for them. Where an origin has more callers than workers,
// those with the oldest last turn begin.
func (s *Sender) begin(ctx context.Context) {
	due, err := s.store.DueNotices(ctx, s.Now(), perTurn)
	if err != nil {
		s.logError(ctx, err)
		return
	}
	of, order := map[turn][]Notice{}, []turn{}
	for _, n := range due {
		t := turn{n.Origin, n.By, n.ByID}
		if of[t] == nil {
			order = append(order, t)
		}
		of[t] = append(of[t], n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(order, func(a, b turn) int { return cmp.Compare(s.last[a], s.last[b]) })
	for _, t := range order {
		most := perOrigin
		if t.origin == Mail { // one program sends all mails, and their number in an hour is limited
			most = 1
		}
		if s.busy[t] || s.at[t.origin] >= most {
			continue
		}
		s.turns++
		s.busy[t], s.last[t] = true, s.turns
		s.at[t.origin]++
		s.workers.Go(func() { s.work(ctx, t, of[t]) })
	}
}

// work executes a turn of a caller at an origin.
func (s *Sender) work(ctx context.Context, t turn, list []Notice) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, t)
		s.at[t.origin]--
	}()
	for _, n := range list {
		if goOn, err := s.try(ctx, n); err != nil || !goOn {
			s.logError(ctx, err)
			return
		}
	}
}

func (s *Sender) logError(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("notices cannot be sent", "err", err)
	}
}

// try notifies one place. goOn reports whether to try another notice of the caller. A failure of the place is a
// result; an error is the store's.
func (s *Sender) try(ctx context.Context, n Notice) (goOn bool, err error) {
	now := s.Now()
	if _, err := s.Places.Check(n.URL); err != nil { // the site file has changed since
		return true, s.store.NoticeTried(ctx, n, "given up: the site no longer allows this place", false, nil)
	}
	if n.Origin == Mail {
		own, all, err := s.store.NoticesDelivered(ctx, n, now.Add(-time.Hour))
		if err != nil {
			return false, err
		}
		if own >= s.MailsPerCaller || all >= s.MailsPerHour {
			return false, s.store.HoldCaller(ctx, n, now, now.Add(time.Minute))
		}
	}
	data, err := s.store.NoticeEvent(ctx, n)
	if err != nil || data == nil {
		return err == nil, err
	}
	var result string
	var good, final bool
	if n.Origin == Mail {
		result, good = s.mail(ctx, n, data)
	} else if result, good, final, err = s.post(ctx, n, data); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, nil // the gateway is stopping; the next one tries again
	}
	since := *n.DueAt
	if n.AskedAt.After(since) { // asked for after the end
		since = n.AskedAt
	}
	settled := good || final || now.Sub(since) >= s.Patience
	failures := s.failures(n.URL, settled)
	if settled {
		if !good {
			result = "given up: " + result
		}
		return good, s.store.NoticeTried(ctx, n, result, good, nil)
	}
	next := s.Now().Add(min(s.FirstPause<<min(failures-1, 12), LongestPause))
	if err := s.store.NoticeTried(ctx, n, result, false, &next); err != nil {
		return false, err
	}
	return false, s.store.HoldPlace(ctx, n, s.Now(), next)
}

// failures counts the consecutive failures of a place since its last settled notice.
func (s *Sender) failures(url string, settled bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if settled {
		delete(s.failed, url)
		return 0
	}
	s.failed[url]++
	return s.failed[url]
}

// post sends a notice. good: the answer was 2xx; final: the place refuses further tries.
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

// Signed returns the bytes that the signature of a notice covers.
func Signed(id, timestamp string, body []byte) []byte {
	return append([]byte(id+"."+timestamp+"."), body...)
}

// why returns the text of an error of net/http without the URL, which is known, and without addresses.
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
