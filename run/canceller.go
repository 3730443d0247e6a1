package run

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

const (
	cancelsAtOnce = 2           // few, so that the watcher's own query waits for little of the RPC budget
	askAgainAfter = time.Minute // or twice Slurm's MessageTimeout, if that is longer
	askedKept     = time.Hour   // longer than any deadline
)

// namedJob is a job as scancel is called for it: with both, because a controller can reuse an id. user is whom its run is executed as.
type namedJob struct{ id, name, user string }

// canceller asks Slurm to cancel jobs, with workers of its own, so that neither the watcher nor a caller waits for scancel. It asks about
// each job once, and again only if the job still exists after a deadline: the watcher sees that and calls cancel again. What a gateway
// has not asked when it ends is left to the next one's watcher.
//
// A job is in the queue or being asked about at most once; asked has every job since the last request about it, for askedKept.
type canceller struct {
	slurm  Canceller
	queue  Queue // for Slurm's MessageTimeout
	log    *slog.Logger
	about  func(ctx context.Context, jobName string) []any // what lines about a job say of its run
	now    func() time.Time
	silent func() error                                      // why the last query of Slurm failed, nil if it did not
	waits  func(ctx context.Context, jobName, detail string) // records why Slurm does not stop a job yet
	poke   func()                                            // has the watcher look soon

	jobs  *workQueue[namedJob]
	users *userSlots[namedJob]
	mu    sync.Mutex
	asked map[namedJob]time.Time // when last
}

// cancel has Slurm asked to cancel the job with this id and name, unless it was asked lately or is about to be.
func (c *canceller) cancel(r Run, id, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := namedJob{id, name, r.ExecutedAs}
	if last, ok := c.asked[j]; ok && c.now().Sub(last) < askAgainAfter || c.jobs.working(j) {
		return
	}
	c.jobs.add(ShareOf(r), j)
}

// carry is ask, within the slots of the job's user.
func (c *canceller) carry(ctx context.Context, j namedJob) {
	if j.user == "" {
		c.ask(ctx, j)
		return
	}
	c.jobs.as(ctx, c.users, j.user, Share{Caller: j.user}, j, c.carry, func() { c.ask(ctx, j) })
}

// ask asks Slurm about one job.
func (c *canceller) ask(ctx context.Context, j namedJob) {
	if c.silent() != nil { // the watcher offers what is still there when Slurm answers again
		c.waits(ctx, j.name, "Slurm does not answer; job "+j.id+" will be cancelled when it does")
		return
	}
	if !c.begin(ctx, j) {
		return
	}
	if err := c.slurm.Cancel(ctx, j.id, j.name); err != nil && ctx.Err() == nil {
		c.log.Warn("scancel failed; it is retried while the job exists", append(c.about(ctx, j.name), "cancelled_job_id", j.id, "job_name",
			j.name,
			"err", err)...)
		c.waits(ctx, j.name, "job "+j.id+" could not be cancelled; the gateway retries while the job exists: "+err.Error())
	}
	if c.jobs.empty() {
		c.poke()
	}
}

// begin notes a request about the job; false if Slurm may still be at the last one.
func (c *canceller) begin(ctx context.Context, j namedJob) bool {
	c.mu.Lock()
	last, again := c.asked[j]
	c.mu.Unlock()
	if again {
		timeout, err := messageTimeout(ctx, c.queue)
		if err != nil || c.now().Sub(last) < 2*timeout {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[j] = c.now()
	return true
}

// forgetOld drops requests so old that the job is gone or may be asked about again.
func (c *canceller) forgetOld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.asked, func(_ namedJob, at time.Time) bool { return c.now().Sub(at) > askedKept })
}

// sayNotCancelled puts into a run that is cancelling why Slurm does not stop its job yet.
func (e *Engine) sayNotCancelled(ctx context.Context, jobName, detail string) {
	v, err := e.Store.View(ctx, RunOf(jobName))
	if err == nil && v.Run.Reason == Cancelling && v.Submission.JobName == jobName {
		err = e.note(ctx, v, Cancelling, detail)
	}
	if err != nil && !stale(err) && ctx.Err() == nil {
		e.Log.Warn("cannot record why a job is not cancelled yet", append(about(v), "job_name", jobName, "err", err)...)
	}
}
