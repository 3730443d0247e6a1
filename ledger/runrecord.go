package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"slurmgate/run"
)

// RunRecord is the ledger's record of a run at one moment. The run's story, its archive and the receipts of its ends
// have parts of it.
type RunRecord struct {
	run.View
	Inputs  []run.Output
	Outputs []run.Output // of the view's attempt
	Users   []string     // whose runs made what the run was made of, over all steps, itself left out

	// What receipts do not say.
	Params    json.RawMessage
	Attempts  []run.Attempt
	Used      map[string]*run.Usage // what accounting recorded, by the attempt's token; without an entry nothing
	Sends     []run.Send            // of the newest attempt
	Askers    []run.Asker           // those first who asked first
	Events    []Entry
	GoneSince *time.Time // when the removal of its workspace began, since its last attempt; nil when it did not
}

// RunRecord reads the record of a run, by its id or an alias of it.
func (l *Ledger) RunRecord(ctx context.Context, runID string) (r RunRecord, err error) {
	ctx = context.WithoutCancel(ctx)
	err = l.snapshot(ctx, func(tx *sql.Tx) error {
		v, err := view(ctx, tx, runID)
		if err == nil {
			r, err = recordOf(ctx, tx, v)
		}
		if err != nil {
			return err
		}
		runID := v.Run.ID
		for _, read := range []func() error{
			func() (err error) { r.Params, err = params(ctx, tx, v.Run.ParamsHash); return err },
			func() (err error) { r.Attempts, err = attempts(ctx, tx, runID); return err },
			func() (err error) { r.Sends, err = sends(ctx, tx, v.Submission.Token); return err },
			func() (err error) { r.Askers, err = askers(ctx, tx, runID); return err },
			func() (err error) { r.Events, err = events(ctx, tx, 0, -1, runID); return err },
			func() (err error) { r.GoneSince, err = workspaceGone(ctx, tx, runID); return err },
		} {
			if err := read(); err != nil {
				return err
			}
		}
		r.Used = map[string]*run.Usage{}
		for _, a := range r.Attempts {
			if r.Used[a.Token], err = used(ctx, tx, a.Token); err != nil {
				return err
			}
		}
		return nil
	})
	return r, err
}

// recordOf reads the part of a record that a receipt states.
func recordOf(ctx context.Context, q queryer, v run.View) (r RunRecord, err error) {
	r.View = v
	if r.Inputs, err = list(ctx, q, scanLinked, inputsQuery, v.Run.ID); err != nil {
		return r, err
	}
	if r.Outputs, err = list(ctx, q, scanLinked, outputsQuery, v.Run.ID, v.Attempt.N); err != nil {
		return r, err
	}
	r.Users, err = list(ctx, q, column[string], usersBefore, v.Run.ID)
	return r, err
}
