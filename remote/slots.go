package remote

import (
	"context"
	"sync"
	"time"
)

// sessions is how many channels we open on one connection at most. sshd allows 10 (MaxSessions), and counts one whose process still runs
// after we closed it.
const sessions = 8

// slots bounds the channels of one connection.
type slots struct {
	mu    sync.Mutex
	used  int
	limit int
	less  time.Time     // when the host last allowed less than the limit
	freed chan struct{} // closed when a slot is given back
}

func newSlots(limit int) *slots { return &slots{limit: limit, freed: make(chan struct{})} }

// take waits for a slot; free gives it back.
func (s *slots) take(ctx context.Context) (free func(), err error) {
	for {
		s.mu.Lock()
		if s.used >= s.limit && s.limit < sessions && time.Since(s.less) > time.Minute { // what filled the host may be over
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

// refused notes that the host did not allow the channel of a slot, and gives the slot back. alone: there was no other.
func (s *slots) refused(free func()) (alone bool) {
	s.mu.Lock()
	alone = s.used == 1
	s.limit, s.less = max(1, min(s.limit, s.used-1)), time.Now()
	s.mu.Unlock()
	free()
	return alone
}
