package run_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// several returns orders that agree in all that an array shares.
func several(k int) (list []run.Order, ids []string) {
	for i := range k {
		o := order(func(p *plan.Params) { p.Spec.Execution.Command.Env = map[string]string{"N": fmt.Sprint(i)} })
		_, id, err := o.Identity()
		if err != nil {
			panic(err)
		}
		list, ids = append(list, o), append(ids, id.RunID())
	}
	return list, ids
}

// inArrays makes runs leave as arrays.
func inArrays(w *world, least int) {
	w.cfg.Arrays = run.Arrays{Min: least, Linger: 3 * time.Second}
	w.cfg.SubmitWait = 0
}

// driveAll submits the runs, again after each death of the gateway, until all have ended.
func driveAll(t *testing.T, w *world, list []run.Order, ids []string) (views []run.View) {
	t.Helper()
	w.input(list[0])
	l := w.life()
	for range 3600 {
		if l.dead.Load() {
			l.stop()
			w.with(func() { clear(w.held) })
			l = w.life()
		}
		views = nil
		for i, o := range list {
			v, err := w.ledger.View(context.Background(), ids[i])
			if fault.Is(err, fault.NotFound) {
				_, _ = l.engine.Submit(context.Background(), o)
			} else if err != nil {
				t.Fatal(err)
			} else if done(v) {
				views = append(views, v)
			}
		}
		if len(views) == len(list) {
			return views
		}
		time.Sleep(time.Second)
	}
	for _, id := range ids {
		if v, _ := w.ledger.View(context.Background(), id); !done(v) {
			t.Errorf("STUCK in %s/%s: %s %s", v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail)
		}
	}
	t.FailNow()
	return nil
}

// sbatches returns how many sbatch there were, and how many of those sent arrays.
func (w *world) sbatches() (all, arrays int) {
	w.with(func() {
		all = len(w.sent)
		names := map[string]bool{}
		for _, j := range w.jobs {
			if j.Task != nil {
				names[j.Name] = true
			}
		}
		arrays = len(names)
	})
	return all, arrays
}

// As TestEverySeam, with runs that leave as arrays: whatever happens to the gateway at any operation, each run succeeds
// and is executed once.
// proves MANY-02
// no race: each of its millions of steps is like the one before
func TestEverySeamOfArrays(t *testing.T) {
	for name, j := range journeys {
		if name == "gateway stops during sbatch" || strings.HasPrefix(name, "renamed") { // nothing in these concerns arrays
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			together := false
			runs := 1 + len(j.sends) // three if they are sent again: two then leave together
			harmEach(t, map[string]int{"": 30, "Send": 8}[j.from], func(t *testing.T, w *world, o outcome, n int) bool {
				inArrays(w, runs)
				queryRarely(w)
				w.auto, w.cfg.Attempts = true, 4
				w.send = sends(j.sends...)
				hit := harmNth(w, j.from, n, o)
				list, ids := several(runs)
				for _, v := range driveAll(t, w, list, ids) {
					w.want(v, run.Succeeded, "ok")
					together = together || v.Submission.Array != ""
				}
				w.startAll()
				w.executed(len(ids))
				return hit.Load()
			})
			if !together {
				t.Error("no run was in an array")
			}
		})
	}
}

// A site's own message against an array may be about its size: each run is sent once more, alone, and then the message
// is about the run.
func TestArrayRefusedInWords(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			inArrays(w, 3)
			w.auto, w.cfg.Attempts = true, 2
			if w.send = sends(refuseWords); accepted {
				w.send = sends(refuseWords, accept)
			}
			w.drain = &run.Drain{Queue: true}
			l := w.life()
			list, ids := several(3)
			l.submitEach(list, in(run.Deferred))
			l.engine.SetDrain(nil)
			for _, id := range ids {
				v := w.until(id, done)
				if accepted {
					w.want(v, run.Succeeded, "ok")
				} else if w.want(v, run.Failed, "rejected"); !strings.Contains(v.Run.Detail, "Project alice-2 has used its hours") {
					t.Errorf("a refused run says %s", v.Run.Detail)
				}
				if v.Attempt.N != 2 || v.Submission.Array != "" {
					t.Errorf("the run ended in attempt %d of array %q, want attempt 2, sent alone", v.Attempt.N, v.Submission.Array)
				}
			}
			w.wantCount("Send", 4)
		})
	}
}

