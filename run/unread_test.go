package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// unread makes records of Slurm's unreadable: that of the job with this id, or with an empty id another text that may
// be any record.
func unread(id string) func([]run.Job) []run.Job {
	return func(jobs []run.Job) []run.Job {
		if id == "" {
			return append(jobs, run.Job{Class: run.ClassUnread, Why: "no record"})
		}
		for i, j := range jobs {
			if j.ID == id {
				jobs[i] = run.Job{ID: j.ID, Name: j.Name, Class: run.ClassUnread, Why: "no exit status"}
			}
		}
		return jobs
	}
}

// An unreadable record concerns its own run only: the others continue, and that run waits, names the reason, and ends
// by its exit file or by accounting.
func TestUnreadRecord(t *testing.T) {
	for _, by := range []string{"exit file", "accounting", "a readable record"} {
		bubbleRun(t, by, func(t *testing.T, w *world) {
			l := w.life()
			a, b := l.submit(order()), l.submit(order(func(p *plan.Params) { p.Spec.Resources.CPUs = 2 }))
			w.until(a.RunID, in(run.Pending))
			w.until(b.RunID, in(run.Pending))
			w.with(func() { w.queue = unread(w.jobs[0].ID) })
			time.Sleep(20 * time.Minute)
			if v := w.until(a.RunID, in(run.Pending)); v.Run.Reason != "slurm_record_unread" || v.Attempt.MissedAt != nil {
				t.Fatalf("%s: %s, missed %v", v.Run.Reason, v.Run.Detail, v.Attempt.MissedAt)
			}
			w.with(func() { w.start(w.jobs[1]); w.finish(w.jobs[1]) })
			w.until(b.RunID, done)
			w.with(func() {
				w.start(w.jobs[0])
				switch j := w.jobs[0]; by {
				case "exit file":
					w.finish(j)
				case "accounting":
					w.end(j, "NODE_FAIL", 0)
					rec := j.Job
					w.accounting = func() ([]run.Job, error) { return []run.Job{rec}, nil }
				default:
					w.queue = nil
				}
			})
			if by == "a readable record" {
				if v := w.until(a.RunID, in(run.InJob)); v.Run.Reason != "" || v.Attempt.SlurmState != "RUNNING" {
					t.Errorf("the run has the reason %q and Slurm's state %s, want no reason and RUNNING",
						v.Run.Reason, v.Attempt.SlurmState)
				}
				return
			}
			if v := w.until(a.RunID, done); by == "exit file" {
				w.want(v, run.Succeeded, "ok")
			} else {
				w.want(v, run.Failed, "node_fail")
			}
		})
	}
}

// An answer in which some text may be any job's record shows no job as absent: neither is a sent job given up, nor is a
// job in doubt resolved. As soon as an answer hides nothing, both are.
func TestUnreadIsNotAbsent(t *testing.T) {
	for _, source := range []string{"squeue", "sacct"} {
		for _, c := range []struct {
			name   string
			kind   sendKind
			phase  run.Phase
			ending string
		}{{"sent", accept, run.InJob, "lost"}, {"in doubt", doubtNone, run.Unconfirmed, "absent"}} {
			bubbleRun(t, source+", "+c.name, func(t *testing.T, w *world) {
				w.send = sends(c.kind)
				spoil := func(bad bool) {
					w.queue, w.accounting = nil, func() ([]run.Job, error) { return nil, nil }
					switch {
					case bad && source == "squeue":
						w.queue = unread("")
					case bad:
						w.accounting = func() ([]run.Job, error) { return unread("")(nil), nil }
					}
				}
				w.with(func() { spoil(true) })
				_, a := w.submitted()
				if c.kind == accept {
					w.startJob(a.RunID)
					w.with(func() { w.jobs[0].forgot = true })
				}
				time.Sleep(time.Hour)
				v := w.until(a.RunID, func(run.View) bool { return true })
				if v.Run.Phase != c.phase || v.Run.Reason != "slurm_record_unread" || v.Run.AttemptN != 1 {
					t.Fatalf("%s, attempt %d: %s: %s", v.Run.Phase, v.Run.AttemptN, v.Run.Reason, v.Run.Detail)
				}
				w.with(func() { spoil(false) })
				w.want(w.until(a.RunID, done), run.Failed, c.ending)
			})
		}
	}
}

