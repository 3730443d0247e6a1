package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
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

// Waiting lists the runs in one of the phases, oldest first; run.Index has the contract. Terminal runs are never in it.
func (l Index) Waiting(ctx context.Context, after string, limit int, phases ...run.Phase) ([]run.Waiter, error) {
	w := l.inPhases(phases)
	if after != "" {
		w.add("(r.created_at, r.run_id) > (SELECT created_at, run_id FROM runs WHERE run_id = ?)", after)
	}
	if limit <= 0 {
		limit = -1 // none
	}
	return list(ctx, l.r, scanWaiter, "SELECT r.run_id, r.project_id, "+caller+" FROM runs r WHERE "+w.String()+
		" ORDER BY r.created_at, r.run_id LIMIT ?", append(w.args, limit)...)
}

// UserHas reports whether a run that is executed as a user is in one of the phases.
func (l Index) UserHas(ctx context.Context, user string, phases ...run.Phase) (has bool, err error) {
	w := l.inPhases(phases)
	w.add("r.executed_as = ?", user)
	err = l.one(ctx, "SELECT EXISTS (SELECT 1 FROM runs r WHERE "+w.String()+")", w.args...).Scan(&has)
	return has, storage(err)
}

// Open counts the open runs of a project; run.Index has the contract. Calls of service workers take no place of a job.
func (l Index) Open(ctx context.Context, projectID string) (n int64, err error) {
	err = l.one(ctx, "SELECT coalesce(sum(n), 0) - (SELECT count(*) FROM runs WHERE site = '"+run.WorkerSite+"' AND phase <> 'done' "+
		"AND project_id = ?1) FROM run_counts WHERE project_id = ?1 AND state IN ('queued', 'running', 'blocked')", projectID).Scan(&n)
	return n, storage(err)
}

// caller is the column of run.Share.Caller.
const caller = "CASE WHEN r.executed_as <> '' THEN '" + run.UnixPrefix + "' || r.executed_as WHEN r.principal_id <> '' " +
	"THEN r.principal_id ELSE r.principal END"

func scanWaiter(row scanner) (w run.Waiter, err error) {
	err = row.Scan(&w.RunID, &w.Project, &w.Caller)
	return w, err
}

// InPhases reads the runs in one of the phases; run.Index has the contract.
func (l Index) InPhases(ctx context.Context, f func(run.Flying), phases ...run.Phase) error {
	w := l.inPhases(phases)
	return each(ctx, l.r, func(row scanner) error {
		var v run.Flying
		err := row.Scan(&v.RunID, &v.Project, &v.Caller, &v.Tool)
		f(v)
		return err
	}, "SELECT r.run_id, r.project_id, "+caller+", iif(r.pack_hash <> '', r.tool_name, '') FROM runs r WHERE "+w.String(), w.args...)
}

// inPhases returns the condition of the partial index runs_open.
func (l Index) inPhases(phases []run.Phase) (w where) {
	in, args := among("r.phase", phases)
	w.add("r.site = ? AND r.phase <> 'done'", l.site)
	w.add(in, args...)
	return w
}

// Watched reads what the watcher compares; run.Index has the contract. It reads one column per run, because the driver's cost is per
// column: 10,000 runs take 18 ms of CPU, with nine columns 23 ms.
func (l Index) Watched(ctx context.Context, f func(run.Watched), phases ...run.Phase) error {
	w := l.inPhases(phases)
	return each(ctx, l.r, func(row scanner) error {
		fields, err := column[string](row)
		f(watched(fields))
		return err
	}, `SELECT concat_ws(char(31), r.run_id, r.executed_as, r.phase, r.cancel_at IS NOT NULL, a.missed_at IS NOT NULL, r.reason = '`+
		run.JobRenamed+`', a.slurm_state, s.job_name, s.job_id, s.cluster, a.slurm_partition, a.slurm_account, a.slurm_limit,
 a.slurm_why)
 FROM runs r JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n JOIN submissions s ON s.token = a.token WHERE `+w.String(), w.args...)
}

// watched splits such a row. Slurm's reason comes last and may contain anything.
func watched(row string) run.Watched {
	var field [13]string
	for i := range field {
		field[i], row, _ = strings.Cut(row, "\x1f")
	}
	limit, _ := strconv.ParseInt(field[12], 10, 64) // an integer column
	return run.Watched{RunID: field[0], ExecutedAs: field[1], Phase: run.Phase(field[2]), CancelAsked: field[3] == "1",
		Missed: field[4] == "1", Renamed: field[5] == "1",
		SlurmState: field[6], JobName: field[7], JobID: field[8], Cluster: field[9], Partition: field[10], Account: field[11], Limit: limit,
		SlurmWhy: row}
}

// Find returns the run of a request and equivalent ones, newest first, at most ten; run.Index has the contract.
func (l *Ledger) Find(ctx context.Context, s run.Sought) (known string, equivalent []string, err error) {
	q := sought(s)
	found, err := list(context.WithoutCancel(ctx), l.r, column[string], "SELECT iif("+q.own+", '+', '-') || run_id FROM runs WHERE "+q.plans+
		" AND ("+q.own+
		" OR state IN ('queued','running','blocked','succeeded'))"+q.order+" LIMIT 11", q.args...)
	isKnown := len(found) > 0 && found[0][0] == '+'
	for i := range found {
		found[i] = found[i][1:]
	}
	if isKnown {
		return found[0], found[1:], err
	}
	return "", found[:min(len(found), 10)], err
}

