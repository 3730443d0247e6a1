package slurm

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"slurmgate/fault"
	"slurmgate/run"
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

const outOfBudget = "rpc_budget"

// Budget is a token bucket over everything asked of Slurm. Slurm's own
// limiter (rl_enable) has a bucket of 30 by default; the burst stays below it.
//
// Sends by the hundred leave a little in the bucket, so that a look at the queue, and the send of a caller who sends nothing else, need not
// wait for it to fill. While sends wait, looks at the queue take at most half of the budget.
type Budget struct {
	*rate.Limiter
	spare  int           // RPCs that sends leave
	shared *sharedBucket // with the other gateways of this host; nil: there is none

	mu     sync.Mutex
	pacing int       // sends that wait
	looked time.Time // at the queue, the last time
	total  int64     // RPCs spent
	spent  [60]struct {
		second int64 // Unix time
		rpcs   int
	} // of the last minute, by second
}

// NewBudget makes a full bucket that gains this many RPCs a minute, and draws on a shared one as well.
func NewBudget(rpcPerMinute int, shared Shared) *Budget {
	burst := burstOf(rpcPerMinute)
	return &Budget{Limiter: rate.NewLimiter(rate.Limit(float64(rpcPerMinute)/time.Minute.Seconds()), burst),
		spare: min(2*rpcQueue, burst-rpcSend), shared: newSharedBucket(shared)}
}

// burstOf is how many RPCs may be made without a wait after a while without any.
func burstOf(perMinute int) int { return min(max(perMinute, rpcCancel), 20) }

// Spend waits until n RPCs may be made. Its error is a Transport fault: nothing was asked.
func (b *Budget) Spend(ctx context.Context, n int) error {
	if err := b.WaitN(ctx, n); err != nil {
		return fault.Wrap(fault.Transport, outOfBudget, "no RPC of the site's budget became free in time", err)
	}
	if b.shared != nil {
		if err := b.shared.spend(ctx, n); err != nil {
			return fault.Wrap(fault.Transport, outOfBudget, "no RPC of the budget that the gateways of this host share became free in time", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now().Unix()
	at := &b.spent[now%int64(len(b.spent))]
	if at.second != now {
		at.second, at.rpcs = now, 0
	}
	at.rpcs += n
	b.total += int64(n)
	return nil
}

// State is how much of the budget is used.
func (b *Budget) State() run.Budget {
	s := run.Budget{PerMinute: int(math.Round(float64(b.Limit()) * time.Minute.Seconds())), Left: max(0, int(b.Tokens())), Burst: b.Burst(),
		Shared: b.shared.state()}
	if s.Shared != nil && s.Shared.Problem == nil {
		s.Left = min(s.Left, s.Shared.Left)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Total = b.total
	for since, i := time.Now().Unix()-int64(len(b.spent)), 0; i < len(b.spent); i++ {
		if b.spent[i].second > since {
			s.LastMinute += b.spent[i].rpcs
		}
	}
	return s
}

// time is how long the bucket takes to fill by n RPCs.
func (b *Budget) time(n float64) time.Duration {
	return time.Duration(n / float64(b.Limit()) * float64(time.Second))
}

// Pace is Spend for a send. All but first ones wait until the bucket has the spare RPCs too, but not for ever: others may keep it empty.
func (b *Budget) Pace(ctx context.Context, first bool) error {
	b.mu.Lock()
	b.pacing++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pacing--
	}()
	need := float64(b.spare + rpcSend)
	for patience := 2 * b.time(need); !first && patience > 0; {
		short := need - b.Tokens()
		if short <= 0 {
			break
		}
		d := min(max(b.time(short), time.Millisecond), patience)
		if err := sleep(ctx, d); err != nil {
			return fault.Wrap(fault.Transport, outOfBudget, "no RPC of the site's budget became free in time", err)
		}
		patience -= d
	}
	return b.Spend(ctx, rpcSend)
}

// Look waits before a look at the queue that would take more than half of a budget that sends wait for.
func (b *Budget) Look(ctx context.Context) error {
	b.mu.Lock()
	wait := time.Until(b.looked.Add(b.time(2 * rpcQueue)))
	if b.pacing == 0 {
		wait = 0
	}
	b.mu.Unlock()
	err := sleep(ctx, wait)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked = time.Now()
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
