package app

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// Rows of a batch are recorded first, and become runs here: each by a call of its own through the gate, made for whoever asked for the
// batch, with the rights that it has by then. So each row passes capability, policy and quotas, and is recorded, as a submit of its own is;
// and because the same call finds the same run, a gateway that dies in the middle leaves nothing but rows for the next one.

const (
	batchWorkers   = 4
	batchTurn      = 32                     // rows of one batch before the others have their turn
	batchPause     = 5 * time.Second        // before a row is tried again that could not be submitted for now
	batchLongPause = time.Minute            // where a quota is used up
	batchIdle      = 30 * time.Second       // between looks when there is nothing to do
	batchRowsWait  = 500 * time.Millisecond // where rows of another batch are submitted first
	batchTries     = 20                     // with errors that nobody expects; then the row is refused
)

// batchLoop is what makes runs of rows.
type batchLoop struct {
	once   sync.Once
	wake   chan struct{}
	mu     sync.Mutex
	paused map[string]BatchWait // by batch
	stop   context.CancelFunc   // nil: it does not run
	done   chan struct{}
}

// BatchWait is why rows of a batch are not submitted for now.
type BatchWait struct {
	Code    string    `json:"code"`
	Message string    `json:"message"`
	Until   time.Time `json:"until"` // then it is tried again
}

func (b *batchLoop) made() {
	b.once.Do(func() { b.wake, b.paused = make(chan struct{}, 1), map[string]BatchWait{} })
}

func (b *batchLoop) poke() {
	b.made()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// pause keeps a batch from being tried again for a while.
func (b *batchLoop) pause(id string, w BatchWait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused[id] = w
}

// pauses are those that are not over.
func (b *batchLoop) pauses() map[string]BatchWait {
	b.made()
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.paused, func(_ string, w BatchWait) bool { return !time.Now().Before(w.Until) })
	return maps.Clone(b.paused)
}

// batchCaller is whoever asked for a batch, as the ledger keeps it.
type batchCaller struct {
	gate.Principal
	Owner     bool           `json:"owner,omitzero"`
	PeerUID   int            `json:"peer_uid,omitzero"`
	Expires   time.Time      `json:"expires,omitzero"`
	Transport gate.Transport `json:"transport"`
	Face      gate.Face      `json:"face"`
	Address   string         `json:"address"`
	Actor     gate.Actor     `json:"actor"`
}

func batchCallerOf(c gate.Call) batchCaller {
	w := c.Caller
	return batchCaller{w.Principal, w.Owner, w.PeerUID, w.Expires, w.Transport, w.Face, w.Address, c.Request.Actor}
}

func (b batchCaller) caller() gate.Caller {
	p := b.Principal
	p.Owner, p.PeerUID, p.Expires = b.Owner, b.PeerUID, b.Expires
	return gate.Caller{Principal: p, Transport: b.Transport, Face: b.Face, Address: b.Address}
}

// batchRowKey marks the context of a row's call: nobody waits for its answer.
type batchRowKey struct{}

func ofBatch(ctx context.Context) bool { return ctx.Value(batchRowKey{}) != nil }

// RunBatches makes runs of the rows of batches until [Gateway.StopBatches].
func (g *Gateway) RunBatches(ctx context.Context) {
	b := &g.batchLoop
	b.made()
	ctx, b.stop = context.WithCancel(ctx)
	b.done = make(chan struct{})
	go func() {
		defer close(b.done)
		for ctx.Err() == nil {
			n, err := g.batchTurn(ctx)
			if err != nil && ctx.Err() == nil {
				g.Log.Warn("the rows of batches cannot be read", "err", err)
			}
			if n > 0 && err == nil {
				continue
			}
			idle := batchIdle
			if len(b.pauses()) > 0 || err != nil {
				idle = batchPause / 5
			}
			select {
			case <-ctx.Done():
			case <-b.wake:
			case <-time.After(idle):
			}
		}
	}()
}

// StopBatches ends that, and returns when no call of a row is under way. What is left is for the next gateway.
func (g *Gateway) StopBatches() {
	if b := &g.batchLoop; b.stop != nil {
		b.stop()
		<-b.done
	}
}

// batchTurn carries out some rows of each batch and returns how many.
func (g *Gateway) batchTurn(ctx context.Context) (int, error) {
	rows, err := g.Ledger.BatchTodo(ctx, batchTurn, slices.Collect(maps.Keys(g.batchLoop.pauses())))
	if err != nil {
		return 0, err
	}
	batches := map[string]ledger.Batch{}
	for _, r := range rows {
		if _, known := batches[r.BatchID]; !known {
			if batches[r.BatchID], err = g.Ledger.Batch(ctx, r.BatchID); err != nil {
				return 0, err
			}
		}
	}
	todo := make(chan ledger.BatchRow)
	var workers sync.WaitGroup
	for range min(batchWorkers, len(rows)) {
		workers.Go(func() {
			for r := range todo {
				g.batchRow(context.WithoutCancel(ctx), batches[r.BatchID], r)
			}
		})
	}
	for _, r := range rows {
		if _, paused := g.batchLoop.pauses()[r.BatchID]; !paused && ctx.Err() == nil {
			todo <- r
		}
	}
	close(todo)
	workers.Wait()
	return len(rows), nil
}

