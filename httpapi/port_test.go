package httpapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

const (
	runA      = "run_3SE9HRX367RN37683ZB6KX0C3D"
	approvalA = "apr_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	artA      = "art_45G7QPW5RFS0CCAGQR83T82KBN"
)

// tokens accepts the tokens of callers with different rights, and rejects one.
type tokens struct{}

func (tokens) Peer(int) (gate.Principal, error) {
	return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "no")
}

func (tokens) Bearer(_ context.Context, token string) (gate.Principal, error) {
	switch token {
	case "all":
		return gate.Principal{Name: "token:all", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}, nil
	case "look":
		return gate.Principal{Name: "token:look", Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead}, []string{gate.All})}, nil
	case "figures":
		return gate.Principal{Name: "token:figures", Rights: gate.RightsOf([]string{gate.CapMetrics}, []string{gate.All})}, nil
	case "all-of-one":
		return gate.Principal{Name: "token:one", Rights: gate.RightsOf([]string{gate.All}, []string{"proj_x"})}, nil
	}
	return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "the access token is not valid here")
}

// desk is a port over a real gate with tools that answer as the gateway's do.
type desk struct {
	t      testing.TB
	port   *Server
	dial   func() net.Conn
	client *http.Client
	*contract
	mu     sync.Mutex
	calls  []gate.Request
	ready  error
	events []Event
	over   bool
	export func(context.Context, ExportArgs) (Archive, error)
	began  chan bool  // a call with an effect has begun
	effect chan error // what a call with an effect saw of its context
}

func (d *desk) url(path string) string { return "http://" + d.port.Addr() + path }

func schemaOf(s string) json.RawMessage { return json.RawMessage(s) }

func (d *desk) tool(id string, effect gate.SideEffect, capability, input string, result any, fail error) gate.Tool {
	return gate.Tool{ID: id, Version: "1.0.0", ContractVersion: "v1", Title: "Title", Description: "About it.", SideEffect: effect,
		Idempotency: gate.Idempotent, Determinism: gate.BestEffort,
		Availability: gate.OfflineOK, Capabilities: []string{capability}, Bindings: []gate.Transport{gate.Local, gate.MCP, gate.Other},
		Input:  schemaOf(input),
		Output: schemaOf(`{}`),
		Handle: func(_ context.Context, c gate.Call) (any, error) {
			d.mu.Lock()
			d.calls = append(d.calls, c.Request)
			d.mu.Unlock()
			return result, fail
		}}
}

// own returns an operation of the gateway, with this answer.
func (d *desk) own(id string, result any) gate.Tool {
	d.t.Helper()
	o, ok := new(app.Gateway).Find(id)
	if !ok {
		d.t.Fatalf("the gateway has no operation %s", id)
	}
	own := o.Tool()
	if fields, ok := result.(obj); ok { // the test's fields, over an answer without anything
		var schema obj
		must(d.t, json.Unmarshal(own.Described(), &schema))
		result = filled(schema, asJSON(d.t, fields))
	}
	t := d.tool(id, own.SideEffect, o.Capability, string(own.Input), result, nil)
	t.Capabilities = own.Capabilities
	return t
}

type obj = map[string]any

// asJSON returns a value as a program reads it from JSON.
func asJSON(t testing.TB, v any) (out any) {
	t.Helper()
	b := value(json.Marshal(v))(t)
	must(t, json.Unmarshal(b, &out))
	return out
}

// filled returns a value with all that a schema requires; what the value lacks is empty.
func filled(schema obj, given any) any {
	if either, ok := schema["anyOf"].([]any); ok { // or null
		if given == nil {
			return nil
		}
		return filled(either[0].(obj), given)
	}
	switch schema["type"] {
	case "object":
		out, _ := given.(obj)
		if out == nil {
			out = obj{}
		}
		properties, _ := schema["properties"].(obj)
		required, _ := schema["required"].([]any)
		for name, of := range properties {
			if had, has := out[name]; has || slices.Contains(required, any(name)) {
				out[name] = filled(of.(obj), had)
			}
		}
		return out
	case "array":
		list, _ := given.([]any)
		for i := range list {
			list[i] = filled(schema["items"].(obj), list[i])
		}
		return append([]any{}, list...)
	}
	values, _ := schema["enum"].([]any)
	switch {
	case given != nil:
		return given
	case len(values) > 0:
		return values[0]
	case schema["format"] == "date-time":
		return "2026-11-21T12:00:00Z"
	}
	return map[any]any{"string": "", "integer": 0, "number": 0, "boolean": false}[schema["type"]]
}

