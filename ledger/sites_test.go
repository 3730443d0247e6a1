package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/retention"
	"slurmgate/run"
)

func onSite(t *testing.T, l *Ledger, i int, site string) run.View {
	t.Helper()
	n := newRun(i)
	n.Run.Site = site
	v, created, err := l.Insert(t.Context(), n)
	if err != nil || !created || v.Run.Site != site {
		t.Fatal(v.Run.Site, created, err)
	}
	return v
}

// A site's engine sees only the runs of its site, in every query.
//
// proves SITE-07
func TestIndexOfASite(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	runs := map[string]run.View{"a": onSite(t, l, 1, "a"), "b": onSite(t, l, 2, "b")}
	for site, v := range runs {
		ids, err := waiting(l, site, run.Staging)
		if err != nil || !slices.Equal(ids, []string{v.Run.ID}) {
			t.Errorf("%s waits: %v %v", site, ids, err)
		}
		var watched []string
		must(t, l.Index(site).Watched(ctx, func(w run.Watched) { watched = append(watched, w.RunID) }, run.Staging))
		if !slices.Equal(watched, []string{v.Run.ID}) {
			t.Errorf("%s watches %v", site, watched)
		}
	}
	// b's attempt starts, is sent and ends as cancelled.
	apply(t, l, runs["b"], func(w *run.Write) {
		s := runs["b"].Submission
		s.JobID = "7"
		w.Submission, w.Send = &s, &run.Send{Token: s.Token, K: 1, StartedAt: t0}
		w.Run.State, w.Run.Phase, w.Run.FinishedAt = run.Cancelled, run.Done, &t0
		w.Attempts = []run.Attempt{{RunID: w.Run.ID, N: 1, Token: s.Token, CreatedAt: t0, StartedAt: &t0, EndedAt: &t0,
			Ending: run.EndedCancelled}}
	})
	for site, want := range map[string]int{"a": 0, "b": 1} {
		at, err := l.Index(site).Voided(ctx, t0.Add(-time.Hour))
		must(t, err)
		list, err := l.Index(site).Unmeasured(ctx, t0.Add(-time.Hour), t0.Add(time.Hour), 10)
		must(t, err)
		if (at != nil) != (want == 1) || len(list) != want {
			t.Errorf("%s: voided %v, not measured %v", site, at, list)
		}
	}
	page, err := l.List(ctx, Filter{})
	if err != nil || len(page.Runs) != 2 || page.Runs[0].Site+page.Runs[1].Site != "ba" && page.Runs[0].Site+page.Runs[1].Site != "ab" {
		t.Errorf("List returned %d runs, %v: %+v; want one of each site", len(page.Runs), err, page.Runs)
	}
}

// A request that names a site finds the run that policy placed there, and one that names none finds a run on any
// site; a run on another site than the named one is only equivalent. The transaction that inserts a run follows the
// same rule.
//
// proves SITE-07 ABI-18
func TestFindBySite(t *testing.T) {
	ctx := t.Context()
	const policy = "sha256:p"
	request := func(id, site string) run.Sought {
		return run.Sought{RunID: id, PlanHash: "sha256:plan", PolicyHash: policy, Site: site}
	}
	made := func(i int, id, site, policyHash string) run.New {
		n := newRun(i)
		n.Run.ID, n.Run.Site, n.Run.PolicyHash, n.Run.PlanHash, n.Sought = id, site, policyHash, "sha256:plan", request(id, "")
		n.Sought.PolicyHash = policyHash
		return n
	}
	for name, x := range map[string]struct {
		there      [][3]string // id, site, policy
		want       run.Sought
		known      string
		equivalent []string
	}{
		"named, placed there":       {[][3]string{{"run_any", "a", policy}}, request("run_on_a", "a"), "run_any", nil},
		"named, placed elsewhere":   {[][3]string{{"run_any", "b", policy}}, request("run_on_a", "a"), "", []string{"run_any"}},
		"named, named before":       {[][3]string{{"run_on_a", "a", policy}}, request("run_on_a", "a"), "run_on_a", nil},
		"not named, named before":   {[][3]string{{"run_on_b", "b", policy}}, request("run_any", ""), "run_on_b", nil},
		"not named, another policy": {[][3]string{{"run_on_b", "b", "sha256:q"}}, request("run_any", ""), "", []string{"run_on_b"}},
		"not named, two on two sites": {[][3]string{{"run_on_b", "b", policy}, {"run_any", "a", "sha256:q"}}, request("run_any", ""), "run_any",
			[]string{"run_on_b"}},
	} {
		l := fresh(t)
		for i, r := range x.there {
			_, _, err := l.Insert(ctx, made(i, r[0], r[1], r[2]))
			must(t, err)
		}
		known, equivalent, err := l.Find(ctx, x.want)
		if err != nil || known != x.known || !slices.Equal(equivalent, x.equivalent) && len(equivalent)+len(x.equivalent) > 0 {
			t.Errorf("%s: known %q, equivalent %v: %v", name, known, equivalent, err)
		}
		n := made(7, x.want.RunID, x.want.Site, policy)
		n.Sought = x.want
		v, created, err := l.Insert(ctx, n)
		if want := x.known; err != nil || created != (want == "") || !created && v.Run.ID != want {
			t.Errorf("%s: inserted %v, %s: %v", name, created, v.Run.ID, err)
		}
	}
}

