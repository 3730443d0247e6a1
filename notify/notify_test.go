package notify

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
)

// Only places that a site allows are accepted.
func TestCheck(t *testing.T) {
	p := Places{Origins: []string{"https://hooks.example.org", "http://127.0.0.1:9000"}, Domains: []string{"example.org"}}
	for url, want := range map[string]string{
		"https://hooks.example.org/x?y=1":                          "https://hooks.example.org",
		"https://HOOKS.example.org:443/":                           "https://hooks.example.org",
		"http://127.0.0.1:9000/x":                                  "http://127.0.0.1:9000",
		"mailto:ana@example.org":                                   Mail,
		"mailto:ana@EXAMPLE.org":                                   Mail,
		"https://hooks.example.org.evil.com/":                      "notice_denied",
		"https://hooks.example.org:8443/":                          "notice_denied",
		"http://hooks.example.org/":                                "notice_denied",
		"http://127.0.0.1/":                                        "notice_denied",
		"mailto:ana@evil.com":                                      "notice_denied",
		"https://ana:pw@hooks.example.org/":                        "NOTICE-URL",
		"https://hooks.example.org/#x":                             "NOTICE-URL",
		"https:hooks.example.org":                                  "NOTICE-URL",
		"//hooks.example.org":                                      "NOTICE-URL",
		"file:///etc/passwd":                                       "NOTICE-URL",
		"mailto:-t@example.org":                                    "NOTICE-URL",
		"mailto:bob%evil.com@example.org":                          "NOTICE-URL",
		"mailto:evil.com!bob@example.org":                          "NOTICE-URL",
		"mailto:|id@example.org":                                   "NOTICE-URL",
		"mailto:@evil.com:bob@example.org":                         "NOTICE-URL",
		"mailto:jo.o'neil+x_y-z@example.org":                       Mail,
		"mailto:a@example.org,b@example.org":                       "NOTICE-URL",
		"mailto:a@example.org?cc=b@example.org":                    "NOTICE-URL",
		"mailto:A <a@example.org>":                                 "NOTICE-URL",
		"https://hooks.example.org/\nX: y":                         "NOTICE-URL",
		"https://hooks.example.org/ü":                              "NOTICE-URL",
		"https://hooks.example.org/" + strings.Repeat("x", MaxURL): "NOTICE-URL",
		"": "NOTICE-URL",
	} {
		got, err := p.Check(url)
		if err != nil {
			if got = fault.CodeOf(err); len(fault.ProblemsOf(err)) > 0 {
				got = fault.ProblemsOf(err)[0].Code
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s (%v)", url, got, want, err)
		}
	}
	if _, err := (Places{}).Check("https://hooks.example.org/"); !fault.Is(err, fault.Policy) {
		t.Error(err)
	}
}

// shelf stores notices as the ledger does.
type shelf struct {
	mu     sync.Mutex
	list   []Notice
	key    ed25519.PrivateKey
	events int
}

func (s *shelf) DueNotices(_ context.Context, now time.Time, perCaller int) (out []Notice, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[turn]int{}
	for _, x := range s.list {
		if of := (turn{x.Origin, x.By, x.ByID}); x.NextAt != nil && !x.NextAt.After(now) && n[of] < perCaller {
			n[of]++
			out = append(out, x)
		}
	}
	return out, nil
}

func (s *shelf) NoticeEvent(_ context.Context, n Notice) (Ended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events++
	if n.BatchID != "" {
		return BatchData{NoticeID: n.ID, BatchID: n.BatchID, Name: "all", ToolID: "t.x", Rows: 3, Counts: map[string]int64{"succeeded": 2,
			"refused": 1}}, nil
	}
	return EventData{NoticeID: n.ID, RunID: n.RunID, ToolID: "t.x", State: "failed", Reason: "tool_failed", Attempt: 2}, nil
}

func (s *shelf) SignNotice(_ context.Context, data []byte) (string, []byte, error) {
	return "k1", ed25519.Sign(s.key, data), nil
}

func (s *shelf) find(id string) *Notice {
	return &s.list[slices.IndexFunc(s.list, func(n Notice) bool { return n.ID == id })]
}

func (s *shelf) NoticeTried(_ context.Context, of Notice, result string, delivered bool, next *time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.find(of.ID)
	if n.SettledAt != nil {
		return errors.New("it is settled")
	}
	n.Tries, n.Result, n.Delivered, n.NextAt = n.Tries+1, result, delivered, next
	if next == nil {
		n.SettledAt = new(time.Time)
	}
	return nil
}

func (s *shelf) HoldPlace(_ context.Context, of Notice, now, until time.Time) error {
	return s.hold(func(n Notice) bool { return n.URL == of.URL }, now, until)
}

func (s *shelf) HoldCaller(_ context.Context, of Notice, now, until time.Time) error {
	return s.hold(func(n Notice) bool { return n.Origin == of.Origin && n.By == of.By && n.ByID == of.ByID }, now, until)
}

func (s *shelf) hold(these func(Notice) bool, now, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range s.list {
		if these(n) && n.NextAt != nil && !n.NextAt.After(now) {
			s.list[i].NextAt = &until
		}
	}
	return nil
}

func (s *shelf) NoticesDelivered(_ context.Context, n Notice, _ time.Time) (caller, all int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.list {
		if x.Delivered && x.Origin == n.Origin {
			if all++; x.By == n.By {
				caller++
			}
		}
	}
	return caller, all, nil
}

// stage is a sender over a shelf, with a fake clock.
type stage struct {
	*Sender
	*shelf
	now time.Time
}

func newStage(t *testing.T, c Config, urls ...string) *stage {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{shelf: &shelf{key: key}, now: time.Unix(1_800_000_000, 0)}
	c.Log, c.Now = slog.New(slog.NewTextHandler(io.Discard, nil)), func() time.Time { return s.now }
	s.Sender = NewSender(s.shelf, c)
	for i, u := range urls {
		origin, err := c.Places.Check(u)
		if err != nil {
			t.Fatal(err)
		}
		at := s.now
		s.list = append(s.list, Notice{ID: "ntc_" + string(rune('a'+i)), RunID: "run_" + string(rune('A'+i)), URL: u, Origin: origin,
			DueAt: &at, NextAt: &at})
	}
	return s
}

func (s *stage) round(t *testing.T) {
	t.Helper()
	s.Round(t.Context())
}

// A place gets a signed POST with the end of the run; after a failure it gets another one later, and another place of
// its origin does not wait for it.
//
// proves MANY-05
func TestPosts(t *testing.T) {
	var mu sync.Mutex
	status, seen := http.StatusInternalServerError, []string{}
	var s *stage
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
		version, text, _ := strings.Cut(r.Header.Get("webhook-signature"), ",")
		signature, err := base64.StdEncoding.DecodeString(text)
		if err != nil || version != "v1a" || r.Header.Get("webhook-key") != "k1" || r.Method != http.MethodPost ||
			!ed25519.Verify(s.key.Public().(ed25519.PublicKey), []byte(id+"."+at+"."+string(body)), signature) {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		var e struct {
			Type string
			Data EventData
		}
		if err := json.Unmarshal(body, &e); err != nil || e.Type != "run.over" || e.Data.NoticeID != id || e.Data.State != "failed" ||
			e.Data.Reason != "tool_failed" {
			t.Errorf("%s: %v", body, err)
		}
		seen = append(seen, id+r.URL.Path)
		w.WriteHeader(status)
		io.WriteString(w, strings.Repeat("x", 1<<20))
	}))
	defer host.Close()
	away := httptest.NewServer(nil)
	away.Close()
	s = newStage(t, Config{Places: Places{Origins: []string{host.URL, away.URL}}}, host.URL+"/1", host.URL+"/2", away.URL+"/3")
	s.round(t)
	if !slices.Equal(seen, []string{"ntc_a/1"}) || s.list[0].Result != "answered with status 500" || s.list[1].Tries != 0 ||
		!strings.Contains(s.list[2].Result, "refused") || !s.list[0].NextAt.Equal(s.now.Add(firstPause)) {
		t.Errorf("%v %+v", seen, s.list)
	}
	mu.Lock()
	status = http.StatusNoContent
	mu.Unlock()
	s.round(t) // only the second place is due
	s.now = s.now.Add(firstPause)
	s.round(t)
	if !slices.Equal(seen, []string{"ntc_a/1", "ntc_b/2", "ntc_a/1"}) || !s.list[0].Delivered || !s.list[1].Delivered ||
		s.list[0].Tries != 2 {
		t.Errorf("%v %+v", seen, s.list)
	}
	for range 60 { // a day of failures, with pauses of at most an hour
		s.now = s.now.Add(LongestPause)
		s.round(t)
	}
	if n := s.list[2]; n.SettledAt == nil || n.Delivered || !strings.HasPrefix(n.Result, "given up: no answer") || n.Tries > 40 {
		t.Errorf("after a day of failures: settled %v, delivered %t, result %q, %d tries; want given up in at most 40", n.SettledAt,
			n.Delivered, n.Result, n.Tries)
	}
}

