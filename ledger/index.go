package ledger

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Index has the queries of one site's engine: it sees the runs of that site alone.
type Index struct {
	*Ledger
	site string
}

// Index returns the queries of a site's engine.
func (l *Ledger) Index(site string) Index { return Index{l, site} }

// Waiting lists the ids of runs in one of the phases, oldest first; run.Index has the contract. Terminal runs are never in it.
func (l Index) Waiting(ctx context.Context, after string, limit int, phases ...run.Phase) ([]string, error) {
	in, args := l.inPhases(phases)
	q := "SELECT r.run_id FROM runs r WHERE " + in
	if after != "" {
		q += " AND (r.created_at, r.run_id) > (SELECT created_at, run_id FROM runs WHERE run_id = ?)"
		args = append(args, after)
	}
	q += " ORDER BY r.created_at, r.run_id"
	if limit > 0 {
		q += " LIMIT ?"
		args = append(args, limit)
	}
	return l.strings(ctx, q, args...)
}

// OfTool lists the ids of a toolpack's runs in one of the phases; run.Index has the contract.
func (l Index) OfTool(ctx context.Context, toolName string, phases ...run.Phase) ([]string, error) {
	in, args := l.inPhases(phases)
	return l.strings(ctx, "SELECT r.run_id FROM runs r WHERE "+in+" AND r.tool_name = ? AND r.pack_hash <> ''", append(args, toolName)...)
}

// inPhases is the condition of the partial index runs_open.
func (l Index) inPhases(phases []run.Phase) (cond string, args []any) {
	args = append(args, l.site)
	for _, p := range phases {
		args = append(args, p)
	}
	return "r.site = ? AND r.phase <> 'done' AND r.phase IN (?" + strings.Repeat(",?", len(phases)-1) + ")", args
}

// Watched reads what the watcher compares; run.Index has the contract. It reads one column per run, because the driver's cost is per
// column.
func (l Index) Watched(ctx context.Context, f func(run.Watched), phases ...run.Phase) error {
	in, args := l.inPhases(phases)
	rows, err := l.r.QueryContext(ctx, `SELECT concat_ws(char(31), r.run_id, r.phase, r.cancel_at IS NOT NULL, a.missed_at IS NOT NULL, a.slurm_state, s.job_name, s.job_id, s.cluster, a.slurm_why)
 FROM runs r JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n JOIN submissions s ON s.token = a.token WHERE `+in, args...)
	if err != nil {
		return storage(err)
	}
	defer rows.Close()
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			return storage(err)
		}
		f(watched(row))
	}
	return storage(rows.Err())
}

// watched splits such a row. Slurm's reason comes last and may contain anything.
func watched(row string) run.Watched {
	var field [8]string
	for i := range field {
		field[i], row, _ = strings.Cut(row, "\x1f")
	}
	return run.Watched{RunID: field[0], Phase: run.Phase(field[1]), CancelAsked: field[2] == "1", Missed: field[3] == "1",
		SlurmState: field[4], JobName: field[5], JobID: field[6], Cluster: field[7], SlurmWhy: row}
}

// Filter selects runs. Empty fields select all.
type Filter struct {
	State     run.State
	ToolID    string
	ProjectID string
	Projects  []string   // any of these; nil: all
	Since     *time.Time // created at or after
	Until     *time.Time // created before
	Cursor    string     // from the page before
	Limit     int        // 1..500, 50 when 0
}

// Row is a run as a list shows it.
type Row struct {
	ID, ToolID, ProjectID string
	Site                  string
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
	Seq    int64 // number of the newest event: the page shows the state at that event
	Total  Total // of all pages
}

// conditions returns the filter as SQL. The cursor's place is not in it: the total is of all pages.
func (f Filter) conditions() (where string, args []any) {
	conds := []string{"1"}
	add := func(cond string, v ...any) {
		conds, args = append(conds, cond), append(args, v...)
	}
	if f.State != "" {
		add("r.state = ?", f.State)
	}
	if f.ToolID != "" {
		add("r.tool_id = ?", f.ToolID)
	}
	if f.ProjectID != "" {
		add("r.project_id = ?", f.ProjectID)
	}
	if f.Projects != nil {
		cond, v := among("r.project_id", f.Projects)
		add(cond, v...)
	}
	if f.Since != nil {
		add("r.created_at >= ?", micros(*f.Since))
	}
	if f.Until != nil {
		add("r.created_at < ?", micros(*f.Until))
	}
	return strings.Join(conds, " AND "), args
}

// total counts the runs the filter selects: from run_counts, which knows no times; by the index of times alone; else one by one, to a
// bound.
func (f Filter) total(ctx context.Context, db queryer) (t Total, err error) {
	where, args := f.conditions()
	all := f.State == "" && f.ToolID+f.ProjectID == "" && f.Projects == nil
	switch {
	case f.Since == nil && f.Until == nil:
		t.Exact = true
		err = db.QueryRowContext(ctx, "SELECT coalesce(sum(n), 0) FROM run_counts r WHERE "+where, args...).Scan(&t.N)
	case all:
		t.Exact = true
		err = db.QueryRowContext(ctx, "SELECT count(*) FROM runs r WHERE "+where, args...).Scan(&t.N)
	default:
		t, err = countSome(ctx, db, "SELECT 1 FROM runs r WHERE "+where, args...)
	}
	return t, err
}

