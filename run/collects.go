package run

import "sync"

// collectSlots bounds how many runs are collected in parallel, in all and of one caller. A job may leave outputs of 100
// GiB, which cost it nothing when they are sparse; reading them delays neither the sends nor the collects of other
// callers.
type collectSlots struct {
	most, share int

	mu      sync.Mutex
	used    int
	shares  map[Share]int
	waiting *turns[string]
}

// newCollectSlots leaves one of several workers to runs that are staged and sent, and one slot to other callers.
func newCollectSlots(workers int, weight func(project string) int) *collectSlots {
	most := max(1, workers-1)
	return &collectSlots{most: most, share: max(1, most-1), shares: map[Share]int{}, waiting: newTurns[string](weight)}
}

// fits reports whether the share may take another slot. A share without a slot may take one beyond the limit.
func (c *collectSlots) fits(s Share) bool {
	return c.used < c.most && c.shares[s] < c.share || c.used == c.most && c.shares[s] == 0
}

// take takes a slot. Without a free slot the run waits: release returns it at its turn.
func (c *collectSlots) take(runID string, s Share) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fits(s) {
		c.waiting.add(s, runID)
		return false
	}
	c.waiting.remove(runID)
	c.used++
	c.shares[s]++
	return true
}

// release frees a slot and returns the next run that may take one; empty: no run waits.
func (c *collectSlots) release(s Share) (whose Share, next string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used--
	if c.shares[s]--; c.shares[s] == 0 {
		delete(c.shares, s)
	}
	whose, next, _ = c.waiting.next(c.fits, nil)
	return whose, next
}
