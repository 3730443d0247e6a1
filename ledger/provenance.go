package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
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

// callRuns joins the runs that are calls with their records.
const callRuns = " FROM call_runs r JOIN tool_call_events e ON e.chain = r.chain AND e.seq = r.seq WHERE r.run_id = ?1 "

// whose is the condition of a principal's own records: ?2 is its key, its name where no ledger gives ids.
const whose = "AND iif(e.principal_id <> '', e.principal_id, e.principal) = ?2"

// Asked reports whether a recorded call of the principal is the run; gate.Owners has the contract.
func (l *Ledger) Asked(ctx context.Context, who gate.Principal, runID string) (asked bool, err error) {
	err = l.one(ctx, "SELECT EXISTS (SELECT 1"+callRuns+whose+")", runID, who.Key()).Scan(&asked)
	return asked, storage(err)
}

// CallRun finds the recorded calls that are the run: those of one principal, or with nil everybody's. NotFound when no record of one is
// left.
func (l *Ledger) CallRun(ctx context.Context, runID string, who *gate.Principal) (CallRun, error) {
	which, args := callRuns, []any{runID}
	if who != nil {
		which, args = which+whose, append(args, who.Key())
	}
	c := CallRun{RunID: runID}
	err := l.snapshot(ctx, func(tx *sql.Tx) error { // count and ids are of the same moment
		err := tx.QueryRowContext(ctx, "SELECT count(*), min(e.at), max(e.at), max(r.identity), max(e.tool_id)"+which, args...).
			Scan(&c.Calls, into{&c.First}, into{&c.Last}, into{&c.Identity}, into{&c.ToolID})
		if err == nil && c.Calls == 0 {
			err = fault.New(fault.NotFound, "run_not_found", "there is no run "+runID)
		}
		if err != nil {
			return err
		}
		c.CallIDs, err = list(ctx, tx, column[string], fmt.Sprintf("SELECT e.tool_call_id%s ORDER BY e.at DESC, e.chain, e.seq DESC LIMIT %d",
			which, maxCallIDs), args...)
		return err
	})
	return c, err
}
