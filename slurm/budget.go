package slurm

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"slurmgate/fault"
)

// What the commands cost in RPCs: at most what sdiag counted on Slurm 24.11.
const (
	rpcSend       = 1
	rpcQueue      = 2 // jobs of the user, partitions
	rpcAccounting = 1 // to slurmdbd
	rpcCancel     = 3 // federation, jobs, kill
	rpcCancelCtld = 1 // kill
	rpcConfig     = 2 // it pings as well
)

// budget is a token bucket over everything asked of Slurm. Slurm's own
// limiter (rl_enable) has a bucket of 30 by default; the burst stays below it.
type budget struct{ *rate.Limiter }

func newBudget(rpcPerMinute int) budget {
	return budget{rate.NewLimiter(rate.Limit(float64(rpcPerMinute)/time.Minute.Seconds()), min(max(rpcPerMinute, rpcCancel), 20))}
}

// spend waits until n RPCs may be made. Its error is a Transport fault: nothing was asked.
func (b budget) spend(ctx context.Context, op string, n int) error {
	if err := b.WaitN(ctx, n); err != nil {
		return fault.Wrap(fault.Transport, op, "rpc_budget", "no RPC of the site's budget became free in time", err)
	}
	return nil
}
