package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/run"
)

// Filter selects runs. Empty fields select all.
type Filter struct {
	State     run.State
	ToolID    string
	ProjectID string
	Projects  []string   // any of these; nil: all
	Principal string     // name or id of a requester of the run, or of a former one where it has none
	IDPrefix  string     // what the run's id begins with
	Since     *time.Time // created at or after
	Until     *time.Time // created before
	Sample    string     // of a row of a batch
	Tag       string     // likewise
	Batch     string     // id of a batch that has the run
	Cursor    string     // from the page before
	Limit     int        // 1..500, 50 when 0
}

// Row is a run as a list shows it.
type Row struct {
	ID, ToolID, ProjectID string
	Site                  string
	ExecutedAs            string        // the cluster's Unix user whose job it is; empty: the gateway's own
	Principal             run.Principal // whose call made it; zero: unknown
	State                 run.State
	Phase                 run.Phase
	Reason                string
	JobID, SlurmState     string // empty while unknown
	CreatedAt             time.Time
	FinishedAt            *time.Time
}

// Page is one page of runs, newest first. Cursor is empty on the last.
type Page struct {
	Runs   []Row
	Cursor string
	Total  Total // of all pages
}

// projects returns the projects that a run may belong to; nil: any.
func (f Filter) projects() []string {
	switch {
	case f.ProjectID == "":
		return f.Projects
	case f.Projects == nil || slices.Contains(f.Projects, f.ProjectID):
		return []string{f.ProjectID}
	}
	return []string{}
}

// Columns whose index a list may walk; none: that of times.
const (
	byState   = "state"
	byTool    = "tool_id"
	byProject = "project_id"
	// byPrincipal walks the askings of a principal, by its name and by its id.
	byPrincipal = "principal"
)

// walk returns the column whose index a list walks: of those in the filter, the one with the fewest runs. SQLite
// would guess.
func (f Filter) walk(ctx context.Context, db queryer) (column string, err error) {
	if f.member() != "" {
		return "", nil
	}
	if f.Principal != "" { // of one who asked for more than this the newest runs are found soon whatever is walked
		const q = "SELECT 1 FROM askings WHERE principal = ? UNION ALL SELECT 1 FROM askings WHERE principal_id = ?"
		if n, err := countSome(ctx, db, countedAtMost, q, f.Principal, f.Principal); err != nil || n.Exact {
			return byPrincipal, err
		}
	}
	fewest := int64(-1)
	for _, c := range []struct {
		column string
		values []string
	}{{byState, named(string(f.State))}, {byTool, named(f.ToolID)}, {byProject, f.projects()}} {
		if c.values == nil {
			continue
		}
		in, args := among(c.column, c.values)
		var n int64
		if err := db.QueryRowContext(ctx, "SELECT coalesce(sum(n), 0) FROM run_counts WHERE "+in, args...).Scan(&n); err != nil {
			return "", err
		}
		if fewest < 0 || n < fewest {
			column, fewest = c.column, n
		}
	}
	return column, nil
}

