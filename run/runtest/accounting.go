package runtest

import (
	"slices"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Accounting runs the suite of [run.Accounting] for a site that has it.
func Accounting(t *testing.T, s Setup) {
	tests{{"an ended job", true, recorded}}.run(t, s)
}

// A job that ended is recorded under its name and id, and so is what it used.
func recorded(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	id := x.sent(t, job, 1)
	ended := x.over(t, job)
	since, key := ended.Submitted.Add(-time.Hour), run.JobKey{ID: id, Name: job.JobName, User: ended.User}
	var j run.Job
	x.Until(t, "record", func() bool {
		list, err := x.Records(t.Context(), since, key)
		if err != nil {
			t.Fatalf("sacct: %v", err)
		}
		i := slices.IndexFunc(list, func(j run.Job) bool { return j.Name == job.JobName })
		if i >= 0 {
			j = list[i]
		}
		return i >= 0 && j.Class == run.ClassEnded
	})
	if j.ID != id || j.Closed || j.Submitted == nil || j.Started == nil || j.Ended == nil {
		t.Errorf("accounting shows %+v, want the job with its times", j)
	}
	x.Until(t, "usage", func() bool {
		list, err := x.Usage(t.Context(), since, key)
		if err != nil {
			t.Fatalf("sacct: %v", err)
		}
		return slices.ContainsFunc(list, func(u run.Usage) bool {
			return u.JobID == id && u.Submitted != nil && u.Submitted.Equal(*j.Submitted) && u.AllocCPUs > 0
		})
	})
}

// NoAccounting runs the suite for a site that has none: no answer, which differs from "no jobs".
func NoAccounting(t *testing.T, a run.Accounting) {
	jobs, err := a.Records(t.Context(), time.Unix(0, 0))
	used, err2 := a.Usage(t.Context(), time.Unix(0, 0))
	for _, err := range []error{err, err2} {
		if !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != run.AccountingDisabled {
			t.Errorf("%v, want a NotFound fault", err)
		}
	}
	if jobs != nil || used != nil {
		t.Errorf("%v %v", jobs, used)
	}
}