// List returns one page of runs, newest first.
func (l *Ledger) List(ctx context.Context, f Filter) (Page, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, 500)
	where, args := f.conditions()
	if f.Cursor != "" {
		at, id, err := decodeCursor(f.Cursor)
		if err != nil {
			return Page{}, err
		}
		where, args = where+" AND (r.created_at, r.run_id) < (?, ?)", append(args, at, id)
	}
	// One read transaction: the page and the numbers are from the same moment.
	tx, err := l.r.BeginTx(brief(ctx), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return Page{}, storage(err)
	}
	defer tx.Rollback()
	p := Page{Runs: make([]Row, 0, f.Limit)}
	if err := tx.QueryRowContext(brief(ctx), "SELECT coalesce(max(seq), 0) FROM events").Scan(&p.Seq); err != nil {
		return Page{}, storage(err)
	}
	if p.Total, err = f.total(ctx, tx); err != nil {
		return Page{}, storage(err)
	}
	rows, err := tx.QueryContext(ctx, rowQuery+"WHERE "+where+" ORDER BY r.created_at DESC, r.run_id DESC LIMIT ?", append(args, f.Limit+1)...)
	if err != nil {
		return Page{}, storage(err)
	}
	defer rows.Close()
	for rows.Next() {
		if len(p.Runs) == f.Limit {
			last := p.Runs[f.Limit-1]
			p.Cursor = encodeCursor(micros(last.CreatedAt), last.ID)
			break
		}
		var text string
		if err := rows.Scan(&text); err != nil {
			return Page{}, storage(err)
		}
		r, err := row(text)
		if err != nil {
			return Page{}, err
		}
		p.Runs = append(p.Runs, r)
	}
	return p, storage(rows.Err())
}

// rowQuery returns a run of a list as one column, see Watched.
const rowQuery = `SELECT concat_ws(char(31), r.run_id, r.tool_id, r.project_id, r.site, r.state, r.phase, r.created_at, coalesce(r.finished_at, ''), coalesce(s.job_id, ''), a.slurm_state, r.reason)
 FROM runs r JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n LEFT JOIN submissions s ON s.token = a.token `

// row splits such a column. The reason comes last and may contain anything.
func row(text string) (Row, error) {
	var field [10]string
	for i := range field {
		field[i], text, _ = strings.Cut(text, "\x1f")
	}
	created, err := strconv.ParseInt(field[6], 10, 64)
	var finished sql.NullInt64
	if err == nil && field[7] != "" {
		finished.Valid = true
		finished.Int64, err = strconv.ParseInt(field[7], 10, 64)
	}
	if err != nil {
		return Row{}, fault.Wrap(fault.Internal, "ledger.List", "ledger_corrupt", "a run of the list cannot be read", err)
	}
	return Row{ID: field[0], ToolID: field[1], ProjectID: field[2], Site: field[3], State: run.State(field[4]),
		Phase: run.Phase(field[5]), CreatedAt: time.UnixMicro(created).UTC(), FinishedAt: optTime(finished), JobID: field[8],
		SlurmState: field[9], Reason: text}, nil
}

// among is the condition that a column has one of the values; with no values it is never true.
func among(column string, values []string) (cond string, args []any) {
	if len(values) == 0 {
		return "0", nil
	}
	for _, v := range values {
		args = append(args, v)
	}
	return column + " IN (?" + strings.Repeat(",?", len(values)-1) + ")", args
}

func encodeCursor(at int64, id string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", at, id))
}

func decodeCursor(s string) (at int64, id string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%d %s", &at, &id)
	}
	if err != nil {
		return 0, "", fault.Invalid("ledger.List", "", fault.Problem{Code: "LIST-CURSOR", Field: "cursor",
			Rule: "a cursor of an earlier page", Msg: "it is not a cursor", Hint: "leave the cursor out to start from the beginning"})
	}
	return at, id, nil
}

// Find looks for the run of a request and for equivalent ones, newest first, at most ten; run.Index has the contract.
func (l *Ledger) Find(ctx context.Context, s run.Sought) (known string, equivalent []string, err error) {
	plans, args := among("plan_hash", s.PlanHashes)
	own, ids := among("run_id", append([]string{s.RunID}, s.Earlier...))
	args = append(append(append(args, ids...), ids...), s.RunID)
	found, err := l.strings(brief(ctx), "SELECT run_id FROM runs WHERE "+plans+" AND ("+own+
		" OR state IN ('queued','running','blocked','succeeded'))"+
		" ORDER BY "+own+" DESC, run_id = ?, created_at DESC, run_id LIMIT 11", args...)
	if len(found) > 0 && (found[0] == s.RunID || slices.Contains(s.Earlier, found[0])) {
		return found[0], found[1:], err
	}
	return "", found[:min(len(found), 10)], err
}

