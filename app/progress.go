package app

import (
	"context"
	"sync"
	"time"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/run"
)

// transfers holds the calls that copy or hash bytes now, by their tool_call_id.
type transfers struct {
	mu  sync.Mutex
	all map[string]*transfer
}

type transfer struct {
	caller, what string
	began        time.Time
	progress     artifact.Progress
}

// begin records the progress of a call. The returned context counts the copied bytes; end removes the record.
func (t *transfers) begin(ctx context.Context, c gate.Call, what string) (_ context.Context, end func()) {
	one := &transfer{caller: c.Caller.Key(), what: what, began: time.Now()}
	id := c.Request.ToolCallID
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]*transfer{}
	}
	t.all[id] = one
	return artifact.Watched(ctx, &one.progress), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.all[id] == one {
			delete(t.all, id)
		}
	}
}

// find returns the progress of a caller's own call; nil: the call is not copying or hashing bytes.
func (t *transfers) find(caller, id string) *run.Moving {
	t.mu.Lock()
	one, ok := t.all[id]
	t.mu.Unlock()
	if !ok || one.caller != caller {
		return nil
	}
	done, of := one.progress.Bytes()
	m := run.NewMoving(one.what, done, one.progress.Skipped(), of, time.Since(one.began))
	return &m
}

// ProgressArgs are the arguments of call.progress.
type ProgressArgs struct {
	ToolCallID string `json:"tool_call_id" pattern:"^[0-9a-fA-F-]{36}$"`
}

// ProgressAnswer is the answer of call.progress.
type ProgressAnswer struct {
	CallRunID
	ToolCallID string      `json:"tool_call_id"`
	Moving     *run.Moving `json:"moving"` // null: the call is copying or hashing nothing, or has ended
}

func (g *Gateway) progress() Operation {
	return Operation{
		ID: "call.progress", Title: "Show the progress of a call",
		Description: "Shows how many bytes of how many one of your own calls has imported or hashed so far, with rate and time left. " +
			"tool_call_id is the one that the call was made with. moving is null once it has ended.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.showProgress),
	}
}

func (g *Gateway) showProgress(_ context.Context, c gate.Call, a ProgressArgs) (ProgressAnswer, error) {
	m := g.transfers.find(c.Caller.Key(), a.ToolCallID)
	return ProgressAnswer{ToolCallID: a.ToolCallID, Moving: m}, nil
}
