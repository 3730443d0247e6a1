package app

import (
	"context"
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// BatchChanged is the answer of batch.retry and batch.cancel.
type BatchChanged struct {
	CallRunID
	BatchDoc
	Changed int64  `json:"changed"` // rows that something is done with now
	Message string `json:"message"`
}

// Unchanged reports whether nothing was done.
func (a BatchChanged) Unchanged() bool { return a.Changed == 0 }

// ownBatches finds batches that the caller asked for itself: what is done with their rows is done with the rights of whoever asked.
func (g *Gateway) ownBatches(ctx context.Context, c gate.Call, a BatchArgs) ([]ledger.Batch, error) {
	list, err := g.batchesOf(ctx, c, a)
	if err != nil {
		return nil, err
	}
	if b := list[0]; b.Principal != askerOf(c) && !c.Caller.Owner {
		err = fault.New(fault.Policy, "not_your_batch", b.Name+" was asked for by "+b.Principal.Name+", who alone may change it as a whole").
			WithNext("ask for the same rows yourself, or act on its runs one by one")
	}
	return list, err
}

func (g *Gateway) retryBatch(ctx context.Context, c gate.Call, a BatchArgs) (out BatchChanged, params any, err error) {
	list, err := g.ownBatches(ctx, c, a)
	if err != nil {
		return out, nil, err
	}
	for _, b := range list {
		n, err := g.Ledger.RetryBatch(ctx, b.ID, a.Cancelled)
		if err != nil {
			return out, nil, err
		}
		out.Changed += n
	}
	g.batchLoop.poke()
	out.Message = fmt.Sprintf("%d rows that failed or were refused are submitted again", out.Changed)
	if a.Cancelled {
		out.Message = fmt.Sprintf("%d rows that failed, were refused or cancelled are submitted again", out.Changed)
	}
	out, params, err = g.changedBatches(ctx, list, out)
	if n := out.Counts["cancelled"]; n > 0 && !a.Cancelled {
		out.Message += fmt.Sprintf("; %d that were cancelled stay so: retry with cancelled submits them too", n)
	}
	return out, params, err
}

func (g *Gateway) cancelBatch(ctx context.Context, c gate.Call, a BatchArgs) (out BatchChanged, params any, err error) {
	list, err := g.ownBatches(ctx, c, a)
	if err != nil {
		return out, nil, err
	}
	var sum ledger.BatchCancelled
	for _, b := range slices.Backward(list) { // what waits first: it does not fail then
		done, err := g.Ledger.CancelBatch(ctx, b.ID)
		if err != nil {
			return out, nil, err
		}
		sum.Dropped, sum.Cancelling, sum.Spared = sum.Dropped+done.Dropped, sum.Cancelling+done.Cancelling, sum.Spared+done.Spared
	}
	g.batchLoop.poke()
	g.waitLoop.poke()
	out.Changed = sum.Dropped + sum.Cancelling
	out.Message = fmt.Sprintf("%d rows will not be submitted, the runs of %d rows are being cancelled", sum.Dropped, sum.Cancelling)
	if sum.Spared > 0 {
		out.Message += fmt.Sprintf("; those of %d rows go on, because other callers asked for them or another batch has them", sum.Spared)
	}
	return g.changedBatches(ctx, list, out)
}

func (g *Gateway) changedBatches(ctx context.Context, list []ledger.Batch, out BatchChanged) (BatchChanged, any, error) {
	for i := range list {
		b, err := g.Ledger.Batch(ctx, list[i].ID)
		if err != nil {
			return out, nil, err
		}
		list[i] = b
	}
	out.BatchDoc = stepsDoc(list)
	seq, err := g.Ledger.Newest(ctx)
	return out, map[string]any{"batch_id": out.BatchID, "ledger_seq": seq, "changed": out.Changed}, err
}

// rehearseBatchVerb returns how the batch stands that a verb would change.
func (g *Gateway) rehearseBatchVerb(ctx context.Context, c gate.Call, a BatchArgs) (out BatchChanged, params any, err error) {
	list, err := g.ownBatches(ctx, c, a)
	if err != nil {
		return out, nil, err
	}
	out.BatchDoc, out.Message = stepsDoc(list), "nothing was changed"
	return out, map[string]any{"batch_id": out.BatchID}, nil
}
