package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// WaitingRun is a run that waits for outputs of others, or that did. No engine knows it. Once its inputs are there it is another name of
// the run that its call then makes or finds.
type WaitingRun struct {
	ID, ProjectID         string
	ToolID, ToolName      string
	ToolVersion, Contract string
	PolicyHash            string
	ParamsHash            string
	Params                json.RawMessage // canonical, with the promises
	Args                  json.RawMessage // canonical: of the call that asked for it
	Caller                json.RawMessage // with whose rights the call is made again
	Actor                 string
	Principal             run.Principal
	ExecutedAs            string
	State                 WaitingState
	Became                string // the run it is; empty until it has started
	AttemptN              int    // how often it was set waiting
	Code, Message         string // why it failed or was cancelled, or cannot start for now
	ApprovalID            string // of the batch that it is a row of; empty: of none, or none was needed
	Tries                 int    // with errors that nobody expects, since it was set waiting
	CreatedAt, UpdatedAt  time.Time
	FinishedAt            *time.Time
}

// WaitingState is what becomes of a run that waits.
type WaitingState string

// The states. One that failed or was cancelled may be set waiting again.
const (
	WaitingOn        WaitingState = "waiting"
	WaitingStarted   WaitingState = "started"
	WaitingFailed    WaitingState = "failed"
	WaitingCancelled WaitingState = "cancelled"
)

// WaitingSource is what a run waits for, and how that is.
type WaitingSource struct {
	plan.Promise
	State   run.State // of the run, or of the one that it became
	Phase   run.Phase
	Reason  string
	Attempt int
	Actual  string // the run that it became, or RunID itself
	Removed string // the removal that took what the run made
}

// Over reports whether nothing more happens to it by itself.
func (s WaitingSource) Over() bool { return s.State.Terminal() }

// Broken reports whether the output will not come.
func (s WaitingSource) Broken() bool {
	return s.State == run.Failed || s.State == run.Cancelled || s.State == run.Succeeded && s.Removed != ""
}

const waitingColumns = `w.run_id, w.project_id, w.tool_id, w.tool_name, w.tool_version, w.contract_version, w.policy_hash, w.params_hash, w.params, w.args, w.caller,
 w.actor, w.principal, w.principal_id, w.executed_as, w.state, w.became, w.attempt_n, w.code, w.message, w.tries, w.created_at, w.updated_at, w.finished_at,
 w.approval_id FROM waiting_runs w`

func scanWaiting(row scanner) (w WaitingRun, err error) {
	err = row.Scan(&w.ID, &w.ProjectID, &w.ToolID, &w.ToolName, &w.ToolVersion, &w.Contract, &w.PolicyHash, &w.ParamsHash, into{&w.Params},
		into{&w.Args}, into{&w.Caller}, &w.Actor, &w.Principal.Name, &w.Principal.ID, &w.ExecutedAs, &w.State, into{&w.Became}, &w.AttemptN,
		&w.Code, &w.Message, &w.Tries, into{&w.CreatedAt}, into{&w.UpdatedAt}, into{&w.FinishedAt}, &w.ApprovalID)
	return w, err
}

