//go:build cluster && clusterlong

package slurm

import (
	"context"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// waitForRelease: Slurm holds a requeued job back for 2 minutes; the long campaign waits for its second start.
const waitForRelease = true

// With slurmctld stopped by SIGSTOP (the harness does that and says so): sbatch is waited for, not killed, its lock is held until it
// gives up, and what it says then leaves doubt; queries fail and do not come back empty.
func TestClusterSleepingController(t *testing.T) {
	b := newBench(t, "true", func(c *Config, j *run.JobSpec) {
		j.Spec.Placement.Partition = "big"
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if res := b.Send(ctx, b.job, 1); res.Outcome != run.SendDoubt {
		t.Fatalf("%+v", res)
	}
	if res, held := b.Receipt(t.Context(), b.job, 1); !held || res.Outcome != run.SendDoubt {
		t.Fatalf("the lock is free with sbatch still there: %+v", res)
	}
	if res := b.Send(t.Context(), b.job, 1); res.Outcome != run.SendDoubt || res.Code != "send_held" {
		t.Fatalf("%+v", res)
	}
	if jobs, err := b.Jobs(t.Context(), nil); !fault.Is(err, fault.Transport) {
		t.Errorf("%v %v", jobs, err)
	}
	if err := b.Cancel(t.Context(), "1", b.job.JobName); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
	until(t, 60*time.Second, "end of sbatch", func() bool { _, held := b.Receipt(t.Context(), b.job, 1); return !held })
	if res, _ := b.Receipt(t.Context(), b.job, 1); res.Outcome != run.SendDoubt || !strings.Contains(res.Text, "Socket timed out") {
		t.Errorf("%+v", res)
	}
}

// Slurm's own limit is a minute at least.
func TestClusterBudgetOfTime(t *testing.T) {
	b := newBench(t, mark+"trap '' TERM; while :; do sleep 1; done",
		func(c *Config, j *run.JobSpec) { j.Spec.Resources.TimeLimitSeconds = 600 })
	argv, err := b.Argv(b.job)
	must(t, err)
	for i, a := range argv {
		if strings.HasPrefix(a, "--time=") {
			argv[i] = "--time=1"
		}
	}
	id := sbatch(t, argv...)
	var job run.Job
	until(t, 4*time.Minute, "Slurm's limit", func() bool { job = b.seen(t, id); return job.Class == run.ClassEnded })
	if e := b.exit(t, id); e.Reason != "terminated" || job.State != "TIMEOUT" {
		t.Errorf("%+v %+v", e, job)
	}
}
