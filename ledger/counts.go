package ledger

import (
	"context"
	"fmt"
)

// Counts returns how many runs are in each state; a state without runs is absent.
func (l *Ledger) Counts(ctx context.Context) (map[string]int64, error) {
	rows, err := l.r.QueryContext(ctx, "SELECT state, sum(n) FROM run_counts WHERE n > 0 GROUP BY state")
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
	return l.entries(ctx, "SELECT seq, at, type, run_id, data, hash FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?", runID,
		after, limit)
}

// Total is how many there are in all. Exact is false when there are at least N: the rest was not counted.
type Total struct {
	N     int64
	Exact bool
}

// countedAtMost bounds a count that no index answers.
const countedAtMost = 10000

// countSome counts the rows of a query up to countedAtMost.
func countSome(ctx context.Context, db queryer, q string, args ...any) (t Total, err error) {
	err = db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM (%s LIMIT %d)", q, countedAtMost+1), args...).Scan(&t.N)
	if t.Exact = t.N <= countedAtMost; !t.Exact {
		t.N = countedAtMost
	}
	return t, err
}