func (d *desk) tools() []gate.Tool {
	now := "2026-11-21T12:00:00Z"
	sub := obj{"run_id": runA, "provenance_run_id": runA, "slurm_job_id": "7", "state": "queued", "phase": "pending", "attempt": 1,
		"reason": nil, "replayed": false, "poll_after_seconds": 2,
		"slurm_script_artifact_id": nil, "log_artifact_id": nil, "equivalent_runs": []string{}, "warnings": []string{}}
	art := obj{"artifact_id": artA, "project_id": "p", "type": "TSV", "label": "l", "size_bytes": 600_000, "checksum_sha256": sum,
		"source": "import", "created_at": now}
	imported := maps.Clone(art)
	imported["created"] = true
	slow := d.tool("test.slow", gate.Execute, gate.CapSlurm, `{"type":"object"}`, nil, nil)
	slow.Handle = func(ctx context.Context, _ gate.Call) (any, error) {
		d.began <- true
		select {
		case <-ctx.Done():
		case <-time.After(400 * time.Millisecond): // when the client has hung up and the port has noticed
		}
		d.effect <- ctx.Err()
		return sub, nil
	}
	echo := d.tool("test.echo", gate.Execute, gate.CapSlurm,
		`{"type":"object","required":["n"],"additionalProperties":false,"properties":{"n":{"type":"integer"}}}`, nil, nil)
	echo.Handle = func(_ context.Context, c gate.Call) (any, error) {
		var a struct{ N int }
		_ = json.Unmarshal(c.Args, &a)
		if k, ok := map[int]fault.Kind{1: fault.Internal, 2: fault.Policy, 3: fault.Conflict, 4: fault.Tool, 5: fault.Canceled,
			6: fault.Timeout, 7: fault.Transport, 8: fault.Unknown, 9: fault.NotFound, 10: fault.Auth}[a.N]; ok {
			return nil, fault.New(k, "some_code", "some words")
		}
		return sub, nil
	}
	erase := d.own("secret.erase", nil)
	erase.Body = 64
	erase.Handle = func(_ context.Context, c gate.Call) (any, error) {
		text, err := io.ReadAll(c.Caller.Body)
		return obj{"bytes": len(text), "args": string(c.Args)}, err
	}
	list := []gate.Tool{
		echo, slow, erase,
		d.tool("test.denied", gate.Execute, "nobody", `{"type":"object"}`, sub, nil),
		d.own("slurm.submit", sub),
		d.own("slurm.job.retry", sub),
		d.own("run.export", obj{"run_id": runA}),
		d.own("batch.export", obj{"batch_id": "batch_x"}),
		d.own("batch.run", obj{"batch_id": "batch_x", "rows": 2}),
		d.own("artifact.import", imported),
		d.own("artifact.get", art),
		d.own("artifact.preview.image", obj{"artifact_id": artA, "type": "PNG", "mime_type": "image/png", "data_base64": "iVBORw=="}),
	}
	for _, r := range Routes() { // the others have an answer without anything
		if !slices.ContainsFunc(list, func(x gate.Tool) bool { return x.ID == r.Operation }) {
			list = append(list, d.own(r.Operation, obj{}))
		}
	}
	return list
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	return limitedDesk(t, Limits{Connections: 64}, 0)
}

func limitedDesk(t *testing.T, l Limits, streams int) *desk {
	t.Helper()
	return deskOver(t, nil, l, streams)
}

// pipedDesk returns a desk whose connections use the test's clock, in a bubble: there, a step without a delay takes
// no time.
func pipedDesk(t *testing.T, l Limits, streams int) *desk {
	t.Helper()
	return deskOver(t, newPipes(), l, streams)
}

// deskOver returns a desk that is reached over pipes, or with nil over TCP.
func deskOver(t *testing.T, p *pipes, l Limits, streams int) *desk {
	t.Helper()
	d := &desk{t: t, began: make(chan bool, 4), effect: make(chan error, 4)}
	d.export = func(_ context.Context, a ExportArgs) (Archive, error) {
		return boxed{args: a, size: 5, text: "PK..."}, nil
	}
	r := value(gate.NewRegistry(d.tools()...))(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, sum), []byte(strings.Repeat("hello\n", 100_000)), 0o600))
	stopping := make(chan struct{})
	h := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: tokens{}, Contents: folder(dir), Streams: streams,
		PublicURL: "https://gw.example.org",
		Issuers:   []string{"https://login.example.org"}, DomainID: "genomics", Version: func(gate.Caller) string { return "1.0.0+abc" },
		Export: func(ctx context.Context, a ExportArgs) (Archive, error) { return d.export(ctx, a) },
		Events: func(_ context.Context, _ string, after int64) (out []Event, over bool, err error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, e := range d.events {
				if e.Seq > after {
					out = append(out, e)
				}
			}
			return out, d.over, nil
		},
		Ready: func(context.Context) error { d.mu.Lock(); defer d.mu.Unlock(); return d.ready },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "x 1\n")
		}),
		MCP: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			writeJSON(w, http.StatusOK, "application/json", CallerOf(req.Context()).Transport)
		})}, stopping)
	c := PortConfig{Listen: "127.0.0.1:0", Hosts: []string{"gw.example.org"}, Origins: []string{"https://lab.example.org"}, Limits: l}
	end := sync.OnceFunc(func() { close(stopping) })
	if p != nil {
		d.port = start(&door{Listener: p, conns: newConns(l)}, doors(c, p.Addr().String())(h), end, quiet)
		d.dial = func() net.Conn { return p.dial(t) }
	} else {
		d.port = value(Serve(c, h, end, quiet))(t)
		d.dial = func() net.Conn {
			conn := value(net.Dial("tcp", d.port.Addr()))(t)
			t.Cleanup(func() { conn.Close() })
			return conn
		}
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		d.port.Shutdown(ctx)
	})
	d.contract = newContract(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return d.dial(), nil
	}})
	d.client = &http.Client{Transport: d.contract}
	return d
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) doc(t testing.TB) (m obj) {
	t.Helper()
	if err := json.Unmarshal(r.body, &m); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return m
}