// A notice that was asked for long after the end is tried for as long as any other.
func TestAskedLate(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close()
	s := newStage(t, Config{Places: Places{Origins: []string{away.URL}}}, away.URL)
	over := s.now.Add(-30 * 24 * time.Hour)
	s.list[0].DueAt, s.list[0].AskedAt = &over, s.now
	if s.round(t); s.list[0].SettledAt != nil || s.list[0].Tries != 1 {
		t.Errorf("first try of a late notice: settled %v, %d tries; want 1 and not settled", s.list[0].SettledAt, s.list[0].Tries)
	}
	for range 60 {
		s.now = s.now.Add(LongestPause)
		s.round(t)
	}
	if s.list[0].SettledAt == nil {
		t.Errorf("a day after a late notice was asked for it is not settled, after %d tries", s.list[0].Tries)
	}
}

// A redirect is a failure and is not followed; 410 ends a notice; a place that the site no longer allows gets none.
func TestEndsOfNotices(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer other.Close()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer host.Close()
	s := newStage(t, Config{Places: Places{Origins: []string{host.URL, other.URL}}}, host.URL+"/gone", host.URL+"/redirect", other.URL)
	s.Sender.Places.Origins = []string{host.URL}
	s.round(t)
	s.now = s.now.Add(LongestPause)
	s.round(t)
	if a, b, c := s.list[0], s.list[1], s.list[2]; a.SettledAt == nil || a.Result != "given up: answered with status 410" ||
		b.SettledAt != nil || b.Result != "answered with status 307" || c.SettledAt == nil || !strings.Contains(c.Result, "no longer allows") {
		t.Errorf("results of 410, a redirect, a forbidden place: %q, %q, %q", a.Result, b.Result, c.Result)
	}
}

