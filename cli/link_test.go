package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/mcp"
)

// anyone accepts every token as one principal.
type anyone struct{}

func (anyone) Peer(int) (gate.Principal, error) {
	return gate.Principal{}, fault.New(fault.Auth, "", "no peers here")
}

func (anyone) Bearer(context.Context, string) (gate.Principal, error) {
	return gate.Principal{Name: "token:chat", Method: gate.ByToken, Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}, nil
}

// mortal is a gateway whose socket dies with every call on it, and is served again by the next call that opens a
// gateway.
type mortal struct {
	t      *testing.T
	path   string
	face   http.Handler
	mu     sync.Mutex
	server *http.Server
	lives  atomic.Int64
}

func newMortal(t *testing.T, tools ...gate.Tool) *mortal {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := ledger.Open(t.Context(), filepath.Join(dir, "ledger.db"), ledger.Options{NewID: func() string { return "gw-test" }})
	must(t, err)
	r, err := gate.NewRegistry(tools...)
	must(t, err)
	g := gate.New(gate.Config{Registry: r, Journal: l, Promises: l, Owners: l, Log: slog.New(slog.DiscardHandler)})
	m := &mortal{t: t, path: filepath.Join(dir, "s"), face: httpapi.Handler(httpapi.Config{Gate: g, Auth: anyone{}}, nil)}
	t.Cleanup(func() { m.die(); g.Close(); l.Close() })
	return m
}

// die ends the server and every connection to it.
func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
}

// open starts the server again when it is dead, and returns a client.
func (m *mortal) open(ctx context.Context) (*httpapi.Client, Gateway, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server == nil {
		os.Remove(m.path)
		l, err := net.Listen("unix", m.path)
		if err != nil {
			return nil, nil, err
		}
		m.server = &http.Server{Handler: m.face}
		go m.server.Serve(l)
		m.lives.Add(1)
	}
	c, err := httpapi.Dial(ctx, m.path)
	if err == nil {
		c.Bear("x")
	}
	return c, nil, err
}

func countingTool(id string, n *atomic.Int64, each func(int64)) gate.Tool {
	return gate.Tool{ID: id, Version: "1.0.0", ContractVersion: "v1", Title: id, Description: "Counts.", SideEffect: gate.Execute,
		Idempotency: gate.NonIdempotent, Determinism: gate.BestEffort,
		Availability: gate.OfflineOK, Capabilities: []string{gate.CapSlurm}, Bindings: []gate.Transport{gate.Other, gate.MCP},
		Input: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"}}}`),
		Handle: func(context.Context, gate.Call) (any, error) {
			k := n.Add(1)
			each(k)
			return map[string]any{"serial": k}, nil
		}}
}

