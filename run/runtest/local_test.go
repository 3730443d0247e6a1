//go:build !cluster

package runtest_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"slurmgate/local"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/slurm"
)

// The gateway's own host, with real processes, passes the suites of transports. It has no queue and no accounting.
func TestHostConformance(t *testing.T) {
	// Written before another process starts: a process started meanwhile would have it open, and the kernel executes no
	// file that is open for writing.
	runtime := filepath.Join(t.TempDir(), "apptainer")
	must(t, os.WriteFile(runtime, []byte(runtimeScript), 0o700))
	jobs := runtest.Setup{Direct: true, Test: func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) },
		Open: func(t *testing.T) *runtest.Transport { return openHost(t, runtime) }}
	t.Run("submitter", func(t *testing.T) { runtest.Submitter(t, jobs) })
	t.Run("queue", func(t *testing.T) { runtest.Queue(t, jobs) })
	t.Run("canceller", func(t *testing.T) { runtest.Canceller(t, jobs) })
}

func openHost(t *testing.T, runtime string) *runtest.Transport {
	const places = 3
	root := t.TempDir()
	must(t, os.Chmod(root, 0o700))
	s := openSite(t, root)
	s.renderer = slurm.NewRenderer(slurm.ScriptConfig{Runtime: slurm.Runtime{Path: runtime}, Verify: slurm.VerifyAll, GraceSeconds: 2,
		VerifyAllowanceSeconds: 300, Local: true})
	b, err := local.New(local.Config{Dir: filepath.Join(root, "local"), Places: places, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	job := func(t *testing.T, k runtest.Kind) run.JobSpec {
		return s.prepare(t, plan.Placement{}, program(k, runtest.Sleeps, runtest.Waits))
	}
	x := s.transport()
	t.Cleanup(func() { // what was cancelled may still be writing
		x.Until(t, "end of the processes", func() bool {
			jobs, err := b.Jobs(context.Background(), nil)
			must(t, err)
			for _, j := range jobs { // a script that was about to start its program when it was cancelled may start it
				must(t, b.Cancel(context.Background(), j.ID, j.Name, ""))
			}
			return len(jobs) == 0
		})
	})
	x.Submitter, x.Queue, x.Canceller, x.Room = b, b, b, run.ScopePartition
	x.Job = func(t *testing.T, k runtest.Kind) run.JobSpec {
		for range places {
			if k != runtest.NoRoom {
				break
			}
			other := job(t, runtest.Sleeps)
			res := b.Send(t.Context(), other, 1)
			t.Cleanup(func() { must(t, b.Cancel(context.Background(), res.JobID, other.JobName, "")) })
		}
		return job(t, k)
	}
	return x
}
