package app

import (
	"context"
	"fmt"
	"strings"
)

// waiters are runs that wait for outputs of another: how many, and some of them.
type waiters struct {
	n   int64
	ids []string
}

// waitersOf is read before the cancel of a run: they end with it.
func (g *Gateway) waitersOf(ctx context.Context, runID string) (w waiters, err error) {
	w.ids, w.n, err = g.Ledger.WaitersOf(ctx, runID, 5)
	return w, err
}

// tell adds them to the answer of a cancel.
func (w waiters) tell(out *CancelAnswer) {
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
