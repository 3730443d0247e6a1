package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/plan"
	"slurmgate/run"
)

// spend is a finished attempt for the table of a month.
type spend struct {
	caller, account string
	ended           time.Time
	ending          run.Ending
	own             string // the job's own record; "": none
	accounted       *run.Usage
}

func (s spend) store(t *testing.T, l *Ledger, i int) {
	t.Helper()
	n := newRun(i)
	n.Run.Principal.Name = s.caller
	if s.account != "" {
		n.Placement = &plan.Placement{Partition: "main", Account: s.account}
	}
	v, _, err := l.Insert(t.Context(), n)
	must(t, err)
	apply(t, l, v, func(w *run.Write) {
		zero := 0
		w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.ExitCode = run.Failed, run.Done, &s.ended, &zero
		if s.ending == run.EndedOK {
			w.Run.State = run.Succeeded
		}
		a := v.Attempt
		a.Ending, a.StartedAt, a.EndedAt = s.ending, &s.ended, &s.ended
		if s.own != "" {
			a.Usage = json.RawMessage(s.own)
		}
		w.Attempts = []run.Attempt{a}
		out := run.Artifact{ID: fmt.Sprintf("art_%026d", i), ProjectID: project, SHA256: fmt.Sprintf("%064d", i), Type: "TEXT", Label: "x",
			SizeBytes: 100, Source: v.Run.ID}
		w.Artifacts, w.Outputs = []run.Artifact{out}, []run.Link{{Role: "r", ArtifactID: out.ID, Relpath: "out/x"}}
	})
	if s.accounted != nil {
		must(t, l.Measure(t.Context(), map[string]*run.Usage{v.Attempt.Token: s.accounted}))
	}
}

