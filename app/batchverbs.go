package app

import (
	"context"
	"fmt"
	"slices"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// BatchChanged is the answer of batch.retry and batch.cancel.
type BatchChanged struct {
	CallRunID
	BatchDoc
	Changed int64 `json:"changed"` // rows that this call changes
	// Withdrawn: a cancel withdrew askings, and the batch continues for Askers.
	Withdrawn bool     `json:"withdrawn,omitempty"`
	Askers    []string `json:"askers,omitempty"`
	Message   string   `json:"message"`
}

// Unchanged reports whether the call changed nothing.
func (a BatchChanged) Unchanged() bool { return a.Changed == 0 && !a.Withdrawn }

// ownBatches finds batches that the caller asked for or may operate on: what is done with their rows is done with the
// rights of those who asked.
func (g *Gateway) ownBatches(ctx context.Context, c gate.Call, a BatchArgs) ([]ledger.Batch, error) {
	list, err := g.batchesOf(ctx, c, a)
	if err == nil {
		err = g.mayChange(ctx, c, list[0].ID, list[0].ProjectID)
	}
	return list, err
}

// BatchRetryArgs are the arguments of batch.retry.
type BatchRetryArgs struct {
	BatchArgs
	Cancelled bool `json:"cancelled,omitzero" help:"Also what was cancelled."`
}

func (g *Gateway) retryBatch(ctx context.Context, c gate.Call, a BatchRetryArgs) (out BatchChanged, err error) {
	list, err := g.ownBatches(ctx, c, a.BatchArgs)
	if err != nil {
		return out, err
	}
	under, err := g.retryApproval(ctx, c, list, a.Cancelled)
	var cancelling int64
	if err == nil {
		out.Changed, cancelling, err = g.Ledger.RetryBatches(ctx, batchIDs(list), a.Cancelled, under)
	}
	if err != nil {
		return out, err
	}
	g.loop.wakeUp()
	out.Message = fmt.Sprintf("%d rows that failed or were refused are submitted again", out.Changed)
	if a.Cancelled {
		out.Message = fmt.Sprintf("%d rows that failed, were refused or cancelled are submitted again", out.Changed)
	}
	if cancelling > 0 {
		out.Message += fmt.Sprintf("; the runs of %d are still being cancelled: retry those once they have ended", cancelling)
	}
	out, err = g.changedBatches(ctx, list, out)
	if n := out.Counts["cancelled"]; n > 0 && !a.Cancelled {
		out.Message += fmt.Sprintf("; %d that were cancelled stay so: retry with cancelled submits them too", n)
	}
	return out, err
}

// BatchCancelArgs are the arguments of batch.cancel.
type BatchCancelArgs struct {
	BatchArgs
	Whose
}

// cancelsBatches finds the batches that the caller cancels.
func (g *Gateway) cancelsBatches(ctx context.Context, c gate.Call, a BatchCancelArgs) (list []ledger.Batch, by run.Withdrawal, err error) {
	if list, err = g.batchesOf(ctx, c, a.BatchArgs); err == nil {
		by, err = g.cancels(ctx, c, list[0].ID, list[0].ToolID, list[0].ProjectID, a.Whose)
	}
	return list, by, err
}

func (g *Gateway) cancelBatch(ctx context.Context, c gate.Call, a BatchCancelArgs) (out BatchChanged, err error) {
	list, by, err := g.cancelsBatches(ctx, c, a)
	if err != nil {
		return out, err
	}
	var sum ledger.BatchCancelled
	for _, b := range slices.Backward(list) { // later steps first, so that they do not fail
		done, err := g.Ledger.CancelBatch(ctx, b.ID, "batch "+b.Name+" was cancelled", by, a.ForAll)
		if err != nil {
			return out, err
		}
		sum.Dropped, sum.Cancelling, sum.Spared = sum.Dropped+done.Dropped, sum.Cancelling+done.Cancelling, sum.Spared+done.Spared
		sum.Held = done.Held
	}
	g.loop.wakeUp()
	out.Changed = sum.Dropped + sum.Cancelling
	out.Message = fmt.Sprintf("%d rows will not be submitted, the runs of %d rows are being cancelled", sum.Dropped, sum.Cancelling)
	switch {
	case len(sum.Held) > 0:
		out.Withdrawn, out.Askers, out.Message = true, names(sum.Held), by.Text("this batch", sum.Held)
	case sum.Spared > 0:
		out.Message += fmt.Sprintf("; those of %d rows go on, because they were asked for in another way too: by a call, by another caller or "+
			"by another batch", sum.Spared)
	}
	return g.changedBatches(ctx, list, out)
}

func (g *Gateway) changedBatches(ctx context.Context, list []ledger.Batch, out BatchChanged) (BatchChanged, error) {
	for i := range list {
		b, err := g.Ledger.Batch(ctx, list[i].ID)
		if err != nil {
			return out, err
		}
		list[i] = b
	}
	out.BatchDoc = stepsDoc(list)
	return out, nil
}

// rehearseBatchRetry returns the current state of the batch that a retry would change.
func (g *Gateway) rehearseBatchRetry(ctx context.Context, c gate.Call, a BatchRetryArgs) (out BatchChanged, err error) {
	list, err := g.ownBatches(ctx, c, a.BatchArgs)
	if err != nil {
		return out, err
	}
	out.BatchDoc, out.Message = stepsDoc(list), "nothing was changed"
	return out, nil
}

// rehearseBatchCancel describes a batch, its tool and what a cancel would do.
func (g *Gateway) rehearseBatchCancel(ctx context.Context, c gate.Call, a BatchCancelArgs) (out BatchChanged, err error) {
	list, by, err := g.cancelsBatches(ctx, c, a)
	if err != nil {
		return out, err
	}
	out.BatchDoc = stepsDoc(list)
	all, left, err := g.askersLeft(ctx, list[0].ID, by)
	if err != nil {
		return out, err
	}
	out.Askers, out.Message = names(all), "nothing was changed. It is a batch of "+out.ToolID+", asked for by "+orNone(names(all))+"; "
	if len(left) == 0 {
		out.Message += "a cancel ends its runs that are not asked for in another way too"
	} else {
		out.Message += "a cancel takes back what you asked for, and the batch continues for " + run.AskersText(left)
	}
	return out, nil
}
