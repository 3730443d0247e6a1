package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
)

// absent is a run that Slurm's answer does not show and that has no sufficient exit file.
type absent struct {
	key   JobKey
	since time.Time // its submission
	left  bool      // it has an exit file, but Slurm may know more about the job's end
}

// settleMissing handles runs that an answer of squeue does not show. The first source is the exit file, if it is
// sufficient; the second is accounting, queried once for all runs. Without either the resolver or rule 8 decides; both
// need answers that hide nothing.
func (c *cycle) settleMissing(ctx context.Context, gone []string) error {
	var mu sync.Mutex
	rest := map[string]absent{}
	var theirs gather // reading their exit files may take long: accounting is queried about all of them, too
	c.eachOwn(ctx, gone, func(v View) (bool, error) {
		left, moved, err := c.exited(ctx, v)
		if err != nil || moved {
			return moved, err
		}
		mu.Lock()
		defer mu.Unlock()
		rest[v.Run.ID] = absent{keyOf(v), v.Submission.CreatedAt, left}
		return false, nil
	}, theirs.add)
	if len(rest)+len(theirs.list) == 0 {
		return nil
	}
	since := theirs.since(c.Now())
	keys := make([]JobKey, 0, len(rest)+len(theirs.list))
	for _, v := range theirs.list {
		keys = append(keys, keyOf(v))
	}
	for _, a := range rest {
		keys = append(keys, a.key)
		if a.since.Before(since) {
			since = a.since
		}
	}
	accounted, err := c.Accounting.Records(ctx, since.Add(-time.Hour), keys...)
	if fault.Is(err, fault.NotFound) { // no accounting here: only the exit file and the claim decide
		err = nil
	}
	said := answers{accounted: index(accounted), silent: err}
	if said.accounted.showsAll(keys, c.userOf) {
		c.recordHarmless(said.accounted)
	}
	if err == nil {
		if err = c.Queue.SeesAll(ctx); err != nil { // then the query that does not show them proves nothing
			c.watcher.note(err)
			said.partial = true
		}
	}
	defer c.eachOfUsers(ctx, theirs.list, func(v View) (bool, error) {
		left, moved, err := c.exited(ctx, v)
		if err != nil || moved {
			return moved, err
		}
		return c.settleAfter(ctx, v, said, left)
	})
	gone = slices.DeleteFunc(gone, func(id string) bool { _, ok := rest[id]; return !ok })
	c.eachOwn(ctx, gone, func(v View) (bool, error) { return c.settleAfter(ctx, v, said, rest[v.Run.ID].left) }, nil)
	return err
}

// answers are the results of queries about jobs that squeue does not show.
type answers struct {
	accounted *answer
	silent    error // accounting did not answer
	partial   bool  // squeue does not show all jobs
}

// accountingWaits is the reason of a run whose job has ended, while only accounting can show whether the job was killed
// for lack of memory.
const accountingWaits = "accounting_waits"

// settleAfter settles a run after accounting was queried. Without an answer it concludes nothing; a run with an exit
// file does not need a squeue that shows all jobs.
func (c *cycle) settleAfter(ctx context.Context, v View, said answers, left bool) (moved bool, err error) {
	switch {
	case said.silent != nil && left && v.Run.CancelAt == nil:
		return false, c.note(ctx, v, accountingWaits, "the job has ended, and Slurm's accounting, which alone knows how, does not answer: "+
			fault.Prose(said.silent)+". The run ends when it does")
	case said.silent != nil, said.partial && !left:
		return false, nil
	}
	return c.settleGone(ctx, v, said.accounted, left)
}

// keyOf returns the key of the run's job for accounting.
func keyOf(v View) JobKey { return JobKey{v.Submission.JobID, v.Submission.JobName, v.Run.ExecutedAs} }

// exited starts collecting a run by its exit file, if the script ended normally and Slurm could add nothing. left:
// there is an exit file, but Slurm may add to it.
func (c *cycle) exited(ctx context.Context, v View) (left, moved bool, err error) {
	if v.Run.Phase == Unconfirmed {
		return false, false, nil
	}
	x, err := c.readExit(ctx, v)
	if err != nil {
		return false, false, nil
	}
	if x.sufficient() && c.described(ctx, v, x) {
		moved, err = c.startCollecting(ctx, v, "exit_file")
		return false, moved, err
	}
	return true, false, nil
}

// described reports whether the script ended normally: after a success it leaves a manifest.
func (c *cycle) described(ctx context.Context, v View, x *Exit) bool {
	if x.Code != 0 {
		return true
	}
	_, err := c.readControl(ctx, v, ManifestFile)
	return !fault.Is(err, fault.NotFound)
}