// Runs that are ready together are sent by one sbatch; runs that Slurm must be given different settings for, and single
// runs, are not.
func TestLeaveTogether(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 7)
		w.auto = true
		w.drain = &run.Drain{Queue: true}
		l := w.life()
		list, ids := several(7)
		other := order(func(p *plan.Params) { p.Spec.Resources.MemMB = 200 })
		for _, o := range append(list, other) {
			l.submit(o)
		}
		_, id, _ := other.Identity()
		w.untilAll(ids, in(run.Deferred))
		l.engine.SetDrain(nil)
		var names []string
		for i, id := range append(ids, id.RunID()) {
			v := w.ended(id, run.Succeeded, "ok")
			if i < 7 != (v.Submission.Array != "") || i < 7 && v.Submission.JobID != run.TaskID("100", *v.Attempt.ArrayTask) {
				if !strings.Contains(v.Submission.JobID, "_") || i == 7 {
					t.Errorf("run %d went in %+v, want runs 0 to 6 as tasks of one array, run 7 alone or in another",
						i, v.Submission)
				}
			}
			names = append(names, v.Submission.Array)
		}
		if all, arrays := w.sbatches(); all != 2 || arrays != 1 || len(slices.Compact(names[:7])) != 1 {
			t.Errorf("there were %d sbatch, %d of arrays, and the runs went in %q; want 2, 1, and one array for runs 0 to 6", all, arrays, names)
		}
	})
}

// A single run does not wait for others.
func TestAloneAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 7)
		w.auto = true
		began := time.Now()
		l := w.life()
		v := w.until(l.submit(order()).RunID, func(v run.View) bool { return v.Run.Phase != run.Staging })
		if v.Submission.Array != "" || time.Since(began) >= w.cfg.Arrays.Linger {
			t.Errorf("the first run went in %+v after %s, want it alone before others are waited for",
				v.Submission, time.Since(began))
		}
	})
}

// A pending array that no further run joins leaves long before its linger has passed.
func TestPartyIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 1000)
		w.cfg.Arrays.Linger = time.Minute
		began := time.Now()
		_, ids := readyTogether(w, 7)
		drained := time.Since(began)
		for _, id := range ids {
			w.until(id, func(v run.View) bool { return v.Submission.JobID != "" })
		}
		if _, arrays := w.sbatches(); arrays != 1 {
			t.Errorf("%d arrays were sent, want 1", arrays)
		}
		w.with(func() {
			if took := w.jobs[0].Submitted.Sub(began) - drained; took >= w.cfg.Arrays.Linger/2 {
				t.Errorf("the runs were sent after %s, want less than half of Linger", took)
			}
		})
	})
}

// readyTogether submits runs during a drain, and then ends the drain.
func readyTogether(w *world, n int) (l *life, ids []string) {
	w.drain = &run.Drain{Queue: true}
	l = w.life()
	list, ids := several(n)
	l.submitAll(list)
	w.untilAll(ids, in(run.Deferred))
	l.engine.SetDrain(nil)
	return l, ids
}

// An array that Slurm refuses is halved until Slurm accepts it, and no run is failed for it.
func TestRefusedArrayIsHalved(t *testing.T) {
	for name, kind := range map[string]sendKind{"no room": deferSend, "too large": reject} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			inArrays(w, 8)
			w.auto = true
			w.send = sends(kind, kind, accept) // of 8, of 4, and of what is left
			_, ids := readyTogether(w, 8)
			for _, id := range ids {
				v := w.ended(id, run.Succeeded, "ok")
				if v.Attempt.N != 1 {
					t.Errorf("the run ended in attempt %d, want 1", v.Attempt.N)
				}
			}
			if all, arrays := w.sbatches(); arrays == 0 || all > 8 {
				t.Errorf("there were %d sbatch, %d of arrays; want at most 8, and an array", all, arrays)
			}
		})
	}
}

