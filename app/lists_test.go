package app

import (
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3" // the ledger's driver: a million runs are made by SQL

	"slurmgate/plan"
	"slurmgate/run"
)

// make bench-lists has a million runs and checks the times; the tests have few, and check only the answers.
var (
	listRuns  = flag.Int("lists.runs", 2000, "runs in the ledger of TestLists")
	listJudge = flag.Bool("lists.judge", false, "fail if a list misses its target")
)

// listed is a ledger of many runs. Run i of n was created i seconds after the first one. Nearly all are of project
// demo and succeeded. Batch k has the runs from k*perBatch on, with its own tag and one that all batches have.
type listed struct {
	g        *Gateway
	n        int
	perBatch int
	first    time.Time
}

const (
	listFailed    = "i % 50 = 7"
	listCancelled = "i % 1000 = 13"
	listQueued    = "i % 400 = 399"
	listSmall     = "i % 2000 = 5" // another project
)

// seedList fills the ledger.
func seedList(t *testing.T, n int) *listed {
	t.Helper()
	g := batchGateway(t)
	like, out := g.fill(t, "demo"), make([]string, 100)
	if *listJudge { // as many as the first batch has rows
		out = make([]string, min(10000, n/4))
	}
	for i := range out {
		a, err := g.addBytes(t.Context(), run.Artifact{ProjectID: like.project, Type: "JSON", Label: fmt.Sprintf("o%d.json", i), Source: "run"},
			fmt.Appendf(nil, `{"reads":%d,"gc":0.%d,"name":"s%d"}`, i*1000, i, i))
		must(t, err)
		out[i] = a.ID
	}
	db, err := sql.Open("sqlite3", "file:"+g.Ledger.Path()+"?_busy_timeout=60000&_synchronous=OFF&_cache_size=-200000")
	must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	do := func(q string, args ...any) {
		t.Helper()
		if _, err := db.Exec(q, args...); err != nil {
			t.Fatalf("%v: %s", err, q)
		}
	}
	copied := func(table string, changed map[string]string) string { // from the one existing run
		rows, err := db.Query("SELECT name FROM pragma_table_info(?)", table)
		must(t, err)
		defer rows.Close()
		var names, values []string
		for rows.Next() {
			var name string
			must(t, rows.Scan(&name))
			value := "x." + name
			if v, ok := changed[name]; ok {
				value = v
			}
			names, values = append(names, name), append(values, value)
		}
		return "INSERT INTO " + table + " (" + strings.Join(names, ",") + ") SELECT " + strings.Join(values, ",") + " FROM " + table +
			" x, series "
	}
	first := time.Now().Add(-time.Duration(n) * time.Second).UTC().Truncate(time.Second)
	l := &listed{g: g, n: n, perBatch: min(10000, n/4), first: first}
	at := fmt.Sprintf("%d + i * 1000000", l.first.UnixMicro())
	ended := "(" + listQueued + ") = 0"
	state := "CASE WHEN " + listQueued + " THEN 'queued' WHEN " + listFailed + " THEN 'failed' WHEN " + listCancelled +
		" THEN 'cancelled' ELSE 'succeeded' END"
	id := "printf('run_%026d', i)"
	do("CREATE TEMP TABLE series (i INTEGER PRIMARY KEY)")
	for from := 0; from < n; from += 50000 {
		do("DELETE FROM series")
		do("WITH RECURSIVE s(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < ?2) INSERT INTO series SELECT i FROM s", from,
			min(n, from+50000))
		do("BEGIN")
		do(copied("runs", map[string]string{"run_id": id, "created_at": at, "updated_at": at,
			"finished_at": "iif(" + ended + ", " + at + ", NULL)",
			"state":       state, "phase": "iif(" + ended + ", 'done', 'pending')", "exit_code": "0", "reason": "''",
			"tool_id":    "iif(i % 5000 = 77, 'rare.tool', printf('tool.t%02d', i % 20))",
			"project_id": "iif(" + listSmall + ", '" + plan.ProjectID("small") + "', x.project_id)"})+"WHERE x.run_id = ?", like.run)
		do(copied("submissions", map[string]string{"token": "printf('%032x', i + 1000000)", "job_id": "i",
			"job_name": "printf('slurmgate-%d', i)"})+"WHERE x.token = (SELECT token FROM attempts WHERE run_id = ?)", like.run)
		do(copied("attempts", map[string]string{"run_id": id, "created_at": at, "token": "printf('%032x', i + 1000000)",
			"ending": "iif(" + ended + ", 'ok', '')", "ended_at": "iif(" + ended + ", " + at + ", NULL)"})+"WHERE x.run_id = ?", like.run)
		do(`INSERT OR IGNORE INTO batches (batch_id, project_id, name, tool_id, tool_version, rows_hash, row_count, principal, principal_id, caller, created_at) SELECT printf('batch_%d', i / ?1), ?2, printf('b%d', i / ?1), 't.x', '1.0.0', 'h', ?1, 'user:lab', '', '{}', ?3 + i * 1000000
 FROM series WHERE i % ?1 = 0`, l.perBatch, like.project, l.first.UnixMicro())
		do("INSERT INTO batch_rows (batch_id, row_n, sample, label, tags, args, run_id, run_at, state, todo, after_n, tries, code, message) "+
			"SELECT printf('batch_%d', i / ?1), i % ?1 + 2, printf('S%07d', i / 2), '', '[]', '{}', "+id+", "+at+", "+state+
			", '', 0, 0, '', '' FROM series WHERE ("+listSmall+") = 0", l.perBatch)
		for _, tag := range []string{"printf('lot%d', i / ?1)", "'wide'"} {
			do("INSERT INTO batch_tags (tag, batch_id, row_n, run_id, run_at, state) SELECT "+tag+", printf('batch_%d', i / ?1), i % ?1 + 2, "+
				id+", "+at+", "+state+" FROM series WHERE ("+listSmall+") = 0", l.perBatch)
		}
		do("COMMIT")
	}
	do("CREATE TEMP TABLE outs (i INTEGER PRIMARY KEY, id TEXT)")
	for i, a := range out {
		do("INSERT INTO outs VALUES (?, ?)", i, a)
	}
	do(`INSERT INTO run_outputs SELECT run_id, 'stats', o.id, 'out/stats.json', 1 FROM batch_rows w JOIN outs o ON o.i = w.row_n % ?
 WHERE w.batch_id = 'batch_0' AND w.state = 'succeeded'`, len(out)) // the first batch has outputs
	do("PRAGMA wal_checkpoint(TRUNCATE)")
	return l
}

