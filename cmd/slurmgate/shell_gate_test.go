package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/access"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/site"
)

// shellSite is a site with a domain, without a gateway.
func shellSite(t *testing.T) *site.Site {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := site.New(site.Site{Version: 1, Name: "shell", Gateway: site.Gateway{StateDir: filepath.Join(dir, "state"),
		Socket: filepath.Join(dir, "s")}, DomainDir: copyDomain(t, "genomics"),
		Slurm: site.Slurm{DefaultPartition: "main", DefaultAccount: "research"}, Storage: site.Storage{RunsDir: filepath.Join(dir, "runs"),
			ImageStore: filepath.Join(dir, "images")}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// addImage stands for image add: an effect, which counts.
func addImage(n *int) gate.Tool {
	return builtin("image.add", "Add an image", "Adds.", gate.Write, object("name", prop("name", `{"type":"string"}`)),
		handler(func(context.Context, gate.Call, struct {
			Name string `json:"name"`
		}) (any, error) {
			*n++
			return map[string]int{"n": *n}, nil
		}))
}

func onSite(t *testing.T, s *site.Site, n *int) error {
	t.Helper()
	a := &app{cli: &cli{}, err: &strings.Builder{}, log: slog.New(slog.DiscardHandler)}
	var r map[string]int
	return a.onSite(t.Context(), s, addImage(n), map[string]string{"name": "x"}, &r)
}

func wantRecord(t *testing.T, calls []ledger.CallEvent, principal string) {
	t.Helper()
	for _, c := range calls {
		var e struct {
			ToolID string `json:"tool_id"`
		}
		if json.Unmarshal(c.Event, &e) == nil && e.ToolID == "image.add" && c.Chain == gate.Effects && c.Principal == principal {
			return
		}
	}
	t.Errorf("no record of image.add by %s among %d", principal, len(calls))
}

// A verb that changes a site in the shell's own process is recorded in the site's ledger: by the shell where no gateway runs, and through
// the gateway where one does, as the caller the gateway knows. Where it cannot be recorded nothing is done.
//
// proves HTC-06 HTC-08
func TestShellCallsAreRecorded(t *testing.T) {
	me, err := access.New(access.Config{}).Peer(os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	s, n := shellSite(t), 0
	if err := onSite(t, s, &n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	l, err := ledger.Open(t.Context(), filepath.Join(s.Gateway.StateDir, "ledger.db"),
		ledger.Options{NewID: func() string { return "gw-other" }})
	if err != nil {
		t.Fatal(err)
	}
	page, err := l.Calls(t.Context(), ledger.CallFilter{})
	if err != nil {
		t.Fatal(err)
	}
	wantRecord(t, page.Calls, me.Name)
	l.Close()

	g := tableGateway(t)
	server, err := httpapi.Listen(s.Gateway.Socket, 0o600, httpapi.Handler(httpapi.Config{Gate: g.gate, Auth: g.access}, nil), func() {},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := onSite(t, s, &n); err != nil || n != 2 {
		t.Error(n, err)
	}
	if page, err = g.ledger.Calls(t.Context(), ledger.CallFilter{}); err != nil {
		t.Fatal(err)
	}
	wantRecord(t, page.Calls, me.Name)
	if _, err := g.ledger.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}

	if err := os.Chmod(s.Gateway.StateDir, 0o777); err != nil { // nobody's ledger any more
		t.Fatal(err)
	}
	if err := onSite(t, s, &n); fault.CodeOf(err) != "not_recordable" || n != 2 {
		t.Error(n, err)
	}
}

// Policy decides about these verbs too.
func TestShellCallsPassPolicy(t *testing.T) {
	s, n := shellSite(t), 0
	file := filepath.Join(s.DomainDir, "policies.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(string(text)+"\ntool_allowlist: [run_list]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := onSite(t, s, &n); !fault.Is(err, fault.Policy) || n != 0 {
		t.Error(n, err)
	}
}

// The gateway takes records of the shell's own tools only, with payloads that are the event's.
func TestForgedShellRecords(t *testing.T) {
	g := tableGateway(t)
	boss := gate.Process().Principal
	res := g.calls(t, boss, "event.list", `{}`, "")
	if !res.OK {
		t.Fatal(res.Error)
	}
	g.gate.Close() // its record is written
	page, err := g.ledger.Calls(t.Context(), ledger.CallFilter{})
	if err != nil || len(page.Calls) != 1 {
		t.Fatal(page.Calls, err)
	}
	real := string(page.Calls[0].Event)
	shell := strings.Replace(real, "event.list", "image.list", 1)
	for name, args := range map[string]string{
		"another tool":      `{"chain":"looks","event":` + real + `}`,
		"no event":          `{"chain":"looks","event":{"type":"tool_call"}}`,
		"a look as effect":  `{"chain":"effects","event":` + shell + `}`,
		"another's payload": `{"chain":"looks","event":` + shell + `,"payloads":[{"kind":"args","payload":{"x":1}}]}`,
	} {
		var a shellRecord
		if err := json.Unmarshal([]byte(args), &a); err != nil {
			t.Fatal(err)
		}
		if _, err := a.record("user:x"); !fault.Is(err, fault.Validation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := (shellRecord{Chain: gate.Looks, Event: json.RawMessage(shell)}).record("user:x"); err != nil || r.Principal != "user:x" ||
		r.ToolID != "image.list" {
		t.Error(r, err)
	}
}