// The gateway dies again and again under a chat's calls, in the middle of a call and between two. Each call is answered once, with its own
// answer, and has its effect once, though the tool is not idempotent.
func TestChatAcrossGateways(t *testing.T) {
	const calls = 60
	var effects atomic.Int64
	var m *mortal
	m = newMortal(t, countingTool("test.count", &effects, func(n int64) {
		if n%7 == 0 {
			m.die() // this call's answer is lost, and those of all other calls in progress
		}
	}))
	l, err := newLink(t.Context(), m.open)
	must(t, err)
	var tools []gate.Tool
	err = l.retry(t.Context(), func(c *httpapi.Client) error {
		reg, err := c.Registry(t.Context())
		tools = reg.Tools
		return err
	})
	if err != nil || len(tools) != 1 {
		t.Fatal(tools, err)
	}
	chat := mcp.New(mcp.Config{Gateway: &Chat{link: l, tools: tools}, Name: "d", Version: "1"})
	in, feed := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- mcp.Serve(t.Context(), chat, in, out); out.Close() }()
	go func() {
		fmt.Fprintln(feed, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		fmt.Fprintln(feed, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		for i := range calls {
			fmt.Fprintf(feed, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"test_count","arguments":{"n":%d}}}`+"\n", i+1, i)
		}
		feed.Close()
	}()
	seen, serials := map[int]int{}, map[string]bool{}
	for s := bufio.NewScanner(answers); s.Scan(); {
		var a struct {
			ID     int
			Result struct {
				IsError           bool
				StructuredContent struct{ Serial int64 }
				Content           json.RawMessage
			}
		}
		if err := json.Unmarshal(s.Bytes(), &a); err != nil || a.Result.IsError {
			t.Errorf("%s: %v", s.Bytes(), err)
		}
		seen[a.ID]++
		if a.ID > 0 {
			serials[fmt.Sprint(a.Result.StructuredContent.Serial)] = true
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for i := range calls + 1 {
		if seen[i] != 1 {
			t.Errorf("call %d was answered %d times", i, seen[i])
		}
	}
	if effects.Load() != calls || len(serials) != calls || m.lives.Load() < 2 {
		t.Errorf("%d effects and %d different answers of %d calls, %d lives", effects.Load(), len(serials), calls, m.lives.Load())
	}
}

// A shell's call of a tool that is not idempotent is sent again under the key of its first try. Two commands are two calls.
func TestShellSendsAgain(t *testing.T) {
	var effects atomic.Int64
	var m *mortal
	create := countingTool("token.create", &effects, func(n int64) {
		if n == 1 {
			m.die()
		}
	})
	create.Version = app.BuiltinVersion
	m = newMortal(t, create)
	l, err := newLink(t.Context(), m.open)
	must(t, err)
	s := &Session{link: l}
	for want := range int64(2) {
		var got struct{ Serial int64 }
		if err := s.call(t.Context(), "token.create", map[string]int{"n": 1}, &got); err != nil || got.Serial != want+1 {
			t.Error(got, err)
		}
	}
	if effects.Load() != 2 || m.lives.Load() != 2 {
		t.Error(effects.Load(), m.lives.Load())
	}
}

// A gateway that is stopping refuses a call; the same call, with its id and its key, is answered when a gateway takes calls again.
func TestStoppingGateway(t *testing.T) {
	var effects atomic.Int64
	create := countingTool("token.create", &effects, func(int64) {})
	create.Version = app.BuiltinVersion
	m := newMortal(t, create)
	answers, refused := m.face, make(chan gate.Request, 1)
	sent := make(chan gate.Request, 1)
	m.face = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			answers.ServeHTTP(w, r)
			return
		}
		var req gate.Request
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &req)
		}
		if err != nil {
			t.Error(err)
		}
		select {
		case refused <- req:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"title":"transport","code":"gateway_stopping","detail":"the gateway is stopping","retryable":true}`)
		default:
			sent <- req
			r.Body = io.NopCloser(bytes.NewReader(body))
			answers.ServeHTTP(w, r)
		}
	})
	opened := 0 // at the second and third time the service is still starting
	l, err := newLink(t.Context(), func(ctx context.Context) (*httpapi.Client, Gateway, error) {
		if opened++; opened == 2 || opened == 3 {
			return nil, nil, fault.New(fault.Transport, ServiceDown, "the service is down")
		}
		return m.open(ctx)
	})
	must(t, err)
	var got struct{ Serial int64 }
	if err := (&Session{link: l}).call(t.Context(), "token.create", map[string]int{"n": 1}, &got); err != nil || got.Serial != 1 {
		t.Fatalf("token.create while the gateway stops: serial %d, %v, want 1", got.Serial, err)
	}
	first, second := <-refused, <-sent
	if first.ToolCallID != second.ToolCallID || first.IdempotencyKey == nil || second.IdempotencyKey == nil ||
		*first.IdempotencyKey != *second.IdempotencyKey {
		t.Errorf("the call was sent as %s and again as %s, want the same id and key", first.ToolCallID, second.ToolCallID)
	}
}

// A call that finds no gateway any more, and one after the end of the session, report so; neither opens another
// gateway.
func TestClosedLink(t *testing.T) {
	var effects atomic.Int64
	m := newMortal(t, countingTool("token.create", &effects, func(int64) {}))
	l, err := newLink(t.Context(), m.open)
	must(t, err)
	s := &Session{link: l}
	s.close(t.Context(), &Shell{})
	m.die()
	err = s.call(t.Context(), "token.create", map[string]int{"n": 1}, nil)
	if !fault.Is(err, fault.Unknown) || fault.CodeOf(err) != "outcome_unknown" || m.lives.Load() != 1 || !strings.Contains(err.Error(),
		"token.create") {
		t.Error(err, m.lives.Load())
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
