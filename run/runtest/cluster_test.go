//go:build cluster

package runtest_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/remote"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/slurm"
)

// The real transport and the real workspace, on a login node of the dev cluster. The fake of package run's tests passes
// the same suites (run.TestFakeConformance).
func TestClusterConformance(t *testing.T) { conform(t, nil) }

// The same over SSH, with sshd on the login node.
//
// proves SITE-01
func TestClusterConformanceOverSSH(t *testing.T) {
	keys := os.Getenv("SLURMGATE_TEST_SSH") // a folder that scripts/test makes
	address, err := os.ReadFile(filepath.Join(keys, "login"))
	must(t, err)
	me, err := user.Current()
	must(t, err)
	host, err := remote.New(remote.Config{Address: strings.TrimSpace(string(address)), User: me.Username,
		KnownHosts: []string{filepath.Join(keys, "known_hosts")}, Key: filepath.Join(keys, "key")}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(host.Close)
	conform(t, host)
}

// conform runs the suites with Slurm's commands: those of this host, or those of a host over SSH.
func conform(t *testing.T, over *remote.Host) {
	// Written before another process starts: a process started meanwhile would have it open, and the kernel executes no
	// file that is open for writing.
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/sbatch", []byte("#!/bin/bash\nwhile [[ -e ${0%/*}/hold ]]; do sleep 0.05; done\n"+
		"exec /usr/bin/sbatch \"$@\"\n"), 0o700))
	must(t, os.WriteFile(dir+"/apptainer", []byte(runtimeScript), 0o700))
	jobs := runtest.Setup{Test: func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) },
		Open: func(t *testing.T) *runtest.Transport { return openCluster(t, dir, over) }}
	runtest.Jobs(t, jobs)
}

func openCluster(t *testing.T, programs string, over *remote.Host) *runtest.Transport {
	root := filepath.Join(os.Getenv("SLURMGATE_TEST_DIR"), strings.ReplaceAll(t.Name(), "/", "_"))
	s, bin := openSite(t, root), t.TempDir()
	for _, name := range []string{"squeue", "sacct", "scancel", "scontrol"} {
		must(t, os.Symlink("/usr/bin/"+name, filepath.Join(bin, name)))
	}
	must(t, os.Symlink(filepath.Join(programs, "sbatch"), filepath.Join(bin, "sbatch")))
	runtime, err := os.ReadFile(filepath.Join(programs, "apptainer"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "apptainer"), runtime, 0o700)) // started on the nodes only
	me, err := user.Current()
	must(t, err)
	cli, err := slurm.NewCLI(slurm.Config{BinDir: bin, LocksDir: filepath.Join(bin, "locks"), User: me.Username,
		RPCPerMinute: 1e6, Over: over,
		Script: slurm.ScriptConfig{Runtime: slurm.Runtime{Path: filepath.Join(root, "apptainer")}, Verify: slurm.VerifyAll, GraceSeconds: 2,
			VerifyAllowanceSeconds: 300}})
	must(t, err)
	s.renderer = cli.Renderer
	hold := filepath.Join(bin, "hold")
	x := s.transport()
	x.Submitter, x.Queue, x.Accounting, x.Canceller, x.Room = cli, cli, cli, cli, run.ScopeQOS
	x.RenderArray, x.Rename = cli.RenderArray, rename
	x.Slow = func(t *testing.T) func() {
		must(t, os.WriteFile(hold, nil, 0o600))
		return func() { must(t, os.Remove(hold)) }
	}
	x.Job = func(t *testing.T, k runtest.Kind) run.JobSpec { return s.job(t, cli, k) }
	return x
}

// rename gives a job another name, as its user may.
func rename(t *testing.T, id, name string) {
	if out, err := exec.Command("scontrol", "update", "jobid="+id, "jobname="+name).CombinedOutput(); err != nil {
		t.Fatalf("scontrol update jobid=%s: %v: %s", id, err, out)
	}
}

// job prepares an attempt that becomes what the kind says on the dev cluster.
func (s *site) job(t *testing.T, cli *slurm.CLI, k runtest.Kind) run.JobSpec {
	place := placement(k)
	if k == runtest.NoRoom {
		for range 2 {
			first := s.prepare(t, place, program(k))
			res := cli.Send(context.Background(), first, 1)
			t.Cleanup(func() { exec.Command("scancel", res.JobID).Run() })
		}
	}
	return s.prepare(t, place, program(k, runtest.Sleeps))
}

// placement returns where a job becomes what the kind says.
func placement(k runtest.Kind) plan.Placement {
	place := plan.Placement{Partition: "main", Account: "research"}
	switch k {
	case runtest.Waits:
		place.Partition = "big" // whose nodes are down
	case runtest.Wrong:
		place.Partition = "nowhere"
	case runtest.NoRoom: // QOS tiny: two jobs of a user at a time
		tiny := "tiny"
		place.Partition, place.QOS = "big", &tiny
	}
	return place
}