// One task is cancelled, one fails, one is not executed because the gateway had its claim; the others succeed.
func TestTasksAreAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 4)
		l, ids := readyTogether(w, 4)
		var at []run.View
		for _, id := range ids {
			at = append(at, w.until(id, in(run.Pending)))
		}
		l.cancelRun(ids[0])
		w.want(w.until(ids[0], done), run.Cancelled, "cancelled")
		w.until(ids[1], in(run.Pending))
		w.with(func() {
			for _, j := range w.jobs {
				switch {
				case j.spec.RunID == ids[1]:
					w.start(j)
					w.exitFile(j, 3, "tool_failed")
					w.end(j, "FAILED", 3)
				case j.Class == run.ClassPending:
					w.start(j)
				}
			}
		})
		w.want(w.until(ids[1], done), run.Failed, "tool_failed")
		w.until(ids[2], in(run.InJob))
		l.cancelRun(ids[2])
		w.want(w.until(ids[2], done), run.Cancelled, "cancelled")
		if v := w.until(ids[3], in(run.InJob)); v.Submission.JobID != at[3].Submission.JobID {
			t.Errorf("after the others were cancelled the last run is in %+v, want in its own task", v.Submission)
		}
		w.with(func() {
			for _, j := range w.jobs {
				if j.Class == run.ClassRunning {
					w.finish(j)
				}
			}
			for _, id := range w.cancels {
				if id == "100" || !strings.HasPrefix(id, "100_") {
					t.Errorf("scancel was called for %s, want only tasks of job 100", id)
				}
			}
		})
		w.want(w.until(ids[3], done), run.Succeeded, "ok")
	})
}

// Cancelling the runs of an array is a few calls to Slurm, however many they are, and does not affect other tasks.
// proves MANY-03
func TestTasksAreCancelledTogether(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 60)
		w.scancel = 100 * time.Millisecond
		l, ids := readyTogether(w, 60)
		w.untilAll(ids, in(run.Pending))
		for _, id := range ids[1:] {
			l.cancelRun(id)
		}
		w.wantAll(ids[1:], run.Cancelled, "cancelled")
		time.Sleep(10 * time.Second)
		w.with(func() {
			alive := 0
			for _, j := range w.jobs {
				if j.Class == run.ClassPending {
					alive++
				}
			}
			if alive != 1 || len(w.cancels) > 4 {
				t.Errorf("%d of %d jobs are left after %d calls (%q), want 1 left and at most 4 calls", alive, len(w.jobs), len(w.cancels), w.cancels)
			}
		})
		w.until(ids[0], in(run.Pending))
	})
}

