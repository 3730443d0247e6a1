package remote

import (
	"context"
	"sync"
	"time"
)

// sessions bounds the channels on one connection. sshd allows 10 (MaxSessions), and still counts a closed channel whose
// process runs.
const sessions = 8

// slots bounds the channels of one connection.
type slots struct {
	mu    sync.Mutex
	used  int
	limit int
	less  time.Time     // when the host last refused a channel within the limit
	freed chan struct{} // closed when a slot is returned
}

func newSlots(limit int) *slots { return &slots{limit: limit, freed: make(chan struct{})} }

// take waits for a slot; free returns it.
func (s *slots) take(ctx context.Context) (free func(), err error) {
	for {
		s.mu.Lock()
		if s.used >= s.limit && s.limit < sessions && time.Since(s.less) > time.Minute { // the host may have room again
			s.limit, s.less = s.limit+1, time.Now()
		}
		if s.used < s.limit {
			s.used++
			s.mu.Unlock()
			return sync.OnceFunc(s.free), nil
		}
		freed := s.freed
		s.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *slots) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	close(s.freed)
	s.freed = make(chan struct{})
}

// refused records that the host refused the channel of a slot, and returns the slot. alone: no other slot is in use.
func (s *slots) refused(free func()) (alone bool) {
	s.mu.Lock()
	alone = s.used == 1
	s.limit, s.less = max(1, min(s.limit, s.used-1)), time.Now()
	s.mu.Unlock()
	free()
	return alone
}