// one returns how many runs below n meet a condition.
func (l *listed) one(is func(i int) bool) (n int) {
	for i := range l.n {
		if is(i) {
			n++
		}
	}
	return n
}

// Lists over many runs: by state, tool, time, sample, tag and batch, their pages and their totals. With -lists.judge each must answer
// within its bound.
//
// proves MANY-01
func TestLists(t *testing.T) {
	l := seedList(t, *listRuns)
	g := l.g
	resetPeak(t)
	queued := func(i int) bool { return i%400 == 399 }
	failed := func(i int) bool { return i%50 == 7 && !queued(i) }
	small := func(i int) bool { return i%2000 == 5 }
	when := func() time.Time { return l.first.Add(time.Duration(rand.IntN(l.n)) * time.Second) }
	var deep RunList
	if err := g.callBatch(t, "run.list", map[string]any{"until": l.first.Add(time.Duration(l.n/2) * time.Second)}, &deep); err != nil {
		t.Fatalf("run.list ended with %+v", err)
	}
	total := func(is func(i int) bool) int { return l.one(func(i int) bool { return is(i) && !small(i) }) }
	all := total(func(int) bool { return true })
	with := func(args map[string]any) func() map[string]any { return func() map[string]any { return args } }
	for _, c := range []struct {
		name string
		want int // total; -1: not known here
		args func() map[string]any
	}{
		{"newest", all + 1, with(map[string]any{})},
		{"page of 60", all + 1, with(map[string]any{"limit": 60})},
		{"deep page", all + 1, with(map[string]any{"cursor": *deep.Cursor})},
		{"state failed", total(failed), with(map[string]any{"state": "failed"})},
		{"state queued", total(queued), with(map[string]any{"state": "queued"})},
		{"state blocked", 1, with(map[string]any{"state": "blocked"})},
		{"common tool", -1, func() map[string]any { return map[string]any{"tool_id": fmt.Sprintf("tool.t%02d", rand.IntN(5)+6)} }},
		{"rare tool", total(func(i int) bool { return i%5000 == 77 }), with(map[string]any{"tool_id": "rare.tool"})},
		{"rare tool, state", -1, with(map[string]any{"tool_id": "rare.tool", "state": "succeeded"})},
		{"state, tool, none", 0, with(map[string]any{"state": "failed", "tool_id": "tool.t08"})},
		{"state, tool, since", -1, with(map[string]any{"state": "failed", "tool_id": "tool.t08", "since": l.first})},
		{"since", -1, func() map[string]any { return map[string]any{"since": when()} }},
		{"an hour", -1, func() map[string]any {
			at := when()
			return map[string]any{"since": at, "until": at.Add(time.Hour)}
		}},
		{"state, tool, time", -1, func() map[string]any {
			at := when()
			return map[string]any{"state": "failed", "tool_id": "tool.t07", "since": at, "until": at.Add(24 * time.Hour)}
		}},
		{"sample", -1, func() map[string]any { return map[string]any{"sample": fmt.Sprintf("S%07d", rand.IntN(l.n/2))} }},
		{"tag of a batch", -1, with(map[string]any{"tag": "lot0"})},
		{"tag of all", min(all, 2000), with(map[string]any{"tag": "wide"})},
		{"tag, state", -1, with(map[string]any{"tag": "lot1", "state": "failed"})},
		{"batch", total(func(i int) bool { return i < l.perBatch }), with(map[string]any{"batch": "b0"})},
		{"batch, state", -1, with(map[string]any{"batch": "b1", "state": "failed"})},
	} {
		var r RunList
		l.timed(t, "run.list", c.name, 20, c.args, &r)
		if c.want >= 0 && int(r.Total) != c.want {
			t.Errorf("%s: %d in all, want %d", c.name, r.Total, c.want)
		}
		mayBeNone := []string{"state, tool, time", "state, tool, since", "rare tool", "rare tool, state"}
		if len(r.Runs) == 0 && c.want != 0 && !slices.Contains(mayBeNone, c.name) {
			t.Errorf("%s: no runs", c.name)
		}
		if !slices.IsSortedFunc(r.Runs, func(a, b RunRow) int { return b.CreatedAt.Compare(a.CreatedAt) }) {
			t.Errorf("%s: not newest first", c.name)
		}
	}
	var status BatchStatusAnswer
	l.timed(t, "batch.status", "batch.status", 50, func() map[string]any { return map[string]any{"batch": "b0"} }, &status)
	var rows BatchRowsAnswer
	l.timed(t, "batch.rows", "batch.rows", 20, func() map[string]any {
		return map[string]any{"batch": "b0", "after_row": rand.IntN(l.perBatch - 100), "state": "succeeded"}
	}, &rows)
	var found FoundList
	l.timed(t, "artifact.find", "find by sample", 20, func() map[string]any {
		return map[string]any{"name": fmt.Sprintf("S%07d", rand.IntN(l.n/2))}
	}, &found)
	l.timed(t, "artifact.find", "find by tag", 0, func() map[string]any { return map[string]any{"name": "wide"} }, &found)
	var batches BatchList
	l.timed(t, "batch.list", "batch.list", 20, func() map[string]any { return map[string]any{} }, &batches)
	var table BatchTableAnswer
	l.timed(t, "batch.table", "batch.table", 0, func() map[string]any { return map[string]any{"batch": "b0", "sort_by": "reads"} }, &table)
	if status.Rows != int64(l.perBatch) || len(rows.Rows) == 0 || len(batches.Batches) == 0 || table.Total == 0 || len(table.Rows) == 0 {
		t.Errorf("%d rows in the status, %d rows, %d batches, table of %d; want %d rows and none empty", status.Rows, len(rows.Rows),
			len(batches.Batches), table.Total, l.perBatch)
	}
	t.Logf("name=lists_peak_memory runs=%d value=%d unit=MB", l.n, peakMB(t))
}

