package ledger

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

var (
	states = []run.State{run.Queued, run.Running, run.Blocked, run.Succeeded, run.Failed, run.Cancelled, "", "paused"}
	phases = []run.Phase{run.Staging, run.Deferred, run.Submitting, run.Unconfirmed, run.Pending, run.InJob, run.Completing, run.Collecting,
		run.NeedsOperator, run.AheadOfLedger, run.OutputsLate, run.Done, run.WaitingForInputs, "", "waiting"}
)

// The database itself takes only the pairs of state and phase of the lifecycle. No run that has started waits for
// inputs.
func TestStateMachine(t *testing.T) {
	l := fresh(t)
	n := 0
	for _, s := range states {
		for _, p := range phases {
			legal := run.StateOf(p) == s && s != "" && p != run.WaitingForInputs || p == run.Done && s.Terminal()
			n++
			v := insert(t, l, n)
			v.Run.State, v.Run.Phase, v.Run.Reason = s, p, "why"
			if p == run.Done {
				zero := 0
				v.Run.FinishedAt, v.Run.ExitCode = &t0, &zero
			}
			_, err := l.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.test"}})
			if legal != (err == nil) {
				t.Errorf("%q/%q: %v", s, p, err)
			}
			if err != nil {
				wantFault(t, err, fault.Internal, "ledger_refused")
			}
		}
	}
	must(t, l.Integrity(t.Context()))
}

// A success has a result and exit code 0, a blocked run has a reason, and only a finished one has an end.
func TestStateConditions(t *testing.T) {
	l := fresh(t)
	one, zero := 1, 0
	for i, change := range []func(*run.Run){
		func(r *run.Run) { r.State, r.Phase, r.FinishedAt, r.ExitCode = run.Succeeded, run.Done, &t0, &one },
		func(r *run.Run) { r.State, r.Phase, r.FinishedAt = run.Succeeded, run.Done, &t0 },
		func(r *run.Run) {
			r.State, r.Phase, r.FinishedAt, r.ExitCode, r.ResultJSON = run.Succeeded, run.Done, &t0, &zero, nil
		},
		func(r *run.Run) { r.State, r.Phase = run.Failed, run.Done },
		func(r *run.Run) { r.FinishedAt = &t0 },
		func(r *run.Run) { r.State, r.Phase, r.Reason = run.Blocked, run.NeedsOperator, "" },
		func(r *run.Run) { r.AttemptN = 0 },
	} {
		v := insert(t, l, i)
		change(&v.Run)
		_, err := l.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.test"}})
		wantFault(t, err, fault.Internal, "ledger_refused")
	}
}

// What is finished stays as it is; only an explicit new attempt opens it again.
func TestTerminalIsFinal(t *testing.T) {
	l := fresh(t)
	done := finish(t, l, insert(t, l, 1))
	for _, change := range []func(*run.Run){
		func(r *run.Run) {},
		func(r *run.Run) { r.ResultJSON = []byte(`{"forged":true}`) },
		func(r *run.Run) { r.Reason = "x" },
		func(r *run.Run) { r.State = run.Failed },
		func(r *run.Run) { r.State, r.Phase, r.FinishedAt = run.Queued, run.Staging, nil },
		func(r *run.Run) { r.State, r.Phase, r.FinishedAt, r.AttemptN = run.Queued, run.Staging, nil, 3 },
		func(r *run.Run) { r.AttemptN = 2 },
	} {
		r := done.Run
		change(&r)
		_, err := l.Apply(t.Context(), run.Write{Run: r, Event: run.Event{Type: "run.test"}})
		wantFault(t, err, fault.Internal, "ledger_refused")
	}
	again := apply(t, l, done, func(w *run.Write) {
		w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.ExitCode, w.Run.AttemptN = run.Queued, run.Staging, nil, nil, 2
		sub := run.Submission{Token: strings.Repeat("e", 32), JobName: "sg-2", CreatedAt: t0}
		w.Submission, w.Attempts = &sub, []run.Attempt{{RunID: done.Run.ID, N: 2, Token: sub.Token, CreatedAt: t0}}
	})
	if again.Attempt.N != 2 || again.Submission.JobName != "sg-2" || again.Sends != 0 {
		t.Error(again)
	}
}