// A place that does not answer delays only its caller: neither another caller at its origin nor another origin waits
// for it. After a failure each further pause is twice as long, whichever of its notices is tried.
//
// proves MANY-05
func TestSlowPlaceDelaysItsCallerAlone(t *testing.T) {
	hang, heard := make(chan struct{}), make(chan string, 9)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-hang
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		heard <- r.URL.Path
	})
	one, two := httptest.NewServer(answer), httptest.NewServer(answer)
	defer one.Close()
	defer two.Close()
	s := newStage(t, Config{Places: Places{Origins: []string{one.URL, two.URL}}}, one.URL+"/slow", one.URL+"/slow", one.URL+"/bob",
		two.URL+"/ana", two.URL+"/bob")
	for i, by := range []string{"ana", "ana", "bob", "ana", "bob"} {
		s.list[i].By = by
	}
	s.begin(t.Context())
	got := []string{<-heard, <-heard, <-heard}
	slices.Sort(got)
	if want := []string{"/ana", "/bob", "/bob"}; !slices.Equal(got, want) {
		t.Errorf("told while a place does not answer: %v, want %v", got, want)
	}
	close(hang)
	s.workers.Wait()
	for _, pause := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		for i := range 2 {
			if n := s.list[i]; !n.NextAt.Equal(s.now.Add(pause)) {
				t.Errorf("after %d and %d tries of a place's notices the next one of %s is after %s, want %s", s.list[0].Tries, s.list[1].Tries,
					n.ID, n.NextAt.Sub(s.now), pause)
			}
		}
		s.now = s.now.Add(pause)
		s.round(t)
	}
}

