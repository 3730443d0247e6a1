package adapter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/worker"
)

// With this variable the test's binary is an upstream on standard input and output.
const asUpstream = "SLURMGATE_TEST_UPSTREAM"

func TestMain(m *testing.M) {
	if os.Getenv(asUpstream) == "" {
		os.Exit(m.Run())
	}
	if err := newUpstream().server.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		os.Exit(3)
	}
}

// upstream is a server of the official SDK with tools that behave in every way.
type upstream struct {
	server    *sdk.Server
	cancelled chan struct{} // a call of slow was cancelled
	entered   chan struct{} // a call of slow has begun
	mu        sync.Mutex
	calls     []string
}

func newUpstream() *upstream {
	u := &upstream{server: sdk.NewServer(&sdk.Implementation{Name: "upstream", Version: "1"}, nil), cancelled: make(chan struct{}, 9),
		entered: make(chan struct{}, 9)}
	u.add("sum", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`,
		`{"type":"object","properties":{"sum":{"$ref":"#/$defs/n"}},"required":["sum"],"$defs":{"n":{"type":"integer"}}}`,
		func(_ context.Context, a map[string]any) *sdk.CallToolResult {
			sum := a["a"].(float64) + a["b"].(float64)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(sum)}},
				StructuredContent: map[string]any{"sum": sum}}
		})
	u.add("media", `{"type":"object"}`, "", func(_ context.Context, a map[string]any) *sdk.CallToolResult {
		n, _ := a["bytes"].(float64)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "one"}, &sdk.TextContent{Text: "two"},
			&sdk.ImageContent{Data: bytes.Repeat([]byte{7}, 8), MIMEType: "image/png"},
			&sdk.ImageContent{Data: bytes.Repeat([]byte{7}, int(n)), MIMEType: "image/jpeg"},
			&sdk.ResourceLink{URI: "file:///x", Name: "x"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///y", MIMEType: "text/plain", Text: "why"}}}}
	})
	u.add("fail", `{"type":"object"}`, "", func(_ context.Context, a map[string]any) *sdk.CallToolResult {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint("no such page: ", a["say"])}}}
	})
	u.add("env", `{"type":"object"}`, "", func(context.Context, map[string]any) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strings.Join(os.Environ(), "\n")}}}
	})
	u.add("exit", `{"type":"object"}`, "", func(context.Context, map[string]any) *sdk.CallToolResult {
		os.Exit(0)
		return nil
	})
	u.add("slow", `{"type":"object"}`, "", func(ctx context.Context, _ map[string]any) *sdk.CallToolResult {
		u.entered <- struct{}{}
		<-ctx.Done()
		u.cancelled <- struct{}{}
		return &sdk.CallToolResult{}
	})
	return u
}

func (u *upstream) add(name, in, out string, does func(context.Context, map[string]any) *sdk.CallToolResult) {
	t := &sdk.Tool{Name: name, Description: "Does " + name + ".", InputSchema: json.RawMessage(in)}
	if out != "" {
		t.OutputSchema = json.RawMessage(out)
	}
	u.server.AddTool(t, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		u.mu.Lock()
		u.calls = append(u.calls, name)
		u.mu.Unlock()
		args := map[string]any{}
		if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
			return nil, err
		}
		return does(ctx, args), nil
	})
}

func (u *upstream) called() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.calls)
}

// overHTTP serves an upstream; before gets each request first and may answer itself.
func (u *upstream) overHTTP(t *testing.T, before func(http.ResponseWriter, *http.Request) bool) *httptest.Server {
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return u.server }, nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if before == nil || !before(w, req) {
			h.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// bench is an adapter under test, called by the gateway's own client.
type bench struct {
	t       *testing.T
	config  Config
	client  *Client
	server  *httptest.Server
	log     *bytes.Buffer
	digests map[string]string
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func adapt(t *testing.T, text string, env map[string]string) *bench {
	t.Helper()
	text += "tools:\n"
	for _, name := range []string{"sum", "media", "fail", "env", "exit", "slow"} {
		text += "  - {tool: " + name + ", tool_id: up." + name + "}\n"
	}
	c, err := parse("adapter.yaml", []byte(text), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	must(t, err)
	return over(t, c)
}

func over(t *testing.T, c Config) *bench {
	t.Helper()
	b := &bench{t: t, config: c, log: &bytes.Buffer{}, digests: map[string]string{}}
	log := slog.New(slog.NewTextHandler(lockedWriter{&sync.Mutex{}, b.log}, nil))
	b.client = NewClient(c, "1", log)
	b.server = httptest.NewServer(NewServer(c, b.client, log).Handler())
	t.Cleanup(func() {
		b.server.Close()
		b.client.Close()
	})
	return b
}

// pin takes the digests that the upstream has now.
func (b *bench) pin() *bench {
	b.t.Helper()
	tools, err := b.client.Tools(b.t.Context())
	must(b.t, err)
	for name, l := range tools {
		b.digests[name] = l.Digest
	}
	return b
}

func (b *bench) call(tool, input string, within time.Duration) (json.RawMessage, error) {
	return b.callPinned(tool, b.digests[tool], input, within)
}

func (b *bench) callPinned(tool, digest, input string, within time.Duration) (json.RawMessage, error) {
	return b.callUntil(b.t.Context(), tool, digest, input, within)
}

func (b *bench) callUntil(ctx context.Context, tool, digest, input string, within time.Duration) (json.RawMessage, error) {
	at := b.server.URL + "/up." + tool + "/" + digest
	a, err := worker.New(worker.Config{URLs: []string{at}}).Call(ctx, at, nil, worker.Request{Input: json.RawMessage(input),
		Meta: worker.Meta{TraceID: "t", ToolRunID: "run_1", DomainID: "d", DeadlineMS: time.Now().Add(within).UnixMilli()}})
	return a.Output, err
}

// reasonOf returns the contract's code of a failed call, whether it may be repeated, and the adapter's reason.
func reasonOf(err error) string {
	code, retryable, details := worker.Code(err)
	var d struct{ Reason string }
	_ = json.Unmarshal(details, &d)
	return fmt.Sprint(code, " ", retryable, " ", d.Reason)
}

const long = time.Minute

func stdio(t *testing.T) *bench {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	t.Setenv(asUpstream, "1")
	t.Setenv("LISTED", "seen")
	t.Setenv("UNLISTED", "hidden")
	return adapt(t, "upstream: {command: ["+self+"], env: ["+asUpstream+", LISTED]}\n", nil).pin()
}

// A server of others answers through the worker contract, over both transports. proves ARC-10
func TestAnswers(t *testing.T) {
	overHTTP := adapt(t, "upstream: {url: \""+newUpstream().overHTTP(t, nil).URL+"\"}\nimage_bytes: 100\n", nil).pin()
	for _, c := range []struct{ tool, input, want string }{
		{"sum", `{"a":1,"b":2}`, `{"structured":{"sum":3},"text":"3"}`},
		{"media", `{"bytes":9000}`, `{"left_out":[{"bytes":9000,"kind":"image","mime_type":"image/jpeg"}],"links":[{"name":"x","uri":"file:///x"}],` +
			`"media":[{"data_base64":"BwcHBwcHBwc=","kind":"image","mime_type":"image/png"},` +
			`{"kind":"resource","mime_type":"text/plain","text":"why","uri":"file:///y"}],"text":"one\n\ntwo"}`},
	} {
		if got, err := overHTTP.call(c.tool, c.input, long); err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v", c.tool, got, err)
		}
	}
	if got, err := stdio(t).call("sum", `{"a":1,"b":2}`, long); err != nil || string(got) != `{"structured":{"sum":3},"text":"3"}` {
		t.Errorf("sum over stdio answered %s (%v), want 3", got, err)
	}
}

// Each failure has its code, and states whether the call may be repeated.
func TestFailures(t *testing.T) {
	b := adapt(t, "upstream: {url: \""+newUpstream().overHTTP(t, nil).URL+"\"}\nanswer_bytes: 1024\n", nil).pin()
	for _, c := range []struct{ tool, input, want string }{
		{"fail", `{"say":"hey"}`, "UPSTREAM_ERROR false tool_error"},
		{"media", `{"bytes":3000}`, "UPSTREAM_ERROR false answer_too_large"},
	} {
		if _, err := b.call(c.tool, c.input, long); reasonOf(err) != c.want {
			t.Errorf("%s: %s: %v", c.tool, reasonOf(err), err)
		}
	}
	if _, err := b.callPinned("none", "0", `{}`, long); reasonOf(err) != "UPSTREAM_ERROR false tool_unknown" {
		t.Error(err)
	}
	if _, err := b.call("fail", `{"say":"hey"}`, long); !strings.Contains(err.Error(), "no such page: hey") {
		t.Error(err)
	}
}

// A tool that is not the one that the manifest pins is not called; one that has disappeared is reported so. proves ARC-10
func TestPinnedSchemas(t *testing.T) {
	for _, recheck := range []string{"0", "3600"} {
		u := newUpstream()
		b := adapt(t, "upstream: {url: \""+u.overHTTP(t, nil).URL+"\"}\nrecheck_seconds: "+recheck+"\n", nil).pin()
		if _, err := b.callPinned("sum", strings.Repeat("0", 64), `{"a":1,"b":2}`, long); reasonOf(err) != "UPSTREAM_ERROR false schema_changed" {
			t.Error(recheck, err)
		}
		if recheck != "0" {
			continue // the SDK reports changes in its own time
		}
		u.add("sum", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"send_to":{"type":"string"}}}`, "",
			func(context.Context, map[string]any) *sdk.CallToolResult { return &sdk.CallToolResult{} })
		if _, err := b.call("sum", `{"a":1,"b":2}`, long); reasonOf(err) != "UPSTREAM_ERROR false schema_changed" {
			t.Error(err)
		}
		u.server.RemoveTools("sum")
		if _, err := b.call("sum", `{"a":1,"b":2}`, long); reasonOf(err) != "UPSTREAM_ERROR false tool_gone" {
			t.Error(err)
		}
		if called := u.called(); len(called) != 0 {
			t.Error(called)
		}
		res, err := http.Get(b.server.URL + "/healthz")
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Error(res.Status)
		}
	}
}

