package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// A run that waits for outputs of others becomes an ordinary run here: the call that asked for it is made again through the gate, for
// whoever made it, and finds the outputs as artifacts. So policy, quotas and rights hold as they are then, the call is recorded, and what
// it makes has the identity of its content. Which run that is is recorded in the transaction that makes it. A gateway that dies before
// that repeats the call.

const (
	waitTurn     = 500 * time.Millisecond // between looks while runs wait
	waitAtOnce   = 64                     // runs of one turn
	waitWorkers  = 4
	waitTries    = 20               // with errors that nobody expects; then the run fails
	approvalTurn = 10 * time.Minute // before a request for approval is made again, which may have expired; an answer is heard of at once
)

type waitLoop struct {
	once sync.Once
	wake chan struct{}
	stop context.CancelFunc // nil: it does not run
	done chan struct{}
}

func (l *waitLoop) made() { l.once.Do(func() { l.wake = make(chan struct{}, 1) }) }

func (l *waitLoop) poke() {
	l.made()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// StartWaitingRuns starts runs whose inputs have come until [Gateway.StopWaitingRuns].
func (g *Gateway) StartWaitingRuns(ctx context.Context) {
	l := &g.waitLoop
	l.made()
	ctx, l.stop = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			some, err := g.waitingTurn(ctx)
			again := time.After(waitTurn)
			switch {
			case err != nil && ctx.Err() == nil:
				g.Log.Warn("runs that wait for inputs cannot be looked after for now", "err", err)
				again = time.After(batchPause)
			case !some: // none waits: nothing is looked at until one does
				again = nil
			}
			select {
			case <-ctx.Done():
			case <-l.wake:
			case <-again:
			}
		}
	}()
}

// StopWaitingRuns ends that, and returns when no call is under way. What is left is for the next gateway.
func (g *Gateway) StopWaitingRuns() {
	if l := &g.waitLoop; l.stop != nil {
		l.stop()
		<-l.done
	}
}

// waitingTurn looks after the runs of whose sources one has changed, and reports whether any run waits.
func (g *Gateway) waitingTurn(ctx context.Context) (some bool, err error) {
	if some, err = g.Ledger.AnyWaiting(ctx); err != nil || !some {
		return some, err
	}
	due, err := g.Ledger.DueWaiting(ctx, waitAtOnce)
	if err != nil {
		return some, err
	}
	todo, bad := make(chan ledger.WaitingRun), make(chan error, len(due))
	var workers sync.WaitGroup
	for range min(waitWorkers, len(due)) {
		workers.Go(func() {
			for w := range todo {
				bad <- g.lookAfter(context.WithoutCancel(ctx), w)
			}
		})
	}
	for _, w := range due {
		if ctx.Err() == nil {
			todo <- w
		}
	}
	close(todo)
	workers.Wait()
	close(bad)
	for x := range bad {
		err = errors.Join(err, x)
	}
	if len(due) == waitAtOnce && err == nil {
		g.waitLoop.poke() // there may be more
	}
	return some, err
}

// lookAfter starts a waiting run whose inputs are there, and ends one whose inputs will not come. One that cannot start for now goes behind
// the others. An error is the ledger's.
func (g *Gateway) lookAfter(ctx context.Context, w ledger.WaitingRun) error {
	if still, err := g.Ledger.StillWaits(ctx, w.ID); err != nil || still {
		return err
	}
	of, err := g.Ledger.WaitingSources(ctx, w.ID)
	if err != nil {
		return err
	}
	for _, s := range of {
		if s.Broken() {
			x := brokenInput(s)
			return g.endWaiting(ctx, w, x.Code, fault.Prose(x))
		}
	}
	err = g.startWaiting(ctx, w)
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
	if wait > 0 && (w.Tries < waitTries || !unexpected(err)) {
		return g.Ledger.PutBackWaiting(ctx, w.ID, wait, unexpected(err), code, fault.ClipTo(why, 2000))
	}
	return g.endWaiting(ctx, w, code, why)
}

func (g *Gateway) endWaiting(ctx context.Context, w ledger.WaitingRun, code, message string) error {
	if code == "" {
		code = "refused"
	}
	_, err := g.Ledger.EndWaiting(ctx, w.ID, ledger.WaitingFailed, code, fault.ClipTo(message, 2000))
	return err
}

// answered has the runs looked after at once that wait for an approval.
func (g *Gateway) answered(ctx context.Context, approvalID string) {
	if err := g.Ledger.BringForward(ctx, approvalID); err != nil {
		g.Log.Warn("the runs that wait for an approval start later", "approval", approvalID, "err", err)
	}
	g.waitLoop.poke()
}

// startWaiting makes the call of a run whose inputs are there.
func (g *Gateway) startWaiting(ctx context.Context, w ledger.WaitingRun) error {
	req := gate.NewRequest(w.ToolID, w.ToolVersion, w.Args)
	req.ParentSpanID = w.ID
	ctx = context.WithValue(context.WithValue(ctx, batchRowKey{}, true), waitedKey{}, w.ID)
	ctx = gate.UnderApproval(ctx, w.ApprovalID)
	_, err := g.callFor(ctx, w.Caller, "run "+w.ID, req)
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
