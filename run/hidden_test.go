package run_test

import (
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Slurm may begin to hide the jobs of other users while the gateway runs: its answers are then empty and without an
// error. No job is given up because such an answer does not show it, and no send in doubt is resolved by it. When Slurm
// shows all jobs again, its answers count.
//
// proves SITE-08
func TestHiddenJobsAreNotAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Attempts = 1
		w.send = sends(accept, accept, doubtJob)
		l := w.life()
		runs, waits := l.submit(as("alice")).RunID, l.submit(as("bob")).RunID
		w.startJob(runs)
		w.until(waits, in(run.Pending))
		w.with(func() {
			w.hidden = fault.New(fault.Transport, "jobs_hidden", "PrivateData in slurm.conf has jobs")
			w.queue = func([]run.Job) []run.Job { return nil }
		})
		doubt := l.submit(as("carol")).RunID
		time.Sleep(20 * time.Minute)
		for id, phase := range map[string]run.Phase{runs: run.InJob, waits: run.Pending, doubt: run.Unconfirmed} {
			if v, err := w.ledger.View(t.Context(), id); err != nil || v.Attempt.MissedAt != nil || v.Run.Phase != phase {
				t.Errorf("while jobs are hidden the run is %s, %+v %v, want %s and its job not missed",
					v.Run.Phase, v.Attempt, err, phase)
			}
		}
		if _, err := l.engine.Watched(); fault.CodeOf(err) != "jobs_hidden" {
			t.Errorf("Watched gives %v, want jobs_hidden", err)
		}
		w.with(func() { w.hidden, w.queue = nil, nil })
		if v := w.until(doubt, in(run.Pending)); v.Submission.JobID != "102" {
			t.Errorf("the run in doubt is in %+v, want in job 102", v.Submission)
		}
		w.with(func() { w.finish(w.jobs[0]); w.jobs[1].forgot = true })
		if v := w.until(runs, done); v.Run.State != run.Succeeded {
			t.Errorf("the run whose job ended is %+v, want succeeded", v.Run)
		}
		if v := w.until(waits, done); v.Attempt.Ending != run.EndedAbsent {
			t.Errorf("the run whose job is gone is %+v, want ended as absent", v.Attempt)
		}
	})
}

// SeesAll is called only about jobs that the answer does not show.
func TestSightIsAskedAboutMissingJobs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Attempts = 1
		l := w.life()
		asks := func() (n int) { w.with(func() { n = w.sights }); return n }
		id := l.submit(as("alice")).RunID
		w.until(id, in(run.Pending))
		time.Sleep(20 * time.Minute)
		if n := asks(); n != 0 {
			t.Errorf("SeesAll was called %d times about jobs that are shown, want 0", n)
		}
		w.with(func() { w.jobs[0].forgot = true })
		w.until(id, done)
		if n := asks(); n < 2 {
			t.Errorf("SeesAll was called %d times about a job that was given up, want at least 2", n)
		}
	})
}

// The usage of a run is that of its own user's job: an id that its user forged measures no other user's job.
//
// proves SITE-08
func TestUsageIsOfTheRunsUser(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto, w.accounting = true, func() ([]run.Job, error) { return nil, nil }
		l := w.life()
		hers, his := l.submit(as("alice")).RunID, l.submit(as("bob")).RunID
		w.until(hers, done)
		w.until(his, done)
		w.with(func() {
			for _, j := range w.jobs {
				w.used = append(w.used, run.Usage{JobID: j.ID, User: "alice", Submitted: j.Submitted, ElapsedSeconds: 7})
			}
		})
		time.Sleep(20 * time.Minute)
		for id, want := range map[string]bool{hers: true, his: false} {
			if u, err := w.ledger.Used(t.Context(), w.attempt(id, 1).token); err != nil || (u != nil) != want {
				t.Errorf("alice's: %v, %+v %v", want, u, err)
			}
		}
		w.with(func() {
			if len(w.keys) < 2 || w.keys[0].User == w.keys[1].User || w.keys[0].ID == "" {
				t.Errorf("Slurm was asked about %+v, want the jobs of two users by id", w.keys)
			}
		})
	})
}
