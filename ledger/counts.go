package ledger

import "context"

// Counts returns how many runs are in each state; a state without runs is absent.
func (l *Ledger) Counts(ctx context.Context) (map[string]int64, error) {
	rows, err := l.r.QueryContext(ctx, "SELECT state, count(*) FROM runs GROUP BY state")
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	out := map[string]int64{}
	for rows.Next() {
		var state string
		var n int64
		if err := rows.Scan(&state, &n); err != nil {
			return nil, storage(err)
		}
		out[state] = n
	}
	return out, storage(rows.Err())
}

// EventsAfter lists at most limit events of a run with a number above after, oldest first.
func (l *Ledger) EventsAfter(ctx context.Context, runID string, after int64, limit int) ([]Entry, error) {
	return l.entries(ctx, "SELECT seq, at, type, run_id, data, hash FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?", runID, after, limit)
}
