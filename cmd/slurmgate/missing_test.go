package main

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/site"
)

// plainSite is a site whose gateway can be opened here: a domain without tools, and Slurm commands that answer nothing.
func plainSite(t *testing.T) (s *site.Site, file string) {
	t.Helper()
	s = shellSite(t)
	dir := filepath.Dir(s.Gateway.StateDir)
	s.DomainDir, s.Slurm.BinDir = filepath.Join(dir, "domain"), filepath.Join(dir, "bin")
	must(t, os.CopyFS(s.DomainDir, os.DirFS("../../app/testdata/before/domain")))
	must(t, os.WriteFile(filepath.Join(s.DomainDir, "policies.yaml"),
		[]byte("version: 1\ntool_allowlist: [run_list, event_list, event_verify, "+
			"artifact_list, artifact_get, artifact_preview_text, artifact_verify, token_list, approval_list, tool_list, image_add]\n"), 0o600))
	must(t, os.Mkdir(s.Slurm.BinDir, 0o755))
	for _, name := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol"} {
		must(t, os.WriteFile(filepath.Join(s.Slurm.BinDir, name), []byte("#!/bin/sh\n[ \"$1\" = --version ] && echo slurm 24.11.5\nexit 0\n"),
			0o755))
	}
	must(t, os.Mkdir(s.Storage.ImageStore, 0o700))
	return s, writeSite(t, s)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// below lists everything below a folder, with sizes.
func below(t *testing.T, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			names = append(names, path)
		}
		return err
	}))
	return names
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Without a ledger, a look creates nothing; neither does any other verb, nor serve, where runs_dir or artifact_dir show that there was one.
// A new place gets a ledger, and --new-ledger continues the gateway of the runs_dir.
//
// proves OPS-01
func TestNoLedgerLeavesNothing(t *testing.T) {
	s, file := plainSite(t)
	dir := filepath.Dir(s.Gateway.StateDir)
	before := below(t, dir)
	unchanged := func(what string) {
		t.Helper()
		if now := below(t, dir); !slices.Equal(now, before) {
			t.Errorf("%s left something: %v", what, now)
		}
	}
	looks := [][]string{{"runs"}, {"runs", "list"}, {"runs", "show", "run_00000000000000000000000000"},
		{"get", "run_00000000000000000000000000"},
		{"wait", "run_00000000000000000000000000"}, {"events"}, {"events", "verify"}, {"artifact", "list"}, {"tool", "list"}, {"token"},
		{"approvals"}, {"logs", "run_00000000000000000000000000"}, {"image", "list"}}
	for _, look := range looks {
		code, _, said := verb(t, append([]string{"--site", file}, look...)...)
		if look[0] == "image" { // a look at files of the user's own
			if code != 0 || !strings.Contains(said, "not recorded") {
				t.Errorf("%v: %d %s", look, code, said)
			}
		} else if code != 3 || !strings.Contains(said, "there is no ledger at "+ledgerFile(s)) {
			t.Errorf("%v: %d %s", look, code, said)
		}
		unchanged(strings.Join(look, " "))
	}

	for _, trace := range []string{"runs/.gateway-id", "runs/run_00000000000000000000000000", "state/artifacts/objects/ab"} {
		path := filepath.Join(dir, trace)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if strings.HasSuffix(trace, "id") {
			must(t, os.WriteFile(path, []byte("gw-lost\n"), 0o600))
		} else {
			must(t, os.MkdirAll(path, 0o700))
		}
		before = below(t, dir)
		for _, args := range [][]string{{"runs"}, {"serve"}, {"cancel-all"}, {"image", "add", "x", file}} {
			code, _, said := verb(t, append([]string{"--site", file}, args...)...)
			if code != 5 || !strings.Contains(said, "Nothing was created") || !strings.Contains(said, "slurmgate restore") {
				t.Errorf("%s, %v: %d %s", trace, args, code, said)
			}
			unchanged(strings.Join(args, " "))
		}
		if trace != "runs/.gateway-id" {
			must(t, os.RemoveAll(path))
			continue
		}
		g, err := openGateway(t.Context(), s, anew, quiet(), nil)
		must(t, err)
		if g.app.Ledger.ID() != "gw-lost" {
			t.Errorf("the new ledger is %s's", g.app.Ledger.ID())
		}
		g.Close()
		must(t, os.RemoveAll(s.Gateway.StateDir))
		must(t, os.RemoveAll(s.Storage.RunsDir))
	}
	must(t, os.RemoveAll(s.Gateway.StateDir))

	g, err := openGateway(t.Context(), s, toChange, quiet(), nil)
	must(t, err)
	g.Close()
	if _, err := os.Stat(ledgerFile(s)); err != nil {
		t.Error(err)
	}
	// An empty file is no ledger. The gateway may have been closed before it left a mark in runs_dir, so an object is the trace of its past.
	must(t, os.Truncate(ledgerFile(s), 0))
	must(t, os.MkdirAll(filepath.Join(dir, "state/artifacts/objects/ab"), 0o700))
	a := &cli.Shell{Options: &cli.Options{}, Err: &strings.Builder{}, Log: quiet()}
	n := 0
	if _, _, err := siteGate(t.Context(), a, s, addImage(&n)); !strings.Contains(fault.Prose(err), "there is no ledger") {
		t.Error(err)
	}
}
