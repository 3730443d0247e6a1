package runtest

import "testing"

// Canceller runs the suite of [run.Canceller].
func Canceller(t *testing.T, s Setup) {
	tests{{"id and name", false, cancelled}, {"a running job", false, cancelledRunning}}.run(t, s)
}

// Only id and name together cancel; a missing job is no error.
func cancelled(t *testing.T, x *Transport) {
	job, other := x.Job(t, Waits), x.Job(t, Waits)
	id, otherID := x.sent(t, job, 1), x.sent(t, other, 1)
	for _, c := range []struct{ id, name string }{{id, other.JobName}, {otherID, job.JobName}, {"2147483", job.JobName}} {
		if err := x.Cancel(t.Context(), c.id, c.name, ""); err != nil {
			t.Errorf("cancel %s %s: %v", c.id, c.name, err)
		}
	}
	x.alive(t, job)
	x.alive(t, other)
	for range 2 {
		if err := x.Cancel(t.Context(), id, job.JobName, ""); err != nil {
			t.Error(err)
		}
	}
	if j := x.over(t, job); x.queued && (j.State != "CANCELLED" || x.Executions(job) != 0) {
		t.Errorf("the cancelled job is %+v, want cancelled and never executed", j)
	}
	x.alive(t, other)
}

// A running job that is cancelled leaves its exit file with that reason.
func cancelledRunning(t *testing.T, x *Transport) {
	job := x.Job(t, Sleeps)
	id := x.sent(t, job, 1)
	x.started(t, job)
	x.Until(t, "start of the program", func() bool { return x.Executions(job) == 1 })
	if err := x.Cancel(t.Context(), id, job.JobName, ""); err != nil {
		t.Error(err)
	}
	if j := x.over(t, job); x.queued && j.State != "CANCELLED" {
		t.Errorf("the cancelled job is %+v, want cancelled", j)
	}
	if e := x.exit(t, job); e.Code == 0 || e.Reason != "terminated" || e.Holder.Job != id {
		t.Errorf("the exit of the cancelled job is %+v, want terminated", e)
	}
}
