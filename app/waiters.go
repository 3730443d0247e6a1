package app

import (
	"context"
	"fmt"
	"strings"
)

// waiters lists runs that wait for outputs of another: their number, and some of them.
type waiters struct {
	n   int64
	ids []string
}

// waitersOf finds the runs that wait for a run. It must be called before a cancel, which ends them too.
func (g *Gateway) waitersOf(ctx context.Context, runID string) (w waiters, err error) {
	w.ids, w.n, err = g.Ledger.WaitersOf(ctx, runID, 5)
	return w, err
}

// addTo adds the waiting runs to the answer of a cancel.
func (w waiters) addTo(out *CancelAnswer) {
	if w.n == 0 {
		return
	}
	out.Waiters, out.WaitingRuns = w.n, w.ids
	what := fmt.Sprintf("%d runs wait", w.n)
	if w.n == 1 {
		what = "1 run waits"
	}
	out.Message += fmt.Sprintf("; %s for its outputs and will fail (input_failed): %s", what, strings.Join(w.ids, ", "))
	if w.n > int64(len(w.ids)) {
		out.Message += ", …"
	}
}
