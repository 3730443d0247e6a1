package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"slurmgate/fault"
)

// CallRun is a run that is nothing but a call: what was asked, and how often.
type CallRun struct {
	RunID    string
	ToolID   string
	Identity json.RawMessage
	Calls    int64 // recorded and still there
	First    time.Time
	Last     time.Time
	CallIDs  []string // the newest, at most maxCallIDs
}

const maxCallIDs = 20

// Asked reports whether a recorded call of the principal is the run; gate.Owners has the contract.
func (l *Ledger) Asked(ctx context.Context, principal, runID string) (asked bool, err error) {
	err = l.r.QueryRowContext(brief(ctx), "SELECT EXISTS (SELECT 1 FROM call_runs r JOIN tool_call_events e ON e.chain = r.chain AND e.seq "+
		"= r.seq WHERE r.run_id = ? AND e.principal = ?)", runID, principal).Scan(&asked)
	return asked, storage(err)
}

// CallRun finds the recorded calls that are the run: those of one principal, or with "" everybody's. NotFound when no record of one is
// left.
func (l *Ledger) CallRun(ctx context.Context, runID, principal string) (CallRun, error) {
	const which = " FROM call_runs r JOIN tool_call_events e ON e.chain = r.chain AND e.seq = r.seq WHERE r.run_id = ?1 AND ?2 IN ('', " +
		"e.principal)"
	c := CallRun{RunID: runID, CallIDs: []string{}}
	var first, last sql.NullInt64
	var identity, tool sql.NullString
	tx, err := l.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // count and ids are of the same moment
	if err != nil {
		return c, storage(err)
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, "SELECT count(*), min(e.at), max(e.at), max(r.identity), max(e.tool_id)"+which, runID, principal).
		Scan(&c.Calls, &first, &last, &identity, &tool); err != nil {
		return c, storage(err)
	}
	if c.Calls == 0 {
		return c, fault.New(fault.NotFound, "ledger.CallRun", "run_not_found", "there is no run "+runID)
	}
	c.First, c.Last, c.Identity, c.ToolID = time.UnixMicro(first.Int64).UTC(), time.UnixMicro(last.Int64).
		UTC(), json.RawMessage(identity.String), tool.String
	rows, err := tx.QueryContext(ctx, "SELECT e.tool_call_id"+which+fmt.Sprintf(" ORDER BY e.at DESC, e.chain, e.seq DESC LIMIT %d",
		maxCallIDs), runID, principal)
	if err != nil {
		return c, storage(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return c, storage(err)
		}
		c.CallIDs = append(c.CallIDs, id)
	}
	return c, storage(rows.Err())
}
