package run

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
)

// taskNames translates names between the engine and the ports: in the ports a task has the name of its array, in the
// engine that of its attempt. The ledger records which attempt a task is before the array is sent. A task of an array
// that this ledger never sent keeps its name, so nothing is done to it. A renamed job gets the name of the attempt
// whose working folder it has as its [Job.Attempt].
type taskNames struct {
	index  Index
	user   func(executedAs string) string // the Unix user whose jobs a run's are, see [Engine.userOf]
	runDir func(runID string) string
	mu     sync.Mutex
	known  map[string]*knownArray // nil: this ledger never sent it
	// by working folder, of renamed jobs
	folders map[string]fromFolder
}

// arraysKnown bounds how many arrays are cached.
const arraysKnown = 10_000

// knownArray is an array as it was read, with its receipt once one was seen.
type knownArray struct {
	ArrayRow
	mu      sync.Mutex
	receipt SendResult
}

// accepted returns the receipt, if it is known, so that it is not read again for each task.
func (a *knownArray) accepted() SendResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.receipt
}

// left records what the send left. Slurm accepts an array whole, so one task that it shows proves the receipt of all.
func (a *knownArray) left(res SendResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if res.Outcome == SendAccepted {
		a.receipt = res
	}
}

// row reads an array; nil: this ledger never sent it.
func (n *taskNames) row(ctx context.Context, array string) (*knownArray, error) {
	n.mu.Lock()
	a, ok := n.known[array]
	n.mu.Unlock()
	if ok {
		return a, nil
	}
	row, err := n.index.Array(ctx, array)
	switch {
	case err == nil:
		a = &knownArray{ArrayRow: row}
	case !fault.Is(err, fault.NotFound):
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || len(n.known) >= arraysKnown {
		n.known = map[string]*knownArray{}
	}
	if n.known[array] == nil {
		n.known[array] = a
	}
	return n.known[array], nil
}

// arrayOf returns the array whose task the job is: by the job's name, or by its working folder if the job was renamed.
// For a renamed job outside arrays it sets Attempt.
func (n *taskNames) arrayOf(ctx context.Context, j *Job) (*knownArray, error) {
	switch {
	case j.WorkDir != "":
		s, err := n.sentFrom(ctx, j.WorkDir)
		j.Attempt = s.job
		return s.array, err
	case IsArrayName(j.Name):
		return n.row(ctx, j.Name)
	}
	return nil, nil
}

// translate gives tasks the names of their attempts. A record of several tasks, which cannot be read as one, counts as
// one of each task without its own record. Such a record that has ended keeps the array's name: it is what Slurm keeps
// of tasks that were cancelled one by one before they started, without naming them ("4711 CANCELLED"), and others of
// them may have ended long ago, see [cycle.withdrawn].
func (n *taskNames) translate(ctx context.Context, jobs []Job) ([]Job, error) {
	type record struct {
		Job
		names []string
	}
	var folded []record
	shown := map[string]bool{} // by attempt: it has its own record
	for i := range jobs {
		j := &jobs[i]
		a, err := n.arrayOf(ctx, j)
		if err != nil {
			return nil, err
		}
		if a == nil {
			continue
		}
		ours := ofUser(n.user(a.ExecutedAs), *j)
		if id, _, _ := strings.Cut(j.ID, "_"); id != "" && ours && j.WorkDir == "" {
			a.left(SendResult{Outcome: SendAccepted, JobID: id, Cluster: j.Cluster})
		}
		switch {
		case j.Task == nil && j.Class != ClassEnded:
			folded = append(folded, record{*j, a.Jobs})
		case j.Task != nil && *j.Task < len(a.Jobs) && a.Jobs[*j.Task] != "":
			name := a.Jobs[*j.Task]
			j.setAttempt(name)
			shown[name] = shown[name] || ours
		case j.Task == nil && j.WorkDir != "":
			j.Attempt = a.Name
		}
	}
	for _, f := range folded {
		for task, name := range f.names {
			if name != "" && !shown[name] {
				one := f.Job
				one.Task = new(task)
				one.setAttempt(name)
				jobs = append(jobs, one)
			}
		}
	}
	return jobs, nil
}

// setAttempt sets the name of the attempt that a task executes.
func (j *Job) setAttempt(name string) {
	if j.WorkDir != "" {
		j.Attempt = name
	} else {
		j.Name = name
	}
}

// sent returns the name under which the job of an attempt was sent.
func (n *taskNames) sent(ctx context.Context, jobID, jobName string) (string, error) {
	if _, _, task := arrayOf(jobID); !task {
		return jobName, nil
	}
	name, err := n.index.ArrayOf(ctx, jobName)
	if name == "" {
		name = jobName
	}
	return name, err
}

func (n *taskNames) queue(q Queue) Queue                { return taskQueue{q, n} }
func (n *taskNames) accounting(a Accounting) Accounting { return taskAccounting{a, n} }

type taskQueue struct {
	Queue
	names *taskNames
}

func (q taskQueue) Jobs(ctx context.Context, sought map[string]bool) ([]Job, error) {
	jobs, err := q.Queue.Jobs(ctx, sought)
	if err != nil {
		return nil, err
	}
	return q.names.translate(ctx, jobs)
}

type taskAccounting struct {
	Accounting
	names *taskNames
}

// Records asks about the arrays of tasks, each once. An attempt whose id is unknown may have been sent in one.
func (a taskAccounting) Records(ctx context.Context, since time.Time, of ...JobKey) ([]Job, error) {
	keys := map[JobKey]bool{}
	for _, k := range of {
		if _, _, task := arrayOf(k.ID); task || k.ID == "" {
			name, err := a.names.index.ArrayOf(ctx, k.Name)
			if err != nil {
				return nil, err
			}
			if name != "" {
				k = JobKey{Name: name, User: k.User}
			}
		}
		keys[k] = true
	}
	jobs, err := a.Accounting.Records(ctx, since, slices.Collect(maps.Keys(keys))...)
	if err != nil {
		return nil, err
	}
	return a.names.translate(ctx, jobs)
}
