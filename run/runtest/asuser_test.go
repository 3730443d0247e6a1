//go:build !cluster

package runtest_test

import (
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/asuser"
	"slurmgate/local"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/slurm"
	"slurmgate/staging"
)

// Two users' own hosts and folders behind one router, held to the suites of what runs jobs: who a run belongs to changes nothing of what
// the ports promise.
//
// proves SITE-08
func TestAsUserConformance(t *testing.T) {
	runtime := filepath.Join(t.TempDir(), "apptainer")
	must(t, os.WriteFile(runtime, []byte(runtimeScript), 0o700))
	jobs := runtest.Setup{Direct: true, Test: func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) },
		Open: func(t *testing.T) *runtest.Transport { return openUsers(t, runtime) }}
	t.Run("submitter", func(t *testing.T) { runtest.Submitter(t, jobs) })
	t.Run("canceller", func(t *testing.T) { runtest.Canceller(t, jobs) })
}

// userOf gives each run to one of two users.
func userOf(runID string) string {
	h := fnv.New32()
	h.Write([]byte(runID))
	return []string{"alice", "bob"}[h.Sum32()%2]
}

// userLogin is a user's own host and folder. It is opened for each use that follows a pause.
type userLogin struct {
	host   *local.Backend
	folder run.Workspace
}

func (l userLogin) Open(context.Context) (asuser.Parts, error) {
	return asuser.Parts{Submitter: l.host, Canceller: l.host, Workspace: l.folder}, nil
}
func (userLogin) Drop(string) {}
func (userLogin) Up() bool    { return true }
func (userLogin) Close()      {}

// hostsOfUsers is the service's look at the jobs of all users.
type hostsOfUsers map[string]userLogin

func (h hostsOfUsers) Jobs(ctx context.Context, sought map[string]bool) (all []run.Job, err error) {
	for user, l := range h {
		jobs, err := l.host.Jobs(ctx, sought)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			if of := userOf(run.RunOf(j.Name)); of != user {
				return nil, errors.New(user + " has a job of " + of)
			}
		}
		all = append(all, jobs...)
	}
	return all, nil
}

func (h hostsOfUsers) SeesAll(context.Context) error { return nil }

func (h hostsOfUsers) MessageTimeout(ctx context.Context) (time.Duration, error) {
	return h["alice"].host.MessageTimeout(ctx)
}

func openUsers(t *testing.T, runtime string) *runtest.Transport {
	const places = 3
	root := t.TempDir()
	must(t, os.Chmod(root, 0o700))
	hosts := hostsOfUsers{}
	runs := func(user string) string { return filepath.Join(root, user, "runs") }
	for _, user := range []string{"alice", "bob"} {
		must(t, os.MkdirAll(runs(user), 0o700))
		folder, err := staging.NewShared(staging.Config{RunsDir: runs(user), GatewayID: "gw-suite"})
		must(t, err)
		host, err := local.New(local.Config{Dir: filepath.Join(root, user, "local"), Places: places, Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		hosts[user] = userLogin{host, folder}
	}
	users := asuser.New(asuser.Config{Limit: 1, Idle: time.Millisecond, // so that they take turns
		UserOf: func(_ context.Context, runID string) (string, error) { return userOf(runID), nil },
		Login:  func(user string, _ func() string) (asuser.Login, error) { return hosts[user], nil },
		RunDir: func(user, runID string) string { return filepath.Join(runs(user), runID) }})
	t.Cleanup(users.Close)
	s := &site{Workspace: users, image: filepath.Join(root, "image.sif")}
	must(t, os.WriteFile(s.image, []byte("image"), 0o600))
	s.renderer = slurm.NewRenderer(slurm.ScriptConfig{Runtime: slurm.Runtime{Path: runtime}, Verify: slurm.VerifyAll, GraceSeconds: 2,
		VerifyAllowanceSeconds: 300, Local: true})
	x := s.transport()
	t.Cleanup(func() { // what was cancelled may still be writing
		x.Until(t, "end of the processes", func() bool {
			jobs, err := hosts.Jobs(context.Background(), nil)
			must(t, err)
			for _, j := range jobs {
				must(t, hosts[userOf(run.RunOf(j.Name))].host.Cancel(context.Background(), j.ID, j.Name))
			}
			return len(jobs) == 0
		})
		for user := range hosts { // each has only runs of his own
			must(t, filepath.WalkDir(runs(user), func(path string, d fs.DirEntry, err error) error {
				if err == nil && strings.HasPrefix(d.Name(), "run_") && userOf(d.Name()) != user {
					t.Errorf("%s has %s", user, path)
				}
				return err
			}))
		}
	})
	x.Submitter, x.Queue, x.Canceller, x.Room = users, hosts, users, run.ScopePartition
	job := func(t *testing.T, k runtest.Kind) run.JobSpec {
		return s.prepare(t, plan.Placement{}, program(k, runtest.Sleeps, runtest.Waits))
	}
	x.Job = func(t *testing.T, k runtest.Kind) run.JobSpec {
		if k != runtest.NoRoom {
			return job(t, k)
		}
		for full := 0; full < places; { // of alice's host: a job that bob has does not count there
			other := job(t, runtest.Sleeps)
			if userOf(other.RunID) == "alice" {
				full++
			}
			res := users.Send(t.Context(), other, 1)
			t.Cleanup(func() { must(t, users.Cancel(context.Background(), res.JobID, other.JobName)) })
		}
		for {
			if next := job(t, k); userOf(next.RunID) == "alice" {
				return next
			}
		}
	}
	return x
}
