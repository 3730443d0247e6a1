package app

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// Rows of a batch are recorded first, and become runs here: each by its own call through the gate, made for the
// principal that asked for the batch, with the rights that it has at that time. So each row passes capability, policy
// and quotas, and is recorded, as a single submit is. Because the same call finds the same run, a gateway that dies
// in the middle leaves only rows for the next one.

const (
	batchTurn      = 32                     // rows of one batch before other batches have their turn
	batchPause     = 5 * time.Second        // before the next try of a row that could not be submitted for now
	batchLongPause = time.Minute            // the same, where a quota is used up
	batchRowsWait  = 500 * time.Millisecond // the same, where rows of another batch are submitted first
	batchTries     = 20                     // with unexpected errors; then the row is refused
)

// batchCaller is the caller that asked for a batch, as the ledger stores it.
type batchCaller struct {
	gate.Principal
	Owner     bool           `json:"owner,omitzero"`
	PeerUID   int            `json:"peer_uid,omitzero"`
	Expires   time.Time      `json:"expires,omitzero"`
	Transport gate.Transport `json:"transport"`
	Face      gate.Face      `json:"face"`
	Address   string         `json:"address"`
	Actor     gate.Actor     `json:"actor"`
	Person    string         `json:"person,omitzero"` // see [run.Asking]
}

func (g *Gateway) batchCallerOf(ctx context.Context, c gate.Call) batchCaller {
	w := c.Caller
	return batchCaller{w.Principal, w.Owner, w.PeerUID, w.Expires, w.Transport, w.Face, w.Address, c.Request.Actor, g.asking(ctx, c).Person}
}

func (b batchCaller) caller() gate.Caller {
	p := b.Principal
	p.Owner, p.PeerUID, p.Expires = b.Owner, b.PeerUID, b.Expires
	return gate.Caller{Principal: p, Transport: b.Transport, Face: b.Face, Address: b.Address}
}

// rowKey is the context's key of the row that a call is made for.
type rowKey struct{}

// rowFor returns the row of a batch that a call is made for, or nil.
func rowFor(ctx context.Context) *run.RowRef {
	r, _ := ctx.Value(rowKey{}).(*run.RowRef)
	return r
}

// byItself reports whether the gateway makes a call without a client, for a row or for a run that waited: no caller
// waits for the answer.
func byItself(ctx context.Context) bool { return rowFor(ctx) != nil || waitedAs(ctx) != nil }

// rowsTodo lists rows that need work, some of each batch that is not paused, and their batches.
func (g *Gateway) rowsTodo(ctx context.Context) (rows []ledger.BatchRow, batches map[string]ledger.Batch, err error) {
	rows, err = g.Ledger.BatchTodo(ctx, batchTurn, slices.Collect(maps.Keys(g.loop.pauses())))
	batches = map[string]ledger.Batch{}
	for _, r := range rows {
		if _, known := batches[r.BatchID]; !known && err == nil {
			batches[r.BatchID], err = g.Ledger.Batch(ctx, r.BatchID)
		}
	}
	return rows, batches, err
}

// batchRow does the work that a row needs and records the result. It does nothing if the row's batch was cancelled or
// paused meanwhile.
func (g *Gateway) batchRow(ctx context.Context, b ledger.Batch, r ledger.BatchRow) {
	if _, paused := g.loop.pauses()[b.ID]; paused {
		return
	}
	still, err := g.Ledger.StillTodo(ctx, r)
	var runID string
	if err == nil && still {
		runID, err = g.carryOut(ctx, b, r)
	}
	switch wait := retryDelay(err); {
	case err == nil && !still, fault.CodeOf(err) == run.RowWithdrawn:
		return
	case err == nil && r.Todo == ledger.TodoSubmit:
		if err = g.Ledger.RowIsRun(ctx, r.Ref(), runID); fault.CodeOf(err) == run.RowWithdrawn {
			return
		}
	case err == nil:
		err = g.Ledger.RowDone(ctx, r)
	case wait > 0 && (r.Tries < batchTries || !unexpected(err)):
		g.loop.pause(b.ID, BatchWait{fault.CodeOf(err), fault.Prose(err), time.Now().Add(wait)})
		err = g.Ledger.RowPutOff(ctx, r)
	default:
		err = g.Ledger.RowRefused(ctx, r, fault.CodeOf(err), fault.Prose(err))
	}
	if err != nil { // the disk is full or failed: the same call finds the same run later
		g.Log.Warn("what became of a row of a batch cannot be recorded for now", "batch", b.ID, "row", r.N, "err", err)
		g.loop.pause(b.ID, BatchWait{fault.CodeOf(err), fault.Prose(err), time.Now().Add(batchPause)})
	}
}

