package runtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"slurmgate/fault"
	"slurmgate/run"
)

// Arrays runs the suite of what [run.Submitter], [run.Queue] and [run.Canceller] do with a job array, and of its tasks.
func Arrays(t *testing.T, s Setup) {
	tests{{"tasks end", true, tasksEnd}, {"tasks are cancelled alone", true, tasksCancelled},
		{"tasks are cancelled together", true, tasksCancelledTogether}, {"refused whole", true, refusedWhole},
		{"void claim of one", true, voidTask}}.run(t, s)
}

// array puts the jobs into one array. The first is the leader.
func (x *Transport) array(t *testing.T, jobs ...run.JobSpec) run.JobSpec {
	t.Helper()
	leader := jobs[0]
	leader.Array = &run.Array{Name: "sg-array-" + leader.Token[8:], K: 1}
	for _, j := range jobs {
		script, err := run.ReadControl(t.Context(), x, j.RunID, j.N, run.ScriptFile, 1<<20, false)
		if err != nil && !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
		sum := sha256.Sum256(script)
		leader.Array.Tasks = append(leader.Array.Tasks, run.Task{JobName: j.JobName, AttemptDir: j.AttemptDir(),
			ScriptSHA: hex.EncodeToString(sum[:])})
	}
	script, err := x.RenderArray(leader)
	if err != nil {
		t.Fatal(err)
	}
	err = x.OpenAttempt(t.Context(), leader.RunID, leader.N, leader.Token, run.ControlFile{Name: run.ArrayFile(1), Data: script})
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// task returns what the queue shows of a task, which must be there.
func (x *Transport) task(t *testing.T, array run.JobSpec, id string) run.Job {
	t.Helper()
	j, ok := x.findTask(t, array, id)
	if !ok {
		t.Fatalf("no task %s of %s", id, array.Array.Name)
	}
	return j
}

func (x *Transport) findTask(t *testing.T, array run.JobSpec, id string) (found run.Job, ok bool) {
	t.Helper()
	jobs, err := x.Jobs(t.Context(), nil)
	if err != nil {
		t.Fatalf("squeue: %v", err)
	}
	i := slices.IndexFunc(jobs, func(j run.Job) bool { return j.ID == id && j.Name == array.Array.Name })
	if i < 0 {
		return run.Job{}, false
	}
	if jobs[i].Task == nil || id != run.TaskID(id[:len(id)-2], *jobs[i].Task) {
		t.Fatalf("the task is %+v, want that of its id", jobs[i])
	}
	return jobs[i], true
}

// sentArray sends an array, which must be accepted.
func (x *Transport) sentArray(t *testing.T, array run.JobSpec) (id string) {
	t.Helper()
	res := x.Send(t.Context(), array, 1)
	if res.Outcome != run.SendAccepted || res.JobID == "" {
		t.Fatalf("the send of the array ended as %+v, want accepted", res)
	}
	if again := x.receipt(t, array, 1); again.Outcome != run.SendAccepted || again.JobID != res.JobID {
		t.Errorf("the receipt says %+v", again)
	}
	return res.JobID
}

// Each task executes its own attempt, once, and its files name the task.
func tasksEnd(t *testing.T, x *Transport) {
	jobs := []run.JobSpec{x.Job(t, Runs), x.Job(t, Runs), x.Job(t, Runs)}
	array := x.array(t, jobs...)
	id := x.sentArray(t, array)
	for i, job := range jobs {
		at := run.TaskID(id, i)
		x.Until(t, "end of task "+at, func() bool { return x.task(t, array, at).Class == run.ClassEnded })
		if n, e := x.Executions(job), x.exit(t, job); n != 1 || e.Reason != "ok" || e.Holder.Job != at || e.Holder.Task != fmt.Sprint(i) {
			t.Errorf("task %s: executed %d times, %+v", at, n, e)
		}
		got, err := run.ReadControl(t.Context(), x, job.RunID, job.N, run.ClaimFile, 4096, false)
		if c, perr := run.ParseClaim(got); err != nil || perr != nil || c.Holder.Job != at || c.Token != job.Token {
			t.Errorf("task %s: %q %v %v", at, got, err, perr)
		}
	}
}

// Only the task's id and the array's name together cancel, and only that task.
func tasksCancelled(t *testing.T, x *Transport) {
	jobs := []run.JobSpec{x.Job(t, Waits), x.Job(t, Waits), x.Job(t, Waits)}
	array := x.array(t, jobs...)
	id := x.sentArray(t, array)
	cancel := func(task int, name string) {
		t.Helper()
		if err := x.Cancel(t.Context(), run.TaskID(id, task), name, ""); err != nil {
			t.Error(err)
		}
	}
	class := func(task int) run.Class { return x.task(t, array, run.TaskID(id, task)).Class }
	cancel(1, jobs[1].JobName)
	if c := class(1); c != run.ClassPending {
		t.Errorf("a task under another name is %s", c)
	}
	cancel(1, array.Array.Name)
	cancel(1, array.Array.Name)
	x.Until(t, "end of the task", func() bool { // of a waiting task Slurm may leave no record
		j, shown := x.findTask(t, array, run.TaskID(id, 1))
		return !shown || j.Class == run.ClassEnded
	})
	if a, b := class(0), class(2); a != run.ClassPending || b != run.ClassPending {
		t.Errorf("the others are %s and %s", a, b)
	}
	cancel(0, array.Array.Name)
	cancel(2, array.Array.Name)
}

// Of several tasks those that exist are cancelled, and only under the array's name. proves MANY-03
func tasksCancelledTogether(t *testing.T, x *Transport) {
	jobs := []run.JobSpec{x.Job(t, Waits), x.Job(t, Waits), x.Job(t, Waits), x.Job(t, Waits)}
	array := x.array(t, jobs...)
	id := x.sentArray(t, array)
	at := func(task int) string { return run.TaskID(id, task) }
	over := func(task int) func() bool {
		return func() bool { j, shown := x.findTask(t, array, at(task)); return !shown || j.Class == run.ClassEnded }
	}
	cancel := func(name string, ids ...string) {
		t.Helper()
		if err := x.Cancel(t.Context(), run.TaskIDs(ids), name, ""); err != nil {
			t.Error(err)
		}
	}
	cancel(array.Array.Name, at(1))
	x.Until(t, "end of one task", over(1))
	cancel(jobs[0].JobName, at(0), at(1), at(2))
	for _, task := range []int{0, 2, 3} {
		if c := x.task(t, array, at(task)).Class; c != run.ClassPending {
			t.Errorf("under another name task %d is %s", task, c)
		}
	}
	for range 2 {
		cancel(array.Array.Name, at(0), at(1), at(2), at(9))
	}
	x.Until(t, "end of a task", over(0))
	x.Until(t, "end of another task", over(2))
	if c := x.task(t, array, at(3)).Class; c != run.ClassPending {
		t.Errorf("the other is %s", c)
	}
	cancel(array.Array.Name, at(3), at(0))
	x.Until(t, "end of the last task", over(3))
}

// Without room for all tasks, no task is accepted.
func refusedWhole(t *testing.T, x *Transport) {
	jobs := []run.JobSpec{x.Job(t, NoRoom), x.Job(t, NoRoom), x.Job(t, NoRoom)}
	array := x.array(t, jobs...)
	if res := x.Send(t.Context(), array, 1); res.Outcome != run.SendDeferred || res.Code == "" {
		t.Errorf("the send of an array that has no room ended as %+v, want deferred", res)
	}
	list, err := x.Jobs(t.Context(), nil)
	if err != nil || slices.ContainsFunc(list, func(j run.Job) bool { return j.Name == array.Array.Name && j.Class != run.ClassEnded }) {
		t.Errorf("there are tasks: %+v %v", list, err)
	}
}

// A task whose claim the gateway has does not execute, and does not prevent another from it.
func voidTask(t *testing.T, x *Transport) {
	jobs := []run.JobSpec{x.Job(t, Runs), x.Job(t, Runs)}
	if _, err := x.TakeClaim(t.Context(), jobs[0].RunID, jobs[0].N, run.VoidClaim(jobs[0].Token)); err != nil {
		t.Fatal(err)
	}
	array := x.array(t, jobs...)
	id := x.sentArray(t, array)
	for i, want := range []int{run.ExitClaimNotOurs, 0} {
		at := run.TaskID(id, i)
		x.Until(t, "end of task "+at, func() bool { return x.task(t, array, at).Class == run.ClassEnded })
		if j := x.task(t, array, at); j.ExitCode == nil || *j.ExitCode != want || x.Executions(jobs[i]) != i {
			t.Errorf("%+v, executed %d times", j, x.Executions(jobs[i]))
		}
	}
}