// Nothing of the history can be rewritten, by this program or by a slip with sqlite3.
func TestRowsAreKept(t *testing.T) {
	l := fresh(t)
	v := finish(t, l, insert(t, l, 1))
	insert(t, l, 2)
	db := rawDB(t, l)
	for _, q := range []string{
		"DELETE FROM runs", "DELETE FROM events", "DELETE FROM events WHERE seq = 3",
		"UPDATE events SET type = 'x' WHERE seq = 1", "UPDATE events SET data = data",
		"UPDATE runs SET detail = 'x'", "UPDATE runs SET rev = rev + 2",
		"UPDATE runs SET rev = rev + 1, policy_hash = policy_hash || '0'",
		"UPDATE runs SET rev = rev + 1, run_id = 'run_x' WHERE phase <> 'done'",
		"UPDATE runs SET rev = rev + 1, tool_version = '2.0.0' WHERE phase <> 'done'",
		"UPDATE runs SET rev = rev + 1, created_at = 1 WHERE phase <> 'done'",
		"INSERT INTO runs SELECT * FROM runs", "INSERT INTO attempts (run_id, n, created_at, slurm_state, slurm_why, node, ending) VALUES " +
			"('run_none', 1, 1, '', '', '', '')",
		"DELETE FROM param_sets", "DELETE FROM policies", "DELETE FROM submissions", "UPDATE sends SET outcome = 'maybe'",
	} {
		res, err := db.Exec(q)
		if err == nil {
			if n, _ := res.RowsAffected(); n > 0 {
				t.Errorf("%s changed %d rows", q, n)
			}
		}
	}
	got, err := l.View(t.Context(), v.Run.ID)
	if err != nil || got.Run.Rev != v.Run.Rev {
		t.Error(got, err)
	}
	must(t, l.Integrity(t.Context()))
}

// A changed, missing, added or reordered event is found.
func TestEventChain(t *testing.T) {
	for name, c := range map[string]struct {
		q     string
		chain bool // the chain itself breaks; otherwise only Integrity can detect it
	}{
		"data":    {"UPDATE events SET data = '{\"i\":9}' WHERE seq = 3", true},
		"type":    {"UPDATE events SET type = 'run.other' WHERE seq = 3", true},
		"time":    {"UPDATE events SET at = at + 1 WHERE seq = 3", true},
		"run":     {"UPDATE events SET run_id = 'run_other' WHERE seq = 3", true},
		"hash":    {"UPDATE events SET hash = prev_hash WHERE seq = 3", true},
		"missing": {"DELETE FROM events WHERE seq = 3", true},
		"first":   {"DELETE FROM events WHERE seq = 1", true},
		"swapped": {"UPDATE events SET seq = CASE seq WHEN 2 THEN -3 WHEN 3 THEN -2 ELSE seq END; UPDATE events SET seq = -seq WHERE seq < 0",
			true},
		"added":    {"INSERT INTO events SELECT 6, at, type, run_id, data, hash, hash FROM events WHERE seq = 5", true},
		"last cut": {"DELETE FROM events WHERE seq = 5", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := fresh(t)
			for i := range 5 {
				insert(t, l, i)
			}
			if n, err := l.VerifyEvents(t.Context()); n != 5 || err != nil {
				t.Fatal(n, err)
			}
			_, err := rawDB(t, l).Exec("DROP TRIGGER events_keep; DROP TRIGGER events_fixed; " + c.q)
			must(t, err)
			if _, err := l.VerifyEvents(t.Context()); c.chain {
				wantFault(t, err, fault.Internal, "event_chain_broken")
			}
			if err := l.Integrity(t.Context()); !fault.Is(err, fault.Internal) {
				t.Error("integrity:", err)
			}
		})
	}
}

// Canonical params are stored once and never believed unread. proves ARC-04
func TestParams(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	other := newRun(1)
	other.Run.ID, other.Submission.Token, other.Submission.JobName = "run_other", strings.Repeat("f", 32), "sg-o"
	_, _, err := l.Insert(t.Context(), other)
	must(t, err)
	var n int
	must(t, l.r.QueryRow("SELECT count(*) FROM param_sets").Scan(&n))
	if n != 1 {
		t.Errorf("%d param sets", n)
	}
	got, err := l.Params(t.Context(), v.Run.ParamsHash)
	if err != nil || string(got) != `{"i":1}` {
		t.Error(string(got), err)
	}
	_, err = l.Params(t.Context(), plan.Hash([]byte("none")))
	wantFault(t, err, fault.NotFound, "params_not_found")
	_, err = rawDB(t, l).Exec(`UPDATE param_sets SET params = '{"i":2}'`)
	must(t, err)
	_, err = l.Params(t.Context(), v.Run.ParamsHash)
	wantFault(t, err, fault.Internal, "ledger_corrupt")
}

