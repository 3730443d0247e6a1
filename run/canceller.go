package run

import (
	"context"
	"strings"
	"time"
)

// Separate workers ask Slurm to cancel jobs, so that neither the watcher nor a caller waits for it. Each job is asked
// about once, and again only if it still exists after a deadline: the watcher sees that and calls cancelJob again. What a gateway has
// not asked when it ends is left to the next one's watcher.

const (
	cancelsAtOnce = 2           // few, so that the watcher's own query waits for little of the RPC budget
	askAgainAfter = time.Minute // or twice Slurm's MessageTimeout, if that is longer
	askedKept     = time.Hour   // longer than any deadline
)

// cancelJob has Slurm asked to cancel the job with this id and name, unless it was asked lately or is about to be.
func (e *Engine) cancelJob(id, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := id + " " + name
	if last, ok := e.asked[key]; ok && e.Now().Sub(last) < askAgainAfter || e.cancels.working(key) {
		return
	}
	e.cancels.add(key)
}

// canceller asks Slurm about one job after another.
func (e *Engine) canceller(ctx context.Context) {
	for {
		key, ok := e.cancels.take(ctx)
		if !ok {
			return
		}
		e.askToCancel(ctx, key)
		e.cancels.done(key)
	}
}

func (e *Engine) askToCancel(ctx context.Context, key string) {
	id, name, _ := strings.Cut(key, " ")
	e.mu.Lock()
	last, again := e.asked[key]
	silent := e.cycleErr
	e.mu.Unlock()
	if silent != nil { // the watcher offers what is still there when Slurm answers again
		e.sayNotCancelled(ctx, name, "Slurm does not answer; job "+id+" will be cancelled when it does")
		return
	}
	if again {
		timeout, err := e.Queue.MessageTimeout(ctx)
		if err != nil || e.Now().Sub(last) < 2*timeout {
			return
		}
	}
	e.mu.Lock()
	e.asked[key] = e.Now()
	e.mu.Unlock()
	if err := e.Canceller.Cancel(ctx, id, name); err != nil && ctx.Err() == nil {
		e.Log.Warn("scancel failed; it is retried while the job exists", "job_id", id, "job_name", name, "err", err)
		e.sayNotCancelled(ctx, name, "job "+id+" could not be cancelled; the gateway retries while the job exists: "+err.Error())
	}
	if e.cancels.empty() {
		e.poke()
	}
}

// sayNotCancelled puts into a run that is cancelling why Slurm does not stop its job yet.
func (e *Engine) sayNotCancelled(ctx context.Context, jobName, detail string) {
	v, err := e.Store.View(ctx, RunOf(jobName))
	if err == nil && v.Run.Reason == Cancelling && v.Submission.JobName == jobName {
		err = e.note(ctx, v, Cancelling, detail)
	}
	if err != nil && !stale(err) && ctx.Err() == nil {
		e.Log.Warn("cannot record why a job is not cancelled yet", "job_name", jobName, "err", err)
	}
}

// forgetAsked drops what was asked so long ago that the job is gone or may be asked about again.
func (e *Engine) forgetAsked() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, at := range e.asked {
		if e.Now().Sub(at) > askedKept {
			delete(e.asked, key)
		}
	}
}
