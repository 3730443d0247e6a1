package worker

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
)

// meta returns the meta of a call that has time enough.
func meta() Meta {
	return Meta{TraceID: "trace-1", ToolRunID: "run_1", DomainID: "demo", DeadlineMS: time.Now().Add(time.Minute).UnixMilli()}
}

// overdue calls a worker with a deadline that passes while the worker has the request; the client waits [grace] longer.
// The time until the deadline grows until ok reports that a busy machine kept to it.
func overdue(t testing.TB, url string, ok func(error) bool) error {
	t.Helper()
	for within := 2 * time.Second; ; within *= 2 {
		m := meta()
		m.DeadlineMS = time.Now().Add(within).UnixMilli()
		if _, err := call(t, url, m, Config{}); ok(err) || within > 20*time.Second {
			return err
		}
	}
}

const okMeta = `"meta":{"trace_id":"trace-1","tool_run_id":"run_1","duration_ms":0}`

func good(output string) string { return `{"ok":true,` + okMeta + `,"output":` + output + `}` }

func failedWith(e string) string { return `{"ok":false,` + okMeta + `,"error":` + e + `}` }

// reply returns a whole HTTP answer.
func reply(status, header, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), header, body)
}

const jsonType = "Content-Type: application/json\r\n"

// rogue is a worker that handles each connection as a test wants.
type rogue struct {
	url      string
	requests atomic.Int64 // whole ones
	conns    atomic.Int64
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen starts a worker: it reads one request of each connection, when read is set, and then do has the connection.
func listen(t testing.TB, read bool, do func(c net.Conn, body []byte)) *rogue {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &rogue{url: "http://" + l.Addr().String() + "/run"}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.conns.Add(1)
			all.Go(func() {
				defer c.Close()
				var body []byte
				if read {
					r, err := http.ReadRequest(bufio.NewReader(c))
					if err != nil {
						return
					}
					body, _ = io.ReadAll(r.Body)
					w.requests.Add(1)
				}
				do(c, body)
			})
		}
	})
	return w
}

// says starts a worker that answers with these bytes and closes.
func says(t testing.TB, text string) *rogue {
	return listen(t, true, func(c net.Conn, _ []byte) { io.WriteString(c, text) })
}

func call(t testing.TB, url string, m Meta, c Config) (Answer, error) {
	t.Helper()
	c.URLs = []string{url}
	return New(c).Call(context.Background(), url, nil, Request{Meta: m, Input: json.RawMessage(`{"a":"<&>"}`)})
}

// check compares kind and code of a fault.
func check(t *testing.T, name string, err error, kind fault.Kind, code string) {
	t.Helper()
	if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Errorf("%s: %s %s, want %s %s: %v", name, fault.KindOf(err), fault.CodeOf(err), kind, code, err)
	}
}

// proves AX-05
func TestTheContract(t *testing.T) {
	m := meta()
	var got struct {
		Meta  map[string]any
		Input map[string]any
	}
	var header http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method != "POST" || r.URL.Path != "/run" {
			t.Error(r.Method, r.URL, err)
		}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		io.WriteString(w, `{"output":{"z":1.0,"a":[null]},"ok":true,"error":null,
			"meta":{"duration_ms":99999999,"tool_run_id":"run_1","trace_id":"trace-1"}}`)
	}))
	defer srv.Close()
	url := srv.URL + "/run"
	a, err := New(Config{URLs: []string{url}}).Call(context.Background(), url, map[string]string{"X-Team": "lab", "accept-encoding": "gzip",
		"Host": "elsewhere", "Expect": "100-continue", "content-length": "3", "Idempotency-Key": "k"},
		Request{Meta: m, Input: json.RawMessage(`{"a":"<&>"}`)})
	if err != nil || string(a.Output) != `{"a":[null],"z":1}` {
		t.Fatalf("Call returned %s (%v), want the output as canonical JSON", a.Output, err)
	}
	if a.DurationMS > 60_000 {
		t.Error("the worker's duration is longer than the call took:", a.DurationMS)
	}
	want := fmt.Sprint(map[string]any{"trace_id": "trace-1", "tool_run_id": "run_1", "domain_id": "demo",
		"deadline_ms": float64(m.DeadlineMS)})
	if fmt.Sprint(got.Meta) != want || got.Input["a"] != "<&>" {
		t.Errorf("sent %v %v, want %s", got.Meta, got.Input, want)
	}
	if header.Get("X-Team") != "lab" || header.Get("Accept-Encoding") != "identity" || header.Get("Expect") != "" ||
		header.Get("Content-Type") != "application/json" {
		t.Error(header)
	}
}

