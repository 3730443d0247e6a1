package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// A run that waits for outputs of others has a row in waits in place of an attempt, until an alias takes the place of both.

const waitingColumns = runColumns + `w.args, w.caller, w.principal, w.principal_id, w.approval_id, w.code, w.message, w.tries
 FROM waits w CROSS JOIN runs r ON r.run_id = w.run_id`

func scanWaiting(row scanner) (v run.View, err error) {
	w := new(run.Waiting)
	v.Waiting = w
	err = row.Scan(append(runFields(&v.Run), into{&w.Args}, into{&w.Caller}, &w.Principal.Name, &w.Principal.ID, &w.ApprovalID, &w.Code,
		&w.Message, &w.Tries)...)
	return v, err
}

// viewWithoutAttempt reads a run that waits, or that ended before it started, or the run that an id is an alias of.
func viewWithoutAttempt(ctx context.Context, q queryer, id string) (run.View, error) {
	v, err := scanWaiting(q.QueryRowContext(ctx, "SELECT "+waitingColumns+" WHERE w.run_id = ?", id))
	if err == nil {
		v.Waiting.For, err = list(ctx, q, scanSource, sources, id)
		return v, err
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return run.View{}, storage(err)
	}
	is, err := runOf(ctx, q, id)
	switch {
	case err != nil:
		return run.View{}, err
	case is == id:
		return run.View{}, noRun(id)
	}
	return view(ctx, q, is)
}

// RunOf returns the run that an id is an alias of, or the id itself.
func (l *Ledger) RunOf(ctx context.Context, id string) (runID string, err error) {
	if l.owners.find(id).started {
		return id, nil
	}
	return runOf(context.WithoutCancel(ctx), l.r, id)
}

// runOf is RunOf by a connection.
func runOf(ctx context.Context, q queryer, id string) (runID string, err error) {
	err = q.QueryRowContext(ctx, "SELECT run_id FROM run_aliases WHERE alias = ?", id).Scan(&runID)
	if errors.Is(err, sql.ErrNoRows) {
		return id, nil
	}
	return runID, storage(err)
}

// started replaces a run that waited with an alias of a run, in the transaction that makes or finds that run, so that
// one content is one run in any order of requests. A run that does not wait any more, or waits anew, is a Conflict,
// and the transaction is undone.
func (l *Ledger) started(ctx context.Context, tx *sql.Conn, of run.WaitRef, runID string) error {
	id := of.RunID
	v, err := view(ctx, tx, id)
	if err != nil || v.Run.ID == runID {
		return err
	}
	if !v.Waits() || v.WaitRef() != of {
		return fault.New(fault.Conflict, "not_waiting", fmt.Sprintf("%s does not wait any more since attempt %d: it is %s (attempt %d)", id,
			of.Attempt, v.Run.State, v.Run.AttemptN)).WithSteps(fault.Do("slurm.job.get", "run_id", id))
	}
	if err := l.moveAskings(ctx, tx, id, runID); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO run_aliases VALUES (?, ?)", id, runID); err != nil {
		return err
	}
	return l.appendEvent(ctx, tx, id, run.Event{Type: "run.started_as", Data: map[string]any{"run_id": runID}})
}

// StartWaiting records which run a waiting one is from now on, where that run was there already. Repeating it changes nothing.
func (l *Ledger) StartWaiting(ctx context.Context, of run.WaitRef, runID string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error { return l.started(ctx, tx, of, runID) })
}

// EndWaiting ends a run that waits, as failed. One that does not wait, or waits anew, is left as it is.
func (l *Ledger) EndWaiting(ctx context.Context, of run.WaitRef, code, message string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		v, err := view(ctx, tx, of.RunID)
		if err != nil || !v.Waits() || v.WaitRef() != of {
			return err
		}
		_, err = l.apply(ctx, tx, run.EndWaiting(v, l.now(), run.Failed, code, message), nil)
		return err
	})
}

// applyWaiting is the rest of a transition of a run that has no attempt: it ends, or waits again. Triggers update the
// rows of batches.
func (l *Ledger) applyWaiting(ctx context.Context, tx *sql.Conn, w run.Write) (v run.View, err error) {
	if err := l.swapRun(ctx, tx, w.Run); err != nil {
		return v, err
	}
	if err := l.appendEvent(ctx, tx, w.Run.ID, w.Event); err != nil {
		return v, err
	}
	if w.Asking != nil {
		if _, err := tx.ExecContext(ctx, "UPDATE waits SET principal = ?, principal_id = ?, caller = ? WHERE run_id = ?", w.Asking.Name,
			w.Asking.ID, string(w.Caller), w.Run.ID); err != nil {
			return v, err
		}
	}
	if w.Row != nil {
		if err := rowIsRun(ctx, tx, *w.Row, w.Run.ID); err != nil {
			return v, err
		}
	}
	return view(ctx, tx, w.Run.ID)
}