func waitingRun(ctx context.Context, q queryer, id string) (WaitingRun, error) {
	w, err := scanWaiting(q.QueryRowContext(ctx, "SELECT "+waitingColumns+" WHERE w.run_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return w, noRun(id)
	}
	return w, storage(err)
}

// Waiting reads a run that waits or did. NotFound when there is none with this id.
func (l *Ledger) Waiting(ctx context.Context, id string) (WaitingRun, error) {
	if l.owners.find(id).isRun {
		return WaitingRun{}, noRun(id)
	}
	return waitingRun(context.WithoutCancel(ctx), l.r, id)
}

// AddWaiting stores a run that waits for the outputs of others and takes artifacts beside them, or returns the one that has its id. most
// bounds how many may wait in its project.
func (l *Ledger) AddWaiting(ctx context.Context, w WaitingRun, sources []plan.Promise, artifacts []string, most int64) (
	stored WaitingRun, created bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		created = false
		if stored, err = waitingRun(ctx, tx, w.ID); err == nil {
			_, err := tx.ExecContext(ctx, `UPDATE waiting_runs SET others = 1 WHERE run_id = ? AND state = 'waiting' AND (principal, principal_id) <> (?, ?)`,
				w.ID, w.Principal.Name, w.Principal.ID)
			if err == nil && w.ApprovalID != "" { // a batch of the same caller was approved, and has this run among its rows
				_, err = tx.ExecContext(ctx, `UPDATE waiting_runs SET approval_id = ?, due = 1, due_at = 0
 WHERE run_id = ? AND state = 'waiting' AND principal_id = ?`,
					w.ApprovalID, w.ID, w.Principal.ID)
			}
			return err
		} else if !fault.Is(err, fault.NotFound) {
			return err
		}
		var open int64
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM waiting_runs WHERE project_id = ? AND state = 'waiting'", w.ProjectID).
			Scan(&open); err != nil {
			return err
		}
		if open >= most {
			return fault.New(fault.Transport, "too_many_runs",
				fmt.Sprintf("%d runs of the project wait for outputs of others, which is as many as this site allows", open)).
				WithNext("submit again when some have started, or cancel some").WithRetry(run.LongWait)
		}
		now := micros(l.now())
		if _, err := tx.ExecContext(ctx, `INSERT INTO waiting_runs (run_id, project_id, tool_id, tool_name, tool_version, contract_version, policy_hash, params_hash,
 params, args, caller, actor, principal, principal_id, executed_as, approval_id, state, attempt_n, due, created_at, updated_at)
 VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,'waiting',1,1,?,?)`, w.ID, w.ProjectID, w.ToolID, w.ToolName, w.ToolVersion, w.Contract,
			w.PolicyHash, w.ParamsHash, string(w.Params), string(w.Args), string(w.Caller), w.Actor, w.Principal.Name, w.Principal.ID, w.ExecutedAs,
			w.ApprovalID, now, now); err != nil {
			return err
		}
		var of []string
		for _, p := range sources {
			of = append(of, p.String())
			if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO waiting_inputs VALUES (?,?,?)", w.ID, p.RunID, p.Role); err != nil {
				return err
			}
		}
		for _, id := range artifacts {
			if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO waiting_artifacts VALUES (?,?)", w.ID, id); err != nil {
				return err
			}
		}
		created = true
		if stored, err = waitingRun(ctx, tx, w.ID); err != nil {
			return err
		}
		err = l.appendEvent(ctx, tx, w.ID, run.Event{Type: "run.waiting", Data: map[string]any{"tool_id": w.ToolID,
			"params_hash": w.ParamsHash,
			"policy_hash": w.PolicyHash, "actor": w.Actor, "principal": w.Principal.Name, "principal_id": w.Principal.ID, "waits_for": of}})
		return err
	})
	return stored, created && err == nil, err
}

// started records within a transaction which run a waiting one is from now on: in the transaction that makes or finds that run, so that
// one content is one run whoever comes first. A run that does not wait any more is a Conflict, and the transaction is undone.
func (l *Ledger) started(ctx context.Context, tx *sql.Conn, id, runID string) error {
	w, err := waitingRun(ctx, tx, id)
	if err != nil || w.Became == runID {
		return err
	}
	if w.State != WaitingOn {
		return fault.New(fault.Conflict, "not_waiting", fmt.Sprintf("%s does not wait any more: it is %s", id, w.State)).
			WithSteps(fault.Do("slurm.job.get", "run_id", id))
	}
	if _, err := tx.ExecContext(ctx,
		"UPDATE waiting_runs SET state = 'started', became = ?, due = 0, code = '', message = '', updated_at = ?, finished_at = ? "+
			"WHERE run_id = ?", runID, micros(l.now()), micros(l.now()), id); err != nil {
		return err
	}
	err = l.appendEvent(ctx, tx, id, run.Event{Type: "run.started_as", Data: map[string]any{"run_id": runID}})
	return err
}

