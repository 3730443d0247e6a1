package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/worker"
)

const key = "fc-0123456789abcdef/+="

// lines is a log that tests read while it is written.
type lines struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed by the next write
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wait waits for a text, and returns what follows it so far.
func (l *lines) wait(text string) string {
	for {
		l.mu.Lock()
		_, after, ok := strings.Cut(l.b.String(), text)
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		if ok {
			return after
		}
		<-more
	}
}

// rig is a worker, the upstream behind it, and the gateway's client.
type rig struct {
	t      *testing.T
	client *worker.Client
	url    string
	log    *lines
}

// start starts both servers; api is the upstream.
func start(t *testing.T, api http.HandlerFunc, env map[string]string) *rig {
	t.Helper()
	up := httptest.NewServer(api)
	t.Cleanup(up.Close)
	e := map[string]string{"FIRECRAWL_API_KEY": key, "FIRECRAWL_BASE_URL": up.URL + "/"}
	for k, v := range env {
		e[k] = v
	}
	r := &rig{t: t, log: &lines{}}
	s, listen, err := configured(func(name string) string { return e[name] }, slog.New(slog.NewJSONHandler(r.log, nil)))
	if err != nil || listen != "127.0.0.1:8080" {
		t.Fatal(listen, err)
	}
	srv := httptest.NewServer(s.routes())
	t.Cleanup(srv.Close)
	r.url = srv.URL
	r.client = worker.New(worker.Config{URLs: []string{srv.URL + "/run", srv.URL + "/scrape/run", srv.URL + "/crawl/run"}})
	return r
}

func (r *rig) call(path, input string) (string, error) {
	return r.until(path, input, time.Now().Add(time.Minute))
}

func (r *rig) until(path, input string, deadline time.Time) (string, error) {
	a, err := r.client.Call(context.Background(), r.url+path, nil, worker.Request{Input: json.RawMessage(input),
		Meta: worker.Meta{TraceID: "t-1", ToolRunID: "run_1", DomainID: "web", DeadlineMS: deadline.UnixMilli()}})
	return string(a.Output), err
}

// The document's two tools, through the gateway's own client.
//
// proves AX-10 AX-05
func TestScrapeAndCrawl(t *testing.T) {
	var asked []string
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil || q.Method != "POST" || q.Header.Get("Authorization") != "Bearer "+key {
			t.Error(q.Method, q.Header, err)
		}
		asked = append(asked, q.URL.Path+" "+string(body))
		if q.URL.Path == "/v1/scrape" {
			io.WriteString(w, `{"success":true,"data":{"markdown":"# One","html":"<h1>One</h1>",
				"metadata":{"title":"One","sourceURL":"https://a.example/1"}}}`)
			return
		}
		io.WriteString(w, `{"data":[{"url":"https://a.example/","title":"A","content":"a"},
			{"url":"https://a.example/b","title":"B","markdown":"b"}]}`)
	}, nil)
	// items, number of pages → output
	out := func(items string, pages int) string {
		return fmt.Sprintf(`{"items":[%s],"source_url":"https://a.example","stats":{"pages":%d}}`, items, pages)
	}
	for _, c := range []struct{ path, input, output string }{
		{"/run", `{"url":"https://a.example"}`, out(`{"content":"# One","format":"markdown","title":"One","url":"https://a.example/1"}`, 1)},
		{"/scrape/run", `{"url":"https://a.example","formats":["html","text"]}`,
			out(`{"content":"<h1>One</h1>","format":"html","title":"One","url":"https://a.example/1"}`, 1)},
		{"/crawl/run", `{"url":"https://a.example","max_pages":2}`, out(`{"content":"a","format":"markdown","title":"A","url":"https://a.example/"},`+
			`{"content":"b","format":"markdown","title":"B","url":"https://a.example/b"}`, 2)},
	} {
		if out, err := r.call(c.path, c.input); err != nil || out != c.output {
			t.Errorf("%s: %s %v", c.path, out, err)
		}
	}
	want := `/v1/scrape {"url":"https://a.example","formats":["markdown"]}` + "\n" +
		`/v1/scrape {"url":"https://a.example","formats":["html","text"]}` + "\n" + `/v1/crawl {"url":"https://a.example","formats":["markdown"],"maxPages":2}`
	if got := strings.Join(asked, "\n"); got != want {
		t.Errorf("the upstream was asked\n%s\nwant\n%s", got, want)
	}
	if n := strings.Count(r.log.String(), `"tool_run_id":"run_1"`); n != 3 {
		t.Errorf("%d calls in the log:\n%s", n, r.log)
	}
}