// Each error of the contract has a kind here, and its code, its retryable and its details come back.
//
// proves AX-06
func TestErrorsOfTheContract(t *testing.T) {
	for _, c := range []struct {
		err, status string
		kind        fault.Kind
		code, ax    string
		retryable   bool
		details     string
	}{
		{`{"code":"UPSTREAM_ERROR","message":"m","retryable":true}`, "200 OK", fault.Transport, Upstream, "UPSTREAM_ERROR", true, ""},
		{`{"code":"UPSTREAM_ERROR","message":"m","retryable":false,"details":{"status":404}}`, "200 OK", fault.Tool, Upstream,
			"UPSTREAM_ERROR", false, `{"status":404}`},
		{`{"code":"VALIDATION_ERROR","message":"m","retryable":false,"details":null}`, "400 Bad Request", fault.Validation, Validation,
			"VALIDATION_ERROR", false, ""},
		{`{"code":"TIMEOUT","message":"m","retryable":true,"details":{}}`, "504 Gateway Timeout", fault.Timeout, TimedOut, "TIMEOUT", true, "{}"},
		{`{"code":"INTERNAL","message":"m","retryable":true}`, "500 Internal Server Error", fault.Internal, Failed, "INTERNAL", true, ""},
		{`{"code":"INTERNAL","message":"m","retryable":false,"details":{"a":"` + strings.Repeat("x", detailBytes) + `"}}`, "200 OK",
			fault.Internal, Failed, "INTERNAL", false, `{"omitted_bytes":8200}`},
	} {
		_, err := call(t, says(t, reply(c.status, jsonType, failedWith(c.err))).url, meta(), Config{})
		check(t, c.err, err, c.kind, c.code)
		if ax, retryable, details := Code(err); ax != c.ax || retryable != c.retryable || string(details) != c.details {
			t.Errorf("%s: %s %v %s", c.err, ax, retryable, details)
		}
		if !strings.HasSuffix(err.Error(), "answered with an error: "+c.ax+": m") {
			t.Error(err)
		}
	}
}

