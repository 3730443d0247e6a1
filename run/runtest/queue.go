package runtest

import (
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Queue is the suite of [run.Queue].
func Queue(t *testing.T, s Setup) {
	tests{
		{"a waiting job", true, waiting}, {"a running job", false, running}, {"an ended job", true, endedShown}, {"patience", true, patience},
	}.run(t, s)
}

// A waiting job has been submitted and has neither a start nor an end, whatever Slurm expects.
func waiting(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	id := x.sent(t, job, 1)
	j := x.one(t, job)
	if j.ID != id || j.Class != run.ClassPending || j.State != "PENDING" || j.Submitted == nil || j.Started != nil || j.Ended != nil ||
		j.ExitCode != nil || j.Cluster == "" {
		t.Errorf("%+v", j)
	}
}

// A running job has a start and a node, and no end.
func running(t *testing.T, x *Transport) {
	job := x.Job(t, Sleeps)
	id := x.sent(t, job, 1)
	j := x.started(t, job)
	if j.ID != id || j.State != "RUNNING" || j.Submitted == nil || j.Started == nil || j.Ended != nil || j.ExitCode != nil || j.Node == "" ||
		j.Cluster == "" {
		t.Errorf("%+v", j)
	}
}

// An ended job is still shown, with its exit code and the node of its exit file.
func endedShown(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	id := x.sent(t, job, 1)
	j := x.over(t, job)
	if j.ID != id || j.State != "COMPLETED" || j.ExitCode == nil || *j.ExitCode != 0 || j.Started == nil ||
		j.Ended == nil || j.Node == "" || j.Node != x.exit(t, job).Node {
		t.Errorf("%+v", j)
	}
}

// Slurm says how long it waits for itself, or the fault says that it cannot be asked.
func patience(t *testing.T, x *Transport) {
	d, err := x.MessageTimeout(t.Context())
	if x.posted {
		wantFault(t, err, fault.NotFound, "rest_not_shown")
	} else if err != nil || d < time.Second || d > time.Hour {
		t.Errorf("%s %v", d, err)
	}
}