// proves AX-06 AX-10
func TestErrorsOfTheUpstream(t *testing.T) {
	for status, retryable := range map[int]bool{401: true, 400: false, 402: false, 403: false, 404: false, 429: false,
		500: true, 503: true, 302: false, 204: false} {
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}, nil)
		_, err := r.call("/run", `{"url":"https://a.example"}`)
		code, again, details := worker.Code(err)
		if code != "UPSTREAM_ERROR" || again != retryable || string(details) != fmt.Sprintf(`{"status":%d}`, status) {
			t.Errorf("%d: %s %v %s", status, code, again, details)
		}
	}
	for name, c := range map[string]struct {
		api       http.HandlerFunc
		retryable bool
	}{
		"no JSON":  {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, true},
		"no data":  {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"success":true}`) }, true},
		"too long": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat(" ", upstreamBytes+1)) }, false},
		"cut":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
	} {
		_, err := start(t, c.api, nil).call("/run", `{"url":"https://a.example"}`)
		if code, again, _ := worker.Code(err); code != "UPSTREAM_ERROR" || again != c.retryable {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := start(t, nil, map[string]string{"FIRECRAWL_BASE_URL": "http://" + closedPort(t)}).call("/run", `{"url":"https://a.example"}`)
	if code, again, _ := worker.Code(err); code != "UPSTREAM_ERROR" || !again {
		t.Error(err)
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The deadline ends the upstream's work, too, and the worker reports it in time for the gateway to read it.
func TestDeadline(t *testing.T) {
	ended := make(chan struct{}, 10)
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body) // net/http watches the connection from here on
		<-q.Context().Done()
		ended <- struct{}{}
	}, nil)
	_, err := r.until("/run", `{"url":"https://a.example"}`, time.Now().Add(2*time.Second))
	for within := 4 * time.Second; fault.CodeOf(err) != worker.TimedOut && within < time.Minute; within *= 2 { // a busy machine
		_, err = r.until("/run", `{"url":"https://a.example"}`, time.Now().Add(within))
	}
	if code, again, _ := worker.Code(err); fault.CodeOf(err) != worker.TimedOut || code != "TIMEOUT" || !again {
		t.Error(err)
	}
	<-ended
	past := fmt.Sprintf(`{"meta":{"trace_id":"t","tool_run_id":"r","domain_id":"d","deadline_ms":%d},"input":{"url":"https://a.example"}}`,
		time.Now().UnixMilli())
	if body := r.post("/run", "application/json", past); !strings.Contains(body, `"code":"TIMEOUT"`) {
		t.Error(body)
	}
	seen := r.client.Probe(context.Background(), r.url+"/run", nil, "probe")
	if fault.CodeOf(seen.Answer) != worker.TimedOut || seen.Clock.IsZero() {
		t.Error("the probe finds a fault:", seen)
	}
}

// post sends what the gateway would not.
func (r *rig) post(path, media, body string) string {
	r.t.Helper()
	resp, err := http.Post(r.url+path, media, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		r.t.Errorf("status %d, %v: %s", resp.StatusCode, err, data)
	}
	return string(data)
}

// What is wrong with a call costs no request of the upstream.
func TestRefusals(t *testing.T) {
	r := start(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }, nil)
	for _, in := range []string{`{}`, `{"url":""}`, `{"url":"ftp://a.example"}`, `{"url":"https://u:p@a.example"}`, `{"url":"/etc/passwd"}`,
		`{"url":"https://a.example/` + strings.Repeat("x", urlBytes) + `"}`, `{"url":"https://a.example","mode":"delete"}`,
		`{"url":"https://a.example","max_pages":1}`, `{"url":"https://a.example","mode":"crawl","max_pages":0}`,
		`{"url":"https://a.example","mode":"crawl","max_pages":101}`, `{"url":"https://a.example","formats":["pdf"]}`,
		`{"url":"https://a.example","formats":["html","html"]}`, `{"url":"https://a.example","headers":{}}`, `{"url":1}`} {
		_, err := r.call("/run", in)
		if code, again, _ := worker.Code(err); code != "VALIDATION_ERROR" || again {
			t.Errorf("%.80s: %v", in, err)
		}
	}
	if _, err := r.call("/scrape/run", `{"url":"https://a.example","mode":"crawl"}`); fault.CodeOf(err) != worker.Validation {
		t.Error(err)
	}
	good := `{"meta":{"trace_id":"t","tool_run_id":"r","domain_id":"d","deadline_ms":9999999999999},"input":{"url":"https://a.example"}}`
	for name, body := range map[string]string{
		"another type": r.post("/run", "text/plain", good), "no JSON": r.post("/run", "application/json", "{"),
		"no meta":  r.post("/run", "application/json", `{"input":{"url":"https://a.example"}}`),
		"null":     r.post("/run", "application/json", "null"),
		"no input": r.post("/run", "application/json", strings.Replace(good, "input", "inputs", 1)),
		"too long": r.post("/run", "application/json", strings.Repeat(" ", requestBytes)+good),
	} {
		if !strings.Contains(body, `"ok":false`) || !strings.Contains(body, `"code":"VALIDATION_ERROR"`) ||
			!strings.Contains(body, `"duration_ms":`) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// An upstream that echoes the key, in a page or in an error, does not bring it out of the worker.
//
// proves AX-10
func TestTheKeyStaysInTheWorker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(key)
	status := 200
	var bearer string
	r := start(t, func(w http.ResponseWriter, q *http.Request) {
		bearer = q.Header.Get("Authorization")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"data":{"markdown":"%s and %s","title":"%s"},"error":"%[1]s"}`, bearer, key, key)
	}, map[string]string{"FIRECRAWL_API_KEY": "", "FIRECRAWL_API_KEY_FILE": file})
	input := `{"url":"https://a.example/?q=` + key + `"}`
	out, err := r.call("/run", input)
	if err != nil || !strings.Contains(out, "Bearer [key] and [key]") || strings.Contains(out, key) {
		t.Error(out, err)
	}
	write("fc-another-key")
	out, err = r.call("/run", input)
	if err != nil || bearer != "Bearer fc-another-key" || strings.Contains(out, "another") || strings.Contains(out, key) {
		t.Error(bearer, out, err)
	}
	status = 401
	if _, err = r.call("/run", input); err == nil || strings.Contains(err.Error(), "another") || strings.Contains(err.Error(), key) {
		t.Error(err)
	}
	write("short")
	if _, err = r.call("/run", input); fault.CodeOf(err) != worker.Failed {
		t.Error(err)
	}
	resp, err := http.Get(r.url + "/healthz")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp, err)
	}
	resp.Body.Close()
	if log := r.log.String(); strings.Contains(log, key) || strings.Contains(log, "another") || strings.Contains(log, "a.example") {
		t.Error(log)
	}
}

