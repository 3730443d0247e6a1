package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"slurmgate/fault"
)

// outgoing has the calls that this gateway has sent to service workers, or is about to send.
type outgoing struct {
	mu     sync.Mutex
	open   map[*sent]struct{}
	closed bool
	wg     sync.WaitGroup
}

type sent struct {
	runID  string
	cancel context.CancelCauseFunc
}

// Causes for which a call's context ends before its deadline.
var (
	errCancelled = errors.New("the run was cancelled")
	errStopping  = errors.New("the gateway stopped")
)

const stoppingRetry = 5 // seconds

// begin returns the context of a call, which [outgoing.cancel] and [outgoing.stop] end. The caller must call done.
func (s *outgoing) begin(ctx context.Context, runID string, deadline time.Time) (send context.Context, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fault.New(fault.Transport, "gateway_stopping", "the gateway is stopping and sends no more calls to workers").
			WithNext("call again in a few seconds").WithRetry(stoppingRetry)
	}
	send, end := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	send, cancel := context.WithCancelCause(send)
	if s.open == nil {
		s.open = map[*sent]struct{}{}
	}
	mine := &sent{runID, cancel}
	s.open[mine] = struct{}{}
	s.wg.Add(1)
	return send, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, mine)
		cancel(nil)
		end()
		s.wg.Done()
	}, nil
}

// cancel ends the call of a run.
func (s *outgoing) cancel(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if c.runID == runID {
			c.cancel(errCancelled)
		}
	}
}

// stop ends every call, and waits until their runs have ended. No call begins afterwards.
func (s *outgoing) stop() {
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		c.cancel(errStopping)
	}
	s.mu.Unlock()
	s.wg.Wait()
}