// StartWaiting records which run a waiting one is from now on, where that run was there already. Repeating it changes nothing.
func (l *Ledger) StartWaiting(ctx context.Context, id, runID string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error { return l.started(ctx, tx, id, runID) })
}

// EndWaiting ends a run that waits, as failed or cancelled. One that does not wait is left as it is.
func (l *Ledger) EndWaiting(ctx context.Context, id string, state WaitingState, code, message string) (WaitingRun, error) {
	return l.moveWaiting(ctx, id, func(ctx context.Context, tx *sql.Conn, w WaitingRun) error {
		if w.State != WaitingOn {
			return nil
		}
		if _, err := tx.ExecContext(ctx,
			"UPDATE waiting_runs SET state = ?, due = 0, code = ?, message = ?, updated_at = ?, finished_at = ? WHERE run_id = ?",
			state, code, message, micros(l.now()), micros(l.now()), id); err != nil {
			return err
		}
		err := l.appendEvent(ctx, tx, id, run.Event{Type: "run." + string(state), Data: map[string]any{"code": code, "reason": message}})
		return err
	})
}

// WaitAgain sets a run waiting again that failed or was cancelled while it waited for the attempt'th time. A later one is left as it is.
// Its call is made with the rights of whoever asks.
func (l *Ledger) WaitAgain(ctx context.Context, id string, attempt int, why string, who run.Principal, caller json.RawMessage) (
	WaitingRun, error) {
	return l.moveWaiting(ctx, id, func(ctx context.Context, tx *sql.Conn, w WaitingRun) error {
		if w.AttemptN != attempt || w.State != WaitingFailed && w.State != WaitingCancelled {
			return nil
		}
		if _, err := tx.ExecContext(ctx,
			"UPDATE waiting_runs SET state = 'waiting', due = 1, due_at = 0, tries = 0, attempt_n = attempt_n + 1, code = '', message = '', "+
				"principal = ?, principal_id = ?, caller = ?, updated_at = ?, finished_at = NULL WHERE run_id = ?", who.Name, who.ID, string(caller),
			micros(l.now()), id); err != nil {
			return err
		}
		err := l.appendEvent(ctx, tx, id, run.Event{Type: "run.retry", Data: map[string]any{"reason": why}})
		return err
	})
}

func (l *Ledger) moveWaiting(ctx context.Context, id string, move func(context.Context, *sql.Conn, WaitingRun) error) (w WaitingRun,
	err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		if w, err = waitingRun(ctx, tx, id); err != nil {
			return err
		}
		if err := move(ctx, tx, w); err != nil {
			return err
		}
		w, err = waitingRun(ctx, tx, id)
		return err
	})
	return w, err
}

// sources are what a run waits for, with the state of each.
const sources = `SELECT i.source, i.role, coalesce(r.state, CASE x.state WHEN 'waiting' THEN 'queued' WHEN 'failed' THEN 'failed' WHEN 'cancelled' THEN 'cancelled' ELSE 'queued' END),
 coalesce(r.phase, iif(x.state = 'waiting', '` + string(run.WaitingForInputs) + `', 'done')), coalesce(r.reason, x.code, ''), coalesce(r.attempt_n, x.attempt_n, 1),
 coalesce(r.run_id, i.source), coalesce((SELECT m.removal_id FROM run_removals m WHERE m.run_id = r.run_id AND m.attempt_n = r.attempt_n),
	'')
 FROM waiting_inputs i LEFT JOIN waiting_runs x ON x.run_id = i.source LEFT JOIN runs r ON r.run_id = coalesce(x.became, i.source) WHERE i.run_id = ?`

