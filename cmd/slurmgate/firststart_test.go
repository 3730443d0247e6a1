package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"slurmgate/cli"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/remote/sshtest"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/transport"
)

// twoClusters makes plainSite's cluster alpha, and adds beta on an SSH server: its folders are below far, and its Slurm
// has the name name.
func twoClusters(t *testing.T, server *sshtest.Server, far, name string) *site.Site {
	t.Helper()
	alpha, _ := plainSite(t)
	dir := filepath.Dir(alpha.Gateway.StateDir)
	must(t, os.MkdirAll(filepath.Join(far, "bin"), 0o755))
	syscall.ForkLock.RLock() // no process of a parallel test has a program open when it is executed
	defer syscall.ForkLock.RUnlock()
	for _, program := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol"} {
		must(t, os.WriteFile(filepath.Join(far, "bin", program), []byte("#!/bin/sh\necho 'ClusterName = "+name+"'\n"), 0o755))
	}
	for file, text := range map[string]string{
		"site.yaml": fmt.Sprintf("version: 1\nsites: [alpha.yaml, beta.yaml]\ngateway:\n  state_dir: %s\n  socket: %s\ndomain_dir: %s\n",
			alpha.Gateway.StateDir, alpha.Gateway.Socket, alpha.DomainDir),
		"alpha.yaml": fmt.Sprintf("version: 1\nsite: alpha\nslurm:\n  bin_dir: %s\n  default_partition: main\n  default_account: research\n"+
			"storage:\n  runs_dir: %s\n  image_store: %s\n",
			alpha.Slurm.BinDir, alpha.Storage.RunsDir, alpha.Storage.ImageStore),
		"beta.yaml": fmt.Sprintf("version: 1\nsite: beta\nslurm:\n  transport: ssh\n  ssh:\n    host: 127.0.0.1\n    port: %s\n"+
			"    user: svc\n    known_hosts: [%s]\n    key: %s\n  bin_dir: %s/bin\n  cluster: beta\n  default_partition: main\n"+
			"  default_account: research\nstorage:\n  transport: sftp\n  runs_dir: %[5]s/runs\n  image_store: %[5]s/images\n",
			strings.TrimPrefix(server.Address, "127.0.0.1:"), server.Known, server.Key, far, far),
	} {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	s, err := site.Load(filepath.Join(dir, "site.yaml"))
	if err != nil {
		t.Fatal(fault.ProblemsOf(err), err)
	}
	return s
}

// A gateway's very first start needs one cluster. Another one that is away is opened when it answers, after the checks
// of a start: its name, and the owner of its folder. With no cluster at all nothing begins.
//
// proves SITE-07 OPS-01
func TestFirstStartWithASiteAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, cluster, refused string
		plant                  func(runsDir string) error
	}{
		{"as expected", "beta", "", nil},
		{"another cluster", "gamma", "SITE-CLUSTER", nil},
		{"the folder of a lost gateway", "beta", "runs_dir_of_another_gateway", func(dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/.gateway-id", []byte("gw-lost\n"), 0o600))
		}},
		{"runs of a lost gateway", "beta", "runs_dir_of_another_ledger", func(dir string) error {
			return os.MkdirAll(dir+"/run_00000000000000000000000000", 0o700)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, far := sshtest.Serve(t, ""), t.TempDir()
			server.Deaf.Store(true)
			s := twoClusters(t, server, far, c.cluster)
			if c.plant != nil {
				must(t, c.plant(filepath.Join(far, "runs")))
			}
			g := value(openGateway(t.Context(), s, toChange, quiet(), nil))(t)
			defer g.Close()
			if err := g.app.Sites.Away("beta"); fault.CodeOf(err) != run.SiteAway || !strings.Contains(err.Error(), "MaxStartups") {
				t.Errorf("beta: %v", err)
			} else if next := fault.Advised(err); next == nil || !strings.Contains(next.Next, "sshd log") {
				t.Errorf("beta: %v", err)
			}
			server.Deaf.Store(false)
			beta := s.Cluster("beta")
			sites := transport.New(g.sites.Config) // without the back-off
			defer sites.Close()
			parts, err := sites.OpenCluster(t.Context(), beta)
			if c.refused == "" {
				must(t, err)
				mark, err := os.ReadFile(filepath.Join(far, "runs/.gateway-id"))
				if string(mark) != g.app.Ledger.ID()+"\n" || parts.Submitter == nil {
					t.Errorf("the folder of the opened cluster has the mark %q (%v), want this ledger's", mark, err)
				}
				return
			}
			if fault.CodeOf(err) != c.refused || parts.Submitter != nil {
				t.Errorf("%s: %v", fault.CodeOf(err), err)
			}
		})
	}
	t.Run("every cluster away", func(t *testing.T) {
		t.Parallel()
		server := sshtest.Serve(t, "")
		server.Deaf.Store(true)
		s := twoClusters(t, server, t.TempDir(), "beta")
		alone := *s.Cluster("beta")
		_, err := openGateway(t.Context(), &alone, toChange, quiet(), nil)
		if fault.CodeOf(err) != doctor.NoClusterAnswers {
			t.Error(err)
		}
		if _, err := os.Stat(s.Gateway.StateDir); err == nil {
			t.Error("the state folder was made")
		}
	})
}

// plainSite returns a site whose gateway can be opened here: a domain without tools, and Slurm commands that answer
// nothing.
func plainSite(t *testing.T) (s *site.Site, file string) {
	t.Helper()
	s = shellSite(t)
	dir := filepath.Dir(s.Gateway.StateDir)
	s.DomainDir, s.Slurm.BinDir = filepath.Join(dir, "domain"), filepath.Join(dir, "bin")
	must(t, os.CopyFS(s.DomainDir, os.DirFS("../../app/testdata/demo/domain")))
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

// value returns a result, and ends the test if an error came with it.
func value[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
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

// Without a ledger, a read creates nothing; neither does any other verb, nor serve, where runs_dir or artifact_dir show
// that there was one. A new place gets a ledger, and --new-ledger continues the gateway of the runs_dir.
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
		if look[0] == "image" { // reads files of the user's own
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
		g := value(openGateway(t.Context(), s, anew, quiet(), nil))(t)
		if g.app.Ledger.ID() != "gw-lost" {
			t.Errorf("the new ledger is %s's", g.app.Ledger.ID())
		}
		g.Close()
		must(t, os.RemoveAll(s.Gateway.StateDir))
		must(t, os.RemoveAll(s.Storage.RunsDir))
	}
	must(t, os.RemoveAll(s.Gateway.StateDir))

	g := value(openGateway(t.Context(), s, toChange, quiet(), nil))(t)
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
