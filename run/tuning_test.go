package run_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"slurmgate/ledger"
	"slurmgate/run"
)

// The effect of the engine's tuning at 10,000 runs: go test -run - -bench Tuning ./run. The figures in comments on a
// mechanism come from here.

const tuned = 10_000

// seeded returns a ledger with runs in a phase, and the jobs that Slurm would show of them.
func seeded(b *testing.B, phase run.Phase) (*ledger.Ledger, []run.Job) {
	b.Helper()
	l, err := ledger.Open(b.Context(), filepath.Join(b.TempDir(), "ledger.db"), ledger.Options{NewID: func() string { return "gw" }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	jobs := make([]run.Job, tuned)
	var wg sync.WaitGroup
	for lane := range 64 {
		wg.Go(func() {
			for i := lane; i < tuned; i += 64 {
				if jobs[i], err = seedOne(b.Context(), l, i, phase); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return l, jobs
}

func seedOne(ctx context.Context, l *ledger.Ledger, i int, phase run.Phase) (run.Job, error) {
	o := order(placed("lab", "short", nil, i+1))
	canonical, id, err := o.Identity()
	if err != nil {
		return run.Job{}, err
	}
	now, token := time.Now(), hex.EncodeToString(fmt.Appendf(nil, "%016d", i))
	v, _, err := l.Insert(ctx, run.New{Run: run.Run{ID: id.RunID(), ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion,
		ContractVersion: o.ContractVersion, PolicyHash: o.PolicyHash, ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(),
		ProjectID: o.Params.ProjectID, State: run.Queued, Phase: run.Staging, AttemptN: 1, CreatedAt: now, UpdatedAt: now,
		ResultJSON: []byte("{}")}, Submission: run.Submission{Token: token, JobName: run.JobName(id.RunID(), 1, token), CreatedAt: now},
		Params: canonical, Policy: o.Policy, Event: run.Event{Type: "run.created", Data: map[string]any{}}})
	if err != nil {
		return run.Job{}, err
	}
	v.Run.Phase, v.Run.Reason = phase, "seeded"
	v.Attempt.SlurmState, v.Attempt.SlurmWhy, v.Attempt.ObservedAt = "PENDING", "Priority", &now
	v.Submission.JobID, v.Submission.SubmittedAt = fmt.Sprint(1000+i), &now
	_, err = l.Apply(ctx, run.Write{Run: v.Run, Attempts: []run.Attempt{v.Attempt}, Submission: &v.Submission,
		Event: run.Event{Type: "run.pending", Data: map[string]any{}}})
	return run.Job{ID: v.Submission.JobID, Name: v.Submission.JobName, State: "PENDING", Why: "Priority", Class: run.ClassPending,
		Restarts: -1, Submitted: &now}, err
}

// listed is a Slurm that shows the same jobs each time.
type listed struct {
	run.Queue
	jobs  []run.Job
	takes time.Duration
}

func (q *listed) Jobs(context.Context, map[string]bool) ([]run.Job, error) {
	time.Sleep(q.takes)
	return append([]run.Job(nil), q.jobs...), nil
}

// A cycle without changes: with squeue's 60 ms, during which the ledger is read, and without.
func BenchmarkTuningCycle(b *testing.B) {
	l, jobs := seeded(b, run.Pending)
	for _, takes := range []time.Duration{0, 60 * time.Millisecond} {
		b.Run(takes.String(), func(b *testing.B) {
			e := run.NewEngine(run.Config{Floor: time.Hour, Ceiling: time.Hour}, run.Parts{Store: l, Index: l.Index(""),
				Queue: &listed{jobs: jobs, takes: takes}, Log: slog.New(slog.DiscardHandler), Now: time.Now})
			b.ReportAllocs()
			for b.Loop() {
				if moved, err := e.Cycle(b.Context()); moved || err != nil {
					b.Fatal(moved, err)
				}
			}
		})
	}
}

// What the watcher reads from the ledger each cycle about waiting runs: all of them, or a page.
func BenchmarkTuningWaiting(b *testing.B) {
	l, _ := seeded(b, run.Deferred)
	for name, limit := range map[string]int{"all": 0, "page of 1000": 1000} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := l.Index("").Waiting(b.Context(), "", limit, run.Deferred); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a worker reads of a new run if the submit does not hand it over; and what counting runs in flight in the ledger
// would cost each send.
func BenchmarkTuningReads(b *testing.B) {
	l, jobs := seeded(b, run.Pending)
	b.Run("view and params", func(b *testing.B) {
		i := 0
		for b.Loop() {
			v, err := l.View(b.Context(), run.RunOf(jobs[i%tuned].Name))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := l.Params(b.Context(), v.Run.ParamsHash); err != nil {
				b.Fatal(err)
			}
			i += 7919
		}
	})
	b.Run("count the runs in flight", func(b *testing.B) {
		for b.Loop() {
			if err := l.Index("").InPhases(b.Context(), func(run.Flying) {}, run.Pending); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a list of all runs costs, in pages of 500.
func BenchmarkTuningList(b *testing.B) {
	l, _ := seeded(b, run.Pending)
	for b.Loop() {
		runs := 0
		for f := (ledger.Filter{Limit: 500}); ; {
			page, err := l.List(b.Context(), f)
			if err != nil {
				b.Fatal(err)
			}
			runs += len(page.Runs)
			if f.Cursor = page.Cursor; f.Cursor == "" {
				break
			}
		}
		if runs != tuned {
			b.Fatal(runs)
		}
	}
}