// Every answer of a worker that breaks the contract is an internal error, and none of it is passed on as a result.
//
// proves AX-05
func TestLyingWorkers(t *testing.T) {
	zipped := func(s string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		io.WriteString(w, s)
		w.Close()
		return b.String()
	}
	internal := `{"code":"INTERNAL","message":"","retryable":false}`
	deep := strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)
	for name, text := range map[string]string{
		"HTML that says JSON":    reply("200 OK", jsonType, "<html>Log in</html>"),
		"JSON that says HTML":    reply("200 OK", "Content-Type: text/html\r\n", good("{}")),
		"two types":              reply("200 OK", jsonType+jsonType, good("{}")),
		"another charset":        reply("200 OK", "Content-Type: application/json; charset=utf-16\r\n", good("{}")),
		"gzip":                   reply("200 OK", jsonType+"Content-Encoding: gzip\r\n", zipped(good("{}"))),
		"a proxy's error":        reply("502 Bad Gateway", "Content-Type: text/html\r\n", "<html>"),
		"a gzip bomb":            reply("200 OK", jsonType+"Content-Encoding: gzip\r\n", zipped(strings.Repeat(" ", 10<<20))),
		"gzip as a transfer":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n" + jsonType + "\r\n0\r\n\r\n",
		"a redirect of POST":     reply("307 Temporary Redirect", "Location: /run\r\n"+jsonType, good("{}")),
		"no content":             "HTTP/1.1 204 No Content\r\n" + jsonType + "\r\n",
		"another protocol":       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"created":                reply("201 Created", jsonType, good("{}")),
		"success with status":    reply("500 Internal Server Error", jsonType, good("{}")),
		"not HTTP":               "SSH-2.0-OpenSSH_9.2\r\n",
		"a huge header":          "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*headerBytes) + "\r\n\r\n",
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n" + jsonType + "\r\n{}",
		"nothing":                reply("200 OK", jsonType, ""),
		"null":                   reply("200 OK", jsonType, "null"),
		"two answers":            reply("200 OK", jsonType, good("{}")+good("{}")),
		"a byte order mark":      reply("200 OK", jsonType, "\ufeff"+good("{}")),
		"no UTF-8":               reply("200 OK", jsonType, good("{\"a\":\"\xff\"}")),
		"a number too large":     reply("200 OK", jsonType, good(`{"a":9007199254740993}`)),
		"nested too deep":        reply("200 OK", jsonType, good(deep)),
		"a key twice":            reply("200 OK", jsonType, `{"ok":false,"ok":true,`+okMeta+`,"output":{}}`),
		"a key in two cases":     reply("200 OK", jsonType, `{"OK":false,"ok":true,`+okMeta+`,"output":{}}`),
		"one more member":        reply("200 OK", jsonType, `{"ok":true,`+okMeta+`,"output":{},"artifacts":[]}`),
		"one more of meta":       reply("200 OK", jsonType, strings.Replace(good("{}"), `"meta":{`, `"meta":{"x":1,`, 1)),
		"no ok":                  reply("200 OK", jsonType, `{`+okMeta+`,"output":{}}`),
		"ok as text":             reply("200 OK", jsonType, `{"ok":"true",`+okMeta+`,"output":{}}`),
		"ok with an error":       reply("200 OK", jsonType, `{"ok":true,`+okMeta+`,"error":`+internal+`}`),
		"not ok with output":     reply("200 OK", jsonType, `{"ok":false,`+okMeta+`,"output":{}}`),
		"output and error":       reply("200 OK", jsonType, `{"ok":true,`+okMeta+`,"output":{},"error":`+internal+`}`),
		"neither":                reply("200 OK", jsonType, `{"ok":true,`+okMeta+`}`),
		"null output":            reply("200 OK", jsonType, good("null")),
		"text as output":         reply("200 OK", jsonType, good(`"done"`)),
		"no meta":                reply("200 OK", jsonType, `{"ok":true,"output":{}}`),
		"no duration":            reply("200 OK", jsonType, `{"ok":true,"meta":{"trace_id":"trace-1","tool_run_id":"run_1"},"output":{}}`),
		"a negative duration":    reply("200 OK", jsonType, strings.Replace(good("{}"), `_ms":0`, `_ms":-1`, 1)),
		"half a millisecond":     reply("200 OK", jsonType, strings.Replace(good("{}"), `_ms":0`, `_ms":0.5`, 1)),
		"another trace":          reply("200 OK", jsonType, strings.Replace(good("{}"), "trace-1", "trace-2", 1)),
		"another run":            reply("200 OK", jsonType, strings.Replace(good("{}"), "run_1", "run_2", 1)),
		"the error of another":   reply("200 OK", jsonType, strings.Replace(failedWith(internal), "run_1", "", 1)),
		"a code of its own":      reply("200 OK", jsonType, failedWith(`{"code":"NOT_FOUND","message":"","retryable":false}`)),
		"no retryable":           reply("200 OK", jsonType, failedWith(`{"code":"INTERNAL","message":""}`)),
		"no message":             reply("200 OK", jsonType, failedWith(`{"code":"INTERNAL","retryable":true}`)),
		"details as text":        reply("200 OK", jsonType, failedWith(`{"code":"INTERNAL","message":"","retryable":true,"details":"x"}`)),
		"one more of error":      reply("200 OK", jsonType, failedWith(`{"code":"INTERNAL","message":"","retryable":true,"trace":""}`)),
		"an answer too long":     reply("200 OK", jsonType, good(`{"a":"`+strings.Repeat("x", 1000)+`"}`)),
		"an answer without end":  "HTTP/1.1 200 OK\r\n" + jsonType + "\r\n" + strings.Repeat(" ", 1<<20),
		"half, and no length":    "HTTP/1.1 200 OK\r\n" + jsonType + "\r\n{\"ok\":tr",
		"chunks that are no hex": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + jsonType + "\r\nzz\r\n\r\n",
	} {
		w := says(t, text)
		a, err := call(t, w.url, meta(), Config{AnswerBytes: 1000})
		check(t, name, err, fault.Internal, Envelope)
		if code, retryable, _ := Code(err); code != "INTERNAL" || retryable || a.Output != nil {
			t.Errorf("%s: %s %v %s", name, code, retryable, a.Output)
		}
		if w.requests.Load() != 1 || w.conns.Load() != 1 {
			t.Errorf("%s: %d requests on %d connections", name, w.requests.Load(), w.conns.Load())
		}
	}
}