// A new description changes no digest: callers see the manifest's.
func TestDigest(t *testing.T) {
	of := func(name, description, in, out string) string {
		tool := &sdk.Tool{Name: name, Description: description, InputSchema: json.RawMessage(in)}
		if out != "" {
			tool.OutputSchema = json.RawMessage(out)
		}
		l, err := listed(tool)
		must(t, err)
		return l.Digest
	}
	first := of("a", "x", `{"type":"object","title":"t"}`, "")
	if of("a", "y", `{"title":"t", "type":"object"}`, "") != first {
		t.Error("it changes with the description or the layout")
	}
	for _, other := range []string{of("b", "x", `{"type":"object","title":"t"}`, ""), of("a", "x", `{"type":"object"}`, ""),
		of("a", "x", `{"type":"object","title":"t"}`, `{"type":"object"}`)} {
		if other == first {
			t.Error("a change is not seen")
		}
	}
}

// At the deadline the call is cancelled upstream; a call whose deadline has passed is not sent.
func TestDeadline(t *testing.T) {
	u := newUpstream()
	b := adapt(t, "upstream: {url: \""+u.overHTTP(t, nil).URL+"\"}\ncalls: 1\n", nil).pin()
	for within := 200 * time.Millisecond; len(u.called()) == 0; within *= 2 { // until the call is sent in that time
		_, err := b.call("slow", `{}`, within)
		if got := reasonOf(err); got != "TIMEOUT false outcome_unknown" && (len(u.called()) > 0 || got != "TIMEOUT true upstream_away") {
			t.Fatal(got, err)
		}
	}
	<-u.entered
	<-u.cancelled
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.callUntil(ctx, "slow", b.digests["slow"], `{}`, long)
		ended <- err
	}()
	<-u.entered
	if _, err := b.call("sum", `{"a":1,"b":2}`, time.Second); reasonOf(err) != "TIMEOUT true adapter_busy" {
		t.Error(err)
	}
	cancel() // the gateway leaves
	<-u.cancelled
	if err := <-ended; fault.CodeOf(err) != worker.Unknown {
		t.Error(err)
	}
	if called := u.called(); !slices.Equal(called, []string{"slow", "slow"}) {
		t.Error(called)
	}
}