// A worker that could only fail does not start, and repeats no key in its message.
func TestConfiguration(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no key":           {},
		"two keys":         {"FIRECRAWL_API_KEY": key, "FIRECRAWL_API_KEY_FILE": "/dev/null"},
		"a short key":      {"FIRECRAWL_API_KEY": "secret"},
		"a key of words":   {"FIRECRAWL_API_KEY": "the secret words"},
		"no file":          {"FIRECRAWL_API_KEY_FILE": "/nonexistent/secret"},
		"an empty file":    {"FIRECRAWL_API_KEY_FILE": "/dev/null"},
		"no address":       {"FIRECRAWL_API_KEY": key, "FIRECRAWL_BASE_URL": "api.firecrawl.dev"},
		"a password in it": {"FIRECRAWL_API_KEY": key, "FIRECRAWL_BASE_URL": "https://u:secret@api.firecrawl.dev"},
	} {
		_, _, err := configured(func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Calls in progress are answered before the worker stops.
func TestStop(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-release
		io.WriteString(w, `{"data":{"markdown":"late"}}`)
	}))
	defer up.Close()
	env := map[string]string{"FIRECRAWL_API_KEY": key, "FIRECRAWL_BASE_URL": up.URL, "WEBCRAWL_LISTEN": "127.0.0.1:0"}
	s, listen, err := configured(func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, s, listen, slog.New(slog.NewTextHandler(log, nil))) }()
	listen, _, _ = strings.Cut(log.wait("address="), " ")
	r := &rig{t: t, url: "http://" + listen, client: worker.New(worker.Config{URLs: []string{"http://" + listen + "/run"}})}
	answered := make(chan error, 1)
	go func() {
		_, err := r.call("/run", `{"url":"https://a.example"}`)
		answered <- err
	}()
	<-asked
	stop()
	log.wait("stopping")
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// No bytes of a caller make the worker answer anything but an envelope.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"meta":{"trace_id":"t","tool_run_id":"r","domain_id":"d","deadline_ms":9999999999999},
		"input":{"url":"https://a.example"}}`), "")
	f.Add([]byte(`{"input":{"url":"https://a.example","formats":["html"],"mode":"crawl","max_pages":3}}`), "crawl")
	f.Fuzz(func(t *testing.T, body []byte, mode string) {
		up, err := newUpstream("http://127.0.0.1:1", key, "")
		if err != nil {
			t.Fatal(err)
		}
		s := &server{up: up, log: slog.New(slog.DiscardHandler), now: func() time.Time { return time.UnixMilli(1) }}
		up.client.Transport = nothing{}
		q := httptest.NewRequest("POST", "/run", bytes.NewReader(body))
		q.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.run(w, q, mode)
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || a.OK || a.Error == nil || w.Code != 200 {
			t.Fatalf("the answer has status %d and the body %s (%v), want an error of the contract", w.Code, w.Body, err)
		}
	})
}

// nothing is an upstream that is away.
type nothing struct{}

func (nothing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