// A stream that never ends is cut at the bound, whatever its speed.
func TestEndlessAnswer(t *testing.T) {
	w := listen(t, true, func(c net.Conn, _ []byte) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+jsonType+"\r\n")
		for err := error(nil); err == nil; {
			_, err = io.WriteString(c, "400\r\n"+strings.Repeat("x", 1024)+"\r\n")
		}
	})
	_, err := call(t, w.url, meta(), Config{})
	check(t, "endless", err, fault.Internal, Envelope)
}

// A worker that keeps a call past its deadline, in whichever way, leaves its outcome unknown, and the call ends.
func TestDeadline(t *testing.T) {
	drip := func(head, piece string) func(net.Conn, []byte) {
		return func(c net.Conn, _ []byte) {
			_, err := io.WriteString(c, head)
			for tick := time.NewTicker(5 * time.Millisecond); err == nil; <-tick.C {
				_, err = io.WriteString(c, piece)
			}
		}
	}
	for name, do := range map[string]func(net.Conn, []byte){
		"silence":          func(c net.Conn, _ []byte) { io.Copy(io.Discard, c) },
		"a trickling body": drip("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"+jsonType+"\r\n", " "),
		"trickling chunks": drip("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+jsonType+"\r\n", "1\r\n \r\n"),
		"a trickling head": drip("HTTP/1.1 200 OK\r\nX: ", "x"),
		"a body that stops": func(c net.Conn, _ []byte) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n"+jsonType+"\r\n{")
			io.Copy(io.Discard, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := listen(t, true, do)
			err := overdue(t, w.url, func(error) bool { return w.requests.Load() > 0 })
			check(t, name, err, fault.Unknown, Unknown)
			if code, retryable, _ := Code(err); code != "TIMEOUT" || retryable || w.requests.Load() != 1 {
				t.Error(code, retryable, w.requests.Load())
			}
		})
	}
}

// A deadline that has passed sends nothing.
func TestPastDeadline(t *testing.T) {
	w := says(t, reply("200 OK", jsonType, good("{}")))
	m := meta()
	m.DeadlineMS = time.Now().UnixMilli() - 1
	_, err := call(t, w.url, m, Config{})
	check(t, "past", err, fault.Timeout, TimedOut)
	if code, retryable, _ := Code(err); code != "TIMEOUT" || !retryable || w.conns.Load() != 0 {
		t.Error(code, retryable, w.conns.Load())
	}
}

// The client accepts a TIMEOUT that a worker sends a moment after its deadline.
func TestTimeoutOfTheWorkerIsHeard(t *testing.T) {
	t.Parallel()
	w := listen(t, true, func(c net.Conn, body []byte) {
		var r Request
		must(t, json.Unmarshal(body, &r))
		<-time.After(time.Until(time.UnixMilli(r.Meta.DeadlineMS + 1)))
		io.WriteString(c, reply("200 OK", jsonType, failedWith(`{"code":"TIMEOUT","message":"late","retryable":true}`)))
	})
	err := overdue(t, w.url, func(err error) bool { return fault.CodeOf(err) != Unknown && fault.CodeOf(err) != Away })
	check(t, "late", err, fault.Timeout, TimedOut)
}

// Calls that never left are distinguished from those in doubt.
func TestAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed := l.Addr().String()
	l.Close()
	plain := listen(t, false, func(c net.Conn, _ []byte) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for name, url := range map[string]string{
		"nothing listens":         "http://" + closed + "/run",
		"no such name":            "http://no-such-host.invalid/run",
		"not TLS":                 strings.Replace(plain.url, "http:", "https:", 1),
		"an authority of its own": secure.URL + "/run",
	} {
		_, err := call(t, url, meta(), Config{})
		check(t, name, err, fault.Transport, Away)
		if code, retryable, _ := Code(err); code != "UPSTREAM_ERROR" || !retryable {
			t.Error(name, code, retryable)
		}
	}
}

// A connection that ends after the request, or some of it, was written leaves the call in doubt, and it is not sent again.
func TestInDoubt(t *testing.T) {
	for name, do := range map[string]func(net.Conn, []byte){
		"closed":      func(net.Conn, []byte) {},
		"reset":       func(c net.Conn, _ []byte) { c.(*net.TCPConn).SetLinger(0) },
		"half a head": func(c net.Conn, _ []byte) { io.WriteString(c, "HTTP/1.1 200 OK\r\nConte") },
		"half a body": func(c net.Conn, _ []byte) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n"+jsonType+"\r\n{")
		},
		"half of chunks": func(c net.Conn, _ []byte) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+jsonType+"\r\n5\r\n{")
		},
	} {
		w := listen(t, true, do)
		_, err := call(t, w.url, meta(), Config{})
		check(t, name, err, fault.Unknown, Unknown)
		if code, retryable, _ := Code(err); code != "INTERNAL" || retryable || w.requests.Load() != 1 || w.conns.Load() != 1 {
			t.Errorf("%s: %s %v, %d requests on %d connections", name, code, retryable, w.requests.Load(), w.conns.Load())
		}
	}
	early := listen(t, false, func(c net.Conn, _ []byte) { io.ReadFull(c, make([]byte, 4)); c.(*net.TCPConn).SetLinger(0) })
	_, err := call(t, early.url, meta(), Config{})
	check(t, "cut while the request is written", err, fault.Unknown, Unknown)
	if early.conns.Load() != 1 {
		t.Error(early.conns.Load(), "connections")
	}
}