// If an origin has more callers than workers, those with the oldest last turn come next. proves MANY-05
func TestCallersTakeTurns(t *testing.T) {
	var mu sync.Mutex
	told := map[string]int{}
	host := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		told[r.URL.Path]++
	}))
	defer host.Close()
	var urls []string
	for i := range 6 * 2 * perTurn { // two turns of each of six callers
		urls = append(urls, fmt.Sprintf("%s/%d", host.URL, i/(2*perTurn)))
	}
	s := newStage(t, Config{Places: Places{Origins: []string{host.URL}}}, urls...)
	for i := range s.list {
		s.list[i].By, s.list[i].ID = strings.TrimPrefix(s.list[i].URL, host.URL), fmt.Sprint("ntc_", i)
	}
	s.round(t)
	s.round(t)
	want := map[string]int{"/0": 2 * perTurn, "/1": 2 * perTurn, "/2": perTurn, "/3": perTurn, "/4": perTurn, "/5": perTurn}
	if !maps.Equal(told, want) {
		t.Errorf("notices told in two rounds, by caller: %v, want %v", told, want)
	}
}

// One caller's mails do not use up the hourly limit of all. proves MANY-05
func TestMailsOfOneCaller(t *testing.T) {
	s := newStage(t, Config{Places: Places{Domains: []string{"example.org"}}, Sendmail: "/bin/true", From: "gate@example.org",
		MailsPerHour: 4, MailsPerCaller: 2}, "mailto:a@example.org", "mailto:b@example.org", "mailto:c@example.org", "mailto:d@example.org")
	for i, by := range []string{"ana", "ana", "ana", "bob"} {
		s.list[i].By = by
	}
	s.round(t)
	s.round(t)
	for i, want := range []bool{true, true, false, true} {
		if n := s.list[i]; n.Delivered != want {
			t.Errorf("mail %d, of %s, delivered: %v, want %v, with 2 in an hour for each caller", i, n.By, n.Delivered, want)
		}
	}
}

// A mail goes to the site's program, as one message for one address; mails beyond the hourly limit wait.
func TestMails(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "sendmail")
	script := "#!/bin/sh\nfor a; do echo \"$a\"; done >>" + dir + "/args\ncat >>" + dir + "/mails\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newStage(t, Config{Places: Places{Domains: []string{"example.org"}}, Sendmail: program, From: "gate@example.org", MailsPerHour: 1,
		MailsPerCaller: 9},
		"mailto:ana@example.org", "mailto:bob@example.org")
	s.round(t)
	s.round(t)
	args, _ := os.ReadFile(dir + "/args")
	mails, _ := os.ReadFile(dir + "/mails")
	if string(args) != "-i\n-f\ngate@example.org\n--\nana@example.org\n" ||
		!strings.Contains(string(mails), "\r\n\r\nThe run is over: failed.\r\n") ||
		!strings.Contains(string(mails), "To: ana@example.org\r\nSubject: t.x run_A: failed\r\n") {
		t.Errorf("%s\n%s", args, mails)
	}
	if !s.list[0].Delivered || s.list[1].Tries != 0 || !s.list[1].NextAt.After(s.now) {
		t.Errorf("first mail delivered %t; second: %d tries, next %v; want a delivery and a wait", s.list[0].Delivered, s.list[1].Tries,
			s.list[1].NextAt)
	}
	s = newStage(t, Config{Places: Places{Domains: []string{"example.org"}}, Sendmail: dir + "/none", From: "gate@example.org",
		MailsPerHour: 9, MailsPerCaller: 9}, "mailto:ana@example.org")
	if s.round(t); s.list[0].Delivered || s.list[0].Result == "" || s.list[0].NextAt == nil {
		t.Errorf("without sendmail: delivered %t, result %q, next %v; want another try", s.list[0].Delivered, s.list[0].Result,
			s.list[0].NextAt)
	}
}

