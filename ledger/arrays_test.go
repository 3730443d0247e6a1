package ledger

import (
	"slices"
	"testing"

	"slurmgate/fault"
	"slurmgate/run"
)

// An array is stored with the intent of all its runs, or not at all; each of them is over by itself, and the ledger says which run a
// task is.
func TestArrays(t *testing.T) {
	l := fresh(t)
	views := []run.View{insert(t, l, 1), insert(t, l, 2), insert(t, l, 3)}
	const name = "sg-array-000000000000000000000001"
	intent := func(tasks ...run.View) (list []run.Write) {
		for i, v := range tasks {
			from := v
			v.Submission.Array, v.Attempt.ArrayTask = name, &i
			w := run.Write{Run: v.Run, Submission: &v.Submission, Attempts: []run.Attempt{v.Attempt}, From: &from,
				Event: run.Event{Type: "run.intent"}}
			if i == 0 {
				w.Array = &run.ArrayRow{Name: name, RunID: v.Run.ID, N: 1, Token: v.Submission.Token, K: 1, Size: len(tasks)}
			}
			list = append(list, w)
		}
		return list
	}
	changed := views[1]
	changed.Run.Rev++
	_, err := l.ApplyAll(t.Context(), intent(views[0], changed))
	wantFault(t, err, fault.Conflict, "stale_run")
	if v, err := l.View(t.Context(), views[0].Run.ID); err != nil || v.Run.Rev != views[0].Run.Rev || v.Submission.Array != "" {
		t.Errorf("a refused write left something: %+v %v", v, err)
	}
	_, err = l.Array(t.Context(), name)
	wantFault(t, err, fault.NotFound, "array_not_found")

	sent, err := l.ApplyAll(t.Context(), intent(views[:2]...))
	must(t, err)
	for i, v := range sent {
		read, err := l.View(t.Context(), v.Run.ID)
		if err != nil || read.Submission.Array != name || *read.Attempt.ArrayTask != i || v.Submission.Array != name ||
			*v.Attempt.ArrayTask != i || v.Run.Rev != read.Run.Rev {
			t.Errorf("%+v %+v %v", v, read, err)
		}
		if of, err := l.ArrayOf(t.Context(), v.Submission.JobName); err != nil || of != name {
			t.Errorf("%q %v", of, err)
		}
	}
	if of, err := l.ArrayOf(t.Context(), views[2].Submission.JobName); err != nil || of != "" {
		t.Errorf("%q %v", of, err)
	}
	a, err := l.Array(t.Context(), name)
	want := []string{views[0].Submission.JobName, views[1].Submission.JobName}
	if err != nil || a.RunID != views[0].Run.ID || a.K != 1 || a.Size != 2 || !slices.Equal(a.Jobs, want) {
		t.Errorf("%+v %v", a, err)
	}
	ended := func(v run.View, want bool) {
		t.Helper()
		if ended, err := l.Ended(t.Context(), v.Submission.JobName); err != nil || ended != want {
			t.Errorf("%s ended: %v, want %v: %v", v.Submission.JobName, ended, want, err)
		}
	}
	finish(t, l, sent[1])
	ended(sent[0], false)
	ended(sent[1], true)

	// Slurm refused the array; the other run is sent alone.
	v := sent[0]
	from := v
	v.Submission.Array, v.Attempt.ArrayTask = "", nil
	_, err = l.Apply(t.Context(), run.Write{Run: v.Run, Submission: &v.Submission, Attempts: []run.Attempt{v.Attempt}, From: &from,
		Event: run.Event{Type: "run.intent"}})
	must(t, err)
	if a, err := l.Array(t.Context(), name); err != nil || !slices.Equal(a.Jobs, []string{"", want[1]}) {
		t.Errorf("%+v %v", a, err)
	}
}