// The pack a run was planned with is stored once, with the first of its runs, and read by its hash.
func TestPacks(t *testing.T) {
	l := fresh(t)
	pack := json.RawMessage(`{"id":"t.x"}`)
	hash := plan.Hash(pack)
	for i := range 3 {
		n := newRun(i)
		n.Run.PackHash, n.Pack = hash, pack
		_, created, err := l.Insert(t.Context(), n)
		if err != nil || !created {
			t.Fatal(created, err)
		}
	}
	insert(t, l, 3) // a plan submitted as it is has none
	var n int
	must(t, l.r.QueryRow("SELECT count(*) FROM packs").Scan(&n))
	if n != 1 {
		t.Errorf("%d packs", n)
	}
	got, err := l.Pack(t.Context(), hash)
	if err != nil || string(got) != string(pack) {
		t.Error(string(got), err)
	}
	_, err = l.Pack(t.Context(), plan.Hash([]byte("none")))
	wantFault(t, err, fault.NotFound, "pack_not_found")
	_, err = rawDB(t, l).Exec(`UPDATE packs SET definition = '{"id":"t.y"}'`)
	must(t, err)
	_, err = l.Pack(t.Context(), hash)
	wantFault(t, err, fault.Internal, "ledger_corrupt")
}

func artifact(i int) run.Artifact {
	sum := fmt.Sprintf("%064x", i)
	id, err := plan.ArtifactID(project, sum, "TEXT", "l")
	if err != nil {
		panic(err)
	}
	return run.Artifact{ID: id, ProjectID: project, SHA256: sum, Type: "TEXT", Label: "l", SizeBytes: int64(i), Source: "import",
		CreatedAt: t0}
}

// Pages neither lose nor repeat anything, though the clock does not move and rows are added meanwhile.
func TestPages(t *testing.T) {
	l := fresh(t)
	want := map[string]int{}
	for i := range 57 {
		want[insert(t, l, i).Run.ID] = 0
		_, _, err := l.AddArtifact(t.Context(), artifact(i))
		must(t, err)
		want[artifact(i).ID] = 0
	}
	now := t0
	l.now = func() time.Time { return now }
	now = t0.Add(time.Second)
	for i, cursor := 100, ""; ; i++ {
		p, err := l.List(t.Context(), Filter{Limit: 10, Cursor: cursor, Until: new(t0.Add(time.Millisecond))})
		must(t, err)
		for _, v := range p.Runs {
			want[v.ID]++
		}
		insert(t, l, i)
		if cursor = p.Cursor; cursor == "" {
			break
		}
	}
	for i, cursor := 100, ""; ; i++ {
		p, err := l.Artifacts(t.Context(), ArtifactFilter{Limit: 7, Cursor: cursor, ProjectID: project, Type: "TEXT"})
		must(t, err)
		for _, a := range p.Artifacts {
			want[a.ID]++
		}
		_, _, err = l.AddArtifact(t.Context(), artifact(i))
		must(t, err)
		if cursor = p.Cursor; cursor == "" {
			break
		}
	}
	for id, n := range want {
		if n != 1 {
			t.Errorf("%s seen %d times", id, n)
		}
	}
	for _, c := range []string{"x", "!", "bm90IGE", "MTIz"} {
		_, err := l.List(t.Context(), Filter{Cursor: c})
		wantFault(t, err, fault.Validation, "LIST-CURSOR")
		_, err = l.Artifacts(t.Context(), ArtifactFilter{Cursor: c})
		wantFault(t, err, fault.Validation, "LIST-CURSOR")
	}
}

