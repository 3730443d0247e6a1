package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/run"
)

// A page and a total read what they show and count, not the whole ledger: SQLite walks an index for each, in the order of the page.
func TestListsWalkIndexes(t *testing.T) {
	l := fresh(t)
	plan := func(q string, args ...any) string {
		t.Helper()
		lines, err := list(t.Context(), l.r, func(row scanner) (s string, err error) {
			var id, parent, unused int
			err = row.Scan(&id, &parent, &unused, &s)
			return s, err
		}, "EXPLAIN QUERY PLAN "+q, args...)
		must(t, err)
		return strings.Join(lines, "\n")
	}
	states := map[string]string{"tag, state": "COVERING INDEX batch_tags_state (tag=? AND state=?",
		"batch, state": "COVERING INDEX batch_rows_at (batch_id=?", "state of all": "COVERING INDEX runs_state (state=? AND created_at>?"}
	cursor := encodeCursor(5, "run_A")
	since := new(t0)
	for name, c := range map[string]struct {
		f  Filter
		by string
	}{
		"all":           {Filter{}, ""},
		"time":          {Filter{Since: since, Until: since}, ""},
		"state":         {Filter{State: run.Failed}, byState},
		"tool":          {Filter{ToolID: "t"}, byTool},
		"project":       {Filter{Projects: []string{"p"}}, byProject},
		"projects":      {Filter{Projects: []string{"p", "q"}}, byProject},
		"state of all":  {Filter{State: run.Failed, ToolID: "t", Projects: []string{"p", "q"}, Since: since}, byState},
		"tool of all":   {Filter{State: run.Failed, ToolID: "t", Projects: []string{"p", "q"}, Since: since}, byTool},
		"projects best": {Filter{State: run.Failed, ToolID: "t", Projects: []string{"p", "q"}, Since: since}, byProject},
		"sample":        {Filter{Sample: "s", Projects: []string{"p"}}, ""},
		"sample, tag":   {Filter{Sample: "s", Tag: "t", Projects: []string{"p"}}, ""},
		"tag":           {Filter{Tag: "t", Projects: []string{"p"}, Since: since}, ""},
		"tag, state":    {Filter{Tag: "t", State: run.Failed}, ""},
		"batch":         {Filter{Batch: "b"}, ""},
		"batch, state":  {Filter{Batch: "b", State: run.Failed, Projects: []string{"p"}}, ""},
		"batch, tag":    {Filter{Batch: "b", Tag: "t"}, ""},
	} {
		c.f.Cursor = cursor
		q, args, err := c.f.page(c.by, 50)
		must(t, err)
		_, inner, _ := strings.Cut(plan(q, args...), "\n")
		for line := range strings.Lines(inner) {
			merged := c.by == byProject && len(c.f.Projects) > 1
			walksAll := strings.HasPrefix(line, "SCAN r") && !strings.Contains(line, "INDEX runs_created") || strings.HasPrefix(line, "SCAN m\n")
			if walksAll && !merged || strings.Contains(line, "TEMP B-TREE") && !merged && !strings.Contains(line, "LIST SUBQUERY") {
				t.Errorf("%s: %s", name, inner)
				break
			}
		}
		if index := states[name]; index != "" {
			c.f.Cursor = ""
			count := &noted{queryer: l.r}
			_, err := c.f.total(t.Context(), count, c.by)
			must(t, err)
			for what, got := range map[string]string{"page": inner, "count": plan(count.q, count.args...)} {
				want := index
				if what == "page" && c.f.member() == "" { // what it shows of a run is in the table
					want = "INDEX runs_state (state=?"
				}
				if !strings.Contains(got, want) {
					t.Errorf("%s: its %s does not read what it asks for in the index: %s", name, what, got)
				}
			}
		}
		w := c.f.where(c.by)
		if c.f.member() == "" {
			for line := range strings.Lines(plan("SELECT 1 FROM runs r WHERE "+w.String(), w.args...)) {
				if strings.HasPrefix(line, "SCAN") && name != "all" {
					t.Errorf("%s: counting: %s", name, line)
				}
			}
		}
	}
}

