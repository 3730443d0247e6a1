package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// A run that waits for outputs of others becomes an ordinary run here: its call is made again through the gate, for
// the same caller, and finds the outputs as artifacts. So the policy, quotas and rights of that time apply, the call
// is recorded, and the new run has the identity of its content. The transaction that creates the new run records it
// as the successor. A gateway that dies before that repeats the call.

const (
	waitTurn     = 500 * time.Millisecond // between checks while runs wait
	waitAtOnce   = 64                     // runs of one turn
	waitTries    = 20                     // with unexpected errors; then the run fails
	approvalTurn = ledger.LongestPutBack  // before a request for approval that may have expired is repeated; an answer takes effect at once
)

// advanceWaiting starts a waiting run whose inputs are there, and ends one whose inputs will never come. A run that cannot
// start for now goes to the end of the queue. The error is one of the ledger.
func (g *Gateway) advanceWaiting(ctx context.Context, v run.View) error {
	ready, err := g.Ledger.SettleWaiting(ctx, v.WaitRef(), func(s run.Source) (code, message string) {
		x := s.Fault()
		return x.Code, fault.ClipTo(fault.Prose(x), 2000)
	})
	if err != nil || !ready {
		return err
	}
	err = g.startWaiting(ctx, v)
	code := fault.CodeOf(err)
	if err == nil || code == "not_waiting" { // a concurrent cancel ended it
		return nil
	}
	wait, why := retryDelay(err), fault.Prose(err)
	switch code {
	case gate.ConsentRequired:
		wait, why = approvalTurn, fault.Said(err)
	case gate.ConsentBacklog:
		wait = batchLongPause
	}
	if wait > 0 && (v.Waiting.Tries < waitTries || !unexpected(err)) {
		return g.Ledger.PutBackWaiting(ctx, v.WaitRef(), wait, unexpected(err), code, fault.ClipTo(why, 2000))
	}
	return g.endWaiting(ctx, v, code, why)
}

func (g *Gateway) endWaiting(ctx context.Context, v run.View, code, message string) error {
	if code == "" {
		code = "refused"
	}
	return g.Ledger.EndWaiting(ctx, v.WaitRef(), code, fault.ClipTo(message, 2000))
}

// answered makes the runs that wait for an approval due now.
func (g *Gateway) answered(ctx context.Context, approvalID string) {
	if err := g.Ledger.BringForward(ctx, approvalID); err != nil {
		g.Log.Warn("the runs that wait for an approval start later", "approval", approvalID, "err", err)
	}
	g.loop.wakeUp()
}

// startWaiting makes the call of a run whose inputs are there.
func (g *Gateway) startWaiting(ctx context.Context, v run.View) error {
	req := gate.NewRequest(v.Run.ToolID, v.Run.ToolVersion, v.Waiting.Args)
	req.ParentSpanID = v.Run.ID
	ctx = context.WithValue(ctx, waitedKey{}, new(v.WaitRef()))
	ctx = gate.UnderApproval(ctx, v.Waiting.ApprovalID, "")
	_, err := g.callFor(ctx, v.Waiting.Caller, "run "+v.Run.ID, req)
	return err
}

// callFor makes a call with the current rights of the caller that asked for something earlier.
func (g *Gateway) callFor(ctx context.Context, caller json.RawMessage, what string, req gate.Request) (json.RawMessage, error) {
	var who batchCaller
	if err := json.Unmarshal(caller, &who); err != nil {
		return nil, err
	}
	if !who.Expires.IsZero() && time.Now().After(who.Expires) {
		return nil, fault.New(fault.Auth, "credentials_expired", fmt.Sprintf("the credentials with which %s was asked for have expired", what))
	}
	if err := g.notRevoked(ctx, who.Principal, what); err != nil {
		return nil, err
	}
	as := who.caller()
	as.Continues = true
	if g.Again != nil {
		var err error
		if as.Principal, err = g.Again(ctx, as.Principal); err != nil {
			return nil, err
		}
	}
	req.Actor = who.Actor
	res := g.Gate.Call(ctx, as, req)
	if res.Error != nil {
		return nil, res.Error.Fault()
	}
	return res.Result, nil
}