func scanSource(row scanner) (s WaitingSource, err error) {
	err = row.Scan(&s.RunID, &s.Role, &s.State, &s.Phase, &s.Reason, &s.Attempt, &s.Actual, &s.Removed)
	return s, err
}

// WaitingSources says what a run waits for.
func (l *Ledger) WaitingSources(ctx context.Context, id string) ([]WaitingSource, error) {
	return list(context.WithoutCancel(ctx), l.r, scanSource, sources+" ORDER BY i.source, i.role", id)
}

// AnyWaiting reports whether a run waits.
func (l *Ledger) AnyWaiting(ctx context.Context) (some bool, err error) {
	err = l.one(ctx, "SELECT EXISTS (SELECT 1 FROM waiting_runs WHERE state = 'waiting')").Scan(&some)
	return some, storage(err)
}

// DueWaiting lists waiting runs of whose sources one has changed: those that were not put back first, and then the one whose time came
// first.
func (l *Ledger) DueWaiting(ctx context.Context, limit int) ([]WaitingRun, error) {
	return list(ctx, l.r, scanWaiting, "SELECT "+waitingColumns+" WHERE w.due = 1 AND w.state = 'waiting' AND w.due_at <= ? "+
		"ORDER BY w.due_at, w.created_at LIMIT ?", micros(l.now()), limit)
}

// PutBackWaiting has a run that is due looked after again after a while, behind those that are due by then. The code and the message say
// what keeps it from starting; unexpected counts a try.
func (l *Ledger) PutBackWaiting(ctx context.Context, id string, wait time.Duration, unexpected bool, code, message string) error {
	return l.write(ctx, "UPDATE waiting_runs SET due_at = ?, tries = tries + ?, code = ?, message = ? WHERE run_id = ? AND state = 'waiting'",
		micros(l.now().Add(wait)), unexpected, code, message, id)
}

// BringForward has runs looked after now that were put back with a message that contains a text.
func (l *Ledger) BringForward(ctx context.Context, text string) error {
	return l.write(ctx, "UPDATE waiting_runs SET due_at = 0 WHERE due = 1 AND state = 'waiting' AND due_at > 0 AND instr(message, ?) > 0",
		text)
}

// StillWaits records that a run goes on waiting, if none of its sources has ended and all of them are not over; else it stays due.
func (l *Ledger) StillWaits(ctx context.Context, id string) (still bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		of, err := list(ctx, tx, scanSource, sources, id)
		if err != nil {
			return err
		}
		still = false
		for _, s := range of {
			if s.Broken() {
				still = false
				return nil
			}
			still = still || !s.Over()
		}
		if !still {
			return nil
		}
		_, err = tx.ExecContext(ctx, "UPDATE waiting_runs SET due = 0, due_at = 0, code = '', message = '' "+
			"WHERE run_id = ? AND state = 'waiting'", id)
		return err
	})
	return still, err
}

// WaitersOf counts the runs that wait for a run, and names some of them.
func (l *Ledger) WaitersOf(ctx context.Context, runID string, most int) (ids []string, n int64, err error) {
	ids, err = list(ctx, l.r, column[string], `SELECT w.run_id FROM waiting_runs w WHERE w.state = 'waiting' AND w.run_id IN
 (SELECT i.run_id FROM waiting_inputs i WHERE i.source IN (SELECT ?1 UNION ALL SELECT x.run_id FROM waiting_runs x WHERE x.became = ?1))
 ORDER BY w.created_at, w.run_id`, runID)
	return ids[:min(most, len(ids))], int64(len(ids)), err
}