// known finds the run of a request within a transaction; "" without one.
func known(ctx context.Context, tx *sql.Conn, s run.Sought) (id string, err error) {
	q := sought(s)
	err = tx.QueryRowContext(ctx, "SELECT run_id FROM runs WHERE "+q.plans+" AND "+q.own+q.order+" LIMIT 1", q.args...).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// soughtQuery is [run.Sought] in SQL.
type soughtQuery struct {
	plans string // the plan of a row is that of the request
	own   string // the row is the request's run
	order string // the run first that the request is known by
	args  []any
}

func sought(s run.Sought) soughtQuery {
	q := soughtQuery{plans: "plan_hash = ?4", args: []any{s.RunID, s.Site, s.PolicyHash, s.PlanHash, s.ExecutedAs}}
	if !s.Shared {
		q.plans += " AND executed_as = ?5"
	}
	q.own = "(executed_as = ?5 AND (run_id = ?1 OR (?2 = '' OR site = ?2) AND plan_hash = ?4 AND policy_hash = ?3))"
	q.order = " ORDER BY " + q.own + " DESC, run_id = ?1 DESC, created_at DESC, run_id"
	return q
}

// Ended reports whether every attempt with this job name has ended. NotFound when this ledger never sent such a job: it belongs to another
// gateway, or was sent after the backup that this ledger was restored from.
func (l *Ledger) Ended(ctx context.Context, jobName string) (bool, error) {
	var attempts, open int
	const q = `SELECT count(*), count(*) FILTER (WHERE a.ending = '') FROM submissions s JOIN attempts a ON a.token = s.token
 WHERE s.job_name = ?1 AND a.run_id = ?2`
	err := l.one(ctx, q, jobName, run.RunOf(jobName)).Scan(&attempts, &open)
	if err == nil && attempts == 0 {
		return false, fault.New(fault.NotFound, "job_not_found", "this ledger has no job "+jobName)
	}
	return open == 0, storage(err)
}

// Voided returns the time at which the newest attempt since then ended as absent, or as cancelled after a send;
// run.Index has the contract.
func (l Index) Voided(ctx context.Context, since time.Time) (at *time.Time, err error) {
	err = l.one(ctx, `SELECT max(ended_at) FROM attempts a WHERE ended_at >= ? AND ending IN ('absent','cancelled')
 AND EXISTS (SELECT 1 FROM sends k WHERE k.token = a.token) AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = a.run_id AND r.site = ?)`, micros(since), l.site).
		Scan(into{&at})
	return at, storage(err)
}

// Outputs lists the outputs of a run's current attempt with their artifacts, by role.
func (l *Ledger) Outputs(ctx context.Context, runID string) ([]run.Output, error) {
	return list(ctx, l.r, scanLinked, outputsQuery, runID, nil)
}

// Declared lists the declared outputs of several runs' current attempts with their artifacts, by run, and of each by role.
func (l *Ledger) Declared(ctx context.Context, runIDs []string) (map[string][]run.Output, error) {
	ids, err := json.Marshal(runIDs)
	if err != nil {
		return nil, err
	}
	out := map[string][]run.Output{}
	err = each(context.WithoutCancel(ctx), l.r, func(row scanner) (err error) {
		var id string
		o, err := scanLinked(behind{row, &id})
		out[id] = append(out[id], o)
		return err
	}, `SELECT o.run_id, o.role, o.relpath, `+artifactColumns+` FROM (SELECT DISTINCT value FROM json_each(?)) j
 CROSS JOIN run_outputs o ON o.run_id = j.value JOIN runs r ON r.run_id = o.run_id AND r.attempt_n = o.attempt_n JOIN artifacts a ON a.artifact_id = o.artifact_id
 WHERE o.relpath <> '' ORDER BY o.run_id, o.role`, string(ids))
	return out, err
}

// behind scans a row that has a column before those that are asked for.
type behind struct {
	row   scanner
	first any
}

func (b behind) Scan(into ...any) error { return b.row.Scan(append([]any{b.first}, into...)...) }

// Inputs lists a run's inputs with their artifacts, by role and destination.
func (l *Ledger) Inputs(ctx context.Context, runID string) ([]run.Output, error) {
	return list(ctx, l.r, scanLinked, inputsQuery, runID)
}

// outputsQuery finds the outputs of one attempt; without a number, of the latest.
const outputsQuery = `SELECT o.role, o.relpath, ` + artifactColumns + ` FROM run_outputs o JOIN artifacts a ON a.artifact_id = o.artifact_id
 WHERE o.run_id = ?1 AND o.attempt_n = coalesce(?2, (SELECT attempt_n FROM runs WHERE run_id = ?1)) ORDER BY o.role`

const inputsQuery = `SELECT i.role, i.relpath, ` + artifactColumns +
	` FROM run_inputs i JOIN artifacts a ON a.artifact_id = i.artifact_id WHERE i.run_id = ? ORDER BY i.role, i.relpath`

func scanLinked(row scanner) (o run.Output, err error) {
	err = row.Scan(append([]any{&o.Role, &o.Relpath}, artifactFields(&o.Artifact)...)...)
	o.ArtifactID = o.Artifact.ID
	return o, err
}

// Sends lists the sends of a submission in order.
func (l *Ledger) Sends(ctx context.Context, token string) ([]run.Send, error) {
	return sends(ctx, l.r, token)
}

func sends(ctx context.Context, q queryer, token string) ([]run.Send, error) {
	return list(ctx, q, func(row scanner) (s run.Send, err error) {
		err = row.Scan(&s.Token, &s.K, into{&s.StartedAt}, into{&s.EndedAt}, &s.Outcome, &s.ExitCode, &s.Text)
		return s, err
	}, "SELECT token, k, started_at, ended_at, outcome, exit_code, text FROM sends WHERE token = ? ORDER BY k", token)
}