// A process that ends during a call leaves it in doubt, and is started again for the next. It has no variables but those that are listed.
func TestProcess(t *testing.T) {
	b := stdio(t)
	if _, err := b.call("exit", `{}`, long); reasonOf(err) != "UPSTREAM_ERROR false outcome_unknown" {
		t.Error(err)
	}
	out, err := b.call("env", `{}`, long)
	if err != nil || !strings.Contains(string(out), "LISTED=seen") || strings.Contains(string(out), "hidden") {
		t.Errorf("the upstream's environment is %s (%v), want only the listed variable", out, err)
	}
}

// The key goes to the upstream and nowhere else: not after a redirect, not into an answer, not into the log.
func TestKey(t *testing.T) {
	const key = "sk-0123456789-not-a-real-key"
	u := newUpstream()
	var status int
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		elsewhere = append(elsewhere, req.Header.Get("Authorization"))
	}))
	defer other.Close()
	up := u.overHTTP(t, func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case req.Header.Get("Authorization") != "Bearer "+key:
			http.Error(w, "no key", http.StatusUnauthorized)
		case status == http.StatusFound:
			http.Redirect(w, req, other.URL, status)
		case status != 0:
			http.Error(w, "your key was "+key, status)
		default:
			return false
		}
		return true
	})
	b := adapt(t, "upstream: {url: \""+up.URL+"\", key_env: UP_KEY}\n", map[string]string{"UP_KEY": key}).pin()
	if _, err := b.call("fail", `{"say":"`+key+`"}`, long); err == nil || strings.Contains(err.Error(), key) ||
		!strings.Contains(err.Error(), "no such page: [redacted]") {
		t.Error(err)
	}
	for _, c := range []struct {
		status int
		want   string
	}{{401, "UPSTREAM_ERROR true upstream_status"}, {403, "UPSTREAM_ERROR false upstream_status"},
		{404, "UPSTREAM_ERROR false upstream_status"}, {503, "UPSTREAM_ERROR true upstream_status"}, {302, "UPSTREAM_ERROR true upstream_away"}} {
		status = c.status
		_, err := b.call("sum", `{"a":1,"b":2}`, long)
		if got := reasonOf(err); got != c.want || strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("%d: %s %v", c.status, got, err)
		}
	}
	status = 0
	if _, err := b.call("sum", `{"a":1,"b":2}`, long); err != nil {
		t.Error(err)
	}
	if len(elsewhere) > 0 || strings.Contains(b.log.String(), key) {
		t.Error(elsewhere, b.log)
	}
}