// Waitings lists runs that wait, or that ended before they started, newest first, and says how many there are. Of the filter the states
// queued, failed and cancelled count, and what is the same for all runs; with IDPrefix those that started are listed too.
func (l *Ledger) Waitings(ctx context.Context, f Filter) (out []WaitingRun, n int64, err error) {
	var w where
	if f.IDPrefix != "" {
		w.begins("w.run_id", f.IDPrefix)
	} else {
		w.add("w.state <> 'started'")
	}
	switch f.State {
	case "":
	case run.Queued:
		w.add("w.state = 'waiting'")
	default:
		w.add("w.state = ?", string(f.State))
	}
	if f.Projects != nil {
		in, args := among("w.project_id", f.Projects)
		w.add(in, args...)
	}
	w.is("w.tool_id", f.ToolID)
	if f.Principal != "" {
		w.add("? IN (w.principal, w.principal_id)", f.Principal)
	}
	if f.Since != nil {
		w.add("w.created_at >= ?", micros(*f.Since))
	}
	if f.Until != nil {
		w.add("w.created_at < ?", micros(*f.Until))
	}
	if f.member() != "" {
		rows := where{}
		rows.is("b.sample", f.Sample)
		rows.is("b.batch_id", f.Batch)
		if f.Tag != "" {
			rows.add("EXISTS (SELECT 1 FROM batch_tags t WHERE t.tag = ? AND t.batch_id = b.batch_id AND t.row_n = b.row_n)", f.Tag)
		}
		w.add("EXISTS (SELECT 1 FROM batch_rows b WHERE b.waiting_id = w.run_id AND "+rows.String()+")", rows.args...)
	}
	if err = l.one(ctx, "SELECT count(*) FROM waiting_runs w WHERE "+w.String(), w.args...).Scan(&n); err != nil || n == 0 {
		return nil, n, storage(err)
	}
	out, err = list(context.WithoutCancel(ctx), l.r, scanWaiting, "SELECT "+waitingColumns+" WHERE "+w.String()+
		" ORDER BY w.created_at DESC, w.run_id DESC LIMIT ?", append(w.args, pageLimit(f.Limit))...)
	return out, n, err
}

// cancelWaiting cancels the runs of a batch's rows that wait, except those that another caller asked for or another batch has.
func (l *Ledger) cancelWaiting(ctx context.Context, tx *sql.Conn, batchID string) error {
	ids, err := list(ctx, tx, column[string], `SELECT DISTINCT w.run_id FROM batch_rows b JOIN waiting_runs w ON w.run_id = b.waiting_id
 JOIN batches t ON t.batch_id = b.batch_id WHERE b.batch_id = ?1 AND b.run_id IS NULL AND w.state = 'waiting' AND w.others = 0
 AND (w.principal, w.principal_id) = (t.principal, t.principal_id)
 AND NOT EXISTS (SELECT 1 FROM batch_rows x WHERE x.waiting_id = w.run_id AND x.batch_id <> ?1 AND x.state <> 'cancelled')`, batchID)
	for _, id := range ids {
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE waiting_runs SET state = 'cancelled', due = 0, code = 'cancelled', message = 'cancelled with its batch', updated_at = ?2,
 finished_at = ?2 WHERE run_id = ?1`, id, micros(l.now()))
		}
		if err == nil {
			err = l.appendEvent(ctx, tx, id, run.Event{Type: "run.cancelled", Data: map[string]any{"code": "cancelled",
				"reason": "cancelled with its batch"}})
		}
	}
	return err
}

// RowsOfSample reads the rows of a batch that have a sample, at most two.
func (l *Ledger) RowsOfSample(ctx context.Context, batchID, sample string) ([]BatchRow, error) {
	return l.BatchRows(ctx, batchID, RowFilter{Sample: sample, Limit: 2})
}

// ChainNamed lists the batches of a chain in one of some projects (nil: any), in the order of their steps.
func (l *Ledger) ChainNamed(ctx context.Context, projects []string, name string) ([]Batch, error) {
	w := inProjects(projects)
	w.add("b.chain = ?", name)
	return list(context.WithoutCancel(ctx), l.r, scanBatch, "SELECT "+batchColumns+"batches b WHERE "+w.String()+" ORDER BY b.rowid",
		w.args...)
}
