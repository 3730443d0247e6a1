//go:build cluster

package runtest_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/asuser"
	"slurmgate/remote"
	"slurmgate/remote/sshtest"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/slurm"
	"slurmgate/staging/sftp"
)

// Jobs and files are alice's, over the login node's sshd with certificates as the signer makes them; the queue is
// queried as the service's user.
//
// proves SITE-08
func TestClusterConformanceAsCaller(t *testing.T) {
	ca, err := os.ReadFile(filepath.Join(os.Getenv("SLURMGATE_TEST_SSH"), "callers_ca"))
	must(t, err)
	authority, err := ssh.ParsePrivateKey(ca)
	must(t, err)
	logins := make(chan struct{}, 4)                                // sshd drops some of more
	dir := filepath.Join(os.Getenv("SLURMGATE_TEST_DIR"), t.Name()) // which alice may read, and only this test may write
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(dir+"/sbatch", []byte("#!/bin/bash\nwhile [[ -e ${0%/*}/hold ]]; do sleep 0.05; done\n"+
		"exec /usr/bin/sbatch \"$@\"\n"), 0o755))
	must(t, os.WriteFile(dir+"/apptainer", []byte(runtimeScript), 0o755))
	must(t, os.WriteFile(dir+"/image.sif", []byte("image"), 0o644))
	jobs := runtest.Setup{Test: func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) },
		Open: func(t *testing.T) *runtest.Transport { return openCaller(t, dir, authority, logins) }}
	runtest.Jobs(t, jobs)
}

// oneUser opens connections as alice.
type oneUser struct{ asuser.Parts }

func (l oneUser) Open(context.Context) (asuser.Parts, error) { return l.Parts, nil }
func (oneUser) Drop(string)                                  {}
func (oneUser) Up() bool                                     { return true }
func (oneUser) Close()                                       {}

func openCaller(t *testing.T, programs string, authority ssh.Signer, logins chan struct{}) *runtest.Transport {
	host, err := remote.New(remote.Config{Address: "127.0.0.1:22", User: "alice", KnownHosts: []string{"/etc/devcluster/ssh/known_hosts"},
		Logins: logins, Credentials: sshtest.Credentials(authority, "alice", 5*time.Minute)},
		slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(host.Close)
	bin := filepath.Join(programs, strings.ReplaceAll(strings.TrimPrefix(t.Name(), "TestClusterConformanceAsCaller/"), "/", "_"))
	must(t, os.Mkdir(bin, 0o755))
	for _, name := range []string{"squeue", "sacct", "scancel", "scontrol", "sacctmgr"} {
		must(t, os.Symlink("/usr/bin/"+name, filepath.Join(bin, name)))
	}
	must(t, os.Symlink(filepath.Join(programs, "sbatch"), filepath.Join(bin, "sbatch")))
	me, err := user.Current()
	must(t, err)
	service, err := slurm.NewCLI(slurm.Config{BinDir: bin, LocksDir: filepath.Join(t.TempDir(), "locks"), User: me.Username, AllUsers: true,
		RunsDirOfAll: "/shared/scratch/{user}/" + filepath.Base(bin),
		RPCPerMinute: 1e6, Script: slurm.ScriptConfig{Runtime: slurm.Runtime{Path: programs + "/apptainer"}, Verify: slurm.VerifyAll,
			GraceSeconds: 2, VerifyAllowanceSeconds: 300}})
	must(t, err)
	runs := "/shared/scratch/alice/suite-" + filepath.Base(bin)
	as := func(script string, args ...string) (string, error) {
		out, err := host.Run(context.Background(), remote.Call{Script: script, Args: args, Limit: 1 << 20})
		if err == nil && out.Exit != 0 {
			err = errors.New(out.Stderr)
		}
		return string(out.Stdout), err
	}
	// A cluster's folder outlives its tests, and a job that was still writing may have kept this one there.
	_, err = as(`rm -rf "$1" && mkdir -m 0700 "$1"`, runs)
	must(t, err)
	t.Cleanup(func() {
		// A job that was just cancelled may still be writing.
		if _, err := as(`for i in $(seq 300); do rm -rf "$1" 2>/dev/null && exit; sleep 0.1; done; rm -rf "$1"`, runs); err != nil {
			t.Error(err)
		}
	})
	pool, err := transfer.New(host, transfer.Config{Connections: 1})
	must(t, err)
	t.Cleanup(pool.Close)
	files, err := sftp.New(t.Context(), sftp.Config{RunsDir: runs, LoginRunsDir: runs, DataRunsDir: runs, GatewayID: "gw-suite", Shell: host,
		Data: host, Pool: pool})
	must(t, err)
	t.Cleanup(files.Close)
	cli, err := service.As(host, runs, runs)
	must(t, err)
	users := asuser.New(asuser.Config{Limit: 1, Idle: time.Minute,
		UserOf:   func(context.Context, string) (string, error) { return host.User(), nil },
		LeaderOf: func(context.Context, string) (string, error) { return "run_" + strings.Repeat("0", 26), nil },
		Login: func(string, func() string) (asuser.Login, error) {
			return oneUser{asuser.Parts{Submitter: cli, Canceller: cli, Workspace: files}}, nil
		},
		RunDir: func(_, runID string) string { return filepath.Join(runs, runID) }})
	t.Cleanup(users.Close)
	s := &site{Workspace: users, renderer: service.Renderer, image: programs + "/image.sif"}
	x := s.transport()
	x.RenderArray = service.RenderArray
	x.Rename = func(t *testing.T, id, name string) {
		_, err := as(`scontrol update jobid="$1" jobname="$2"`, id, name)
		must(t, err)
	}
	x.Submitter, x.Queue, x.Accounting, x.Canceller, x.Room = users, alices{service, t}, service, users, run.ScopeQOS
	hold := filepath.Join(bin, "hold")
	x.Slow = func(t *testing.T) func() {
		must(t, os.WriteFile(hold, nil, 0o644))
		return func() { must(t, os.Remove(hold)) }
	}
	x.Executions = func(job run.JobSpec) int {
		ran, err := as(`[ ! -e "$1" ] || cat "$1"`, filepath.Join(job.AttemptDir(), "ran"))
		must(t, err)
		return strings.Count(ran, "ran")
	}
	x.Job = func(t *testing.T, k runtest.Kind) run.JobSpec {
		place := placement(k)
		if k == runtest.NoRoom {
			for range 2 {
				first := s.prepare(t, place, program(k))
				res := users.Send(context.Background(), first, 1)
				if res.Outcome != run.SendAccepted { // an array asks for several jobs that find no room
					continue
				}
				t.Cleanup(func() { must(t, users.Cancel(context.Background(), res.JobID, first.JobName, "")) })
			}
		}
		return s.prepare(t, place, program(k, runtest.Sleeps))
	}
	return x
}

// alices is the service's query of the queue, in which every job of the suite's is alice's.
type alices struct {
	*slurm.CLI
	t *testing.T
}

func (a alices) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	jobs, err := a.CLI.Jobs(ctx, sought)
	var hers []run.Job
	for _, j := range jobs {
		if j.User == "alice" {
			hers = append(hers, j)
		}
	}
	return hers, err
}
