package run

import (
	"context"
	"sync"
	"time"
)

// Moving is the progress of bytes that are being moved: those of an import, or of a run that is being staged or
// collected. Only the process that moves them knows it; it is not stored.
type Moving struct {
	What           string `json:"what"` // importing, hashing, staging or collecting
	DoneBytes      int64  `json:"done_bytes"`
	TotalBytes     int64  `json:"total_bytes"` // 0: unknown
	BytesPerSecond int64  `json:"bytes_per_second"`
	SecondsLeft    *int64 `json:"seconds_left"` // null: unknown
}

// NewMoving computes rate and time left. skipped are bytes among those done that did not have to be moved again.
func NewMoving(what string, done, skipped, total int64, took time.Duration) Moving {
	m := Moving{What: what, DoneBytes: done, TotalBytes: max(total, 0)}
	if ms := took.Milliseconds(); ms > 0 {
		m.BytesPerSecond = max(0, done-skipped) * 1000 / ms
	}
	if total > 0 && m.BytesPerSecond > 0 {
		left := max(0, total-done) / m.BytesPerSecond
		m.SecondsLeft = &left
	}
	return m
}

// moves has the runs whose files are being moved now.
type moves struct {
	mu  sync.Mutex
	all map[string]*move
}

type move struct {
	what  string
	total int64
	began time.Time
	done  func() (done, skipped int64)
}

// begin registers a move of a run's files. The returned context counts its bytes; end unregisters it.
func (m *moves) begin(ctx context.Context, watch Watch, runID, what string, total int64, now time.Time) (_ context.Context, end func()) {
	if watch == nil {
		return ctx, func() {}
	}
	ctx, done := watch(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]*move{}
	}
	m.all[runID] = &move{what, total, now, done}
	return ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.all, runID)
	}
}

// of returns the progress of a run's files; nil: none are being moved.
func (m *moves) of(runID string, now time.Time) *Moving {
	m.mu.Lock()
	one, ok := m.all[runID]
	m.mu.Unlock()
	if !ok {
		return nil
	}
	done, skipped := one.done()
	moving := NewMoving(one.what, done, skipped, one.total, now.Sub(one.began))
	return &moving
}

// Watch returns a context in which copied bytes are counted, and a function that returns the count so far.
type Watch func(ctx context.Context) (watched context.Context, done func() (done, skipped int64))

// mostSized is the most inputs that are opened to learn how many bytes there are in all.
const mostSized = 1000