// named returns a list of one value, or nil if it is empty.
func named(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// where returns the filter as SQL, for a list that walks the index of a column. The cursor's place is not in it: the total is of all pages.
func (f Filter) where(by string) (w where) {
	at := "r.created_at"
	if f.member() != "" {
		at = "m.run_at"
	}
	col := func(name string) string {
		if name == by {
			return "r." + name
		}
		return "+r." + name // no index
	}
	switch f.member() { // a row, and each of its tags, has the state of its run
	case "":
		w.is(col(byState), string(f.State))
	case rowMembers:
		w.is("+m.state", string(f.State))
	default:
		w.is("m.state", string(f.State))
	}
	w.is(col(byTool), f.ToolID)
	if p := f.projects(); p != nil && f.member() != "" { // all rows of a batch are in its project
		in, args := among("project_id", p)
		w.add("m.batch_id IN (SELECT batch_id FROM batches WHERE "+in+")", args...)
	} else if len(p) == 1 {
		w.is(col(byProject), p[0])
	} else if p != nil {
		in, args := among(col(byProject), p)
		w.add(in, args...)
	}
	if f.Principal != "" {
		w.add(askedFor("r.run_id"), f.Principal)
	}
	if f.IDPrefix != "" {
		w.begins("r.run_id", f.IDPrefix)
	}
	f.ofBatch(&w)
	if f.Since != nil {
		w.add(at+" >= ?", micros(*f.Since))
	}
	if f.Until != nil {
		w.add(at+" < ?", micros(*f.Until))
	}
	return w
}

// hasStarted is the condition that a run neither waits for outputs of others nor ended while it did.
const hasStarted = "NOT EXISTS (SELECT 1 FROM waits x WHERE x.run_id = r.run_id) AND "

// total counts the runs the filter selects: from run_counts, which has no times; else one by one, to a bound.
func (f Filter) total(ctx context.Context, db queryer, by string) (t Total, err error) {
	w := f.where(by)
	switch {
	case f.member() != "":
		from, most := f.member(), int64(countedAtMost)
		if f.ToolID+f.Principal+f.IDPrefix != "" {
			from += memberRuns
		}
		if f.Batch == "" { // of a batch all are counted: a sheet has no more rows
			most = countedMembers
		}
		return countSome(ctx, db, most, "SELECT 1 FROM "+from+" WHERE "+w.String()+memberGroup, w.args...)
	case f.Principal != "":
		var each []string
		var args []any
		for _, p := range f.parts(byPrincipal) {
			each = append(each, "SELECT * FROM (SELECT DISTINCT r.run_id FROM "+p.from+" WHERE "+hasStarted+p.String()+" LIMIT ?)")
			args = append(append(args, p.args...), countedAtMost+1)
		}
		return countSome(ctx, db, countedAtMost, "SELECT 1 FROM ("+strings.Join(each, " UNION ")+")", args...)
	case f.Since != nil || f.Until != nil || f.IDPrefix != "":
		return countSome(ctx, db, countedAtMost, "SELECT 1 FROM runs r WHERE "+hasStarted+w.String(), w.args...)
	}
	t.Exact = true
	err = db.QueryRowContext(ctx, "SELECT coalesce(sum(n), 0) FROM run_counts r WHERE "+w.String(), w.args...).Scan(&t.N)
	return t, err
}

// List returns one page of runs, newest first.
func (l *Ledger) List(ctx context.Context, f Filter) (p Page, err error) {
	ctx = context.WithoutCancel(ctx)
	limit := pageLimit(f.Limit)
	err = l.snapshot(ctx, func(tx *sql.Tx) error { // the page and the numbers are from the same moment
		by, err := f.walk(ctx, tx)
		if err != nil {
			return err
		}
		if p.Total, err = f.total(ctx, tx, by); err != nil {
			return err
		}
		if p.Total.N == 0 { // the page would search for one
			return nil
		}
		q, args, err := f.page(by, limit+1)
		if err != nil {
			return err
		}
		var packed string
		if err = tx.QueryRowContext(ctx, q, args...).Scan(&packed); err != nil || packed == "" {
			return err
		}
		for line := range strings.SplitSeq(packed, "\x1e") {
			r, err := unpackRow(line)
			if err != nil {
				return err
			}
			p.Runs = append(p.Runs, r)
		}
		slices.SortFunc(p.Runs, func(a, b Row) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID)) })
		return nil // group_concat promises no order
	})
	p.Runs, p.Cursor = page(p.Runs, limit, func(r Row) []any { return []any{micros(r.CreatedAt), r.ID} })
	return p, err
}

