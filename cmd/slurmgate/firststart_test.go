package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/remote/sshtest"
	"slurmgate/run"
	"slurmgate/site"
)

// twoClusters is plainSite's cluster as alpha, and beta on an SSH server: its folders are below far, and its Slurm says name.
func twoClusters(t *testing.T, server *sshtest.Server, far, name string) *site.Site {
	t.Helper()
	alpha, _ := plainSite(t)
	dir := filepath.Dir(alpha.Gateway.StateDir)
	must(t, os.MkdirAll(filepath.Join(far, "bin"), 0o755))
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

// A gateway's very first start needs one cluster. Another one that is away is opened when it answers, after the checks of a start: its
// name, and whose its folder is. With no cluster at all nothing begins.
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
			g, err := openGateway(t.Context(), s, toChange, quiet(), nil)
			must(t, err)
			defer g.Close()
			if err := g.app.Sites.Away("beta"); fault.CodeOf(err) != run.SiteAway || !strings.Contains(err.Error(), "MaxStartups") {
				t.Errorf("beta: %v", err)
			} else if next := fault.Advised(err); next == nil || !strings.Contains(next.Next, "sshd log") {
				t.Errorf("beta: %v", err)
			}
			server.Deaf.Store(false)
			beta := s.Cluster("beta")
			hosts := g.hosts
			g.hosts = quietHosts() // without the back-off
			defer hosts.close()
			parts, err := g.openCluster(t.Context(), beta, &workspaces{gateway: g, byDir: map[string]*workspace{}})
			if c.refused == "" {
				must(t, err)
				mark, err := os.ReadFile(filepath.Join(far, "runs/.gateway-id"))
				if string(mark) != g.app.Ledger.ID()+"\n" || parts.Submitter == nil {
					t.Errorf("%q %v", mark, err)
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
