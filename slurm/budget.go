package slurm

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"slurmgate/fault"
)

// BudgetConfig is what an admin allows the gateway.
type BudgetConfig struct {
	RPCPerMinute  int // to slurmctld and slurmdbd together, on average; default 60
	SendsInFlight int // sbatch processes at a time; default 4
}

// What the commands cost in RPCs: at most what sdiag counted on Slurm 24.11.
const (
	rpcSend       = 1
	rpcQueue      = 2 // jobs of the user, partitions
	rpcAccounting = 1 // to slurmdbd
	rpcCancel     = 3 // federation, jobs, kill
	rpcCancelCtld = 1 // kill
	rpcConfig     = 2 // it pings as well
)

// budget is a token bucket over everything asked of Slurm, and the places for sbatch processes. Slurm's own
// limiter (rl_enable) has a bucket of 30 by default; the burst stays below it.
type budget struct {
	rpcs  *rate.Limiter
	sends chan struct{}
}

func newBudget(c BudgetConfig) *budget {
	burst := min(max(c.RPCPerMinute, rpcCancel), 20)
	return &budget{
		rpcs:  rate.NewLimiter(rate.Limit(float64(c.RPCPerMinute)/time.Minute.Seconds()), burst),
		sends: make(chan struct{}, c.SendsInFlight),
	}
}

// spend waits until n RPCs may be made. Its error is a Transport fault: nothing was asked.
func (b *budget) spend(ctx context.Context, op string, n int) error {
	if err := b.rpcs.WaitN(ctx, n); err != nil {
		return fault.Wrap(fault.Transport, op, "rpc_budget", "no RPC of the site's budget became free in time", err)
	}
	return nil
}

// send waits for a place and an RPC for one sbatch. done gives the place back.
func (b *budget) send(ctx context.Context) (done func(), err error) {
	select {
	case b.sends <- struct{}{}:
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Transport, "slurm.Send", "rpc_budget", "no slot for another sbatch became free in time", ctx.Err())
	}
	done = func() { <-b.sends }
	if err := b.spend(ctx, "slurm.Send", rpcSend); err != nil {
		done()
		return nil, err
	}
	return done, nil
}