// A worker that drops connections between calls, or claims to keep them, puts no later call in doubt: each has a new
// connection.
func TestEachCallHasItsConnection(t *testing.T) {
	w := says(t, reply("200 OK", jsonType+"Connection: keep-alive\r\nKeep-Alive: timeout=600\r\n", good("{}"))) // and closes
	c := New(Config{URLs: []string{w.url}})
	for range 20 {
		_, err := c.Call(context.Background(), w.url, map[string]string{"Idempotency-Key": "k"}, Request{Meta: meta(), Input: []byte("{}")})
		must(t, err)
	}
	if w.requests.Load() != 20 || w.conns.Load() != 20 {
		t.Error(w.requests.Load(), "requests on", w.conns.Load(), "connections")
	}
	second := &wire{}
	second.dialed.Store(true)
	if _, err := second.connect(context.Background(), "tcp", w.url); !errors.Is(err, errSecondDial) {
		t.Error("a call opened a second connection:", err)
	}
}

// A caller who cancels gets no error about an absent worker.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w := listen(t, true, func(c net.Conn, _ []byte) { cancel(); io.Copy(io.Discard, c) })
	c := New(Config{URLs: []string{w.url}})
	_, err := c.Call(ctx, w.url, nil, Request{Meta: meta(), Input: []byte("{}")})
	check(t, "after it was sent", err, fault.Unknown, Unknown)
	_, err = c.Call(ctx, w.url, nil, Request{Meta: meta(), Input: []byte("{}")})
	check(t, "before", err, fault.Canceled, string(fault.Canceled))
}

// Only the manifest's URLs are called: not a URL of the caller's, not a proxy of the environment.
func TestOnlyTheManifestsAddresses(t *testing.T) {
	other := says(t, reply("200 OK", jsonType, good("{}")))
	for _, v := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(v, strings.TrimSuffix(other.url, "/run"))
	}
	w := says(t, reply("200 OK", jsonType, good("{}")))
	c := New(Config{URLs: []string{w.url, "http://worker.invalid/run"}})
	if _, err := c.Call(context.Background(), w.url, nil, Request{Meta: meta(), Input: []byte("{}")}); err != nil {
		t.Error(err)
	}
	_, err := c.Call(context.Background(), "http://worker.invalid/run", nil, Request{Meta: meta(), Input: []byte("{}")})
	check(t, "no proxy looks names up", err, fault.Transport, Away)
	for _, url := range []string{other.url, w.url + "/", w.url + "?a", strings.Replace(w.url, "/run", "/admin", 1), ""} {
		_, err := c.Call(context.Background(), url, nil, Request{Meta: meta(), Input: []byte("{}")})
		check(t, url, err, fault.Internal, string(fault.Internal))
	}
	if other.conns.Load() != 0 {
		t.Error("an address outside of the manifest was dialed")
	}
}

