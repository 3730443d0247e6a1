package slurm

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

// Shared is a budget that all gateways of this host share, in addition to their own budgets. Its File holds one number:
// the time, in nanoseconds since the host started, at which the bucket will be full again (the generic cell rate
// algorithm of ATM). The file is locked while it is read and written, never while a gateway waits. The file must exist
// and be writable for every gateway.
type Shared struct {
	File      string // empty: absent
	PerMinute int    // RPCs of all gateways together
}

const (
	sharedLock = time.Second      // limit of the wait for the file's lock, which is held for microseconds
	sharedWait = 10 * time.Minute // a number that means a longer wait was not written by a gateway
	sharedText = 21               // bytes: 20 digits and a line break
)

// sharedBucket is the file of a [Shared] as one gateway uses it.
type sharedBucket struct {
	Shared
	burst int
	now   func() time.Duration // since the host started

	mu      sync.Mutex
	problem error // error of the last use of the file, or nil
}

func newSharedBucket(s Shared) *sharedBucket {
	if s.File == "" {
		return nil
	}
	return &sharedBucket{Shared: s, burst: burstOf(s.PerMinute), now: sinceBoot}
}

func sinceBoot() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails for no clock that Linux has had since 2.6.39
	return time.Duration(t.Nano())
}

func (b *sharedBucket) cost(n int) time.Duration {
	return time.Duration(n) * time.Minute / time.Duration(b.PerMinute)
}

// spend waits until the gateways of this host may make n more RPCs. If the file cannot be used it does not wait: this
// gateway's own budget still limits it.
func (b *sharedBucket) spend(ctx context.Context, n int) error {
	var wait time.Duration
	b.use(func(full, now time.Duration) time.Duration {
		full = max(full, now) + b.cost(n)
		wait = full - now - b.cost(b.burst)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
			return -1
		}
		return full
	})
	if err := sleep(ctx, wait); err != nil {
		b.use(func(full, _ time.Duration) time.Duration { return full - b.cost(n) }) // those RPCs were not made
		return err
	}
	return nil
}

// use reads the number, and writes the result of next unless that is negative. An error is stored in b.problem.
func (b *sharedBucket) use(next func(full, now time.Duration) time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problem = b.change(next)
}

func (b *sharedBucket) change(next func(full, now time.Duration) time.Duration) error {
	f, err := openShared(b.File)
	if err != nil {
		return err
	}
	defer f.Close() // and its lock
	for end := time.Now().Add(sharedLock); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("another process keeps %s locked", b.File)
		}
		time.Sleep(time.Millisecond)
	}
	now := b.now()
	full := next(b.read(f, now), now)
	if full < 0 {
		return nil
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%020d\n", full), 0)
	return err
}

// read returns the number in the file. A number that no gateway can have written counts as an empty bucket, an empty
// file as a full one.
func (b *sharedBucket) read(f *os.File, now time.Duration) time.Duration {
	text := make([]byte, sharedText)
	n, _ := f.ReadAt(text, 0)
	if n == 0 {
		return now
	}
	full, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	if empty := now + b.cost(b.burst); err != nil || time.Duration(full) > empty+sharedWait {
		return empty
	}
	return time.Duration(full)
}

// state returns how much is left for all gateways of this host, or nil without a shared budget.
func (b *sharedBucket) state() *run.SharedBudget {
	if b == nil {
		return nil
	}
	s := &run.SharedBudget{PerMinute: b.PerMinute}
	b.use(func(full, now time.Duration) time.Duration {
		s.Left = max(0, int((b.cost(b.burst)-max(0, full-now))/b.cost(1)))
		return -1
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problem != nil {
		text := b.problem.Error()
		s.Problem = &text
	}
	return s
}

// openShared opens the file of a shared budget. It refuses symbolic links and files that are not regular.
func openShared(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return f, nil
}

// CheckShared returns a Validation fault if this process cannot use the file of a shared budget. It accepts an empty
// name.
func CheckShared(file string) error {
	if file == "" {
		return nil
	}
	f, err := openShared(file)
	if err != nil {
		return fault.Wrap(fault.Validation, "shared_budget", "the file of the shared RPC budget cannot be used", err).
			WithNext("create it, writable for every gateway of this host: install -m 0666 /dev/null " + file)
	}
	return f.Close()
}