// send makes a request: "METHOD /path", a body, and headers as "Name: value"; with the token "all" unless a header
// sets another.
func (d *desk) send(what, body string, headers ...string) reply {
	d.t.Helper()
	method, path, _ := strings.Cut(what, " ")
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := value(http.NewRequest(method, d.url(path), r))(d.t)
	req.Header.Set("Authorization", "Bearer all")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Del(name)
		if value != "" {
			req.Header.Set(name, value)
		}
		if name == "Host" {
			req.Host = value
		}
	}
	res := value(d.client.Do(req))(d.t)
	defer res.Body.Close()
	b := value(io.ReadAll(res.Body))(d.t)
	return reply{res.StatusCode, res.Header, b}
}

// Every operation of the document is served, and request and answer match the document.
//
// proves AX-03
func TestEveryOperation(t *testing.T) {
	d := newDesk(t)
	envelope, _ := json.Marshal(gate.NewRequest("slurm.job.get", "1.0.0", json.RawMessage(`{"run_id":"`+runA+`"}`)))
	for _, c := range []struct {
		what, body string
		status     int
	}{
		{"GET /healthz", "", 200}, {"GET /readyz", "", 200}, {"GET /metrics", "", 200}, {"GET /openapi.json", "", 200},
		{"GET /v1/domain", "", 200}, {"GET /v1/tools", "", 200}, {"GET /v1/registry", "", 200},
		{"GET /v1/tools/test.echo/input_schema", "", 200}, {"GET /v1/tools/test.echo/output_schema", "", 200}, {"POST /mcp", "{}", 200},
		{"POST /v1/tools/test.echo:run", `{"input":{"n":0}}`, 200}, {"POST /v1/tool-calls", string(envelope), 200},
		{"POST /v1/runs/" + runA + ":cancel", "", 200},
		{"POST /v1/runs", `{"job_spec":{},"dry_run":true}`, 200}, {"POST /v1/runs", `{"job_spec":{},"dry_run":1}`, 400},
		{"GET /.well-known/oauth-protected-resource", "", 200}, {"GET /.well-known/oauth-protected-resource/mcp", "", 200},
	} {
		if r := d.send(c.what, c.body); r.status != c.status {
			t.Errorf("%s: %d %s", c.what, r.status, r.body)
		}
	}
	if r := d.send("POST /v1/secrets:erase?reason=it%20leaked&dry_run=false", "the secret",
		"Content-Type: application/octet-stream"); r.status != 200 ||
		!strings.Contains(string(r.body), `"bytes":10`) || !strings.Contains(string(r.body), `it leaked`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	for want, r := range map[int]reply{400: d.send("POST /v1/secrets:erase?reason=x", "{}"), 422: d.send("POST /v1/secrets:erase?reason=x",
		strings.Repeat("long ", 20), "Content-Type: application/octet-stream")} {
		if r.status != want && r.status != 400 {
			t.Errorf("%d %s, want %d", r.status, r.body, want)
		}
	}
	ids := strings.NewReplacer("{run_id}", runA, "{artifact_id}", artA, "{approval_id}", approvalA, "{batch}", "b", "{name}", "hg38")
	bodies := map[string]string{"submitRun": `{"job_spec":{}}`, "runBatch": `{"tool_id":"t.x","name":"b","sheet":"a"}`,
		"notifyRun": `{"url":"https://a.b"}`, "notifyBatch": `{"url":"https://a.b"}`, "importArtifact": `{"text":"a"}`,
		"answerApproval": `{"approve":true}`}
	query := map[string]string{"getBatchTable": "?role=r", "monthlyUsage": "?month=2026-11", "removeRun": "?reason=r",
		"removeArtifact": "?reason=r"}
	for _, r := range Routes() {
		if r.Bytes {
			continue
		}
		what, want := r.Method+" "+ids.Replace(r.Path)+query[r.ID], cmp.Or(r.New, 200)
		if r.Method == http.MethodPost && bodies[r.ID] == "" {
			bodies[r.ID] = "{}"
		}
		if got := d.send(what, bodies[r.ID]); got.status != want {
			t.Errorf("%s = %d %s, want %d", what, got.status, got.body, want)
		}
	}
	if left := d.unseen(); len(left) > 0 {
		t.Errorf("in the document, and not tried: %v", left)
	}
	if r := d.send("POST /v1/artifacts?label=l&type=TSV", "bytes", "Content-Type: application/octet-stream"); r.status != 201 ||
		r.header.Get("Location") != "/v1/artifacts/"+artA {
		t.Errorf("an upload: %d %s", r.status, r.body)
	}
	if r := d.send("GET /v1/artifacts/"+artA+"/preview/image", "", "Accept: image/png"); r.status != 200 || string(r.body) != "\x89PNG" ||
		r.header.Get("Content-Type") != "image/png" || !strings.Contains(r.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the picture itself: %d %v %q", r.status, r.header, r.body)
	}
	tools := d.send("GET /v1/tools", "").doc(t)
	if tools["domain_id"] != "genomics" || tools["version"] != "1.0.0+abc" || len(tools["tools"].([]any)) != 3 {
		t.Error(tools)
	}
	if r := d.send("GET /v1/tools", "", `If-None-Match: "genomics@1.0.0+abc"`); r.status != 304 || len(r.body) > 0 ||
		!strings.HasPrefix(r.header.Get("Cache-Control"), "private") {
		t.Error(r.status, r.header)
	}
	if r := d.send("POST /mcp", "{}"); string(r.body) != `"mcp"`+"\n" {
		t.Errorf("a chat's calls are not known as one's: %s", r.body)
	}
}

// A caller does not see what it may not call; what it may not do is refused.
//
// proves HTC-07
func TestViews(t *testing.T) {
	d := newDesk(t)
	look := "Authorization: Bearer look"
	if n := len(d.send("GET /v1/tools", "", look).doc(t)["tools"].([]any)); n != 0 {
		t.Error(n)
	}
	readable := 0
	for _, x := range d.tools() {
		if !slices.ContainsFunc(x.Capabilities, func(c string) bool { return c != gate.CapGateway && c != gate.CapRead }) {
			readable++
		}
	}
	if n := len(d.send("GET /v1/registry", "", look).doc(t)["tools"].([]any)); n != readable {
		t.Errorf("GET /v1/registry lists %d tools to a caller who may read, want %d", n, readable)
	}
	for _, what := range []string{"POST /v1/runs/" + runA + ":cancel", "POST /v1/runs/" + runA + ":retry"} {
		if r := d.send(what, "", look); r.status != 403 || r.doc(t)["code"] != "capability_denied" {
			t.Errorf("%s: %d %s", what, r.status, r.body)
		}
	}
	if r := d.send("POST /v1/tools/test.denied:run", `{"input":{}}`, look); r.status != 403 ||
		r.doc(t)["error"].(obj)["details"].(obj)["code"] != "capability_denied" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// The metrics count what happens in every project, so reading everything, or doing anything in one project, is not enough to see them.
func TestMetricsAreASiteWideRight(t *testing.T) {
	d := newDesk(t)
	for token, status := range map[string]int{"figures": 200, "all": 200, "look": 403, "all-of-one": 403} {
		r := d.send("GET /metrics", "", "Authorization: Bearer "+token)
		if r.status != status || status == 403 && r.doc(t)["code"] != "capability_denied" {
			t.Errorf("%s: %d %s", token, r.status, r.body)
		}
	}
	if r := d.send("GET /v1/runs", "", "Authorization: Bearer figures"); r.status != 403 {
		t.Errorf("a token for metrics lists runs: %d %s", r.status, r.body)
	}
}

// The short form: output or error, the run's id, five codes, and the status of the table.
//
// proves AX-04
func TestRunForm(t *testing.T) {
	d := newDesk(t)
	ok := d.send("POST /v1/tools/test.echo:run", `{"input":{"n":0}}`).doc(t)
	if ok["ok"] != true || ok["tool_id"] != "test.echo" || ok["tool_run_id"] != runA || ok["output"].(obj)["run_id"] != runA ||
		ok["error"] != nil || len(ok["meta"].(obj)["trace_id"].(string)) != 36 {
		t.Error(ok)
	}
	for body, want := range map[string]struct {
		status int
		code   string
		again  bool
	}{
		`{"n":1}`: {500, "INTERNAL", false}, `{"n":2}`: {403, "VALIDATION_ERROR", false}, `{"n":3}`: {409, "VALIDATION_ERROR", false},
		`{"n":4}`: {502, "UPSTREAM_ERROR", false},
		`{"n":5}`: {409, "INTERNAL", false}, `{"n":6}`: {504, "TIMEOUT", true}, `{"n":7}`: {503, "UPSTREAM_ERROR", true},
		`{"n":8}`: {500, "INTERNAL", false}, `{"n":9}`: {404, "NOT_FOUND", false},
		`{"n":10}`: {401, "VALIDATION_ERROR", false}, `{"n":"x"}`: {400, "VALIDATION_ERROR", false}, `{}`: {400, "VALIDATION_ERROR", false},
		`{"n":0,"x":1}`: {400, "VALIDATION_ERROR", false},
	} {
		r := d.send("POST /v1/tools/test.echo:run", `{"input":`+body+`}`)
		e, _ := r.doc(t)["error"].(obj)
		if r.status != want.status || e["code"] != want.code || e["retryable"] != want.again || e["details"].(obj)["kind"] == nil ||
			r.doc(t)["output"] != nil {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	for name, c := range map[string]struct {
		path, body string
		status     int
		headers    []string
	}{
		"no such tool": {"none.such", `{"input":{}}`, 404, nil}, "a name": {"test_echo", `{"input":{}}`, 404, nil}, "no token": {"test.echo",
			`{"input":{}}`, 401, []string{"Authorization: "}},
		"no input": {"test.echo", `{}`, 400, nil}, "more": {"test.echo", `{"input":{},"x":1}`, 400, nil}, "twice": {"test.echo",
			`{"input":{},"input":{"n":0}}`, 400, nil}, "null": {"test.echo", `null`, 400, nil},
		"text": {"test.echo", `{"input":{}}`, 415, []string{"Content-Type: text/plain"}}, "packed": {"test.echo", `{"input":{}}`, 415,
			[]string{"Content-Encoding: gzip"}},
	} {
		r := d.send("POST /v1/tools/"+c.path+":run", c.body, c.headers...)
		if e, _ := r.doc(t)["error"].(obj); r.status != c.status || e == nil || e["code"] == "INTERNAL" || r.doc(t)["ok"] != false {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
}

// Requests that are not for us, not from us, or not what they say.
func TestBadRequests(t *testing.T) {
	d := newDesk(t)
	big := `{"text":"` + strings.Repeat("x", maxRequestBytes) + `"}`
	for name, c := range map[string]struct {
		what, body string
		headers    []string
		status     int
		code       string
	}{
		"no token":                {"GET /v1/runs", "", []string{"Authorization: "}, 401, "unauthenticated"},
		"unknown token":           {"GET /v1/runs", "", []string{"Authorization: Bearer x"}, 401, "unauthenticated"},
		"other scheme":            {"GET /v1/runs", "", []string{"Authorization: Basic YWxs"}, 401, "unauthenticated"},
		"figures without a token": {"GET /metrics", "", []string{"Authorization: "}, 401, "unauthenticated"},
		"chat without a token":    {"POST /mcp", "{}", []string{"Authorization: "}, 401, "unauthenticated"},
		"other host":              {"GET /healthz", "", []string{"Host: evil.example"}, 403, "host_not_allowed"},
		"other origin":            {"GET /healthz", "", []string{"Origin: https://evil.example"}, 403, "origin_not_allowed"},
		"null origin":             {"GET /healthz", "", []string{"Origin: null"}, 403, "origin_not_allowed"},
		"other origin at mcp":     {"POST /mcp", "{}", []string{"Origin: https://evil.example"}, 403, "origin_not_allowed"},
		"form": {"POST /v1/artifacts", "text=x", []string{"Content-Type: application/x-www-form-urlencoded"}, 415,
			"content_type"},
		"no type":               {"POST /v1/artifacts", "{}", []string{"Content-Type: "}, 415, "content_type"},
		"charset":               {"POST /v1/artifacts", "{}", []string{"Content-Type: application/json; charset=latin1"}, 415, "content_type"},
		"gzip":                  {"POST /v1/artifacts", "\x1f\x8b", []string{"Content-Encoding: gzip"}, 415, "content_encoding"},
		"gzip at mcp":           {"POST /mcp", "\x1f\x8b", []string{"Content-Encoding: gzip"}, 415, "content_encoding"},
		"too large":             {"POST /v1/artifacts", big, nil, 413, "body_too_large"},
		"no JSON":               {"POST /v1/artifacts", "{", nil, 400, "JSON-SYNTAX"},
		"a list":                {"POST /v1/artifacts", "[]", nil, 400, "BODY-OBJECT"},
		"unknown key":           {"POST /v1/artifacts", `{"file":"x"}`, nil, 400, "BODY-KEY"},
		"twice":                 {"POST /v1/artifacts", `{"text":"x","text":"y"}`, nil, 400, "JSON-DUPLICATE-KEY"},
		"id in the body":        {"POST /v1/runs/" + runA + ":cancel", `{"run_id":"` + runA + `"}`, nil, 400, "BODY-KEY"},
		"no run":                {"GET /v1/runs/x", "", nil, 400, "ARGS-SCHEMA"},
		"upload, query unknown": {"POST /v1/artifacts?path=/etc/passwd", "x", []string{"Content-Type: application/octet-stream"}, 400, "QUERY"},
		"upload, packed": {"POST /v1/artifacts", "x", []string{"Content-Type: application/octet-stream", "Content-Encoding: gzip"}, 415,
			"content_encoding"},
		"upload, as a form": {"POST /v1/artifacts", "x", []string{"Content-Type: multipart/form-data; boundary=x"}, 415, "content_type"},
		"query unknown":     {"GET /v1/runs?x=1", "", nil, 400, "QUERY"},
		"query twice":       {"GET /v1/runs?limit=1&limit=2", "", nil, 400, "QUERY"},
		"query no number":   {"GET /v1/runs?limit=many", "", nil, 400, "QUERY"},
		"query broken":      {"GET /v1/runs?limit=%zz", "", nil, 400, "QUERY"},
		"limit":             {"GET /v1/runs?limit=1000", "", nil, 400, "ARGS-SCHEMA"},
		"after":             {"GET /v1/runs/" + runA + "/events?after=x", "", nil, 400, "QUERY"},
		"dots":              {"GET /v1/artifacts/../runs", "", nil, 404, "no_such_path"},
		"slash in an id":    {"GET /v1/artifacts/..%2f..%2fetc%2fpasswd/content", "", nil, 404, "no_such_path"},
		"double slash":      {"GET //v1//runs", "", nil, 404, "no_such_path"},
		"NUL":               {"GET /v1/runs/%00", "", nil, 404, "no_such_path"},
		"nothing there":     {"GET /admin", "", nil, 404, "no_such_path"},
		"method":            {"DELETE /v1/runs", "", nil, 405, "method_not_allowed"},
	} {
		r := d.send(c.what, c.body, c.headers...)
		if r.status != c.status || !strings.Contains(string(r.body), `"code":"`+c.code+`"`) ||
			r.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if strings.Contains(string(r.body), "/root/") || strings.Contains(string(r.body), ".go:") {
			t.Errorf("%s leaks: %s", name, r.body)
		}
	}
	for _, h := range []string{"Host: gw.example.org", "Host: gw.example.org:8443", "Host: GW.example.org",
		"Origin: https://lab.example.org", "Origin: http://" + d.port.Addr()} {
		if r := d.send("GET /healthz", "", h); r.status != 200 {
			t.Errorf("%s: %d %s", h, r.status, r.body)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) != 0 {
		t.Errorf("%d of the refused requests reached a tool, want none: %+v", len(d.calls), d.calls)
	}
}

// raw writes bytes on a connection and returns the answer.
func (d *desk) raw(t *testing.T, limit time.Duration, write func(net.Conn)) string {
	t.Helper()
	c := d.dial()
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	write(c)
	b, _ := io.ReadAll(c)
	return string(b)
}

// What does not keep to HTTP's own rules ends with a status, or with the connection.
func TestBadConnections(t *testing.T) {
	d := newDesk(t)
	head := "Host: localhost:" + d.port.Addr()[strings.LastIndexByte(d.port.Addr(), ':')+1:] + "\r\nAuthorization: Bearer " +
		"all\r\nConnection: close\r\n"
	body := `{"text":"x"}`
	for name, c := range map[string]struct{ send, want string }{
		"length too long": {"POST /v1/artifacts HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nContent-Length: 500\r\n\r\n" +
			body, "400"},
		"length too short": {"POST /v1/artifacts HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nContent-Length: 5\r\n\r\n" +
			body, "400"},
		"two lengths": {"POST /v1/artifacts HTTP/1.1\r\n" + head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body, "400"},
		"length and chunks": {"POST /v1/artifacts HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nContent-Length: " +
			"3\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
		"negative length":    {"POST /v1/artifacts HTTP/1.1\r\n" + head + "Content-Length: -1\r\n\r\n", "400"},
		"huge headers":       {"GET /v1/runs HTTP/1.1\r\n" + head + "X: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "431"},
		"many headers":       {"GET /v1/runs HTTP/1.1\r\n" + head + strings.Repeat("X: xxxxxxxxxx\r\n", 10_000) + "\r\n", "431"},
		"no host":            {"GET /v1/runs HTTP/1.1\r\n\r\n", "400"},
		"two hosts":          {"GET /v1/runs HTTP/1.1\r\n" + head + "Host: x\r\n\r\n", "400"},
		"no HTTP":            {"hello\r\n\r\n", "400"},
		"an absolute target": {"GET http://evil.example/v1/runs HTTP/1.1\r\n" + head + "\r\n", "403"},
		"connect":            {"CONNECT evil.example:443 HTTP/1.1\r\n" + head + "\r\n", "40"},
		"chunks without an end": {"POST /v1/artifacts HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n" + strings.Repeat("100000\r\n"+strings.Repeat("x", 1<<20)+"\r\n", 3), "413"},
		"a chunk of a huge size": {"POST /v1/artifacts HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nTransfer-Encoding: " +
			"chunked\r\n\r\nffffffffffffffffff\r\n", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := d.raw(t, 2*time.Minute, func(conn net.Conn) {
				io.WriteString(conn, c.send) // the server may have hung up before the end
				conn.(*net.TCPConn).CloseWrite()
			})
			if !strings.HasPrefix(got, "HTTP/1.1 "+c.want) {
				t.Errorf("%.300q, want %s", got, c.want)
			}
		})
	}
}

// A client that does not send its headers is let go.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		s := start(&door{Listener: p, conns: newConns(Limits{})}, http.NotFoundHandler(), func() {}, quiet)
		defer s.Shutdown(t.Context())
		conn, began := p.dial(t), time.Now()
		io.WriteString(conn, "GET /v1/runs HTTP/1.1\r\nHost: ")
		got, _ := io.ReadAll(conn)
		if took := time.Since(began); len(got) > 0 && !bytes.HasPrefix(got, []byte("HTTP/1.1 4")) || took != headerTime {
			t.Errorf("half a header was answered with %q after %v, want the end of the connection or a 4xx after %v", got, took, headerTime)
		}
	})
}

// A client that hangs up in the middle of a call with an effect takes nothing back.
func TestHungUp(t *testing.T) { synctest.Test(t, hungUp) }

func hungUp(t *testing.T) {
	d := pipedDesk(t, Limits{Connections: 64}, 0)
	for _, what := range []string{"/v1/tools/test.slow:run", "/v1/tool-calls"} {
		body := `{"input":{}}`
		if what == "/v1/tool-calls" {
			b, _ := json.Marshal(gate.NewRequest("test.slow", "1.0.0", json.RawMessage(`{}`)))
			body = string(b)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { <-d.began; hangUp() }()
		req, _ := http.NewRequestWithContext(ctx, "POST", d.url(what), strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer all")
		req.Header.Set("Content-Type", "application/json")
		if _, err := d.client.Do(req); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-d.effect; err != nil {
			t.Errorf("%s: the call was cut off: %v", what, err)
		}
	}
}

// Events come as a list, or as a stream that ends with the run, takes up where a client left off, and ends when the gateway stops.
func TestEvents(t *testing.T) {
	d := newDesk(t)
	d.events = []Event{{Seq: 3, Type: "run.created", RunID: runA}, {Seq: 5, Type: "run.pending", RunID: runA}}
	if l := d.send("GET /v1/runs/"+runA+"/events?after=3", "").doc(t); len(l["events"].([]any)) != 1 || l["over"] != false {
		t.Error(l)
	}
	lines := make(chan string, 100)
	go func() {
		req, _ := http.NewRequest("GET", d.url("/v1/runs/"+runA+"/events"), nil)
		req.Header.Set("Authorization", "Bearer all")
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Last-Event-ID", "3")
		res, err := d.client.Do(req)
		if err != nil {
			t.Error(err)
			close(lines)
			return
		}
		defer res.Body.Close()
		for sc := bufio.NewScanner(res.Body); sc.Scan(); {
			lines <- sc.Text()
		}
		close(lines)
	}()
	expect := func(want string) {
		t.Helper()
		for {
			select {
			case l, ok := <-lines:
				if !ok {
					t.Fatalf("the stream ended before %q", want)
				}
				if strings.HasPrefix(l, want) {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("no %q", want)
			}
		}
	}
	expect("id: 5")
	d.mu.Lock()
	d.events = append(d.events, Event{Seq: 9, Type: "run.succeeded", RunID: runA})
	d.over = true
	d.mu.Unlock()
	expect("id: 9")
	expect("event: over")
	if _, more := <-lines; more { // the empty line, then the end
		<-lines
	}
	d.mu.Lock()
	d.over = false
	d.mu.Unlock()
	req := value(http.NewRequest("GET", d.url("/v1/runs/"+runA+"/events"), nil))(t)
	req.Header.Set("Authorization", "Bearer all")
	req.Header.Set("Accept", "text/event-stream")
	stream := value(d.client.Do(req))(t)
	defer stream.Body.Close()
	d.contract.next.(*http.Transport).CloseIdleConnections() // net/http waits 5 s for one that was dialled in vain and has sent nothing
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := d.port.Shutdown(ctx); err != nil {
		t.Errorf("a stream keeps the gateway from stopping: %v", err)
	}
}

// Bytes come whole and in ranges, and no browser takes them for a page.
func TestRanges(t *testing.T) {
	d := newDesk(t)
	path := "GET /v1/artifacts/" + artA + "/content"
	if r := d.send(path, ""); len(r.body) != 600_000 || r.header.Get("Content-Disposition") != "attachment" ||
		!strings.Contains(r.header.Get("Content-Security-Policy"), "sandbox") {
		t.Error(len(r.body), r.header)
	}
	for given, want := range map[string]struct {
		status int
		body   string
	}{"bytes=0-4": {206, "hello"}, "bytes=-6": {206, "hello\n"}, "bytes=599994-": {206, "hello\n"}, "bytes=600000-": {416, ""},
		"bytes=5-1": {416, ""}} {
		if r := d.send(path, "", "Range: "+given); r.status != want.status || r.status == 206 && string(r.body) != want.body {
			t.Errorf("%s: %d %.50q", given, r.status, r.body)
		}
	}
	if r := d.send(path, "", `If-None-Match: "sha256:`+sum+`"`); r.status != 304 {
		t.Error(r.status)
	}
}

// A refused client gets the issuers of tokens, where there are any.
func TestMetadata(t *testing.T) {
	d := newDesk(t)
	m := d.send("GET /.well-known/oauth-protected-resource/mcp", "", "Authorization: ", "Host: gw.example.org").doc(t)
	if m["resource"] != "https://gw.example.org/mcp" || m["authorization_servers"].([]any)[0] != "https://login.example.org" {
		t.Error(m)
	}
	if h := d.send("POST /mcp", "{}", "Authorization: ").
		header.Get("WWW-Authenticate"); h != `Bearer resource_metadata="https://gw.example.org/.well-known/oauth-protected-resource/mcp"` {
		t.Error(h)
	}
}

func TestReady(t *testing.T) {
	d := newDesk(t)
	d.ready = fault.New(fault.Transport, "slurm_unreachable", "Slurm does not answer")
	if r := d.send("GET /readyz", "", "Authorization: "); r.status != 503 || r.doc(t)["code"] != "slurm_unreachable" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := d.send("GET /v1/runs", ""); r.status != 200 {
		t.Error("reads are served all the same")
	}
}

// The idempotency key of the header reaches the envelope.
func TestIdempotencyHeader(t *testing.T) {
	d := newDesk(t)
	r := d.send("POST /v1/artifacts", `{"text":"x"}`, "Idempotency-Key: k1")
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) == 1 && (d.calls[0].IdempotencyKey == nil || *d.calls[0].IdempotencyKey != "k1") || len(d.calls) == 0 &&
		!strings.Contains(string(r.body), "idempotency_key") {
		t.Errorf("%d calls reached a tool: %+v, answered with %s; want the key k1 or a refusal", len(d.calls), d.calls, r.body)
	}
}

// The caller's span comes in a header: ours, or the one of W3C Trace Context.
func TestSpanHeader(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"Slurmgate-Parent-Span", "span:7", "span:7"},
		{"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00f067aa0ba902b7"},
		{"Traceparent", "nothing", ""},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := parentSpan(h); got != c.want {
			t.Errorf("%s: %s: %q", c.name, c.value, got)
		}
	}
	d := newDesk(t)
	d.send("GET /v1/runs", "", "Slurmgate-Parent-Span: span:8")
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) != 1 || d.calls[0].ParentSpanID != "span:8" {
		t.Errorf("%d calls reached a tool: %+v; want one with span:8", len(d.calls), d.calls)
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{"", "limit=1", "a=b&a=c", "%zz", "limit=99999999999999999999", "cursor=%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		req := value(http.NewRequest("GET", "http://x/", nil))(t)
		req.URL.RawQuery = query
		args, err := arguments(req.URL, map[string]string{"limit": integerType, "cursor": textType})
		if err != nil {
			return
		}
		raw := value(json.Marshal(args))(t)
		if _, err := plan.Canonical(raw); err != nil && !strings.Contains(query, "%") && strings.ToValidUTF8(query, "") == query {
			t.Errorf("%q: %s: %v", query, raw, err)
		}
	})
}
