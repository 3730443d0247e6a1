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
	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// shellSite returns a site with a domain, without a gateway.
func shellSite(t *testing.T) *site.Site {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := value(site.New(site.Site{Version: 1, Name: "shell", Gateway: site.Gateway{StateDir: filepath.Join(dir, "state"),
		Socket: filepath.Join(dir, "s")}, DomainDir: copyDomain(t, "genomics"),
		Slurm: site.Slurm{DefaultPartition: "main", DefaultAccount: "research"}, Storage: site.Storage{RunsDir: filepath.Join(dir, "runs"),
			ImageStore: filepath.Join(dir, "images")}}))(t)
	return s
}

// addImage returns a replacement of image add, with an effect that counts.
func addImage(n *int) gate.Tool {
	return gate.Tool{ID: "image.add", Version: app.BuiltinVersion, ContractVersion: "v1", Title: "Add an image", Description: "Adds.",
		SideEffect: gate.Write, Idempotency: gate.Idempotent, Determinism: gate.BestEffort, Availability: gate.OfflineOK,
		Capabilities: []string{gate.CapGateway, gate.CapSlurm}, Bindings: []gate.Transport{gate.Local},
		Input: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"}}}`),
		Handle: func(context.Context, gate.Call) (any, error) {
			*n++
			return map[string]int{"n": *n}, nil
		}}
}

func onSite(t *testing.T, s *site.Site, n *int) error {
	t.Helper()
	a := &cli.Shell{Options: &cli.Options{}, Err: &strings.Builder{}, Log: slog.New(slog.DiscardHandler)}
	g, who, err := siteGate(t.Context(), a, s, addImage(n))
	if err != nil {
		return err
	}
	defer g.Close()
	res := g.Call(t.Context(), who, gate.NewRequest("image.add", app.BuiltinVersion, json.RawMessage(`{"name":"x"}`)))
	if res.Error != nil {
		return res.Error.Fault()
	}
	return nil
}

func wantRecord(t *testing.T, calls []ledger.CallEvent, principal string) {
	t.Helper()
	for _, c := range calls {
		var e struct {
			ToolID string `json:"tool_id"`
		}
		if json.Unmarshal(c.Event, &e) == nil && e.ToolID == "image.add" && c.Chain == gate.Effects && c.Principal == principal &&
			strings.HasPrefix(c.By, "prn_") {
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
	me := value(access.New(access.Config{}).Peer(os.Geteuid()))(t)
	s, n := shellSite(t), 0
	if err := onSite(t, s, &n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	l := value(ledger.Open(t.Context(), filepath.Join(s.Gateway.StateDir, "ledger.db"),
		ledger.Options{NewID: func() string { return "gw-other" }}))(t)
	page := value(l.Calls(t.Context(), ledger.CallFilter{}))(t)
	wantRecord(t, page.Calls, me.Name)
	l.Close()

	g := operations(t)
	callers := access.New(access.Config{})
	must(t, callers.Enroll(t.Context(), g.Ledger))
	server, err := httpapi.Listen(httpapi.SocketConfig{Path: s.Gateway.Socket, Mode: 0o600}, httpapi.Handler(httpapi.Config{Gate: g.Gate,
		Auth: callers}, nil), func() {},
		slog.New(slog.DiscardHandler))
	must(t, err)
	if err := onSite(t, s, &n); err != nil || n != 2 {
		t.Error(n, err)
	}
	if page, err = g.Ledger.Calls(t.Context(), ledger.CallFilter{}); err != nil {
		t.Fatal(err)
	}
	wantRecord(t, page.Calls, me.Name)
	if _, err := g.Ledger.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}

	if err := os.Chmod(s.Gateway.StateDir, 0o777); err != nil { // other users could replace the ledger
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
	text := value(os.ReadFile(file))(t)
	must(t, os.WriteFile(file, []byte(string(text)+"\ntool_allowlist: [run_list]\n"), 0o644))
	if err := onSite(t, s, &n); !fault.Is(err, fault.Policy) || n != 0 {
		t.Error(n, err)
	}
}

// operations returns the gateway's own operations, over a separate ledger and without an engine.
func operations(t *testing.T) *app.Gateway {
	t.Helper()
	s, dir := shellSite(t), t.TempDir()
	g := &app.Gateway{Site: s, Log: slog.New(slog.DiscardHandler), Entry: func(*gate.Gate, gate.Tool) any { return nil }}
	var err error
	if g.Domain, g.Policy, err = app.ReadDomain(s.DomainDir, toolpack.AllowMissingImages); err != nil {
		t.Fatal(err)
	}
	if g.Ledger, err = ledger.Open(t.Context(), filepath.Join(dir, "ledger.db"),
		ledger.Options{NewID: func() string { return "gw-own" }}); err != nil {
		t.Fatal(err)
	}
	if g.Store, err = artifact.Open(filepath.Join(dir, "artifacts")); err != nil {
		t.Fatal(err)
	}
	if g.Importer, err = artifact.NewImporter(g.Store, artifact.ImportPolicy{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	must(t, g.OpenGate(t.Context()))
	t.Cleanup(func() {
		g.Gate.Close()
		g.Store.Close()
		g.Ledger.Close()
	})
	return g
}