// A waiting task that is cancelled in Slurm leaves no record there. Its run is cancelled, like that of a single job: no
// other attempt was asked for. An array that is gone as a whole was lost by Slurm. The records are as seen on 24.11: of
// the waiting tasks squeue has one record, which has the array's id and no task when the last of them was cancelled;
// sacct has only the last one.
func TestTaskCancelledInSlurm(t *testing.T) {
	withdrawn := func(w *world, task string) {
		w.jobs = slices.DeleteFunc(w.jobs, func(j *job) bool { return j.ID == task })
	}
	// All are cancelled one by one, the first one last.
	lastOne := func(w *world) run.Job {
		j := w.jobs[0].Job
		w.jobs = nil
		j.State, j.Class, j.Ended = "CANCELLED", run.ClassEnded, new(time.Now())
		return j
	}
	noTask := func(j run.Job) run.Job {
		j.ID, _, _ = strings.Cut(j.ID, "_")
		j.Task = nil
		return j
	}
	for name, tt := range map[string]struct {
		doubt  bool // the answer of sbatch was lost
		make   func(w *world)
		absent bool
	}{
		"others wait":           {make: func(w *world) { withdrawn(w, w.jobs[1].ID) }},
		"others wait, in doubt": {doubt: true, make: func(w *world) { withdrawn(w, w.jobs[1].ID) }},
		"the others run": {make: func(w *world) {
			withdrawn(w, w.jobs[1].ID)
			w.start(w.jobs[0])
		}},
		"one by one": {make: func(w *world) {
			j := lastOne(w)
			w.queue = func([]run.Job) []run.Job { return []run.Job{noTask(j)} }
		}},
		"one by one, in doubt": {doubt: true, make: func(w *world) {
			j := lastOne(w)
			w.queue = func([]run.Job) []run.Job { return []run.Job{noTask(j)} }
		}},
		"one by one, and squeue has forgotten them": {make: func(w *world) {
			j := lastOne(w)
			w.accounting = func() ([]run.Job, error) { return []run.Job{j}, nil }
		}},
		"the controller lost the array": {absent: true, make: func(w *world) { lastOne(w) }},
		"the controller lost the array, and accounting ended its jobs": {absent: true, make: func(w *world) {
			j := lastOne(w)
			j.Closed = true
			w.accounting = func() ([]run.Job, error) { return []run.Job{j}, nil }
		}},
		"another user has a job of the array's name": {absent: true, make: func(w *world) {
			j := lastOne(w)
			j.User = "mallory"
			w.queue = func([]run.Job) []run.Job { return []run.Job{noTask(j)} }
		}},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			inArrays(w, 3)
			w.cfg.Attempts, w.cfg.OwnUser = 2, "gateway"
			if tt.doubt {
				w.send = sends(doubtJob)
				w.queue = func([]run.Job) []run.Job { return []run.Job{{Class: run.ClassUnread, Why: "half a record"}} }
			}
			_, ids := readyTogether(w, 3)
			w.untilAll(ids, in(map[bool]run.Phase{false: run.Pending, true: run.Unconfirmed}[tt.doubt]))
			var id string
			w.with(func() {
				id, w.queue = w.jobs[1].spec.RunID, nil
				tt.make(w)
			})
			v := w.until(id, func(v run.View) bool { return done(v) || v.Attempt.N == 2 })
			if !tt.absent {
				w.want(v, run.Cancelled, "cancelled")
			} else if v.Attempt.N != 2 {
				t.Errorf("the cancelled task is in attempt %d, %s: %q, want a second attempt",
					v.Attempt.N, v.Run.Reason, v.Run.Detail)
			}
		})
	}
}

// A record of tasks that were cancelled one by one does not concern a task that started: the files of that task decide.
func TestTaskForgottenByTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 3)
		_, ids := readyTogether(w, 3)
		w.untilAll(ids, in(run.Pending))
		w.with(func() {
			w.start(w.jobs[0])
			w.finish(w.jobs[0])
			left := w.jobs[1].Job
			left.ID, _, _ = strings.Cut(left.ID, "_")
			left.Task, left.State, left.Class = nil, "CANCELLED", run.ClassEnded
			w.queue = func([]run.Job) []run.Job { return []run.Job{left} }
		})
		w.want(w.until(w.job(0).spec.RunID, done), run.Succeeded, "ok")
		for _, j := range []*job{w.job(1), w.job(2)} {
			w.want(w.until(j.spec.RunID, done), run.Cancelled, "cancelled")
		}
	})
}

// Records of several tasks in one, which cannot be separated, hide no task: the runs wait until Slurm shows them.
func TestFoldedTasks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 3)
		w.send = sends(doubtJob)
		folded := true
		w.queue = func(jobs []run.Job) (out []run.Job) {
			for _, j := range jobs {
				if !folded || j.Task == nil {
					out = append(out, j)
				} else if *j.Task == 0 {
					out = append(out, run.Job{Name: j.Name, Class: run.ClassUnread, Why: "no array task"})
				}
			}
			return out
		}
		_, ids := readyTogether(w, 3)
		w.untilAll(ids, in(run.Unconfirmed))
		time.Sleep(5 * time.Minute)
		for _, id := range ids {
			if v := w.until(id, in(run.Unconfirmed)); v.Run.Reason != "slurm_record_unread" {
				t.Errorf("the unconfirmed run %s has the reason %q: %q, want slurm_record_unread", id, v.Run.Reason, v.Run.Detail)
			}
		}
		w.with(func() { folded, w.auto = false, true })
		w.wantAll(ids, run.Succeeded, "ok")
	})
}