// page returns the query of a page.
func (f Filter) page(by string, limit int) (q string, args []any, err error) {
	behind := func(w *where, place string) error {
		var at int64
		var id string
		if f.Cursor == "" {
			return nil
		}
		err := decodeCursor(f.Cursor, &at, &id)
		w.add(place+" < (?, ?)", at, id)
		return err
	}
	if f.member() != "" {
		w := f.where(by)
		err = behind(&w, "(m.run_at, m.run_id)")
		return pageQuery + f.member() + memberRuns + pageFrom + w.String() + memberGroup +
			" ORDER BY m.run_at DESC, m.run_id DESC LIMIT ?)", append(w.args, limit), err
	}
	if parts := f.parts(by); parts != nil {
		var each []string
		for _, p := range parts {
			err = errors.Join(err, behind(&p.where, "(r.created_at, r.run_id)"))
			each = append(each, "SELECT * FROM (SELECT DISTINCT r.created_at, r.run_id FROM "+p.from+" WHERE "+hasStarted+p.String()+
				" ORDER BY r.created_at DESC, r.run_id DESC LIMIT ?)")
			args = append(append(args, p.args...), limit)
		}
		return pageQuery + "(" + strings.Join(each, " UNION ") + " ORDER BY 1 DESC, 2 DESC LIMIT ?) m" + memberRuns + pageFrom + "1)",
			append(args, limit), err
	}
	w := f.where(by)
	err = behind(&w, "(r.created_at, r.run_id)")
	return pageQuery + "runs r" + pageFrom + w.String() + " ORDER BY r.created_at DESC, r.run_id DESC LIMIT ?)", append(w.args, limit), err
}

// part is a list of runs that an index has in the order of time.
type part struct {
	from string
	where
}

// parts returns the lists whose newest runs together are those of the filter, where no single index has them in the
// order of time: one of each project, or of the askings by a principal's name and by its id. nil: one index has them.
func (f Filter) parts(by string) (out []part) {
	switch p := f.projects(); {
	case by == byPrincipal:
		for _, column := range []string{"k.principal", "k.principal_id"} {
			x := part{"askings k CROSS JOIN runs r ON r.run_id = k.thing", f.where(by)}
			x.add(column+" = ?", f.Principal)
			out = append(out, x)
		}
	case by == byProject && len(p) > 1 && len(p) <= mostMerged:
		for _, project := range p {
			one := f
			one.ProjectID, one.Projects = project, nil
			out = append(out, part{"runs r", one.where(by)})
		}
	}
	return out
}

// mostMerged is how many projects' lists are merged; SQLite takes 500.
const mostMerged = 100

// pageQuery makes one text of a page, because the driver's cost is per row and column: of 10,000 runs in pages of 500 it takes 30 ms of
// CPU instead of 50 (BenchmarkTuningList).
const pageQuery = `SELECT coalesce(group_concat(line, char(30)), '') FROM (SELECT
 concat_ws(char(31), r.run_id, r.tool_id, r.project_id, r.site, r.state, r.phase, r.created_at, coalesce(r.finished_at, 0), coalesce(s.job_id, ''),
 a.slurm_state, r.principal, r.principal_id, r.executed_as, replace(r.reason, char(30), ' ')) AS line
 FROM `

const pageFrom = ` JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n LEFT JOIN submissions s ON s.token = a.token WHERE `

// unpackRow reads one run of a page. The reason comes last and may contain anything.
func unpackRow(line string) (Row, error) {
	var field [13]string
	for i := range field {
		field[i], line, _ = strings.Cut(line, "\x1f")
	}
	created, err1 := strconv.ParseInt(field[6], 10, 64)
	finished, err2 := strconv.ParseInt(field[7], 10, 64)
	r := Row{ID: field[0], ToolID: field[1], ProjectID: field[2], Site: field[3], State: run.State(field[4]), Phase: run.Phase(field[5]),
		CreatedAt: time.UnixMicro(created).UTC(), JobID: field[8], SlurmState: field[9],
		Principal: run.Principal{Name: field[10], ID: field[11]}, ExecutedAs: field[12], Reason: line}
	if finished != 0 {
		r.FinishedAt = new(time.UnixMicro(finished).UTC())
	}
	return r, errors.Join(err1, err2)
}
