package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"slurmgate/gate"
)

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
	r := value(gate.NewRegistry())(t)
	book := &notebook{}
	g := gate.New(gate.Config{Registry: r, Journal: book})
	stopping := make(chan struct{})
	p := value(Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 4}, Refused: RefuseAtTheDoor(g)},
		Handler(Config{Gate: g, Auth: tokens{}, MCP: http.NotFoundHandler()}, stopping), func() { close(stopping) },
		quiet))(t)
	type sent struct{ what, body, token, host, principal, tool, transport, code string }
	const nobody = "unauthenticated@127.0.0.1"
	cases := []sent{
		{"GET /v1/runs", "", "", "", nobody, gate.LoginCall, "other", "unauthenticated"},
		{"POST /mcp", "{}", "bad", "", nobody, gate.LoginCall, "mcp", "unauthenticated"},
		{"GET /v1/runs", "", "all", "evil.example", nobody, gate.InvalidCall, "other", "host_not_allowed"},
		{"GET /v1/runs?x=1", "", "all", "", "token:all", "run.list", "other", "QUERY"},
		{"GET /v1/runs/run_x?x=1", "", "all", "", "token:all", "slurm.job.get", "other", "QUERY"},
		{"GET /v1/runs/run_x/events?x=1", "", "all", "", "token:all", "slurm.job.get", "other", "QUERY"},
		{"POST /v1/runs", "no JSON", "all", "", "token:all", "slurm.submit", "other", "JSON-SYNTAX"},
		{"POST /v1/runs/run_x:cancel", `{"x":1}`, "all", "", "token:all", "slurm.job.cancel", "other", "BODY-KEY"},
		{"POST /v1/artifacts", `{"x":1}`, "all", "", "token:all", "artifact.import", "other", "BODY-KEY"},
		{"POST /v1/tools/test.echo:run", `{}`, "all", "", "token:all", "test.echo", "other", "RUN-INPUT"},
		{"POST /v1/tool-calls", `{}`, "all", "", "token:all", gate.InvalidCall, "other", "VAL-HTC-001"},
	}
	for _, c := range cases {
		method, path, _ := strings.Cut(c.what, " ")
		req := value(http.NewRequestWithContext(t.Context(), method, "http://"+p.Addr()+path, strings.NewReader(c.body)))(t)
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

// watched sends the end of the context of each request with a token that is accepted.
type watched struct {
	tokens
	seen chan error
}

func (w watched) Bearer(ctx context.Context, token string) (gate.Principal, error) {
	who, err := w.tokens.Bearer(ctx, token)
	if err == nil {
		w.seen <- ctx.Err()
	}
	return who, err
}

// A proxy sends the requests of many over one connection. A failed login that is answered late does not spoil it for the others: their
// requests would begin with a context that has ended.
func TestFailedLoginsLeaveTheConnectionWhole(t *testing.T) {
	r := value(gate.NewRegistry())(t)
	auth := watched{seen: make(chan error, 1)}
	h := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: auth, Contents: folder(t.TempDir())}, nil)
	port := value(Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 4}}, h, func() {}, quiet))(t)
	t.Cleanup(func() { port.Shutdown(context.Background()) })
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	get := func(token string) {
		req := value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+port.Addr()+"/v1/tools", nil))(t)
		req.Header.Set("Authorization", "Bearer "+token)
		res := value(client.Do(req))(t)
		if _, err := io.Copy(io.Discard, res.Body); err != nil { // so that the connection is used again
			t.Error(err)
		}
		res.Body.Close()
	}
	for range freeFailures + 6 { // the last waits for 1.6 s
		get("guess")
	}
	get("all")
	if err := <-auth.seen; err != nil {
		t.Error(err)
	}
}
