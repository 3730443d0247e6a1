package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Waits is a request for a run that waits for the outputs of others.
type Waits struct {
	Run        run.Run
	Params     json.RawMessage // canonical, with the promises
	Args       json.RawMessage // canonical: of the call
	Caller     json.RawMessage // with whose rights the call is made again
	ApprovalID string          // of the batch that it is a row of; empty: of none, or none was needed
	Policy     json.RawMessage // canonical snapshot
	Pack       json.RawMessage // definition of the pack, canonical
	For        []plan.Promise
	Artifacts  []string    // that the run takes in addition
	Most       int64       // how many may wait in its project
	Row        *run.RowRef // the row of a batch that it is for; nil: none
	Asking     run.Asking  // whose request it is
}

// AddWaiting stores a run that waits for the outputs of others, or returns the one that has its id; of one that has
// started, the run that it became. The row that it is for is that run from then on, unless the run
// ended before it started.
func (l *Ledger) AddWaiting(ctx context.Context, q Waits) (stored run.View, created bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) (err error) {
		id := q.Run.ID
		if stored, created, err = l.addWaiting(ctx, tx, q); err != nil {
			return err
		}
		if err = l.askToWait(ctx, tx, q, stored); err != nil || q.Row == nil {
			return err
		}
		if stored.Waiting != nil && !stored.Waits() {
			return openRow(ctx, tx, *q.Row)
		}
		return rowIsRun(ctx, tx, *q.Row, id)
	})
	return stored, created && err == nil, err
}

func (l *Ledger) addWaiting(ctx context.Context, tx *sql.Conn, q Waits) (stored run.View, created bool, err error) {
	w := q.Run
	if stored, err = view(ctx, tx, w.ID); !fault.Is(err, fault.NotFound) {
		return stored, false, err
	}
	var open int64
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM runs WHERE phase = 'waiting_for_inputs' AND project_id = ?", w.ProjectID).
		Scan(&open); err != nil {
		return stored, false, err
	}
	if open >= q.Most {
		return stored, false, fault.New(fault.Transport, "too_many_runs",
			fmt.Sprintf("%d runs of the project wait for outputs of others, which is as many as this site allows", open)).
			WithNext("submit again when some have started, or cancel some").WithRetry(run.LongWait)
	}
	var of []string
	for _, p := range q.For {
		of = append(of, p.String())
	}
	w.State, w.Phase, w.Reason = run.Queued, run.WaitingForInputs, string(run.WaitingForInputs)
	event := run.Event{Type: "run.waiting", Data: map[string]any{"tool_id": w.ToolID, "params_hash": w.ParamsHash, "policy_hash": w.PolicyHash,
		"actor": w.Actor, "principal": w.Principal.Name, "principal_id": w.Principal.ID, "waits_for": of}}
	if _, err := l.insert(ctx, tx, run.New{Run: w, Params: q.Params, Policy: q.Policy, Pack: q.Pack, Event: event}, l.now()); err != nil {
		return stored, false, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO waits (run_id, args, caller, principal, principal_id, approval_id, due) "+
		"VALUES (?,?,?,?,?,?,1)",
		w.ID, string(q.Args), string(q.Caller), w.Principal.Name, w.Principal.ID, q.ApprovalID); err != nil {
		return stored, false, err
	}
	for _, p := range q.For {
		if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO waiting_inputs VALUES (?,?,?)", w.ID, p.RunID, p.Role); err != nil {
			return stored, false, err
		}
	}
	for _, id := range q.Artifacts {
		if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO waiting_artifacts VALUES (?,?)", w.ID, id); err != nil {
			return stored, false, err
		}
	}
	stored, err = view(ctx, tx, w.ID)
	return stored, err == nil, err
}

// askToWait records the asking of a run that waits, or of the run that it is by now. With a batch of the same caller
// that was approved and has this run among its rows the run may start.
func (l *Ledger) askToWait(ctx context.Context, tx *sql.Conn, q Waits, stored run.View) error {
	if stored.Waiting == nil {
		return l.ask(ctx, tx, stored.Run.ID, q.Asking, nil, "")
	}
	err := l.ask(ctx, tx, stored.Run.ID, q.Asking, q.Caller, q.ApprovalID)
	if err == nil && q.ApprovalID != "" && stored.Waits() {
		_, err = tx.ExecContext(ctx, "UPDATE waits SET approval_id = ?, due = 1, due_at = 0 WHERE run_id = ? AND principal_id = ?",
			q.ApprovalID, stored.Run.ID, q.Run.Principal.ID)
	}
	return err
}
