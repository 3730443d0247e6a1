package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slurmgate/fault"
)

// What a call holds in memory follows from the size of what it is given: arguments by reference, a sheet. The calls together hold no more
// than [Limits.Memory] bytes by that account; one that needs more waits until others have ended.

const (
	jsonFactor  = 64 // bytes that a byte of JSON may take while it is read: a list of zeros has a value in two of them
	memoryShare = 2  // one caller's calls hold at most this part
)

// memory counts what calls hold, by caller.
type memory struct {
	most int64 // 0: no bound

	mu    sync.Mutex
	used  int64
	of    map[string]int64
	freed chan struct{} // closed and replaced when memory is released
}

func newMemory(most int64) *memory {
	return &memory{most: most, of: map[string]int64{}, freed: make(chan struct{})}
}

// held is the memory of one call.
type held struct {
	*memory
	caller string
	mu     sync.Mutex
	bytes  int64
}

type heldKey struct{}

// Holding returns a context for a request before it is a call, in which [HoldJSON] counts. The caller calls release when it is answered.
func (g *Gate) Holding(ctx context.Context, who Caller) (_ context.Context, release func()) {
	return g.memory.hold(ctx, who.Key())
}

// HoldJSON is [Hold] for the memory that n bytes of JSON may take when they are read. The bytes themselves may be in
// memory already.
func HoldJSON(ctx context.Context, n int) error { return Hold(ctx, jsonFactor*int64(n)) }

// hold returns a context for a call, in which [Hold] counts; release returns all memory of the call.
func (m *memory) hold(ctx context.Context, caller string) (_ context.Context, release func()) {
	h := &held{memory: m, caller: caller}
	return context.WithValue(ctx, heldKey{}, h), func() { h.memory.give(h.caller, h.bytes) }
}

// Hold reserves memory for a call: its handler calls Hold before it reads so many bytes, and the call then has at
// least as many until it ends. Hold waits a few seconds for them; then it is a Transport fault with code
// too_much_memory. Outside of a call it does nothing.
func Hold(ctx context.Context, bytes int64) error {
	h, _ := ctx.Value(heldKey{}).(*held)
	if h == nil || h.most == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	more := min(bytes, h.most/memoryShare) - h.bytes
	if more <= 0 {
		return nil
	}
	err := h.take(ctx, h.caller, more)
	if err == nil {
		h.bytes += more
	}
	return err
}

func (m *memory) take(ctx context.Context, caller string, n int64) error {
	late := time.NewTimer(limiterWait)
	defer late.Stop()
	for {
		m.mu.Lock()
		if m.used+n <= m.most && m.of[caller]+n <= m.most/memoryShare {
			m.used += n
			m.of[caller] += n
			m.mu.Unlock()
			return nil
		}
		freed := m.freed
		m.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fault.New(fault.Transport, "too_much_memory", fmt.Sprintf("the call needs %d MiB of memory, and other calls of such size are in "+
				"progress", max(1, n>>20))).WithNext("call again in a few seconds").WithRetry(retryIn)
		}
	}
}

func (m *memory) give(caller string, n int64) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.of[caller] -= n; m.of[caller] == 0 {
		delete(m.of, caller)
	}
	close(m.freed)
	m.freed = make(chan struct{})
}
