package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// strict accepts one token.
type strict struct{}

func (strict) Peer(int) (gate.Principal, error) {
	return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "no peers")
}

func (strict) Bearer(_ context.Context, token string) (gate.Principal, error) {
	if token != "good" {
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "not valid here")
	}
	return gate.Principal{Name: "token:good", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}, nil
}

type notebook struct {
	mu    sync.Mutex
	calls []gate.Record
}

func (n *notebook) Record(_ context.Context, r []gate.Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, r...)
	return nil
}

// What is refused before it is a call is in the record: without credentials, under another name, and what is no request of ours.
//
// proves HTC-08
func TestRefusedRequestsAreRecorded(t *testing.T) {
	r, err := gate.NewRegistry()
	must(t, err)
	book := &notebook{}
	g := gate.New(gate.Config{Registry: r, Journal: book})
	stopping := make(chan struct{})
	p, err := Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 4}, Refused: RefuseAtTheDoor(g)},
		Handler(Config{Gate: g, Auth: strict{}, MCP: http.NotFoundHandler()}, stopping), func() { close(stopping) },
		slog.New(slog.DiscardHandler))
	must(t, err)
	type sent struct{ what, body, token, host, principal, tool, transport, code string }
	const nobody = "unauthenticated@127.0.0.1"
	cases := []sent{
		{"GET /v1/runs", "", "", "", nobody, gate.LoginCall, "other", "unauthenticated"},
		{"POST /mcp", "{}", "bad", "", nobody, gate.LoginCall, "mcp", "unauthenticated"},
		{"GET /v1/runs", "", "good", "evil.example", nobody, gate.InvalidCall, "other", "host_not_allowed"},
		{"GET /v1/runs?x=1", "", "good", "", "token:good", "run.list", "other", "QUERY"},
		{"GET /v1/runs/run_x?x=1", "", "good", "", "token:good", "slurm.job.get", "other", "QUERY"},
		{"GET /v1/runs/run_x/events?x=1", "", "good", "", "token:good", "slurm.job.get", "other", "QUERY"},
		{"POST /v1/runs", "no JSON", "good", "", "token:good", "slurm.submit", "other", "JSON-SYNTAX"},
		{"POST /v1/runs/run_x:cancel", `{"x":1}`, "good", "", "token:good", "slurm.job.cancel", "other", "BODY-KEY"},
		{"POST /v1/artifacts", `{"x":1}`, "good", "", "token:good", "artifact.import", "other", "BODY-KEY"},
		{"POST /v1/tools/test.echo:run", `{}`, "good", "", "token:good", "test.echo", "other", "RUN-INPUT"},
		{"POST /v1/tool-calls", `{}`, "good", "", "token:good", gate.InvalidCall, "other", "VAL-HTC-001"},
	}
	for _, c := range cases {
		method, path, _ := strings.Cut(c.what, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.Addr()+path, strings.NewReader(c.body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		if c.host != "" {
			req.Host = c.host
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode < 400 {
			t.Fatal(c, res, err)
		}
		res.Body.Close()
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	g.Close()
	if len(book.calls) != len(cases) {
		t.Errorf("%d records of %d requests", len(book.calls), len(cases))
	}
	for _, c := range cases {
		found := false
		for _, r := range book.calls {
			var e struct {
				Transport string
				Error     struct{ Code string }
			}
			if err := json.Unmarshal(r.Event, &e); err != nil || gate.CheckEvent(r.Event) != nil {
				t.Error(string(r.Event), err)
			}
			found = found || r.Principal == c.principal && r.ToolID == c.tool && e.Transport == c.transport && e.Error.Code == c.code &&
				r.Chain == gate.Refused
		}
		if !found {
			t.Errorf("the record has no refused call of %s to %s by %s with %s", c.principal, c.tool, c.transport, c.code)
		}
	}
	if t.Failed() {
		for _, r := range book.calls {
			t.Log(r.Principal, string(r.Event))
		}
	}
}

// The address of a client is the connection's, and behind a trusted proxy the one in the proxy's header. A client
// cannot choose its address by writing a header.
//
// proves OPS-03
func TestClientAddress(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, c := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"203.0.113.9:1234", nil, "203.0.113.9"},
		{"203.0.113.9:1234", []string{"198.51.100.1"}, "203.0.113.9"}, // not from a proxy
		{"127.0.0.1:1", nil, "127.0.0.1"},
		{"127.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"127.0.0.1:1", []string{"1.2.3.4, 198.51.100.1"}, "198.51.100.1"}, // the client wrote 1.2.3.4
		{"127.0.0.1:1", []string{"1.2.3.4", "198.51.100.1, 10.1.1.1"}, "198.51.100.1"},
		{"127.0.0.1:1", []string{"10.1.1.1"}, "10.1.1.1"},
		{"127.0.0.1:1", []string{"evil\" address=1.2.3.4"}, "127.0.0.1"},
		{"127.0.0.1:1", []string{"1.2.3.4, nonsense"}, "127.0.0.1"},
		{"127.0.0.1:1", []string{""}, "127.0.0.1"},
		{"[::1]:1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"[::1]:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"[fe80::1%eth0]:1", nil, "fe80::1"},
		{"@", []string{"198.51.100.1"}, "invalid IP"},
	} {
		if got := client(c.remote, c.forwarded, trusted).String(); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}

// oneToken accepts one token, and sends the end of the context of each request with it.
type oneToken struct{ seen chan error }

func (oneToken) Peer(int) (gate.Principal, error) {
	return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "no peers")
}

func (o oneToken) Bearer(ctx context.Context, token string) (gate.Principal, error) {
	if token != "good" {
		return gate.Principal{}, fault.New(fault.Auth, "unauthenticated", "not valid here")
	}
	o.seen <- ctx.Err()
	return gate.Principal{Name: "token:good", Rights: gate.Everything()}, nil
}

// A proxy sends the requests of many over one connection. A failed login that is answered late does not spoil it for the others: their
// requests would begin with a context that has ended.
func TestFailedLoginsLeaveTheConnectionWhole(t *testing.T) {
	r, err := gate.NewRegistry()
	must(t, err)
	auth := oneToken{make(chan error, 1)}
	h := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: auth, Contents: folder(t.TempDir())}, nil)
	port, err := Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 4}}, h, func() {}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { port.Shutdown(context.Background()) })
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	get := func(token string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+port.Addr()+"/v1/tools", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(req)
		must(t, err)
		if _, err := io.Copy(io.Discard, res.Body); err != nil { // so that the connection is used again
			t.Error(err)
		}
		res.Body.Close()
	}
	for range freeFailures + 6 { // the last waits for 1.6 s
		get("guess")
	}
	get("good")
	if err := <-auth.seen; err != nil {
		t.Error(err)
	}
}

