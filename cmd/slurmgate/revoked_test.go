package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/access"
	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/mcp"
)

const (
	runOfTest = "run_3SE9HRX367RN37683ZB6KX0C3D"
	artOfTest = "art_45G7QPW5RFS0CCAGQR83T82KBN"
	bytesHeld = 256 << 20 // more than sockets buffer
)

// door is a port with the real access, gate, HTTP and chats, over tools that wait until the test releases them or their
// context ends.
type door struct {
	t        *testing.T
	access   *access.Access
	url      string
	mu       sync.Mutex
	tokens   map[string]gate.Token
	began    chan string // a tool was reached, by whom
	release  chan struct{}
	stored   atomic.Int64 // imports that ended well
	accepted atomic.Int64 // submits
	file     string
}

func (d *door) Token(_ context.Context, id string) (gate.Token, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tokens[id]
	if !ok {
		return t, fault.New(fault.NotFound, "token_not_found", "there is none")
	}
	return t, nil
}

// Open implements httpapi.Contents.
func (d *door) Open(string) (*os.File, error) { return os.Open(d.file) }

// Artifact implements httpapi.Contents.
func (d *door) Artifact(context.Context, string) (io.ReadSeekCloser, error) { return d.Open("") }

// token makes a token with a name and a lifetime.
func (d *door) token(name string, valid time.Duration) string {
	d.t.Helper()
	g := value(access.NewGrant([]string{gate.All}, []string{gate.All}, nil))(d.t)
	tok, text := access.NewToken(name, g, gate.Principal{Name: "user:x"}, time.Now().Add(valid))
	tok.PrincipalID = "prn_" + name
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tokens[tok.ID] = tok
	return text
}

// revoke does what token.revoke does: the ledger first, then the requests in progress.
func (d *door) revoke(name string) {
	d.mu.Lock()
	now := time.Now()
	for id, t := range d.tokens {
		if t.Name == name {
			t.RevokedAt = &now
			d.tokens[id] = t
		}
	}
	d.mu.Unlock()
	d.access.Revoked(gate.Principal{ID: "prn_" + name})
}

func openDoor(t *testing.T) *door {
	t.Helper()
	d := &door{t: t, tokens: map[string]gate.Token{}, began: make(chan string, 100), release: make(chan struct{}),
		file: filepath.Join(t.TempDir(), "held")}
	f, err := os.Create(d.file)
	if err == nil {
		err = f.Truncate(bytesHeld)
		f.Close()
	}
	must(t, err)
	tool := func(id string, effect gate.SideEffect, h gate.Handler) gate.Tool {
		o, ok := new(app.Gateway).Find(id)
		if !ok {
			t.Fatalf("the gateway has no operation %s", id)
		}
		return gate.Tool{ID: id, Version: "1.0.0", ContractVersion: "v1", Title: id, Description: id, SideEffect: effect,
			Idempotency: gate.Idempotent,
			Determinism: gate.BestEffort, Availability: gate.OfflineOK, Capabilities: []string{gate.CapGateway, gate.CapRead},
			Chat:     gate.Chat{Has: true},
			Bindings: []gate.Transport{gate.Local, gate.MCP, gate.Other}, Input: o.Tool().Input,
			Output: json.RawMessage(`{"type":"object"}`), Handle: h}
	}
	r := value(gate.NewRegistry(
		tool("slurm.job.get", gate.Read, func(ctx context.Context, c gate.Call) (any, error) {
			if strings.Contains(string(c.Args), "wait_seconds") {
				d.began <- c.Caller.Name
				select {
				case <-d.release:
				case <-ctx.Done(): // as the engine does: what is known is still an answer
				}
			}
			return map[string]any{"state": "seen"}, nil
		}),
		tool("artifact.get", gate.Read, func(context.Context, gate.Call) (any, error) {
			return map[string]any{"checksum_sha256": strings.Repeat("0", 64)}, nil
		}),
		tool("artifact.import", gate.Write, func(_ context.Context, c gate.Call) (any, error) {
			d.began <- c.Caller.Name
			_, err := io.Copy(io.Discard, c.Caller.Body)
			if err == nil {
				d.stored.Add(1)
			}
			return map[string]any{"artifact_id": artOfTest, "created": true}, err
		}),
		tool("slurm.submit", gate.Execute, func(context.Context, gate.Call) (any, error) {
			d.accepted.Add(1)
			return map[string]any{"run_id": runOfTest}, nil
		})))(t)
	log := slog.New(slog.DiscardHandler)
	g := gate.New(gate.Config{Registry: r, Log: log})
	d.access = access.New(access.Config{Tokens: d})
	stopping := make(chan struct{})
	end := sync.OnceFunc(func() { close(stopping) })
	h := httpapi.Handler(httpapi.Config{Gate: g, Auth: d.access, While: d.access.While, Contents: d, Log: log,
		MCP: mcp.Handler(mcp.New(mcp.Config{Gateway: chatGate{g}, Name: "x", Version: "1", Log: log}), log),
		Events: func(context.Context, string, int64) ([]httpapi.Event, bool, error) {
			return []httpapi.Event{{Seq: time.Now().UnixNano(), Type: "run.created"}}, false, nil
		}}, stopping)
	port := value(httpapi.Serve(httpapi.PortConfig{Listen: "127.0.0.1:0"}, h, end, log))(t)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		port.Shutdown(ctx)
	})
	d.url = "http://" + port.Addr()
	return d
}

// send sends a request; the answer's body is open.
func (d *door) send(token, what string, body io.Reader, headers ...string) (*http.Response, error) {
	method, path, _ := strings.Cut(what, " ")
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, body)
	if err != nil {
		return nil, err
	}
	req.Close = true // a connection belongs to one caller
	req.Header.Set("Authorization", "Bearer "+token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return http.DefaultClient.Do(req)
}

