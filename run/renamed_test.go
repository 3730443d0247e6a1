package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/run"
)

// A job from the folder of an attempt, or of an array, was renamed unless it has a name that a gateway gives it there:
// a prefix or suffix makes another name too. A job from any other folder is not a gateway's.
func TestRenamed(t *testing.T) {
	const id, other = "run_0X8Z4D1X467KV94K4TXG0D9BXT", "run_0X8Z4D1X467KV94K4TXG0D9BXV"
	const attempt, array = "/runs/" + id + "/a12", "/runs/" + id + "/a1/ctl"
	for _, c := range []struct {
		name, dir string
		want      bool
	}{
		{"sg-" + id + "-a12-0123456789ab", attempt, false}, {"sg-array-0123456789abcdef01234567", array, false},
		{"foo", attempt, true}, {"", attempt, true}, {"sg-" + id + "-a12-0123456789ab-lab", attempt, true},
		{"lab-sg-" + id + "-a12-0123456789ab", attempt, true}, {"sg-" + id + "-a1-0123456789ab", attempt, true},
		{"sg-" + other + "-a12-0123456789ab", attempt, true}, {"sg-" + id + "-a12-0123456789", attempt, true},
		{"sg-array-0123456789abcdef01234567", attempt, true}, {"sg-array-0123456789abcdef01234567_x", array, true},
		{"sg-" + id + "-a1-0123456789ab", array, true}, {"foo", array, true},
		{"foo", "/runs/" + id, false}, {"foo", "/runs/" + id + "/a0", false}, {"foo", "/runs/" + id + "/a1/out", false},
		{"foo", "/runs/" + id + "/a1/", false}, {"foo", "/runs/" + id + "/b1", false}, {"foo", "a1", false}, {"foo", "", false},
		{"foo", "/ctl", false}, {"foo", "/runs/run_x/a1", false}, {"foo", "/runs/" + id + "/a1234567890", false}, {"foo", id + "/a1", true},
	} {
		if got := run.Renamed([]byte(c.name), []byte(c.dir)); got != c.want {
			t.Errorf("Renamed(%q, %q) = %v, want %v", c.name, c.dir, got, c.want)
		}
	}
}

// plugged adds a job_submit plugin that gives every job the same name.
func (w *world) plugged() { w.plugin = "site-job" }

// oneJob fails the test unless Slurm was given one job for each of the runs, and their programs were started once.
func (w *world) oneJob(runs int) {
	w.t.Helper()
	w.executed(runs)
	w.with(func() {
		if len(w.jobs) != runs {
			w.t.Errorf("Slurm was given %d jobs, want %d", len(w.jobs), runs)
		}
	})
}

// A job that a plugin renames while it is submitted is the run's by its working folder, whether or not the answer to
// the send arrived: no second job is sent, however long it waits or runs, the run's reason names the rename, and the
// run ends as its job does.
func TestRenamedAtSubmission(t *testing.T) {
	for name, kind := range map[string]sendKind{"answered": accept, "answer lost": doubtJob, "shown late": doubtLate} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.plugged()
			w.cfg.Attempts = 3
			w.send = sends(kind)
			a := w.life().submit(order())
			if kind == doubtLate {
				w.with(func() { w.jobs[0].late = false })
			}
			for _, phase := range []run.Phase{run.Pending, run.InJob} {
				w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == phase && v.Run.Reason == "job_renamed" })
				time.Sleep(20 * time.Minute)
				v := w.until(a.RunID, func(run.View) bool { return true })
				if v.Run.Phase != phase || v.Run.Reason != "job_renamed" || v.Attempt.MissedAt != nil || v.Submission.JobID != "100" ||
					!strings.Contains(v.Run.Detail, `as "site-job"`) {
					t.Fatalf("the run is then %s (%s: %s), missed %v, want %s (job_renamed)", v.Run.Phase, v.Run.Reason,
						v.Run.Detail, v.Attempt.MissedAt, phase)
				}
				w.with(func() {
					if phase == run.Pending {
						w.start(w.jobs[0])
					} else {
						w.finish(w.jobs[0])
					}
				})
			}
			w.want(w.until(a.RunID, done), run.Succeeded, "ok")
			w.oneJob(1)
		})
	}
}

// Slurm's record of the end of a renamed job counts like that of any other, although accounting is not queried and
// there is no exit file.
func TestRenamedJobEndsAsSlurmSays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plugged()
		a := w.life().submit(order())
		w.until(a.RunID, in(run.Pending))
		w.startJob(a.RunID)
		w.with(func() { w.end(w.jobs[0], "TIMEOUT", 0) })
		w.want(w.until(a.RunID, done), run.Failed, "time_limit")
	})
}

// A cancel uses the name that Slurm shows, before the job has started, while it runs, and from a gateway that has not
// seen the job yet.
func TestRenamedJobIsCancelled(t *testing.T) {
	for name, c := range map[string]struct{ started, restarted bool }{"pending": {}, "running": {started: true},
		"pending, next gateway": {restarted: true}, "running, next gateway": {started: true, restarted: true}} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.plugged()
			l, a := w.submitted()
			w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == run.Pending && v.Run.Reason == "job_renamed" })
			if c.started {
				w.startJob(a.RunID)
			}
			if c.restarted {
				l.stop()
				l = w.life()
			}
			l.cancelRun(a.RunID)
			w.want(w.until(a.RunID, done), run.Cancelled, "cancelled")
			for range 120 {
				if w.slurm(0).Class == run.ClassEnded {
					return
				}
				time.Sleep(time.Second)
			}
			t.Errorf("two minutes after the cancel the job is %s; scancel was called %d times", w.slurm(0).State, len(w.cancels))
		})
	}
}