// sourceRuns are the runs that runs wait for, by whatever name.
const sourceRuns = ` FROM waiting_inputs i LEFT JOIN run_aliases x ON x.alias = i.source JOIN runs r ON r.run_id = coalesce(x.run_id, i.source)`

// sources selects what a run waits for, with the state of each.
const sources = `SELECT i.source, i.role, r.state, r.phase, r.reason, r.attempt_n, r.run_id,
 coalesce((SELECT m.removal_id FROM run_removals m WHERE m.run_id = r.run_id AND m.attempt_n = r.attempt_n), ''), ` + deterministic + `,
 coalesce((SELECT a.ending FROM attempts a WHERE a.run_id = r.run_id AND a.n = r.attempt_n), '')` + sourceRuns + ` WHERE i.run_id = ? ORDER BY i.source, i.role`

func scanSource(row scanner) (s run.Source, err error) {
	var ending run.Ending
	err = row.Scan(&s.RunID, &s.Role, &s.State, &s.Phase, &s.Reason, &s.Attempt, &s.Actual, &s.Removed, &s.Repeats, &ending)
	s.Repeats = s.Repeats && run.FailsAgain(ending, s.Reason)
	return s, err
}

// AnyWaiting reports whether a run waits.
func (l *Ledger) AnyWaiting(ctx context.Context) (some bool, err error) {
	err = l.one(ctx, "SELECT EXISTS (SELECT 1 FROM runs WHERE phase = 'waiting_for_inputs')").Scan(&some)
	return some, storage(err)
}

// LongestPutBack is the longest time for which a waiting run is put back. What is due later was put back while the clock was ahead.
const LongestPutBack = 10 * time.Minute

// DueWaiting lists waiting runs with a changed source: those that were not put back first, and then in order of their
// due time. A clock that was ahead delays none. What each waits for is left out.
func (l *Ledger) DueWaiting(ctx context.Context, limit int) ([]run.View, error) {
	now := l.now()
	return list(ctx, l.r, scanWaiting, "SELECT "+waitingColumns+" WHERE w.due = 1 AND "+
		"(w.due_at <= ? OR w.due_at > ?) ORDER BY w.due_at, r.created_at LIMIT ?", micros(now), micros(now.Add(LongestPutBack)), limit)
}

// PutBackWaiting defers a due run for a while, at most [LongestPutBack], behind those that are due by then. The code
// and the message are the reason why it cannot start; unexpected counts a try.
func (l *Ledger) PutBackWaiting(ctx context.Context, of run.WaitRef, wait time.Duration, unexpected bool, code, message string) error {
	due := micros(l.now().Add(min(wait, LongestPutBack)))
	return l.write(ctx, "UPDATE waits SET due_at = ?, tries = tries + ?, code = ?, message = ? WHERE run_id = "+
		"(SELECT r.run_id FROM runs r WHERE r.run_id = ? AND r.attempt_n = ? AND r.phase = 'waiting_for_inputs')", due, unexpected, code,
		message, of.RunID, of.Attempt)
}

// BringForward makes runs due now that were deferred with a message that contains a text.
func (l *Ledger) BringForward(ctx context.Context, text string) error {
	return l.write(ctx, "UPDATE waits SET due_at = 0 WHERE due = 1 AND due_at > 0 AND instr(message, ?) > 0", text)
}

// SettleWaiting ends a run that waits for an output that will not come: why returns the code and the message, from
// its source. A run with an unfinished source waits on, and is no longer due. With ready the run can start.
func (l *Ledger) SettleWaiting(ctx context.Context, of run.WaitRef, why func(run.Source) (code, message string)) (ready bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		v, err := view(ctx, tx, of.RunID)
		if ready = err == nil && v.Waits() && v.WaitRef() == of; !ready {
			return err
		}
		for _, s := range v.Waiting.For {
			if s.Broken() {
				ready = false
				code, message := why(s)
				_, err := l.apply(ctx, tx, run.EndWaiting(v, l.now(), run.Failed, code, message), nil)
				return err
			}
			ready = ready && s.Over()
		}
		if !ready {
			_, err = tx.ExecContext(ctx, "UPDATE waits SET due = 0, due_at = 0, code = '', message = '' WHERE run_id = ?", of.RunID)
		}
		return err
	})
	return ready, err
}