// A list shows the same of a run as the run itself.
func TestListRows(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	sub, a, at := v.Submission, v.Attempt, t0.Add(time.Hour)
	sub.JobID, a.SlurmState = "7", "PENDING"
	v = apply(t, l, v, func(w *run.Write) {
		w.Run.Phase, w.Run.Reason, w.Submission, w.Attempts = run.Pending, "a reason\x1fof \"two\"\nlines", &sub, []run.Attempt{a}
	})
	v = apply(t, l, v, func(w *run.Write) { w.Run.State, w.Run.Phase, w.Run.FinishedAt = run.Cancelled, run.Done, &at })
	p, err := l.List(t.Context(), Filter{})
	must(t, err)
	want := []Row{{ID: v.Run.ID, ToolID: v.Run.ToolID, ProjectID: v.Run.ProjectID, State: run.Cancelled, Phase: run.Done,
		Reason: v.Run.Reason, JobID: "7", SlurmState: "PENDING",
		CreatedAt: v.Run.CreatedAt, FinishedAt: v.Run.FinishedAt}}
	if d := cmp.Diff(want, p.Runs); d != "" {
		t.Error(d)
	}
}

func TestFilters(t *testing.T) {
	l := fresh(t)
	a, b := insert(t, l, 1), insert(t, l, 2)
	finish(t, l, a)
	for _, c := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 2}, {Filter{State: run.Succeeded}, 1}, {Filter{State: run.Failed}, 0}, {Filter{ToolID: "t.x"}, 2}, {Filter{ToolID: "t.y"}, 0},
		{Filter{ProjectID: project}, 2}, {Filter{Since: new(t0)}, 2}, {Filter{Since: new(t0.Add(1e9))}, 0}, {Filter{Until: new(t0)}, 0},
		{Filter{Limit: 100_000}, 2},
		{Filter{State: run.Succeeded, Since: new(t0)}, 1}, {Filter{Projects: []string{}}, 0}, {Filter{Projects: []string{project, "proj_x"},
			State: run.Queued}, 1},
	} {
		p, err := l.List(t.Context(), c.f)
		if err != nil || len(p.Runs) != c.want || p.Total != (Total{int64(c.want), true}) {
			t.Errorf("List(%+v) = %d of %d runs, exact %t, %v; want %d", c.f, len(p.Runs), p.Total.N, p.Total.Exact, err, c.want)
		}
	}
	open, err := l.Index("").Waiting(t.Context(), "", 0, run.Staging, run.Done)
	if err != nil || !slices.Equal(open, []run.Waiter{{RunID: b.Run.ID, Share: run.Share{Project: project}}}) {
		t.Error(open, err)
	}
	if open, err = l.Index("").Waiting(t.Context(), "", 0, run.Pending); err != nil || len(open) != 0 {
		t.Error(open, err)
	}
	twin := newRun(2)
	twin.Run.ID, twin.Run.PolicyHash, twin.Submission.Token, twin.Submission.JobName = "run_twin", "sha256:other", strings.Repeat("f", 32),
		"sg-o"
	_, _, err = l.Insert(t.Context(), twin)
	must(t, err)
	for id, others := range map[string][]string{b.Run.ID: {"run_twin"}, "run_twin": {b.Run.ID}, "run_none": {b.Run.ID, "run_twin"}} {
		known, got, err := l.Find(t.Context(), run.Sought{RunID: id, PlanHash: b.Run.PlanHash, PolicyHash: "sha256:of " + id})
		if slices.Sort(got); err != nil || known != strings.Replace(id, "run_none", "", 1) || !slices.Equal(got,
			slices.Sorted(slices.Values(others))) {
			t.Error(id, got, known, err)
		}
	}
}

// The same artifact is registered once by several callers, and recorded once.
func TestArtifactOnce(t *testing.T) {
	l := fresh(t)
	var made atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			a := artifact(1)
			got, created, err := l.AddArtifact(t.Context(), a)
			if err != nil || got != a {
				t.Error(got, err)
			}
			if created {
				made.Add(1)
			}
		})
	}
	wg.Wait()
	n, err := l.VerifyEvents(t.Context())
	if made.Load() != 1 || n != 1 || err != nil {
		t.Error(made.Load(), n, err)
	}
	// Not in a form the ledger takes: refused, not dropped.
	bad := artifact(2)
	bad.ProjectID = "demo"
	_, _, err = l.AddArtifact(t.Context(), bad)
	wantFault(t, err, fault.Internal, "ledger_refused")
	_, err = l.Artifact(t.Context(), bad.ID)
	wantFault(t, err, fault.NotFound, "artifact_not_found")
}