// Another job of the user that was sent from the attempt's folder is never cancelled. Until the claim shows that the
// run's own job was another one, the run waits for it.
func TestAnotherJobFromTheFolder(t *testing.T) {
	for name, started := range map[string]bool{"nobody has the claim": false, "the run's job has the claim": true} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			l, a := w.submitted()
			w.until(a.RunID, in(run.Pending))
			w.with(func() {
				theirs := &job{Job: w.jobs[0].Job, foreign: true, workDir: w.jobs[0].workDir, as: "debugging"}
				theirs.ID, theirs.State, theirs.Class = "777", "RUNNING", run.ClassRunning
				if started {
					w.start(w.jobs[0])
				}
				w.jobs[0].forgot = true
				w.jobs = append(w.jobs, theirs)
			})
			time.Sleep(10 * time.Minute)
			if started {
				w.want(w.until(a.RunID, done), run.Failed, "lost")
			} else {
				v := w.until(a.RunID, func(run.View) bool { return true })
				if v.Run.Phase != run.Pending || v.Run.Reason != "job_renamed" || v.Submission.JobID != "100" {
					t.Errorf("the run is %s (%s) with job %s, want pending (job_renamed) with job 100", v.Run.Phase, v.Run.Reason,
						v.Submission.JobID)
				}
				l.cancelRun(a.RunID)
				w.want(w.until(a.RunID, done), run.Cancelled, "cancelled")
			}
			time.Sleep(10 * time.Minute)
			w.with(func() {
				if slices.Contains(w.cancels, "777") {
					t.Errorf("scancel was called for %v, which has the other job", w.cancels)
				}
			})
		})
	}
}

// Tasks of an array are found by the array's folder and their numbers, renamed together or one by one, and cancelled by
// the names that Slurm shows.
func TestRenamedArray(t *testing.T) {
	for name, kind := range map[string]sendKind{"answered": accept, "answer lost": doubtJob} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			inArrays(w, 7)
			w.plugged()
			w.cfg.Attempts = 3
			w.send = sends(kind)
			l, ids := readyTogether(w, 7)
			renamed := func(id string, phase run.Phase) run.View {
				return w.until(id, func(v run.View) bool { return v.Run.Phase == phase && v.Run.Reason == "job_renamed" })
			}
			for i, id := range ids {
				if v := renamed(id, run.Pending); v.Submission.JobID != run.TaskID("100", *v.Attempt.ArrayTask) {
					t.Errorf("run %d is task %d and has job %s", i, *v.Attempt.ArrayTask, v.Submission.JobID)
				}
			}
			time.Sleep(20 * time.Minute)
			ids = nil
			w.with(func() {
				for _, j := range w.jobs {
					ids = append(ids, j.spec.RunID)
				}
				w.jobs[2].as = "by hand"
				for _, j := range w.jobs[1:] {
					w.start(j)
				}
			})
			for i, id := range ids[1:] {
				renamed(id, run.InJob)
				if i >= 2 {
					continue
				}
				l.cancelRun(id)
			}
			w.want(w.until(ids[1], done), run.Cancelled, "cancelled")
			w.want(w.until(ids[2], done), run.Cancelled, "cancelled")
			w.with(func() { w.start(w.jobs[0]); w.finish(w.jobs[0]) })
			w.want(w.until(ids[0], done), run.Succeeded, "ok")
			for i, id := range ids[3:] {
				w.with(func() { w.finish(w.jobs[i+3]) })
				w.want(w.until(id, done), run.Succeeded, "ok")
			}
			w.oneJob(7)
		})
	}
}

// A record of several renamed tasks whose list is cut hides none of them, and one that is left when the last of them
// was cancelled in Slurm shows that Slurm did not lose the array.
func TestRenamedArrayIsFolded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 3)
		w.plugged()
		w.cfg.Attempts = 2
		w.queue = func(list []run.Job) []run.Job {
			one := list[0]
			one.ID, _, _ = strings.Cut(one.ID, "_")
			return []run.Job{{ID: one.ID, Name: one.Name, WorkDir: one.WorkDir, User: one.User, Class: run.ClassUnread, Why: "cut"}}
		}
		_, ids := readyTogether(w, 3)
		time.Sleep(20 * time.Minute)
		for _, id := range ids {
			if v := w.until(id, func(run.View) bool { return true }); v.Run.Phase != run.Pending || v.Attempt.N != 1 || v.Attempt.MissedAt != nil {
				t.Errorf("a run whose task is in a record that is cut is %s in attempt %d, missed at %v", v.Run.Phase, v.Attempt.N, v.Attempt.MissedAt)
			}
		}
		w.with(func() {
			left := w.jobs[0].shown()
			left.ID, _, _ = strings.Cut(left.ID, "_")
			left.Task, left.State, left.Class = nil, "CANCELLED", run.ClassEnded
			w.jobs, w.queue = nil, func([]run.Job) []run.Job { return []run.Job{left} }
		})
		w.wantAll(ids, run.Cancelled, "cancelled")
	})
}
