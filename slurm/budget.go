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

// Costs of the commands in RPCs, at most what sdiag counted on Slurm 24.11.
const (
	rpcSend       = 1
	rpcQueue      = 2 // jobs of the user, partitions
	rpcAccounting = 1 // to slurmdbd
	rpcCancel     = 3 // federation, jobs, kill
	rpcCancelCtld = 1 // kill
	rpcConfig     = 2 // config, ping
)

const outOfBudget = "rpc_budget"

// Budget is a token bucket for all RPCs to Slurm. Slurm's own limiter (rl_enable) has a bucket of 30 by default; the
// burst stays below it.
//
// Bulk sends leave a few RPCs in the bucket, so that a query of the queue, and the only send of a caller, need not wait
// for it to fill. While sends wait, queries of the queue take at most half of the budget.
type Budget struct {
	*rate.Limiter
	spare  int           // RPCs that bulk sends leave in the bucket
	shared *sharedBucket // shared by the gateways of this host; nil: none

	mu     sync.Mutex
	pacing int       // sends that are waiting
	looked time.Time // when the queue was last queried
	total  int64     // RPCs spent
	spent  [60]struct {
		second int64 // Unix time
		rpcs   int
	} // of the last minute, by second
}

// NewBudget returns a full bucket that gains rpcPerMinute RPCs a minute, and that also draws on the shared one.
func NewBudget(rpcPerMinute int, shared Shared) *Budget {
	burst := burstOf(rpcPerMinute)
	return &Budget{Limiter: rate.NewLimiter(rate.Limit(float64(rpcPerMinute)/time.Minute.Seconds()), burst),
		spare: min(2*rpcQueue, burst-rpcSend), shared: newSharedBucket(shared)}
}

// burstOf returns the size of the bucket: how many RPCs may be made without a wait once it is full.
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

// State returns how much of the budget is used.
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

// time returns how long the bucket takes to gain n RPCs.
func (b *Budget) time(n float64) time.Duration {
	return time.Duration(n / float64(b.Limit()) * float64(time.Second))
}

// Pace spends the RPC of a send. Unless first is set it also waits until the bucket has the spare RPCs, for a limited
// time, because other callers may keep it empty.
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

// Look waits before a query of the queue while sends wait, so that such queries take at most half of the budget.
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