// timed repeats a call, prints how long it took, and decodes the last answer.
func (l *listed) timed(t *testing.T, tool, name string, target float64, args func() map[string]any, into any) {
	t.Helper()
	calls := 3
	if *listJudge {
		calls = 300
	}
	if tool == "batch.table" {
		calls = 3
	}
	var took, busy []time.Duration
	for range calls {
		raw, err := json.Marshal(args())
		must(t, err)
		a := map[string]any{}
		must(t, json.Unmarshal(raw, &a))
		used, began := processorTime(t), time.Now()
		if err := l.g.callBatch(t, tool, a, into); err != nil {
			t.Fatalf("%s: %+v", name, err)
		}
		took, busy = append(took, time.Since(began)), append(busy, processorTime(t)-used)
	}
	ms := func(of []time.Duration, q float64) float64 {
		slices.Sort(of)
		return float64(of[min(len(of)-1, int(q*float64(len(of))))].Microseconds()) / 1000
	}
	name = strings.NewReplacer(" ", "_", ",", "").Replace(name)
	line := fmt.Sprintf("name=%s runs=%d cpu_p50=%.2f cpu_p99=%.2f p50=%.2f value=%.2f unit=ms", name, l.n, ms(busy, 0.5), ms(busy, 0.99),
		ms(took, 0.5), ms(took, 0.99))
	if target > 0 {
		line += fmt.Sprintf(" target=<=%g", target)
	}
	t.Log(line)
	if *listJudge && target > 0 && ms(took, 0.99) > target {
		t.Errorf("MISSED %s", line)
	}
}

// processorTime returns the time that the process has used on all processors: the cost of a call, independent of
// other load.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func resetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Log("the peak of memory includes what made the runs:", err)
	}
}

func peakMB(t *testing.T) (mb int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &mb); err == nil {
			return mb >> 10
		}
	}
	return 0
}