// An upstream that is away costs its callers nothing but an answer with that reason.
func TestAway(t *testing.T) {
	up := newUpstream().overHTTP(t, nil)
	b := adapt(t, "upstream: {url: \""+up.URL+"\"}\n", nil).pin()
	up.CloseClientConnections()
	up.Close()
	if _, err := b.call("sum", `{"a":1,"b":2}`, long); reasonOf(err) != "UPSTREAM_ERROR true upstream_away" {
		t.Error(err)
	}
	c := adapt(t, "upstream: {command: [/no/such/program]}\n", nil)
	if _, err := c.callPinned("sum", "0", `{}`, long); reasonOf(err) != "UPSTREAM_ERROR true upstream_away" {
		t.Error(err)
	}
}

// A body that is no call of the contract reaches no upstream.
func TestBodies(t *testing.T) {
	u := newUpstream()
	b := adapt(t, "upstream: {url: \""+u.overHTTP(t, nil).URL+"\"}\n", nil).pin()
	for _, c := range []struct {
		typ, body string
		want      int
	}{
		{"text/plain", `{"meta":{"trace_id":"t","tool_run_id":"r","domain_id":"d","deadline_ms":1},"input":{}}`, 415},
		{"application/json", `{}`, 400}, {"application/json", `[]`, 400}, {"application/json", ``, 400},
		{"application/json", `{"meta":{"trace_id":"t","tool_run_id":"r","domain_id":"d","deadline_ms":1},"input":[]}`, 400},
		{"application/json", `{"meta":{"trace_id":"t","tool_run_id":"r","domain_id":"d","deadline_ms":1},"input":{},"more":1}`, 400},
		{"application/json", `{"meta":{"trace_id":"t","tool_run_id":"r","domain_id":"d","deadline_ms":1},"input":{"a":` + strings.Repeat(" ", maxRequest) + `1}}`, 400},
	} {
		res, err := http.Post(b.server.URL+"/up.sum/"+b.digests["sum"], c.typ, strings.NewReader(c.body))
		must(t, err)
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%.60s: %s", c.body, res.Status)
		}
	}
	if called := u.called(); len(called) > 0 {
		t.Error(called)
	}
}