// PreviousPolicies hands the snapshots to f, by their hashes, of policies that runs were made under when canonical params had their
// previous form. none tells that there are no such runs.
func (l *Ledger) PreviousPolicies(ctx context.Context, f func(hash string, snapshot json.RawMessage) error) (none bool, err error) {
	rows, err := l.r.QueryContext(ctx, "SELECT policy_hash, snapshot FROM policies WHERE previous = 1 ORDER BY created_at")
	if err != nil {
		return false, storage(err)
	}
	defer rows.Close()
	none = true
	for rows.Next() {
		var hash, snapshot string
		if err := rows.Scan(&hash, &snapshot); err != nil {
			return false, storage(err)
		}
		if err := f(hash, json.RawMessage(snapshot)); err != nil {
			return false, err
		}
		none = false
	}
	return none, storage(rows.Err())
}

// Ended reports whether every attempt with this job name has ended. NotFound when this ledger never sent such a job: it belongs to another
// gateway, or was sent after the backup that this ledger was restored from.
func (l *Ledger) Ended(ctx context.Context, jobName string) (bool, error) {
	var attempts, open int
	// A single job has its run in its name; a task of an array is identified by its token.
	const q = `SELECT count(*), count(*) FILTER (WHERE ending = '') FROM (
 SELECT a.ending FROM submissions s JOIN attempts a ON a.token = s.token WHERE s.job_name = ?1 AND a.run_id = ?2 AND a.array_task IS NULL
 UNION ALL SELECT a.ending FROM submissions s JOIN attempts a ON a.token = s.token WHERE s.job_name = ?1 AND a.array_task IS NOT NULL)`
	err := l.r.QueryRowContext(brief(ctx), q, jobName, run.RunOf(jobName)).Scan(&attempts, &open)
	if err == nil && attempts == 0 {
		return false, fault.New(fault.NotFound, "ledger.Ended", "job_not_found", "this ledger has no job "+jobName)
	}
	return open == 0, storage(err)
}

// Voided is when the newest attempt since then ended as absent, or as cancelled after a send; run.Index has the contract.
func (l Index) Voided(ctx context.Context, since time.Time) (*time.Time, error) {
	var at sql.NullInt64
	err := l.r.QueryRowContext(brief(ctx), `SELECT max(ended_at) FROM attempts a WHERE ended_at >= ? AND ending IN ('absent','cancelled')
 AND EXISTS (SELECT 1 FROM sends k WHERE k.token = a.token) AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = a.run_id AND r.site = ?)`,
		micros(since), l.site).Scan(&at)
	return optTime(at), storage(err)
}

func (l *Ledger) strings(ctx context.Context, q string, args ...any) ([]string, error) {
	rows, err := l.r.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, storage(err)
		}
		out = append(out, s)
	}
	return out, storage(rows.Err())
}

// Outputs lists the outputs of a run's current attempt with their artifacts, by role.
func (l *Ledger) Outputs(ctx context.Context, runID string) ([]run.Output, error) {
	return l.linked(ctx, `SELECT o.role, o.relpath, `+artifactColumns+
		` FROM run_outputs o JOIN runs r ON r.run_id = o.run_id AND r.attempt_n = o.attempt_n
 JOIN artifacts a ON a.artifact_id = o.artifact_id WHERE o.run_id = ? ORDER BY o.role`, runID)
}

// Inputs lists a run's inputs with their artifacts, by role and destination.
func (l *Ledger) Inputs(ctx context.Context, runID string) ([]run.Output, error) {
	return l.linked(ctx, `SELECT i.role, i.relpath, `+artifactColumns+` FROM run_inputs i JOIN artifacts a ON a.artifact_id = i.artifact_id
 WHERE i.run_id = ? ORDER BY i.role, i.relpath`, runID)
}

func (l *Ledger) linked(ctx context.Context, q, runID string) ([]run.Output, error) {
	rows, err := l.r.QueryContext(ctx, q, runID)
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	var out []run.Output
	for rows.Next() {
		var o run.Output
		if o.Artifact, err = scanArtifact(rows, &o.Role, &o.Relpath); err != nil {
			return nil, storage(err)
		}
		o.ArtifactID = o.Artifact.ID
		out = append(out, o)
	}
	return out, storage(rows.Err())
}

// Sends lists the sends of a submission in order.
func (l *Ledger) Sends(ctx context.Context, token string) ([]run.Send, error) {
	rows, err := l.r.QueryContext(ctx, "SELECT token, k, started_at, ended_at, outcome, exit_code, text FROM sends WHERE token = ? ORDER "+
		"BY k", token)
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	var out []run.Send
	for rows.Next() {
		var s run.Send
		var started int64
		var ended, exit sql.NullInt64
		if err := rows.Scan(&s.Token, &s.K, &started, &ended, &s.Outcome, &exit, &s.Text); err != nil {
			return nil, storage(err)
		}
		s.StartedAt, s.EndedAt, s.ExitCode = time.UnixMicro(started).UTC(), optTime(ended), optInt(exit)
		out = append(out, s)
	}
	return out, storage(rows.Err())
}