// A receiver is named by callers: the URL is read from the site's file for each try, and is in no result. It gets the
// event, or a sentence for chats.
//
// proves MANY-05
func TestReceivers(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("webhook-signature") == "" {
			t.Error(err, r.Header)
		}
		id, at, signatures := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), r.Header.Get("webhook-signature")
		key, err := base64.StdEncoding.DecodeString("C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
		mac := hmac.New(sha256.New, key)
		mac.Write(Signed(id, at, body))
		if want := " v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); err != nil ||
			strings.HasSuffix(signatures, want) != strings.Contains(string(body), "run.over") {
			t.Errorf("%s, want %s", signatures, want)
		}
		seen = append(seen, r.URL.Path+" "+string(body))
	}))
	defer host.Close()
	file := filepath.Join(t.TempDir(), "hook")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.WriteFile(shared, []byte("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Places{Receivers: map[string]Receiver{"lab-slack": {File: file, Text: true}, "lims": {File: file, Secret: shared}}}
	if _, err := p.Check("receiver:other"); fault.CodeOf(err) != "notice_denied" || !strings.Contains(fault.Prose(err), "lab-slack") {
		t.Error(err)
	}
	s := newStage(t, Config{Places: p}, "receiver:lab-slack", "receiver:lims")
	s.list[0].BatchID, s.list[0].RunID = "batch_x", ""
	for text, mode := range map[string]os.FileMode{"ftp://x/secret": 0o600, host.URL + "/secret": 0o604, "a secret": 0o600, "": 0o600} {
		write(text, mode)
		s.round(t)
		if r := s.list[0].Result; !strings.HasPrefix(r, "the site's receiver cannot be used: its file") || strings.Contains(r, "secret") ||
			s.list[0].Delivered {
			t.Errorf("%q: %+v", text, s.list[0])
		}
		s.now = s.now.Add(LongestPause)
	}
	write(host.URL+"/secret/T0\n", 0o640)
	s.round(t)
	slices.Sort(seen)
	if len(seen) != 2 || seen[0] != `/secret/T0 {"text":"batch all of t.x is over: 2 succeeded, 1 refused"}` ||
		!strings.HasPrefix(seen[1], `/secret/T0 {"type":"run.over","timestamp":`) {
		t.Errorf("%q", seen)
	}
	for _, n := range s.list {
		if !n.Delivered || strings.Contains(n.Result, "secret") {
			t.Errorf("the notice to %s: delivered %t, result %q; want a delivery without the secret", n.URL, n.Delivered, n.Result)
		}
	}
	write("http://127.0.0.1:1/secret", 0o600)
	s = newStage(t, Config{Places: p}, "receiver:lims")
	if s.round(t); s.list[0].Delivered || s.list[0].Tries != 1 || strings.Contains(s.list[0].Result, "secret") {
		t.Errorf("a receiver that does not answer: delivered %t, %d tries, result %q; want 1 failure without the secret",
			s.list[0].Delivered, s.list[0].Tries, s.list[0].Result)
	}
}
