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

// A run that waits for outputs of others becomes an ordinary run here: the call that asked for it is made again through the gate, for
// whoever made it, and finds the outputs as artifacts. So policy, quotas and rights hold as they are then, the call is recorded, and what
// it makes has the identity of its content. Which run that is is recorded in the transaction that makes it. A gateway that dies before
// that repeats the call.

const (
	waitTurn     = 500 * time.Millisecond // between looks while runs wait
	waitAtOnce   = 64                     // runs of one turn
	waitTries    = 20                     // with errors that nobody expects; then the run fails
	approvalTurn = ledger.LongestPutBack  // before a request for approval is made again, which may have expired; an answer is heard of at once
)

// lookAfter starts a waiting run whose inputs are there, and ends one whose inputs will not come. One that cannot start for now goes behind
// the others. An error is the ledger's.
func (g *Gateway) lookAfter(ctx context.Context, v run.View) error {
	ready, err := g.Ledger.SettleWaiting(ctx, v.WaitRef(), func(s run.Source) (code, message string) {
		x := s.Fault()
		return x.Code, fault.ClipTo(fault.Prose(x), 2000)
	})
	if err != nil || !ready {
		return err
	}
	err = g.startWaiting(ctx, v)
	code := fault.CodeOf(err)
	if err == nil || code == "not_waiting" { // cancelled at this moment
		return nil
	}
	wait, why := putOff(err), fault.Prose(err)
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

// answered has the runs looked after at once that wait for an approval.
func (g *Gateway) answered(ctx context.Context, approvalID string) {
	if err := g.Ledger.BringForward(ctx, approvalID); err != nil {
		g.Log.Warn("the runs that wait for an approval start later", "approval", approvalID, "err", err)
	}
	g.loop.poke()
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

// callFor makes a call with the rights of whoever asked for something before, as far as they still hold.
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