// https is verified for the name of the URL.
func TestHTTPS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, good("{}"))
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	if _, err := call(t, srv.URL+"/run", meta(), Config{Roots: roots}); err != nil {
		t.Error(err)
	}
	other := strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) + "/run"
	_, err := call(t, other, meta(), Config{Roots: roots})
	check(t, "a certificate of another name", err, fault.Transport, Away)
	old, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: srv.TLS.Certificates,
		MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	must(t, err)
	defer old.Close()
	go http.Serve(old, nil)
	_, err = call(t, "https://"+old.Addr().String()+"/run", meta(), Config{Roots: roots})
	check(t, "TLS 1.1", err, fault.Transport, Away)
}

// Calls beyond the bound wait, and are never sent when their time runs out.
func TestConnections(t *testing.T) {
	t.Parallel()
	busy, release := make(chan struct{}), make(chan struct{})
	w := listen(t, true, func(c net.Conn, _ []byte) {
		busy <- struct{}{}
		<-release
		io.WriteString(c, reply("200 OK", jsonType, good("{}")))
	})
	c := New(Config{URLs: []string{w.url}, Connections: 1})
	first := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), w.url, nil, Request{Meta: meta(), Input: []byte("{}")})
		first <- err
	}()
	<-busy
	soon := meta()
	soon.DeadlineMS = time.Now().Add(time.Second).UnixMilli()
	_, err := c.Call(context.Background(), w.url, nil, Request{Meta: soon, Input: []byte("{}")})
	check(t, "waits", err, fault.Transport, Away)
	close(release)
	if err := <-first; err != nil || w.requests.Load() != 1 {
		t.Error(err, w.requests.Load())
	}
}

// Messages show a worker's texts in bounds and without anything hidden, and no keys of a toolpack's URL.
func TestMessages(t *testing.T) {
	w := says(t, reply("200 OK", jsonType, failedWith(`{"code":"INTERNAL","message":"`+strings.Repeat(`\u202e`, 4000)+`","retryable":true}`)))
	url := w.url + "?key=sesame"
	_, err := call(t, url, meta(), Config{})
	if text := err.Error(); strings.Contains(text, "sesame") || strings.Contains(text, "\u202e") || len(text) > 10*textBytes {
		t.Errorf("%d bytes: %.200q", len(text), text)
	}
	_, err = call(t, says(t, "HTTP/1.1 200 OK\r\nX\x1b[31m\r\n\r\n").url, meta(), Config{})
	if strings.Contains(err.Error(), "\x1b") {
		t.Errorf("the error has a control character: %q", err)
	}
}

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http logs what workers of these tests send after their answers
	os.Exit(m.Run())
}

// No bytes of a worker are a result unless they are an envelope with the ids that were sent.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{good(`{"a":1}`), failedWith(`{"code":"TIMEOUT","message":"m","retryable":true,"details":{}}`),
		`{"ok":true}`, `{`, "null",
		`{"ok":true,` + okMeta + `,"output":null,"error":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := readAnswer(data, 1<<16, Meta{TraceID: "trace-1", ToolRunID: "run_1"})
		if (err == nil) != (a.Output != nil) {
			t.Fatalf("output %q with error %v", a.Output, err)
		}
		if err != nil {
			if r := reportOf(err); r != nil && (fault.KindOf(r.fault("w")) == "" || r.details != nil && !json.Valid(r.details)) {
				t.Fatalf("of a stray answer the report is %+v, want a kind and details that are JSON", r)
			}
			return
		}
		var loose struct {
			OK     bool
			Meta   struct{ Trace_ID, Tool_Run_ID string }
			Output map[string]any
			Error  any
		}
		if err := json.Unmarshal(data, &loose); err != nil || !loose.OK || loose.Meta.Trace_ID != "trace-1" ||
			loose.Meta.Tool_Run_ID != "run_1" || loose.Output == nil || loose.Error != nil || a.DurationMS < 0 {
			t.Fatalf("%s: %+v %v", data, loose, err)
		}
	})
}