// attempt is a request in progress. begin returns once the gateway works on it; end lets it continue and returns what
// the client got in the end.
type attempt struct {
	begin func(d *door, token string) (end func() string)
}

// later sends a request and returns what it got at last.
func later(d *door, token, what string, body io.Reader, headers ...string) chan string {
	got := make(chan string, 1)
	go func() {
		res, err := d.send(token, what, body, headers...)
		if err != nil {
			got <- err.Error()
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		text := res.Status + " " + string(b)
		if err != nil {
			text += " cut: " + err.Error()
		}
		got <- text
	}()
	return got
}

// working waits until the gateway is at work on a request.
func (d *door) working(got chan string) func() string {
	select {
	case <-d.began:
	case early := <-got:
		d.t.Errorf("answered at once: %s", early)
		got <- early
	}
	return func() string { return <-got }
}

var attempts = map[string]attempt{
	"a stream of events": {func(d *door, token string) func() string {
		res, err := d.send(token, "GET /v1/runs/"+runOfTest+"/events", nil, "Accept: text/event-stream")
		if err != nil {
			d.t.Error(err)
			return func() string { return "" }
		}
		lines := bufio.NewScanner(res.Body)
		lines.Scan()
		return func() string {
			defer res.Body.Close()
			for lines.Scan() {
			}
			return "ended"
		}
	}},
	"a call that waits": {func(d *door, token string) func() string {
		got := later(d, token, "GET /v1/runs/"+runOfTest+"?wait_seconds=30", nil)
		return d.working(got)
	}},
	"an envelope that waits": {func(d *door, token string) func() string {
		envelope, err := json.Marshal(gate.NewRequest("slurm.job.get", "1.0.0", json.RawMessage(`{"run_id":"`+runOfTest+`","wait_seconds":30}`)))
		if err != nil {
			d.t.Error(err)
		}
		got := later(d, token, "POST /v1/tool-calls", bytes.NewReader(envelope), "Content-Type: application/json")
		return d.working(got)
	}},
	"a chat's call that waits": {func(d *door, token string) func() string {
		got := later(d, token, "POST /mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slurm_job_get","arguments":`+
				`{"run_id":"`+runOfTest+`","wait_seconds":30}}}`), "Content-Type: application/json", "Accept: application/json, text/event-stream")
		return d.working(got)
	}},
	"an upload": {func(d *door, token string) func() string {
		r, w := io.Pipe()
		got := later(d, token, "POST /v1/artifacts", r, "Content-Type: application/octet-stream")
		w.Write([]byte("the first part"))
		return d.working(got)
	}},
	"a download": {func(d *door, token string) func() string {
		res, err := d.send(token, "GET /v1/artifacts/"+artOfTest+"/content", nil)
		if err != nil {
			d.t.Error(err)
			return func() string { return "" }
		}
		if _, err := io.CopyN(io.Discard, res.Body, 1<<16); err != nil {
			d.t.Error(err)
		}
		return func() string {
			defer res.Body.Close()
			n, err := io.Copy(io.Discard, res.Body)
			if err != nil && n < bytesHeld/2 {
				return "cut"
			}
			return "whole"
		}
	}},
	"a submit whose body comes late": {func(d *door, token string) func() string {
		r, w := io.Pipe()
		got := later(d, token, "POST /v1/runs", r, "Content-Type: application/json")
		w.Write([]byte(`{"job_spec":`))
		return func() string {
			go func() { w.Write([]byte(`{}}`)); w.Close() }()
			return <-got
		}
	}},
}

// A token that is revoked, or expires, ends the requests begun with it: within seconds, over every face, and without an
// answer or an effect. The requests of another token continue.
func TestRevokedTokenEndsItsRequests(t *testing.T) {
	d := openDoor(t)
	end := map[string]func() string{}
	token := d.token("leaked", time.Hour)
	for name, a := range attempts {
		end[name] = a.begin(d, token)
	}
	other := d.token("other", time.Hour)
	goesOn := attempts["a call that waits"].begin(d, other)
	d.revoke("leaked")
	for name, got := range over(t, end) {
		switch {
		case name == "a stream of events" && got == "ended", name == "a download" && got == "cut":
		case strings.Contains(got, "unauthenticated") && !strings.Contains(got, "seen"):
		case name == "a chat's call that waits" && !strings.Contains(got, "seen"): // the connection ends, with or without the error
		default:
			t.Errorf("%s: %s", name, got)
		}
	}
	if res, err := d.send(token, "GET /v1/runs/"+runOfTest, nil); err != nil || res.StatusCode != 401 {
		t.Error(res, err)
	}
	if d.stored.Load()+d.accepted.Load() != 0 {
		t.Errorf("%d imports and %d submits of a revoked token", d.stored.Load(), d.accepted.Load())
	}
	close(d.release)
	if got := goesOn(); !strings.Contains(got, "seen") {
		t.Errorf("another token's call: %s", got)
	}
}

// over waits for all attempts.
func over(t *testing.T, end map[string]func() string) map[string]string {
	t.Helper()
	type ending struct{ name, got string }
	ended, out := make(chan ending, len(end)), map[string]string{}
	for name, f := range end {
		go func() { ended <- ending{name, f()} }()
	}
	limit := time.After(2 * time.Minute)
	for range end {
		select {
		case e := <-ended:
			out[e.name] = e.got
		case <-limit:
			t.Fatalf("only %v ended in time", out)
		}
	}
	return out
}