// batchRow carries out what is left to do with a row, and records what became of it.
func (g *Gateway) batchRow(ctx context.Context, b ledger.Batch, r ledger.BatchRow) {
	runID, err := g.callRow(ctx, b, r)
	switch wait := putOff(err); {
	case err == nil && r.Todo == ledger.TodoSubmit:
		err = g.Ledger.RowIsRun(ctx, b.ID, r.N, runID)
	case err == nil:
		err = g.Ledger.RowDone(ctx, r)
	case wait > 0 && (r.Tries < batchTries || !unexpected(err)):
		g.batchLoop.pause(b.ID, BatchWait{fault.CodeOf(err), fault.Prose(err), time.Now().Add(wait)})
		err = g.Ledger.RowPutOff(ctx, r)
	default:
		err = g.Ledger.RowRefused(ctx, r, fault.CodeOf(err), fault.Prose(err))
	}
	if err != nil { // the disk is full, or failed: the same call finds the same run later
		g.Log.Warn("what became of a row of a batch cannot be recorded for now", "batch", b.ID, "row", r.N, "err", err)
		g.batchLoop.pause(b.ID, BatchWait{fault.CodeOf(err), fault.Prose(err), time.Now().Add(batchPause)})
	}
}

// callRow makes the call of a row.
func (g *Gateway) callRow(ctx context.Context, b ledger.Batch, r ledger.BatchRow) (runID string, err error) {
	req := gate.NewRequest(b.ToolID, b.ToolVersion, r.Args)
	if r.Todo == ledger.TodoSubmit {
		if req.Args, err = g.actual(ctx, b, r); err != nil {
			return "", err
		}
		ctx = gate.UnderApproval(ctx, b.ApprovalID)
	}
	why := "batch " + b.Name
	switch r.Todo {
	case ledger.TodoRetry:
		req.ToolID, req.ToolVersion = "slurm.job.retry", BuiltinVersion
		req.Args, err = json.Marshal(RunArgs{RunID: r.RunID, After: r.After, Reason: why})
	case ledger.TodoCancel:
		req.ToolID, req.ToolVersion = "slurm.job.cancel", BuiltinVersion
		req.Args, err = json.Marshal(RunArgs{RunID: r.RunID, Reason: why + " was cancelled"})
	}
	if err != nil {
		return "", err
	}
	req.ParentSpanID = b.ID
	result, err := g.callFor(context.WithValue(ctx, batchRowKey{}, true), b.Caller, why, req)
	if err != nil {
		return "", err
	}
	var made run.SubmitAnswer
	if err = json.Unmarshal(result, &made); err != nil || r.Todo != ledger.TodoSubmit || made.RunID != r.WaitingID || !made.State.Terminal() {
		return made.RunID, err
	}
	// Asked again, it is the run that waited in vain: a row that is submitted again has it wait again.
	again := gate.NewRequest("slurm.job.retry", BuiltinVersion, nil)
	if again.Args, err = json.Marshal(RunArgs{RunID: made.RunID, After: made.Attempt, Reason: why}); err == nil {
		again.ParentSpanID = b.ID
		_, err = g.callFor(ctx, b.Caller, why, again)
	}
	return made.RunID, err
}

// notRevoked refuses what is left of something whose token was revoked since.
func (g *Gateway) notRevoked(ctx context.Context, who gate.Principal, what string) error {
	if who.Method != gate.ByToken {
		return nil
	}
	of, err := g.Ledger.Identity(ctx, who.ID)
	if err != nil {
		return err
	}
	t, err := g.Ledger.Token(ctx, of.Subject)
	if err == nil && t.RevokedAt != nil {
		err = fault.New(fault.Auth, "token_revoked", "the token that asked for "+what+", "+t.ID+", was revoked")
	}
	return err
}

// putOff is how long to wait before a row is tried again; 0: its error is for good.
func putOff(err error) time.Duration {
	switch code := fault.CodeOf(err); {
	case err == nil:
		return 0
	case code == rowsWait:
		return batchRowsWait
	case code == "quota_exceeded" || code == "cap_reached":
		return batchLongPause
	case code == run.Drained || fault.KindOf(err).Retryable() || unexpected(err):
		return batchPause
	}
	return 0
}

// unexpected reports whether an error says nothing about the row.
func unexpected(err error) bool {
	return slices.Contains([]fault.Kind{fault.Internal, fault.Unknown, fault.Canceled}, fault.KindOf(err))
}

// BatchesSettled waits until every row of a batch became a run, was refused, or waits for something that takes longer.
func (g *Gateway) BatchesSettled(ctx context.Context) error {
	for g.batchLoop.stop != nil {
		rows, err := g.Ledger.BatchTodo(ctx, 1, slices.Collect(maps.Keys(g.batchLoop.pauses())))
		if err != nil || len(rows) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.batchLoop.done:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
