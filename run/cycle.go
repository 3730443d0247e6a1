package run

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// answer is Slurm's answer, indexed by job name. At 100,000 jobs it is most of a gateway's memory. Sorting the jobs
// instead would need no index, but cost 40 ms more at 10,000 jobs.
type answer struct {
	jobs  []Job
	first map[string]int32 // by name: the first job of that name; a renamed job has the name that it was sent with
	next  []int32          // for each job the next one of its name, -1 after the last
	known []bool           // for each job: whether an open run has its name

	unread map[string][]*Job // by name: jobs whose record could not be read; nil without any
	lost   []*Job            // records that could not be read and may be of any job, or of any job of their user
}

func index(jobs []Job) *answer {
	a := &answer{jobs: jobs, first: make(map[string]int32, len(jobs)), next: make([]int32, len(jobs)), known: make([]bool, len(jobs))}
	for i := len(jobs) - 1; i >= 0; i-- {
		if jobs[i].Class == ClassUnread {
			a.cannotRead(&jobs[i])
			continue
		}
		name := jobs[i].sentAs()
		next, ok := a.first[name]
		if !ok {
			next = -1
		}
		a.next[i], a.first[name] = next, int32(i)
	}
	return a
}

func (a *answer) cannotRead(j *Job) {
	if j.Name == "" {
		a.lost = append(a.lost, j)
		return
	}
	if a.unread == nil {
		a.unread = map[string][]*Job{}
	}
	a.unread[j.sentAs()] = append(a.unread[j.sentAs()], j)
}

// mayLack returns why an answer may lack a job because of this unreadable record.
func (j *Job) mayLack() string {
	if j.Beside {
		return "came with a line that is not known to be harmless (" + j.Why + "; it is, once it came with the jobs of all open runs)"
	}
	return "has a record that cannot be read (" + j.Why + ")"
}

// showsAll reports whether there are keys and the answer has a job of each.
func (a *answer) showsAll(keys []JobKey, userOf func(executedAs string) string) bool {
	return len(keys) > 0 && !slices.ContainsFunc(keys, func(k JobKey) bool { return a.named(k.Name, userOf(k.User)) == nil })
}

// mayBeOf returns the first of the unreadable records that may be of a job of the user; nil: none may.
func mayBeOf(user string, records []*Job) *Job {
	for _, j := range records {
		if j.User == "" || ofUser(user, *j) {
			return j
		}
	}
	return nil
}

// ofUser reports whether a job is the user's. Names of jobs are public: another user's job under the name of a run is
// not the run's.
func ofUser(user string, j Job) bool { return user == "" || j.User == user }

// cannotBeRead returns the unreadable record of a job of the user under that name; nil: not found.
func (a *answer) cannotBeRead(name, user string) *Job { return mayBeOf(user, a.unread[name]) }

// hides returns the record because of which it is unknown whether the user has a job of that name; nil: the answer
// shows it.
func (a *answer) hides(name, user string) *Job {
	if j := a.cannotBeRead(name, user); j != nil {
		return j
	}
	if a.named(name, user) != nil {
		return nil
	}
	return mayBeOf(user, a.lost)
}

// jobsOf returns the jobs of a run, executed as the user, that the answer shows.
func (a *answer) jobsOf(v View, user string) []Job {
	return slices.DeleteFunc(a.named(v.Submission.JobName, user), func(j Job) bool { return !j.shows(v.Submission.JobID) })
}

// named returns the user's jobs of that name in Slurm's order.
func (a *answer) named(name, user string) (found []Job) {
	i, ok := a.first[name]
	for ; ok && i >= 0; i = a.next[i] {
		if ofUser(user, a.jobs[i]) {
			found = append(found, a.jobs[i])
		}
	}
	return found
}

// cycle is one round of the watcher, from the query on.
type cycle struct {
	*Engine
	seen  *answer
	asked int64     // number of the ledger's newest event before Slurm was queried
	began time.Time // before Slurm was queried
	moved atomic.Bool

	sought map[string]bool // ids of jobs that were queried regardless of their names

	shown               int    // number of runs whose jobs are in the answer
	completing, running sample // of the runs whose job Slurm shows in this state, as in the last cycle
}

// reading is the read of the ledger's open runs for compare. They are read while Slurm prepares its answer. What
// changes meanwhile is newer than the query and left for the next cycle (see fresh). Of the 40 ms that a cycle costs at
// 10,000 runs this hides 20 (BenchmarkTuningCycle).
type reading struct {
	rows chan []Watched
	err  error // valid when rows is closed
	stop context.CancelFunc
}

// Runs are handed over in batches of rowsPerBatch, which shortens a cycle of 10,000 runs from 35 to 27 ms
// (BenchmarkTuningCycle). Up to readAhead batches are read before there is an answer to compare with.
const (
	rowsPerBatch = 256
	readAhead    = 64
)

