package httpapi

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
)

// relayed is a socket whose first gateway answers "old", and whose requests to /slow end on the test's signal.
type relayed struct {
	*Server
	path   string
	slow   chan struct{} // has a value when a slow request has begun
	finish chan struct{}
	client *http.Client
}

func newRelayed(t *testing.T) *relayed {
	t.Helper()
	r := &relayed{path: filepath.Join(shortFolder(t), "s"), slow: make(chan struct{}), finish: make(chan struct{})}
	old := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			r.slow <- struct{}{}
			select {
			case <-r.finish:
			case <-req.Context().Done():
			}
		}
		if req.URL.Path == "/upload" {
			if _, err := io.ReadFull(req.Body, make([]byte, len("half"))); err != nil {
				return
			}
			r.slow <- struct{}{}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
		}
		io.WriteString(w, "old")
	})
	r.Server = value(Listen(SocketConfig{Path: r.path, Mode: 0o600}, old, func() {}, quiet))(t)
	r.client = &http.Client{Transport: overUnix(r.path)}
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		r.Shutdown(context.Background())
	})
	return r
}

type heard struct {
	status int
	body   string
	again  bool // on a connection that was used before
	err    error
}

func (r *relayed) get(path string) heard {
	var out heard
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		out.again = i.Reused
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway"+path, nil)
	if err != nil {
		return heard{err: err}
	}
	res, err := r.client.Do(req)
	if err != nil {
		return heard{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	out.status, out.body, out.err = res.StatusCode, string(body), err
	return out
}

func (r *relayed) start(path string) <-chan heard {
	c := make(chan heard, 1)
	go func() { c <- r.get(path) }()
	return c
}

// While one gateway makes room for the next, the requests in progress end as they began, new ones wait for the next gateway, and
// connections stay open. proves OPS-01
func TestRequestsWaitForTheNextGateway(t *testing.T) {
	r := newRelayed(t)
	if got := r.get("/"); got.body != "old" {
		t.Fatal(got)
	}
	slow := r.start("/slow")
	<-r.slow
	held := make(chan error, 1)
	r.relay.hold()
	go func() { held <- r.Hold(context.Background()) }()
	waiting := r.start("/")
	select {
	case got := <-waiting:
		t.Fatalf("a request during Hold was answered with %q, %v; want no answer yet", got.body, got.err)
	case err := <-held:
		t.Fatalf("a request is in progress, and Hold returned: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(r.finish)
	if got := <-slow; got.err != nil || got.body != "old" {
		t.Error(got)
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
	if err := r.PassSocket(SocketConfig{Path: r.path, Mode: 0o666}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "new")
	}), func() {}); err != nil {
		t.Error(err)
	}
	if got := <-waiting; got.err != nil || got.body != "new" {
		t.Error(got)
	}
	if got := r.get("/"); got.body != "new" || !got.again {
		t.Errorf("the answer is %q, on the same connection %t; want the new gateway's answer on the same connection",
			got.body, got.again)
	}
	if st, err := os.Stat(r.path); err != nil || st.Mode().Perm() != 0o666 {
		t.Error(st, err)
	}
}

// upload begins an upload, whose client sends what is written to the pipe.
func (r *relayed) upload(t *testing.T) (body *io.PipeWriter, ended <-chan error) {
	t.Helper()
	out, body := io.Pipe()
	done := make(chan error, 1)
	go func() {
		res, err := r.client.Post("http://gateway/upload", "application/octet-stream", out)
		if err == nil {
			res.Body.Close()
		}
		done <- err
	}()
	if _, err := io.WriteString(body, "half"); err != nil {
		t.Fatal(err)
	}
	<-r.slow
	return body, done
}

// An upload may end before the next gateway starts, and meanwhile all others are served. One that is too slow is cut,
// and delays no others for longer than a moment. proves OPS-01
func TestSlowUploadHoldsNoOthers(t *testing.T) {
	r := newRelayed(t)
	body, ended := r.upload(t)
	ready := make(chan struct{})
	go func() { r.AwaitTransfers(t.Context()); close(ready) }()
	for range 10 {
		if got := r.get("/"); got.body != "old" {
			t.Errorf("while an upload is awaited a request is answered with %q, %v; want the old gateway's answer",
				got.body, got.err)
		}
	}
	select {
	case <-ready:
		t.Error("an upload is in progress, and it was not awaited")
	default:
	}
	body.Close()
	<-ready
	if err := <-ended; err != nil {
		t.Errorf("an upload that was awaited ended with %v, want its answer", err)
	}
	body, ended = r.upload(t)
	brief, stop := context.WithCancel(t.Context())
	stop()
	r.AwaitTransfers(brief)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := r.Hold(ctx); fault.CodeOf(err) != "requests_cut" || ctx.Err() != nil {
		t.Errorf("with an upload that does not end Hold returned %v, its context %v; want that the upload was cut before", err, ctx.Err())
	}
	body.Close() // the client did not check its connection before
	if err := <-ended; err == nil {
		t.Error("an upload that was cut has an answer")
	}
}

// A request that does not end is cut: its context ends. One that waits for a gateway that never comes gets an error
// to repeat it. proves OPS-01
func TestRequestsThatDoNotEnd(t *testing.T) {
	r := newRelayed(t)
	slow := r.start("/slow")
	<-r.slow
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	err := r.Hold(ctx)
	if fault.CodeOf(err) != "requests_cut" || !strings.Contains(err.Error(), "1 requests") {
		t.Error(err)
	}
	if got := <-slow; got.err == nil {
		t.Errorf("a request that was cut has the answer %q", got.body)
	}
	waiting := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		r.relay.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		waiting <- w
	}()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if w := <-waiting; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(w.Body.String(), "gateway_stopping") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
