package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
)

// strict knows one token.
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
	if err != nil {
		t.Fatal(err)
	}
	book := &notebook{}
	g := gate.New(gate.Config{Registry: r, Journal: book})
	stopping := make(chan struct{})
	p, err := Serve(PortConfig{Listen: "127.0.0.1:0", Limits: Limits{Connections: 4}, Refused: RefuseAtTheDoor(g)},
		Handler(Config{Gate: g, Auth: strict{}, MCP: http.NotFoundHandler()}, stopping), func() { close(stopping) },
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
			t.Errorf("%+v is not in the record", c)
		}
	}
	if t.Failed() {
		for _, r := range book.calls {
			t.Log(r.Principal, string(r.Event))
		}
	}
}
