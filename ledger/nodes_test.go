package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

// The nodes that an attempt avoids are stored with it and come back, and the faults of nodes are counted by node and fault; what the
// program did, or what happened earlier, is not among them.
func TestNodeFaults(t *testing.T) {
	l := fresh(t)
	for n, c := range []struct {
		node   string
		ending run.Ending
		ago    time.Duration
	}{{"n1", run.EndedImageMissing, time.Hour}, {"n1", run.EndedImageMissing, time.Minute}, {"n2", run.EndedNoUserNS, time.Minute},
		{"n2", run.EndedToolFailed, time.Minute}, {"n3", run.EndedImageMissing, 100 * time.Hour}, {"", run.EndedBootFail, time.Minute}} {
		v := insert(t, l, n+1)
		apply(t, l, v, func(w *run.Write) {
			at := t0.Add(-c.ago)
			w.Run.State, w.Run.Phase, w.Run.FinishedAt = run.Failed, run.Done, &at
			a := v.Attempt
			a.Ending, a.Node, a.EndedAt = c.ending, c.node, &at
			w.Attempts = []run.Attempt{a}
		})
	}
	got, err := l.NodeFaults(t.Context(), t0.Add(-24*time.Hour))
	must(t, err)
	var have [][4]any
	for _, f := range got {
		have = append(have, [4]any{f.Node, f.Fault, f.Count, f.Last.Equal(t0.Add(-time.Minute)) && f.RunID != ""})
	}
	if d := cmp.Diff([][4]any{{"n1", run.EndedImageMissing, 2, true}, {"n2", run.EndedNoUserNS, 1, true}}, have); d != "" {
		t.Error(d)
	}
}

func TestAvoidedNodesAreStored(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	avoid := []run.Avoided{{Node: "n1", Fault: run.EndedImageMissing, Attempt: 1, At: t0}}
	sub := run.Submission{Token: "00000000000000000000000000000002", JobName: "sg-second", CreatedAt: t0}
	got := apply(t, l, v, func(w *run.Write) {
		w.Run.AttemptN, w.Submission = 2, &sub
		w.Attempts = append(w.Attempts, run.Attempt{RunID: v.Run.ID, N: 2, Token: sub.Token, CreatedAt: t0, Avoid: avoid})
	})
	if d := cmp.Diff(avoid, got.Attempt.Avoid); d != "" {
		t.Error(d)
	}
	all, err := l.Attempts(t.Context(), v.Run.ID)
	must(t, err)
	if d := cmp.Diff([][]run.Avoided{nil, avoid}, [][]run.Avoided{all[0].Avoid, all[1].Avoid}); d != "" {
		t.Error(d)
	}
}