func waiting(l *Ledger, site string, phase run.Phase) (ids []string, err error) {
	list, err := l.Index(site).Waiting(context.Background(), "", 0, phase)
	for _, w := range list {
		ids = append(ids, w.RunID)
	}
	return ids, err
}

// The bytes that a site's workspaces have: inputs and outputs of its runs, each content once, and none of a workspace that was removed.
//
// proves SITE-07
func TestBytesBySite(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	var sums []string
	for i := 1; i <= 3; i++ { // of 1, 2 and 3 bytes
		a := artifact(i)
		_, _, err := l.AddArtifact(ctx, a)
		must(t, err)
		sums = append(sums, a.SHA256)
	}
	with := func(i int, site string, inputs ...int) run.View {
		t.Helper()
		n := newRun(i)
		n.Run.Site = site
		for _, in := range inputs {
			n.Inputs = append(n.Inputs, run.Link{Role: "x", ArtifactID: artifact(in).ID, Relpath: fmt.Sprintf("in/%d", in)})
		}
		v, _, err := l.Insert(ctx, n)
		must(t, err)
		return v
	}
	bytes := func(want map[string]int64) {
		t.Helper()
		got, err := l.BytesBySite(ctx, sums)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%v %v, want %v", got, err, want)
		}
	}
	bytes(map[string]int64{})
	one := with(1, "a", 1, 3)
	with(2, "a", 3)
	with(3, "b", 2)
	bytes(map[string]int64{"a": 4, "b": 2})
	done := finish(t, l, one)
	ok, err := l.BeginRemoval(ctx, retention.Workspace{RunID: done.Run.ID, AttemptN: 1}, t0.Add(time.Hour))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	bytes(map[string]int64{"a": 3, "b": 2})
	open, err := l.OpenBySite(ctx, nil)
	if err != nil || len(open) != 2 || open["a"][run.Staging] != 1 || open["b"][run.Staging] != 1 {
		t.Error(open, err)
	}
	if open, err := l.OpenBySite(ctx, []string{project}); err != nil || open["a"][run.Staging] != 1 {
		t.Error(open, err)
	}
	if open, err := l.OpenBySite(ctx, []string{"proj_other"}); err != nil || len(open) != 0 {
		t.Error(open, err)
	}
	plan, err := list(ctx, l.r, func(row scanner) (s string, err error) {
		var skip any
		err = row.Scan(&skip, &skip, &skip, &s)
		return s, err
	}, "EXPLAIN QUERY PLAN SELECT r.site, r.phase, count(*) FROM runs r WHERE r.phase <> 'done' GROUP BY r.site, r.phase")
	if err != nil || !strings.Contains(strings.Join(plan, "\n"), "COVERING INDEX runs_open") {
		t.Error(plan, err)
	}
}