// Whatever index a list walks, its pages together are the runs that the filter selects, each once and the newest
// first, and the total is their number.
//
// proves MANY-01
func TestListsAreComplete(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	const n = 60
	var rows []BatchRow
	for i := range n {
		tags := []string{"all"}
		if i%3 == 0 {
			tags = append(tags, "third")
		}
		rows = append(rows, BatchRow{N: i + 2, Sample: fmt.Sprint("S", i%7), Tags: tags, Args: json.RawMessage(`{}`)})
	}
	_, _, err := l.NewBatch(ctx, Batch{ID: "batch_a", ProjectID: project, Name: "a", ToolID: "t.x", ToolVersion: "1.0.0", RowsHash: "h",
		Caller: json.RawMessage(`{}`)}, rows)
	must(t, err)
	var all []run.Run
	for i := range n {
		r := newRun(i)
		r.Run.ToolID = fmt.Sprint("t.", i%4)
		if i%5 == 0 {
			r.Run.ProjectID = "proj_" + strings.Repeat("7", 26)
		}
		v, created, err := l.Insert(ctx, r)
		if must(t, err); !created {
			t.Fatal("a run is there already")
		}
		if i%4 == 0 {
			v = finish(t, l, v)
		}
		must(t, l.RowIsRun(ctx, run.RowRef{BatchID: "batch_a", N: i + 2}, v.Run.ID))
		if i%4 == 2 {
			v = finish(t, l, v)
		}
		if i%2 == 1 { // by calls and by two batches
			for _, batch := range []string{"", "batch_a", "batch_b"} {
				who := run.Asking{Principal: run.Principal{Name: "user:eve", ID: "prn_E"}, Batch: batch}
				_, err := l.AskFor(ctx, v.Run.ID, who, nil)
				must(t, err)
			}
		}
		all = append(all, v.Run)
	}
	mid := all[n/2].CreatedAt
	other := "proj_" + strings.Repeat("7", 26)
	for name, c := range map[string]struct {
		f  Filter
		is func(i int, r *run.Run) bool
	}{
		"all":      {Filter{}, func(int, *run.Run) bool { return true }},
		"state":    {Filter{State: run.Succeeded}, func(_ int, r *run.Run) bool { return r.State == run.Succeeded }},
		"tool":     {Filter{ToolID: "t.3"}, func(i int, _ *run.Run) bool { return i%4 == 3 }},
		"project":  {Filter{ProjectID: other}, func(i int, _ *run.Run) bool { return i%5 == 0 }},
		"projects": {Filter{Projects: []string{other, project}}, func(int, *run.Run) bool { return true }},
		"none":     {Filter{Projects: []string{}}, func(int, *run.Run) bool { return false }},
		"both": {Filter{Projects: []string{other, project}, ProjectID: other, State: run.Queued}, func(i int, r *run.Run) bool {
			return i%5 == 0 && r.State == run.Queued
		}},
		"not theirs": {Filter{Projects: []string{project}, ProjectID: other}, func(int, *run.Run) bool { return false }},
		"much": {Filter{Projects: []string{other, project}, State: run.Queued, ToolID: "t.1", Since: &mid}, func(i int, r *run.Run) bool {
			return i%4 == 1 && r.State == run.Queued && !r.CreatedAt.Before(mid)
		}},
		"until":       {Filter{Until: &mid}, func(_ int, r *run.Run) bool { return r.CreatedAt.Before(mid) }},
		"sample":      {Filter{Sample: "S3", Projects: []string{project}}, func(i int, _ *run.Run) bool { return i%7 == 3 }},
		"tag":         {Filter{Tag: "third", Until: &mid}, func(i int, r *run.Run) bool { return i%3 == 0 && r.CreatedAt.Before(mid) }},
		"tag, state":  {Filter{Tag: "all", State: run.Queued}, func(_ int, r *run.Run) bool { return r.State == run.Queued }},
		"tag, ended":  {Filter{Tag: "third", State: run.Succeeded}, func(i int, _ *run.Run) bool { return i%6 == 0 }},
		"of a batch":  {Filter{Batch: "batch_a", State: run.Succeeded}, func(i int, _ *run.Run) bool { return i%2 == 0 }},
		"sample, tag": {Filter{Tag: "third", Sample: "S0"}, func(i int, _ *run.Run) bool { return i%21 == 0 }},
		"batch":       {Filter{Batch: "batch_a", ToolID: "t.2"}, func(i int, _ *run.Run) bool { return i%4 == 2 }},
		"principal":   {Filter{Principal: "user:eve"}, func(i int, _ *run.Run) bool { return i%2 == 1 }},
		"id, project": {Filter{Principal: "prn_E", ProjectID: other}, func(i int, _ *run.Run) bool { return i%10 == 5 }},
		"no batch":    {Filter{Batch: "batch_a", Projects: []string{other}}, func(int, *run.Run) bool { return false }},
	} {
		var want, got []string
		for i := range all {
			if r := &all[i]; c.is(i, r) {
				want = append(want, r.ID)
			}
		}
		made := func(id string) time.Time {
			return all[slices.IndexFunc(all, func(r run.Run) bool { return r.ID == id })].CreatedAt
		}
		slices.SortFunc(want, func(a, b string) int { return cmp.Or(made(b).Compare(made(a)), strings.Compare(b, a)) })
		total := int64(-1)
		for f := (c.f); ; {
			f.Limit = 7
			p, err := l.List(ctx, f)
			must(t, err)
			for _, r := range p.Runs {
				got = append(got, r.ID)
			}
			total = p.Total.N
			if f.Cursor = p.Cursor; f.Cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) || total != int64(len(want)) {
			t.Errorf("%s: %d of %d runs, total %d\n%v\n%v", name, len(got), len(want), total, got, want)
		}
	}
}

// noted notes the last query for one row.
type noted struct {
	queryer
	q    string
	args []any
}

func (n *noted) QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row {
	n.q, n.args = q, args
	return n.queryer.QueryRowContext(ctx, q, args...)
}
