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

// taskNames stands between the engine and the ports: there a task has the name of its array, here that of its attempt. Which attempt a task
// is, the ledger knows since before the array was sent. A task of an array that this ledger never sent keeps its name, so nothing is done
// to it.
type taskNames struct {
	index Index
	user  func(executedAs string) string // whose jobs those of a run are, see [Engine.userOf]
	mu    sync.Mutex
	known map[string]*knownArray // nil: this ledger never sent it
}

// arraysKnown bounds what is remembered.
const arraysKnown = 10_000

// knownArray is an array as it was read, with its receipt once one was seen.
type knownArray struct {
	ArrayRow
	mu      sync.Mutex
	receipt SendResult
}

// accepted is the receipt, if it is known: its tasks need not read it one by one.
func (a *knownArray) accepted() SendResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.receipt
}

// left notes what the send left: Slurm accepts an array whole, so one task that it shows is the receipt of all.
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

// translate gives tasks the names of their attempts. A record of several tasks, which cannot be read as one, is taken as one of each task
// that has no record of its own. One that has ended stays the array's: it is what Slurm keeps of tasks that were cancelled one by one
// before they started, without saying which ("4711 CANCELLED"), and others of them may have ended long ago, see [cycle.withdrawn].
func (n *taskNames) translate(ctx context.Context, jobs []Job) ([]Job, error) {
	type record struct {
		Job
		names []string
	}
	var folded []record
	shown := map[string]bool{} // of arrays with such a record
	for i := range jobs {
		j := &jobs[i]
		if !IsArrayName(j.Name) {
			continue
		}
		a, err := n.row(ctx, j.Name)
		if err != nil {
			return nil, err
		}
		if a == nil {
			continue
		}
		ours := ofUser(n.user(a.ExecutedAs), *j)
		if id, _, _ := strings.Cut(j.ID, "_"); id != "" && ours {
			a.left(SendResult{Outcome: SendAccepted, JobID: id, Cluster: j.Cluster})
		}
		switch {
		case j.Task == nil && j.Class != ClassEnded:
			folded = append(folded, record{*j, a.Jobs})
		case j.Task != nil && *j.Task < len(a.Jobs) && a.Jobs[*j.Task] != "":
			j.Name = a.Jobs[*j.Task]
			shown[j.Name] = shown[j.Name] || ours
		}
	}
	for _, f := range folded {
		for task, name := range f.names {
			if name != "" && !shown[name] {
				one := f.Job
				one.Name, one.Task = name, new(task)
				jobs = append(jobs, one)
			}
		}
	}
	return jobs, nil
}

// sent is the name under which Slurm knows the job of an attempt.
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

// Records asks about the arrays of tasks, each once. An attempt whose id is not known may have been sent in one.
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
