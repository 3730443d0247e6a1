package ledger

import (
	"context"
	"fmt"

	"slurmgate/fault"
)

// Chained is an event with what its hash covers.
type Chained struct {
	Entry
	Prev   string // hash of the event before it in the ledger, of whichever run that is
	Erased bool   // its data are not those that were chained: a secret was erased from them
}

// History lists a run's events up to number last, oldest first. An event whose hash does not match, and which no erasure changed, is an
// Internal fault.
func (l *Ledger) History(ctx context.Context, runID string, last int64) ([]Chained, error) {
	erased, _, err := erasedRecords(ctx, l.r)
	if err != nil {
		return nil, err
	}
	return list(ctx, l.r, func(row scanner) (e Chained, err error) {
		var at int64
		if err := row.Scan(&e.Seq, &at, into{&e.At}, &e.Type, &e.RunID, into{&e.Data}, &e.Prev, &e.Hash); err != nil {
			return e, err
		}
		got, record := eventHash(e.Prev, e.Seq, at, e.Type, e.RunID, e.Data), fmt.Sprint("history/", e.Seq)
		e.Erased = got != e.Hash
		if e.Erased && erased[record] != (erasedRecord{record, e.Hash, got}) {
			return e, fault.New(fault.Internal, "event_chain_broken", fmt.Sprintf("event %d was changed in the ledger's file", e.Seq)).
				WithNext("compare with a backup")
		}
		return e, nil
	}, "SELECT seq, at, at, type, run_id, data, prev_hash, hash FROM events WHERE run_id = ? AND seq <= ? ORDER BY seq", runID, last)
}