// A gateway without a port ends the event streams on its socket when it stops: it does not wait for their clients.
func TestStopEndsStreamsOnTheSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sg") // a socket's path is short
	must(t, err)
	defer os.RemoveAll(dir)
	r, err := gate.NewRegistry(gate.Tool{ID: "slurm.job.get", Version: "1.0.0", SideEffect: gate.Read, Idempotency: gate.Idempotent,
		Determinism: gate.BestEffort, Availability: gate.OfflineOK,
		Capabilities: []string{gate.CapRead}, Bindings: []gate.Transport{gate.Local}, Input: json.RawMessage(`{"type":"object"}`),
		Handle: func(context.Context, gate.Call) (any, error) { return map[string]any{}, nil }})
	must(t, err)
	stopping, path := make(chan struct{}), filepath.Join(dir, "s")
	h := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: owner{}, Events: func(context.Context, string, int64) ([]Event, bool,
		error) {
		return []Event{{Seq: 1, Type: "run.created"}}, false, nil
	}}, stopping)
	s, err := Listen(SocketConfig{Path: path, Mode: 0o600}, h, sync.OnceFunc(func() { close(stopping) }), slog.New(slog.DiscardHandler))
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway/v1/runs/run_x/events", nil)
	must(t, err)
	req.Header.Set("Accept", "text/event-stream")
	res, err := client.Do(req)
	must(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || lines.Text() != "id: 1" {
		t.Fatal(lines.Text(), lines.Err())
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := s.Shutdown(ctx); err != nil {
		t.Error("a stream holds up the stop:", err)
	}
}