func (e *Engine) readWatched(ctx context.Context) *reading {
	ctx, stop := context.WithCancel(ctx)
	r := &reading{rows: make(chan []Watched, readAhead), stop: stop}
	go func() {
		defer close(r.rows)
		batch := make([]Watched, 0, rowsPerBatch)
		pass := func() {
			select {
			case r.rows <- batch:
			case <-ctx.Done():
			}
			batch = make([]Watched, 0, rowsPerBatch)
		}
		r.err = e.Index.Watched(ctx, func(w Watched) {
			if batch = append(batch, w); len(batch) == rowsPerBatch {
				pass()
			}
		}, watchedPhases...)
		pass()
	}()
	return r
}

// end drops the remaining rows and waits for the reader.
func (r *reading) end() {
	r.stop()
	for range r.rows {
	}
}

// compare finds the runs about which Slurm's answer has an update, and those that it does not show or whose record
// cannot be read. It reads no run completely.
func (c *cycle) compare(r *reading) (differ, missing []string, err error) {
	for batch := range r.rows {
		for i := range batch {
			w := &batch[i]
			user := c.userOf(w.ExecutedAs)
			var one *Job
			n, k, shown := 0, int32(0), false
			for k, shown = c.seen.first[w.JobName]; shown && k >= 0; k = c.seen.next[k] {
				c.seen.known[k] = true
				switch j := &c.seen.jobs[k]; {
				case ofUser(user, *j) && j.shows(w.JobID):
					one, n = j, n+1
				case !ofUser(user, *j) && j.Attempt == "":
					c.forged.saw(c.Log, w.RunID, user, *j)
				}
			}
			if n > 0 {
				c.shown++
			}
			switch {
			case n == 0 || c.seen.unread != nil && c.seen.cannotBeRead(w.JobName, user) != nil:
				missing = append(missing, w.RunID)
			case n > 1 || !w.same(one):
				differ = append(differ, w.RunID)
			case one.Class == ClassCompleting:
				c.completing.add(w.RunID)
			case one.Class == ClassRunning:
				c.running.add(w.RunID)
			}
		}
	}
	return differ, missing, r.err
}

// recordHarmless records the lines printed with an answer as known to be harmless, if nothing else in the answer was
// unreadable.
func (c *cycle) recordHarmless(a *answer) {
	if slices.ContainsFunc(a.lost, func(j *Job) bool { return !j.Beside }) {
		return
	}
	for _, j := range a.lost {
		c.Queue.Harmless(j.Why)
	}
}

// same reports whether the one job with the run's name is unchanged since the watcher last recorded it. Otherwise
// observe decides.
func (w *Watched) same(j *Job) bool {
	return w.SlurmState == j.State && w.SlurmWhy == j.Why && w.JobID == j.ID && !w.Missed && !w.CancelAsked && phaseAfter(w.Phase,
		j.Class) == w.Phase && (w.Cluster == "" || j.Cluster == "" || w.Cluster == j.Cluster) &&
		w.Renamed == (w.JobName != j.Name) && j.isAt(w.Partition, w.Account, w.Limit)
}

// eachOwn calls do for every run that is executed as the gateway's user, several in parallel, so that their changes
// share the ledger's transactions; theirs gets the other runs. A run that has changed since Slurm was queried is left
// for the next cycle, whose answer is not older than the run.
func (c *cycle) eachOwn(ctx context.Context, ids []string, do func(View) (bool, error), theirs func(View)) {
	parallel(len(ids), func(i int) { c.one(ctx, ids[i], do, theirs) })
}

// one calls do for a run, or theirs if the run is executed as another user and theirs is not nil.
func (c *cycle) one(ctx context.Context, id string, do func(View) (bool, error), theirs func(View)) {
	if ctx.Err() != nil {
		return
	}
	v, err := c.fresh(ctx, id)
	if err != nil {
		c.unread(ctx, "cannot read a run", "run_id", id, "err", err)
		return
	}
	if v == nil {
		return
	}
	if theirs != nil && v.Run.ExecutedAs != "" {
		theirs(*v)
		return
	}
	moved, err := do(*v)
	if moved {
		c.moved.Store(true)
	}
	c.logError(ctx, *v, err)
}

// fresh reads a run. nil: the run has changed since Slurm was queried.
func (c *cycle) fresh(ctx context.Context, id string) (*View, error) {
	v, err := c.Store.View(ctx, id)
	if err != nil {
		return nil, err
	}
	// After the run, so that the number is not older than what was read.
	seq, err := c.Index.Seq(ctx, id)
	if err != nil || seq > c.asked {
		return nil, err
	}
	return &v, nil
}

// parallel calls f for the numbers below n, sixteen calls in parallel.
func parallel(n int, f func(i int)) {
	var lanes errgroup.Group
	lanes.SetLimit(16)
	for i := range n {
		lanes.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = lanes.Wait()
}
