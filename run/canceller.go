package run

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	parallelCancels = 2               // few, so that the watcher's query gets its share of the RPC budget
	askAgainAfter   = time.Minute     // or twice Slurm's MessageTimeout, if that is longer
	askedKept       = time.Hour       // longer than any deadline
	betweenTasks    = 2 * time.Second // the least time between two requests about one array: tasks cancelled meanwhile go into the second
)

// namedJob is a job as scancel is called for it: with id and name, because a controller can reuse an id. shown is the
// name that Slurm shows if the job was renamed; user is the Unix user that its run is executed as.
type namedJob struct{ id, name, shown, user string }

// jobAsSent returns a run's job under the name that it was sent with. If the job was renamed, the watcher sees that and
// asks again.
func jobAsSent(v View) namedJob { return namedJob{id: v.Submission.JobID, name: v.Submission.JobName} }

// jobAsShown returns a run's job under the name that Slurm shows.
func jobAsShown(v View, j Job) namedJob {
	return namedJob{id: j.ID, name: v.Submission.JobName, shown: shownAs(v.Submission, j)}
}

// shownAs returns the name of a run's job if the job was renamed, else empty.
func shownAs(s Submission, j Job) string {
	if j.Name == s.JobName {
		return ""
	}
	return j.Name
}

// canceller asks Slurm to cancel jobs, in its own workers, so that neither the watcher nor a caller waits for scancel.
// It asks about each job once, and again only if the job still exists after a deadline: the watcher sees that and calls
// cancel again. Requests that a gateway has not made when it stops are left to the next gateway's watcher.
//
// A job is queued or in a request at most once; asked has the last request about each job, for askedKept. One call asks
// about the tasks of an array together: the queue has their array (see [arrayIn]), and tasks has the tasks to cancel.
type canceller struct {
	slurm  Canceller
	queue  Queue // for Slurm's MessageTimeout
	log    *slog.Logger
	about  func(ctx context.Context, jobName string) []any // attributes for log lines about a job: its run
	now    func() time.Time
	silent func() error                                      // why the last query of Slurm failed, nil if it did not
	waits  func(ctx context.Context, jobName, detail string) // records why Slurm does not stop a job yet
	wake   func()                                            // makes the watcher query Slurm soon
	named  func(ctx context.Context, id, name string) (string, error)

	jobs  *workQueue[namedJob]
	users *userSlots[namedJob]
	mu    sync.Mutex
	asked map[namedJob]time.Time         // when last
	tasks map[namedJob]map[namedJob]bool // by array: tasks that wait

	paced sync.Mutex             // taken while jobs is locked, so nothing is locked under it
	next  map[namedJob]time.Time // by array: when its tasks may be asked about again
}

// newCanceller returns a canceller that uses the engine's functions.
func newCanceller(e *Engine) *canceller {
	c := &canceller{slurm: e.Parts.Canceller, queue: e.Parts.Queue, log: e.Log, now: e.Now, about: e.aboutJob, named: e.tasks.sent,
		silent: func() error { _, err := e.watcher.answered(); return err }, waits: e.recordNotCancelled, wake: e.watcher.wake,
		jobs: newWorkQueue[namedJob](e.cfg.weight, 0), users: newUserSlots[namedJob](1), asked: map[namedJob]time.Time{},
		tasks: map[namedJob]map[namedJob]bool{}, next: map[namedJob]time.Time{}}
	c.jobs.ready = c.due
	return c
}

// arrayIn returns the queue entry for a task: its array, without a name.
func arrayIn(j namedJob) (array namedJob, ok bool) {
	id, _, ok := arrayOf(j.id)
	return namedJob{id: id, user: j.user}, ok
}

// due reports whether Slurm may be asked about an entry of the queue now. Requests about tasks of one array are
// betweenTasks apart.
func (c *canceller) due(j namedJob) bool {
	c.paced.Lock()
	defer c.paced.Unlock()
	return !c.now().Before(c.next[j])
}

// pace delays the next request about tasks of the array by betweenTasks.
func (c *canceller) pace(array namedJob) {
	c.paced.Lock()
	c.next[array] = c.now().Add(betweenTasks)
	c.paced.Unlock()
	time.AfterFunc(betweenTasks, c.jobs.wake)
}