// settleGone continues with accounting as the only remaining source. A record that accounting closed because the
// controller had lost the job proves nothing: the job may still run.
func (c *cycle) settleGone(ctx context.Context, v View, accounted *answer, left bool) (moved bool, err error) {
	name := v.Submission.JobName
	var found []Job
	user := c.userOf(v.Run.ExecutedAs)
	if accounted.cannotBeRead(name, user) == nil { // else the records that can be read may be of earlier starts of the job
		found = slices.DeleteFunc(accounted.jobsOf(v, user), func(j Job) bool { return j.Closed })
	}
	hidden := cmp.Or(c.seen.hides(name, user), accounted.hides(name, user))
	switch j, one := pick(v, found); {
	case one && j.Class == ClassEnded:
		return c.observe(ctx, v, found)
	case left:
		return c.startCollecting(ctx, v, "exit_file")
	case v.Run.Phase == Unconfirmed && len(found) > 0:
		return c.observe(ctx, v, found)
	case hidden != nil:
		return false, c.cannotTell(ctx, v, hidden)
	case v.Run.Phase == Unconfirmed:
		return c.resolve(ctx, v)
	}
	// Accounting may be stale and still say RUNNING; it must not outweigh the job's absence from the controller for
	// ever.
	return c.countAbsence(ctx, v, accounted)
}

// recordUnread is the reason of a run whose job may be in an unreadable record of Slurm's.
const recordUnread = "slurm_record_unread"

// cannotTell records that Slurm's answer does not show how the run's job ended, or whether there is one: the run waits.
// It clears the job's state, so that the next readable record counts as an update.
func (c *cycle) cannotTell(ctx context.Context, v View, hidden *Job) error {
	if v.Submission.JobID != "" && v.Run.CancelAt != nil {
		c.cancels.cancel(v.Run, jobAsSent(v))
	}
	a, detail := v.Attempt, "Slurm's answer "+hidden.mayLack()+", so it may not show this run's job"
	a.SlurmState, a.SlurmWhy = "", ""
	if hidden.Name != "" {
		a.MissedAt = nil // the job is there
		detail = "Slurm's record of the job cannot be read (" + hidden.Why + ")"
	}
	detail += ". The run continues when Slurm's answer can be read, or when the job's exit file or accounting shows how it ended. " +
		"Next: look for the record in the gateway's log"
	if v.Run.Reason == recordUnread && v.Run.Detail == detail && a.MissedAt == v.Attempt.MissedAt {
		return nil
	}
	v.Run.Reason, v.Run.Detail = recordUnread, detail
	_, err := c.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a},
		Event: Event{Type: "run.waits", Data: map[string]any{"reason": recordUnread, "detail": detail}}})
	return err
}

// startCollecting moves a run with an exit file to collection, with Slurm's own state left unknown.
func (e *Engine) startCollecting(ctx context.Context, v View, by string) (bool, error) {
	a := v.Attempt
	a.SlurmState, a.MissedAt = "", nil
	v.Run.enter(Collecting, "", "")
	_, err := e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Event: Event{Type: "run.collecting",
		Data: map[string]any{"witness": by}}})
	if err == nil {
		e.work.add(ShareOf(v.Run), v.Run.ID)
	}
	return err == nil, err
}

// countAbsence applies rule 8: LOST needs two complete queries without the job, far enough apart, and no exit file. The
// time between them counts from the answer to the first to the start of the second: time in which the gateway waited
// for sacct, or was stopped, does not count. accounted: accounting's answer, nil if it was not queried.
func (c *cycle) countAbsence(ctx context.Context, v View, accounted *answer) (bool, error) {
	e, now, id := c.Engine, c.Now(), v.Submission.JobID
	if id != "" {
		c.watcher.seek(id)
	}
	if j, ok := c.renamed(v); ok {
		return c.observe(ctx, v, []Job{j})
	}
	if v.Attempt.MissedAt == nil || v.Attempt.MissedAt.After(now) { // recorded while the clock was ahead
		a := v.Attempt
		a.MissedAt = &now
		_, err := e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Event: Event{Type: "run.missed",
			Data: map[string]any{"job_id": v.Submission.JobID}}})
		return false, err
	}
	timeout, err := messageTimeout(ctx, e.Queue)
	if err != nil || c.began.Sub(*v.Attempt.MissedAt) < max(e.cfg.AbsenceGap, 2*timeout) {
		return false, err
	}
	if id != "" && !c.sought[id] {
		return false, nil // the last query did not include this id; the next one does
	}
	// The claim shows whether a job executed the attempt.
	claim, who, err := e.takeClaim(ctx, v)
	switch {
	case err != nil:
		return false, err
	case who == folderMissing:
		return true, e.blockFolderGone(ctx, v)
	case who == heldByOther:
		return true, e.blockForeignClaim(ctx, v)
	}
	d := verdict{ending: EndedLost, detail: fmt.Sprintf("job %s started on node %s; Slurm no longer knows it, and it left no exit file",
		claim.Holder.Job, claim.Node)}
	if who == heldByGateway {
		if d, err = c.unstarted(ctx, v, accounted); err != nil {
			return false, err
		}
	}
	if d.ending != EndedAbsent {
		err = e.takeLogs(ctx, v, &d)
	}
	if err != nil {
		return false, err
	}
	return true, e.finish(ctx, v, d)
}