// A month adds up the attempts that ended in it, by the time zone's own months. Accounting goes before the job's own record, and what
// nobody measured is not 0 but missing, and counted.
//
// proves OPS-03
func TestSpentInAMonth(t *testing.T) {
	l := fresh(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	november := time.Date(2026, 11, 1, 0, 0, 0, 0, berlin)
	own := `{"elapsed_seconds":100,"user_seconds":30,"system_seconds":6}`
	for i, s := range []spend{
		{"user:alice", "research", november, run.EndedOK, own, &run.Usage{ElapsedSeconds: 100, CPUSeconds: 72, MaxRSSBytes: 5, AllocCPUs: 4}},
		{"user:alice", "research", november.Add(time.Hour), run.Ending("tool_failed"), own, nil},
		{"user:alice", "teaching", november.AddDate(0, 1, 0).Add(-time.Second), run.EndedCancelled, "", nil},
		{"", "", november.Add(time.Hour), run.EndedOK, "", &run.Usage{ElapsedSeconds: 10, CPUSeconds: 0, AllocCPUs: 1}},
		{"user:alice", "research", november.Add(-time.Second), run.EndedOK, own, nil}, // October in Berlin, and in UTC
		{"user:alice", "research", november.AddDate(0, 1, 0), run.EndedOK, own, nil},  // December
		{"user:alice", "research", november.Add(-time.Minute), run.EndedOK, own, nil}, // October
	} {
		s.store(t, l, i+1)
	}
	f := func(v float64) *float64 { return &v }
	n := func(v int64) *int64 { return &v }
	for name, c := range map[string]struct {
		ask  Spent
		want []SpentRow
	}{
		"all": {Spent{From: november, To: november.AddDate(0, 1, 0), By: []string{"project", "account", "caller", "tool"}}, []SpentRow{
			{project, "", "", "t.x", 1, 1, 1, 0, 0, f(0), f(10), nil, 0, 100, 0},
			{project, "research", "user:alice", "t.x", 2, 2, 1, 1, 0, f(108), f(400), n(5), 0, 200, 0},
			{project, "teaching", "user:alice", "t.x", 1, 1, 0, 0, 1, nil, nil, nil, 0, 100, 1}}},
		"by account": {Spent{From: november, To: november.AddDate(0, 1, 0), By: []string{"account"}}, []SpentRow{
			{"", "", "", "", 1, 1, 1, 0, 0, f(0), f(10), nil, 0, 100, 0}, {"", "research", "", "", 2, 2, 1, 1, 0, f(108), f(400), n(5), 0, 200, 0},
			{"", "teaching", "", "", 1, 1, 0, 0, 1, nil, nil, nil, 0, 100, 1}}},
		"UTC": {Spent{From: november.Add(time.Hour), To: november.AddDate(0, 1, 0).Add(time.Hour), By: []string{"caller"}}, []SpentRow{
			{"", "", "", "", 1, 1, 1, 0, 0, f(0), f(10), nil, 0, 100, 0}, {"", "", "user:alice", "", 3, 3, 1, 1, 1, f(72), nil, nil, 0, 300, 1}}},
		"another project": {Spent{From: november, To: november.AddDate(1, 0, 0), By: []string{"tool"}, Projects: []string{"proj_x"}}, nil},
	} {
		got, seq, err := l.Spent(t.Context(), c.ask)
		if d := cmp.Diff(c.want, got); err != nil || d != "" || seq == 0 {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}

// What a month of 100,000 runs costs: go test -run - -bench Spent ./ledger.
func BenchmarkSpent(b *testing.B) {
	l := fresh(b)
	const runs = 100_000
	must(b, l.tx(b.Context(), func(ctx context.Context, tx *sql.Conn) error {
		for _, q := range []string{
			`INSERT INTO policies (policy_hash, snapshot, created_at) VALUES ('sha256:p', '{}', 1)`,
			`INSERT INTO param_sets VALUES ('sha256:p', '{}', 1)`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO artifacts (artifact_id, project_id, sha256, type, label, size_bytes, source, created_at)
 SELECT 'art_' || i, 'proj_' || (i % 20), printf('%064d', i), 'TEXT', 'x', i, 'import', 1 FROM n`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO runs (run_id, rev, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash,
 params_hash, plan_hash, project_id, site, actor, principal, principal_id, state, phase, reason, detail, attempt_n, warnings, created_at, updated_at, finished_at, cancel_reason)
 SELECT 'run_' || i, 1, 'tool.' || (i % 9), 't', '1', 'v1', '', 'sha256:p', 'sha256:p', 'sha256:' || i, 'proj_' || (i % 20), 's', 'human', 'user:u' || (i % 300), 'prn_' || (i % 300), 'failed', 'done', '', '', 1, '[]', i, i, i, '' FROM n`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO submissions SELECT printf('%032d', i), 'sg-' || i, 'x', i, 'c', i, i, '' FROM n`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO attempts (run_id, n, token, created_at, placement, slurm_state, slurm_why, node, started_at, ended_at, ending, usage)
 SELECT 'run_' || i, 1, printf('%032d', i), i, '{"account":"a' || (i % 30) || '","constraint":null,"partition":"main","qos":null}', '', '', 'n1', i, i, 'ok', '{"elapsed_seconds":1,"max_rss_kib":null,"node":"n1","system_seconds":1,"user_seconds":2}' FROM n`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO job_usage SELECT printf('%032d', i), i, 10, 5.5, 1000, 2 FROM n WHERE i % 10`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO run_outputs SELECT 'run_' || i, 'r', 'art_' || i, 'out/x', 1 FROM n`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) INSERT INTO run_inputs SELECT 'run_' || i, 'r', 'art_' || i, 'in/x' FROM n`,
		} {
			if _, err := tx.ExecContext(ctx, q, runs); err != nil {
				return fmt.Errorf("%w: %s", err, q)
			}
		}
		return nil
	}))
	for b.Loop() {
		rows, _, err := l.Spent(b.Context(), Spent{To: time.Now(), By: SpentBy()})
		if err != nil || len(rows) == 0 {
			b.Fatal(len(rows), err)
		}
	}
}
