package run

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"slurmgate/fault"
)

// A job may have ended long before Slurm reports it: an epilog is slow, or slurmctld was started with older state and
// shows the job as running until its node reports. The job's files then suffice, if its own cgroup counted no OOM kill:
// Slurm could add only that to an exit record that shows that nothing stopped the program. Without such a count the run
// waits for Slurm. What Slurm reports later is recorded and changes nothing.

// recordsPerCycle bounds the exit records that are read in a cycle: one bound for jobs that Slurm shows as completing,
// and one for jobs that it shows as running.
const recordsPerCycle = 32

// sample is a random selection of the runs that were added, each equally likely.
type sample struct {
	ids []string
	n   int
}

func (s *sample) add(id string) {
	if s.n++; len(s.ids) < recordsPerCycle {
		s.ids = append(s.ids, id)
	} else if at := rand.IntN(s.n); at < recordsPerCycle {
		s.ids[at] = id
	}
}

// collectEarly collects runs of the samples whose job has ended although Slurm still shows it.
func (c *cycle) collectEarly(ctx context.Context) {
	var theirs gather
	c.eachOwn(ctx, slices.Concat(c.completing.ids, c.running.ids), func(v View) (bool, error) { return c.endedEarly(ctx, v) }, theirs.add)
	c.eachOfUsers(ctx, theirs.list, func(v View) (bool, error) { return c.endedEarly(ctx, v) })
}

func (c *cycle) endedEarly(ctx context.Context, v View) (moved bool, err error) {
	if v.Run.CancelAt != nil || v.Run.Phase != InJob && v.Run.Phase != Completing {
		return false, nil
	}
	x, err := c.readExit(ctx, v)
	if err != nil || !x.sufficient() || !c.described(ctx, v, x) {
		return false, unlessMissing(err)
	}
	claim, who, err := c.readClaim(ctx, v)
	if err != nil || who != heldByJob || claim.Holder != x.Holder {
		return false, err
	}
	moved, err = c.startCollecting(ctx, v, "exit_file")
	if moved {
		c.watcher.await(v, c.Now())
	}
	return moved, err
}

// sufficient reports whether the record shows without Slurm how the job ended: nothing stopped the program, and the
// job's cgroup counted no process killed for lack of memory.
func (x *Exit) sufficient() bool { return !x.stopped() && x.OOM == 0 }

// unlessMissing returns the error, but nil if there is no file yet, or the file is not the run's.
func unlessMissing(err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Validation) {
		return nil
	}
	return err
}

// awaited is a job that was collected before Slurm reported how it ended.
type awaited struct {
	runID, user, jobID string
	attempt            int
	until              time.Time
}

// await makes the watcher record what Slurm reports of the run's job, if it does so within strayWatch.
func (w *watcher) await(v View, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.awaited == nil {
		w.awaited = map[string]awaited{}
	}
	until := now.Add(strayWatch)
	w.awaited[v.Submission.JobName] = awaited{v.Run.ID, v.Run.ExecutedAs, v.Submission.JobID, v.Attempt.N, until}
	w.strayUntil = until
}

// awaiting returns the jobs whose end Slurm may still report, and drops those that were awaited too long.
func (w *watcher) awaiting(now time.Time) map[string]awaited {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.awaited, func(_ string, a awaited) bool { return now.After(a.until) })
	return maps.Clone(w.awaited)
}

func (w *watcher) heard(jobName string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.awaited, jobName)
}

// recordLate records what Slurm now reports of jobs that were collected before.
func (c *cycle) recordLate(ctx context.Context) {
	for name, a := range c.watcher.awaiting(c.Now()) {
		for _, j := range c.seen.named(name, c.userOf(a.user)) {
			if j.ID != a.jobID || j.Class != ClassEnded {
				continue
			}
			err := c.Index.Remark(ctx, Event{Type: "job.ended", Data: map[string]any{"run_id": a.runID, "attempt": a.attempt, "job_id": j.ID,
				"slurm_state": j.State, "why": j.Why}})
			if err != nil {
				c.unread(ctx, "what Slurm says of a job that was collected before cannot be recorded", "run_id", a.runID, "err", err)
				break
			}
			c.watcher.heard(name)
		}
	}
}