// unstarted returns the verdict on a run whose job is gone and never started.
func (c *cycle) unstarted(ctx context.Context, v View, accounted *answer) (d verdict, err error) {
	d = verdict{ending: EndedAbsent, detail: fmt.Sprintf("Slurm no longer knows job %s, which never started and cannot start any more",
		v.Submission.JobID)}
	gone, err := c.withdrawn(ctx, v, accounted)
	if gone {
		d = verdict{ending: EndedCancelled, detail: fmt.Sprintf("task %s was cancelled in Slurm, not through slurmgate: Slurm has "+
			"other tasks of its array and not this one, which never started and cannot start any more", v.Submission.JobID)}
	}
	return d, err
}

// withdrawn reports whether the run's job is a task that was cancelled in Slurm before it started. Slurm keeps the
// waiting tasks of an array in one record, and scancel of one of them leaves no trace of it in squeue or sacct. So the
// proof is the array, which Slurm did not lose: other tasks of it, or the rest of that record when no task waits any
// more. A record that accounting closed itself is of an array that the controller lost.
func (c *cycle) withdrawn(ctx context.Context, v View, accounted *answer) (bool, error) {
	if v.Submission.Array == "" {
		return false, nil
	}
	row, err := c.tasks.row(ctx, v.Submission.Array)
	if row == nil || err != nil {
		return false, err
	}
	own, user := v.Submission.JobName, c.userOf(v.Run.ExecutedAs)
	shows := func(a *answer) bool {
		has := func(name string) bool {
			return slices.ContainsFunc(a.named(name, user), func(j Job) bool { return !j.Closed })
		}
		return has(row.Name) || slices.ContainsFunc(row.Jobs, func(name string) bool { return name != own && has(name) })
	}
	return c.seen != nil && shows(c.seen) || accounted != nil && len(accounted.named(own, user)) == 0 && shows(accounted), nil
}

// JobRenamed is the reason of a run whose job has another name in Slurm than it was sent with.
const JobRenamed = "job_renamed"

// renamedDetail returns the detail of a run whose job was renamed, with what an administrator can do.
func renamedDetail(v View, j Job) string {
	state := j.State
	if j.Class == ClassPending && j.Why != "" && j.Why != "None" {
		state += ", " + j.Why
	}
	return fmt.Sprintf("Slurm shows the run's job %s (%s) as %q: a person or a job_submit plugin of the site has renamed it. The gateway "+
		"follows it all the same, and does not send it again. Next: an administrator exempts jobs whose names begin with sg- from the plugin, "+
		"or gives this one its name back with scontrol update jobid=%s jobname=%s", j.ID, state, j.Name, j.ID,
		cmp.Or(v.Submission.Array, v.Submission.JobName))
}

// renamed finds the run's job by its id if neither its name nor its working folder shows it: only a job that none of
// the three shows is absent. A reused id is recognised by the time of submission, so a job that Slurm never showed as
// the run's is not found.
func (c *cycle) renamed(v View) (Job, bool) {
	s := v.Submission
	if c.seen == nil || s.JobID == "" || s.SubmittedAt == nil || !c.sought[s.JobID] {
		return Job{}, false
	}
	for _, j := range c.seen.jobs {
		if j.ID == s.JobID && ofUser(c.userOf(v.Run.ExecutedAs), j) && j.Class != ClassUnread && (s.Cluster == "" || j.Cluster == "" ||
			s.Cluster == j.Cluster) && j.Submitted != nil && s.SubmittedAt.Equal(*j.Submitted) {
			return j, true
		}
	}
	return Job{}, false
}