// The configuration is refused whole, with every mistake and its line.
func TestConfig(t *testing.T) {
	env := func(name string) (string, bool) {
		return map[string]string{"K": "k3y", "BAD": "a b"}[name], name == "K" || name == "BAD"
	}
	for text, want := range map[string]string{
		"{}\n":           "ADAPTER-REQUIRED upstream:1",
		"upstream: {}\n": "ADAPTER-UPSTREAM upstream:1",
		"upstream: {url: \"http://h/m\", command: [x]}\n": "ADAPTER-UPSTREAM upstream:1",
		"upstream: {url: \"ftp://h\"}\n":                  "ADAPTER-UPSTREAM upstream.url:1",
		"upstream: {url: \"http://u:p@h\"}\n":             "ADAPTER-UPSTREAM upstream.url:1",
		"upstream: {command: []}\n":                       "ADAPTER-UPSTREAM upstream.command:1",
		"upstream: {command: [./x]}\n":                    "ADAPTER-UPSTREAM upstream.command:1",
		"upstream: {command: [x], key_env: K}\n":          "ADAPTER-UPSTREAM upstream.key_env:1",
		"upstream: {url: \"https://h\", key_env: GONE}\n": "ADAPTER-KEY upstream.key_env:1",
		"upstream: {url: \"https://h\", key_env: BAD}\n":  "ADAPTER-KEY upstream.key_env:1",
		"upstream: {url: \"http://h\", key_env: K}\n":     "ADAPTER-UPSTREAM upstream.url:1",
		"upstream: {url: \"https://h\", key: K}\n":        "ADAPTER-UNKNOWN-FIELD upstream.key:1",
		"upstream: {url: \"https://h\", key_header: X}\n": "ADAPTER-UPSTREAM upstream.key_header:1",
		"upstream: {url: \"https://h\"}\ntools: [{tool: a, tool_id: a}, {tool: b, tool_id: a.b}, {tool: c, tool_id: a.b}]\n": "ADAPTER-TOOL-ID tools[0].tool_id:2, ADAPTER-TOOL-ID tools[2].tool_id:2",
		"upstream: {url: \"https://h\"}\nlisten: 9100\ncalls: 0\n":                                                           "ADAPTER-TYPE listen:2, ADAPTER-RANGE calls:3",
		"upstream: {url: \"https://h\", key_env: K, key_header: X-Api-Key}\nbase_url: http://adapter:9100/\n":                "",
		"upstream: {url: \"http://127.0.0.1:3/m\", key_env: K}\n":                                                            "",
	} {
		_, err := parse("adapter.yaml", []byte(text), env)
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, fmt.Sprintf("%s %s:%d", p.Code, p.Field, p.Line))
		}
		if s := strings.Join(got, ", "); s != want || strings.Contains(fmt.Sprint(err), "k3y") {
			t.Errorf("%q:\ngot  %s\nwant %s\n%v", text, s, want, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "gone"), env); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// The adapter stops listening at once, lets calls under way end, cancels what takes too long, and ends its upstream's process.
func TestStop(t *testing.T) {
	for _, stop := range []string{"0", "3600"} {
		u := newUpstream()
		release := make(chan struct{})
		u.add("wait", `{"type":"object"}`, "", func(ctx context.Context, _ map[string]any) *sdk.CallToolResult {
			u.entered <- struct{}{}
			select {
			case <-ctx.Done():
				u.cancelled <- struct{}{}
			case <-release:
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}
		})
		c, err := parse("adapter.yaml", []byte("upstream: {url: \""+u.overHTTP(t, nil).URL+"\"}\nlisten: 127.0.0.1:0\nstop_seconds: "+stop+
			"\ntools: [{tool: wait, tool_id: up.wait}]\n"), os.LookupEnv)
		must(t, err)
		b := over(t, c).pin()
		l, err := c.Bind()
		must(t, err)
		b.server.URL = "http://" + l.Addr().String()
		ctx, halt := context.WithCancel(t.Context())
		served, ended := make(chan error, 1), make(chan error, 1)
		go func() { served <- NewServer(c, b.client, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
		go func() {
			_, err := b.call("wait", `{}`, long)
			ended <- err
		}()
		<-u.entered
		halt()
		if stop == "0" {
			<-u.cancelled
			if err := <-ended; err == nil {
				t.Error("a call that was cancelled has an answer")
			}
		} else {
			close(release)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := <-served; err != nil {
			t.Error(stop, err)
		}
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