// cancel queues a request to cancel the run's job, unless one under this name was made within askAgainAfter or is
// queued.
func (c *canceller) cancel(r Run, j namedJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j.user = r.ExecutedAs
	if last, ok := c.asked[j]; ok && c.now().Sub(last) < askAgainAfter || c.jobs.working(j) {
		return
	}
	if array, task := arrayIn(j); task {
		if c.tasks[array] == nil {
			c.tasks[array] = map[namedJob]bool{}
		}
		c.tasks[array][j] = true
		j = array
	}
	c.jobs.add(ShareOf(r), j)
}

// carry runs ask within the slots of the job's user.
func (c *canceller) carry(ctx context.Context, j namedJob) {
	if j.user == "" {
		c.ask(ctx, j)
		return
	}
	c.jobs.as(ctx, c.users, j.user, Share{Caller: j.user}, j, c.carry, func() { c.ask(ctx, j) })
}

// ask asks Slurm to cancel one job, or the queued tasks of an array.
func (c *canceller) ask(ctx context.Context, j namedJob) {
	list := []namedJob{j}
	if j.name == "" {
		c.mu.Lock()
		list = slices.SortedFunc(maps.Keys(c.tasks[j]), func(a, b namedJob) int { return cmp.Compare(a.id, b.id) })
		delete(c.tasks, j)
		c.mu.Unlock()
		c.pace(j)
	}
	if c.silent() != nil { // the watcher queues jobs that still exist when Slurm answers again
		for _, j := range list {
			c.waits(ctx, j.name, "Slurm does not answer; job "+j.id+" will be cancelled when it does")
		}
		return
	}
	list = slices.DeleteFunc(list, func(j namedJob) bool { return !c.begin(ctx, j) })
	names, err := c.byName(ctx, list)
	if err != nil {
		c.failed(ctx, list, err)
	}
	for as, jobs := range names {
		ids := make([]string, len(jobs))
		for i, j := range jobs {
			ids[i] = j.id
		}
		if err := c.slurm.Cancel(ctx, TaskIDs(ids), as.name, as.shown); err != nil {
			c.failed(ctx, jobs, err)
		}
	}
	if len(list) > 0 && c.jobs.empty() {
		c.wake()
	}
}

// byName groups jobs by the names that they were sent with and that Slurm shows: controllers reuse the ids of arrays
// too.
func (c *canceller) byName(ctx context.Context, list []namedJob) (map[namedJob][]namedJob, error) {
	names := map[namedJob][]namedJob{}
	for _, j := range list {
		name, err := c.named(ctx, j.id, j.name)
		if err != nil {
			return nil, err
		}
		as := namedJob{name: name, shown: j.shown}
		names[as] = append(names[as], j)
	}
	return names, nil
}

// failed logs, and records in the runs, that Slurm was not asked to cancel the jobs or did not cancel them.
func (c *canceller) failed(ctx context.Context, list []namedJob, err error) {
	for _, j := range list {
		if ctx.Err() != nil {
			return
		}
		c.log.Warn("scancel failed; it is retried while the job exists", append(c.about(ctx, j.name), "cancelled_job_id", j.id, "job_name",
			j.name, "err", err)...)
		c.waits(ctx, j.name, "job "+j.id+" could not be cancelled; the gateway retries while the job exists: "+err.Error())
	}
}

// begin records a request about the job. It returns false if Slurm may still be processing the last one.
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
	c.paced.Lock()
	defer c.paced.Unlock()
	maps.DeleteFunc(c.next, func(_ namedJob, at time.Time) bool { return c.now().After(at) })
}

// recordNotCancelled records in a run that is being cancelled why Slurm has not stopped its job yet.
func (e *Engine) recordNotCancelled(ctx context.Context, jobName, detail string) {
	v, err := e.Store.View(ctx, RunOf(jobName))
	if err == nil && v.Run.Reason == Cancelling && v.Submission.JobName == jobName {
		err = e.note(ctx, v, Cancelling, detail)
	}
	if err != nil && !stale(err) && ctx.Err() == nil {
		e.Log.Warn("cannot record why a job is not cancelled yet", append(about(v), "job_name", jobName, "err", err)...)
	}
}