// WaitersOf counts the runs that wait for a run, and names some of them.
func (l *Ledger) WaitersOf(ctx context.Context, runID string, most int) (ids []string, n int64, err error) {
	ids, err = list(ctx, l.r, column[string], `SELECT w.run_id FROM runs w WHERE w.phase = 'waiting_for_inputs' AND w.run_id IN
 (SELECT i.run_id FROM waiting_inputs i WHERE i.source IN (SELECT ?1 UNION ALL SELECT x.alias FROM run_aliases x WHERE x.run_id = ?1))
 ORDER BY w.created_at, w.run_id`, runID)
	return ids[:min(most, len(ids))], int64(len(ids)), err
}

// Waitings lists runs that wait, or that ended before they started, newest first, and then by the beginning of an id the aliases that have
// it, at most 50. n is how many there are. Of the filter no cursor counts.
func (l *Ledger) Waitings(ctx context.Context, f Filter) (out []Row, n int64, err error) {
	ctx = context.WithoutCancel(ctx)
	of := f
	of.Sample, of.Tag, of.Batch = "", "", ""
	w := of.where("")
	if f.member() != "" {
		rows := where{}
		rows.is("b.sample", f.Sample)
		rows.is("b.batch_id", f.Batch)
		if f.Tag != "" {
			rows.add("EXISTS (SELECT 1 FROM batch_tags t WHERE t.tag = ? AND t.batch_id = b.batch_id AND t.row_n = b.row_n)", f.Tag)
		}
		w.add("EXISTS (SELECT 1 FROM batch_rows b WHERE b.waiting_id = r.run_id AND "+rows.String()+")", rows.args...)
	}
	const waiting = "waits w CROSS JOIN runs r ON r.run_id = w.run_id WHERE "
	if err = l.one(ctx, "SELECT count(*) FROM "+waiting+w.String(), w.args...).Scan(&n); err != nil {
		return nil, n, storage(err)
	}
	if n > 0 {
		if out, err = list(ctx, l.r, scanRow, "SELECT r.run_id, r.reason, "+rowOf+waiting+w.String()+
			" ORDER BY r.created_at DESC, r.run_id DESC LIMIT ?", append(w.args, pageLimit(f.Limit))...); err != nil {
			return nil, n, err
		}
	}
	if f.IDPrefix == "" {
		return out, n, nil
	}
	aliases, err := l.aliases(ctx, f)
	return append(out, aliases...), n + int64(len(aliases)), err
}

// aliases lists the aliases that begin with the filter's prefix, of runs of its projects.
func (l *Ledger) aliases(ctx context.Context, f Filter) ([]Row, error) {
	var w where
	w.begins("x.alias", f.IDPrefix)
	if f.Projects != nil {
		in, args := among("r.project_id", f.Projects)
		w.add(in, args...)
	}
	return list(ctx, l.r, scanRow, "SELECT x.alias, 'it is ' || r.run_id, "+rowOf+"run_aliases x JOIN runs r ON r.run_id = x.run_id WHERE "+
		w.String()+" ORDER BY x.alias LIMIT 50", w.args...)
}

// rowOf are the columns of scanRow behind id and reason.
const rowOf = "r.tool_id, r.project_id, r.executed_as, r.principal, r.state, r.phase, r.created_at, r.finished_at FROM "

func scanRow(row scanner) (r Row, err error) {
	err = row.Scan(&r.ID, &r.Reason, &r.ToolID, &r.ProjectID, &r.ExecutedAs, &r.Principal.Name, &r.State, &r.Phase, into{&r.CreatedAt},
		into{&r.FinishedAt})
	return r, err
}

// cancelWaiting withdraws a batch's askings of the waiting runs of its rows, and cancels those without a requester.
func (l *Ledger) cancelWaiting(ctx context.Context, tx *sql.Conn, batchID string, by run.Withdrawal) error {
	ids, err := list(ctx, tx, column[string], `SELECT DISTINCT w.run_id FROM batch_rows b JOIN runs w ON w.run_id = b.waiting_id
 WHERE b.batch_id = ?1 AND b.run_id IS NULL AND w.phase = 'waiting_for_inputs'`, batchID)
	for _, id := range ids {
		var v run.View
		if err == nil {
			v, err = view(ctx, tx, id)
		}
		if err == nil {
			_, _, err = l.withdrawOr(ctx, tx, run.EndWaiting(v, l.now(), run.Cancelled, string(run.Cancelled), "cancelled with its batch"), by)
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
