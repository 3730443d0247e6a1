package runtest

import (
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Queue runs the suite of [run.Queue].
func Queue(t *testing.T, s Setup) {
	tests{
		{"a waiting job", true, waiting}, {"a running job", false, running}, {"an ended job", true, endedShown}, {"patience", true, patience},
		{"a renamed job", true, renamed}, {"renamed tasks", true, tasksRenamed},
	}.run(t, s)
}

// A waiting job has been submitted and has neither a start nor an end, whatever Slurm expects.
func waiting(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	id := x.sent(t, job, 1)
	j := x.one(t, job)
	if j.ID != id || j.Class != run.ClassPending || j.State != "PENDING" || j.Submitted == nil || j.Started != nil || j.Ended != nil ||
		j.ExitCode != nil || j.Cluster == "" {
		t.Errorf("the waiting job is %+v, want pending with the time of its submission", j)
	}
}

// A running job has a start and a node, and no end.
func running(t *testing.T, x *Transport) {
	job := x.Job(t, Sleeps)
	id := x.sent(t, job, 1)
	j := x.started(t, job)
	if j.ID != id || j.State != "RUNNING" || j.Submitted == nil || j.Started == nil || j.Ended != nil || j.ExitCode != nil || j.Node == "" ||
		j.Cluster == "" {
		t.Errorf("the started job is %+v, want running on a node", j)
	}
}

// otherName is a name that a plugin might give to a job.
const otherName = "lab: a job, renamed"

// byFolder returns the jobs that the queue shows from a working folder under another name than they were sent with.
func (x *Transport) byFolder(t *testing.T, dir string) map[string]run.Job {
	t.Helper()
	jobs, err := x.Jobs(t.Context(), nil)
	if err != nil {
		t.Fatalf("Jobs: %v", err)
	}
	found := map[string]run.Job{}
	for _, j := range jobs {
		if j.WorkDir == dir {
			found[j.ID] = j
		}
	}
	return found
}

// A job that was renamed is shown with its working folder, and cancelled by its new name.
func renamed(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	id := x.sent(t, job, 1)
	if found := x.byFolder(t, job.WorkDir()); len(found) > 0 {
		t.Errorf("before it was renamed Jobs shows %+v by its folder", found)
	}
	x.Rename(t, id, otherName)
	shown := func() run.Job { return x.byFolder(t, job.WorkDir())[id] }
	x.Until(t, "job by its folder", func() bool { return shown().ID == id })
	if j := shown(); j.Name != otherName || j.Class != run.ClassPending || j.Submitted == nil {
		t.Errorf("Jobs shows %+v, want a waiting job named %q", j, otherName)
	}
	if err := x.Cancel(t.Context(), id, job.JobName, ""); err != nil {
		t.Errorf("cancel by the former name: %v", err)
	}
	if j := shown(); j.Class != run.ClassPending {
		t.Errorf("after a cancel by its former name the job is %s", j.State)
	}
	if err := x.Cancel(t.Context(), id, job.JobName, otherName); err != nil {
		t.Errorf("cancel by the name that Slurm shows: %v", err)
	}
	x.Until(t, "end of the job", func() bool { return shown().Class == run.ClassEnded })
}

// Tasks that were renamed, one by one or all, are shown with the array's folder and their numbers, and cancelled by
// their new names.
func tasksRenamed(t *testing.T, x *Transport) {
	jobs := []run.JobSpec{x.Job(t, Waits), x.Job(t, Waits), x.Job(t, Waits), x.Job(t, Waits)}
	array := x.array(t, jobs...)
	id := x.sentArray(t, array)
	x.Rename(t, run.TaskID(id, 2), "one")
	for i, want := range []string{"", "", "one", ""} {
		if j := x.byFolder(t, array.WorkDir())[run.TaskID(id, i)]; j.Name != want {
			t.Errorf("after task 2 was renamed Jobs shows task %d as %q by its folder, want %q", i, j.Name, want)
		}
	}
	x.Rename(t, id, otherName)
	for i := range jobs {
		if j := x.byFolder(t, array.WorkDir())[run.TaskID(id, i)]; j.Name != otherName || j.Task == nil || *j.Task != i {
			t.Errorf("after all tasks were renamed Jobs shows task %d as %+v by its folder", i, j)
		}
	}
	at := []string{run.TaskID(id, 0), run.TaskID(id, 1), run.TaskID(id, 2), run.TaskID(id, 3)}
	if err := x.Cancel(t.Context(), run.TaskIDs(at[:2]), array.Array.Name, otherName); err != nil {
		t.Errorf("cancel: %v", err)
	}
	waits := func(task int) bool { return x.byFolder(t, array.WorkDir())[at[task]].Class == run.ClassPending }
	x.Until(t, "end of two tasks", func() bool { return !waits(0) && !waits(1) })
	if !waits(2) || !waits(3) {
		t.Error("other tasks were cancelled too")
	}
	if err := x.Cancel(t.Context(), run.TaskIDs(at), array.Array.Name, otherName); err != nil {
		t.Errorf("cancel: %v", err)
	}
	x.Until(t, "end of the others", func() bool { return !waits(2) && !waits(3) })
}

// An ended job is still shown, with its exit code and the node of its exit file.
func endedShown(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	id := x.sent(t, job, 1)
	j := x.over(t, job)
	if j.ID != id || j.State != "COMPLETED" || j.ExitCode == nil || *j.ExitCode != 0 || j.Started == nil ||
		j.Ended == nil || j.Node == "" || j.Node != x.exit(t, job).Node {
		t.Errorf("the job that is over is %+v, want completed on the node of its exit", j)
	}
}

// MessageTimeout is between a second and an hour, or the fault is that it cannot be queried.
func patience(t *testing.T, x *Transport) {
	d, err := x.MessageTimeout(t.Context())
	if x.posted {
		wantFault(t, err, fault.NotFound, "rest_not_shown")
	} else if err != nil || d < time.Second || d > time.Hour {
		t.Errorf("%s %v", d, err)
	}
}