// Another line in an answer delays no run that the answer shows. It is harmless once it came with the jobs of all open
// runs; until then no job counts as absent.
func TestLineBesideAnAnswer(t *testing.T) {
	const line = "squeue: krb5: error getting a ticket"
	bubble(t, func(t *testing.T, w *world) {
		w.with(func() { w.beside = map[string]string{"squeue": line} })
		w.send = sends(doubtNone, accept)
		l := w.life()
		lost := l.submit(order())
		time.Sleep(time.Hour)
		if v := w.until(lost.RunID, in(run.Unconfirmed)); v.Run.Reason != "slurm_record_unread" || !strings.Contains(v.Run.Detail, line) {
			t.Fatalf("a run whose job is not there waits as %s: %s", v.Run.Reason, v.Run.Detail)
		}
		shown := l.submit(order(func(p *plan.Params) { p.Spec.Resources.CPUs = 2 }))
		w.until(shown.RunID, in(run.Pending))
		time.Sleep(time.Hour)
		if told := w.told(); len(told) > 0 {
			t.Fatal("the line is harmless although the job of one run was not shown")
		}
		must(l.engine.DeclareAbsent(t.Context(), lost.RunID, ""))
		w.until(lost.RunID, done)
		time.Sleep(time.Hour)
		if told := w.told(); !slices.Equal(told, []string{line}) {
			t.Fatalf("the line came with the jobs of all open runs, and harmless is %q", told)
		}
		w.with(func() { w.jobs[len(w.jobs)-1].forgot = true })
		w.want(w.until(shown.RunID, done), run.Failed, "absent")
	})
}

// Another line that accounting prints is harmless once it came with the records of all requested jobs.
func TestLineBesideAccounting(t *testing.T) {
	const line = "sacct: krb5: error getting a ticket"
	bubble(t, func(t *testing.T, w *world) {
		w.with(func() {
			w.beside = map[string]string{"sacct": line}
			w.accounting = func() ([]run.Job, error) {
				if j := w.jobs[0]; j.Class == run.ClassEnded {
					return []run.Job{j.Job}, nil
				}
				return nil, nil
			}
		})
		l := w.life()
		a, b := l.submit(order()), l.submit(order(func(p *plan.Params) { p.Spec.Resources.CPUs = 2 }))
		w.until(a.RunID, in(run.Pending))
		w.until(b.RunID, in(run.Pending))
		w.with(func() { w.start(w.jobs[1]) })
		w.until(b.RunID, in(run.InJob))
		w.with(func() { w.jobs[1].forgot = true })
		time.Sleep(time.Hour)
		if v := w.until(b.RunID, in(run.InJob)); v.Run.Reason != "slurm_record_unread" || len(w.told()) > 0 {
			t.Fatalf("a run whose job is not there waits as %s: %s; harmless: %q", v.Run.Reason, v.Run.Detail, w.told())
		}
		w.with(func() { w.jobs[1].forgot = false })
		w.until(b.RunID, func(v run.View) bool { return v.Run.Reason == "" })
		w.with(func() { w.start(w.jobs[0]); w.end(w.jobs[0], "NODE_FAIL", 0); w.jobs[0].forgot = true })
		w.want(w.until(a.RunID, done), run.Failed, "node_fail")
		if told := w.told(); !slices.Equal(told, []string{line}) {
			t.Fatalf("the line came with all records, and harmless is %q", told)
		}
		w.with(func() { w.jobs[1].forgot = true })
		w.want(w.until(b.RunID, done), run.Failed, "lost")
	})
}

// A cancel reaches the job although its record cannot be read, and a job seen in such a record is not missed.
func TestUnreadRecordCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, a := w.running()
		w.with(func() { w.queue = unread(w.jobs[0].ID) })
		l.cancelRun(a.RunID)
		if v := w.until(a.RunID, done); v.Run.State != run.Cancelled {
			t.Errorf("the run is %s: %s after the cancels %v, want %s", v.Run.State, v.Run.Reason, w.cancels, run.Cancelled)
		}
	})
}