// carryOut does the work that a row needs. For a row that it submits it returns the run.
func (g *Gateway) carryOut(ctx context.Context, b ledger.Batch, r ledger.BatchRow) (runID string, err error) {
	if r.Todo == ledger.TodoCancel { // recorded by the transaction that cancelled the batch
		return "", g.Sites.CarryOutCancel(ctx, r.RunID)
	}
	return g.callRow(ctx, b, r)
}

// callRow makes the call of a row.
func (g *Gateway) callRow(ctx context.Context, b ledger.Batch, r ledger.BatchRow) (runID string, err error) {
	req := gate.NewRequest(b.ToolID, b.ToolVersion, r.Args)
	if r.Todo == ledger.TodoSubmit {
		if req.Args, err = g.actual(ctx, b, r); err != nil {
			return "", err
		}
		ctx = gate.UnderApproval(ctx, b.ApprovalID, "")
	}
	why := "batch " + b.Name
	if r.Todo == ledger.TodoRetry && r.ApprovalID != "" {
		of, err := g.Ledger.Approval(ctx, r.ApprovalID)
		if err != nil {
			return "", err
		}
		ctx = gate.UnderApproval(ctx, r.ApprovalID, of.PrincipalID)
	}
	if r.Todo == ledger.TodoRetry {
		req.ToolID, req.ToolVersion = "slurm.job.retry", BuiltinVersion
		req.Args, err = json.Marshal(retryOf(r.RunID, r.After, why))
	}
	if err != nil {
		return "", err
	}
	req.ParentSpanID = b.ID
	ctx = context.WithValue(ctx, rowKey{}, new(r.Ref()))
	result, err := g.callFor(ctx, b.Caller, why, req)
	if err != nil {
		return "", err
	}
	var made run.SubmitAnswer
	if err = json.Unmarshal(result, &made); err != nil || r.Todo != ledger.TodoSubmit || made.RunID != r.WaitingID || !made.State.Terminal() {
		return made.RunID, err
	}
	// The same call finds the run whose wait failed: a row that is submitted again has it wait again.
	again := gate.NewRequest("slurm.job.retry", BuiltinVersion, nil)
	if again.Args, err = json.Marshal(retryOf(made.RunID, made.Attempt, why)); err == nil {
		again.ParentSpanID = b.ID
		_, err = g.callFor(ctx, b.Caller, why, again)
	}
	return made.RunID, err
}

// notRevoked refuses to continue work for a token that was revoked.
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

// retryDelay returns how long to wait before the next try of a row; 0: its error is final.
func retryDelay(err error) time.Duration {
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

// unexpected reports whether an error has a cause other than the row.
func unexpected(err error) bool {
	return slices.Contains([]fault.Kind{fault.Internal, fault.Unknown, fault.Canceled}, fault.KindOf(err))
}

// BatchesSettled waits until every row of a batch became a run, was refused, or waits for something that takes
// longer.
func (g *Gateway) BatchesSettled(ctx context.Context) error {
	for g.loop.stop != nil {
		rows, err := g.Ledger.BatchTodo(ctx, 1, slices.Collect(maps.Keys(g.loop.pauses())))
		if err != nil || len(rows) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.loop.done:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
