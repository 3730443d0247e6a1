package cli

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// Everything is done once, never more than a few things at a time; after an error nothing new is begun, and it is returned.
func TestSeverally(t *testing.T) {
	const n = 100
	var seen [n]atomic.Int64
	var busy, most atomic.Int64
	var told []int
	if err := severally(t.Context(), n, func(_ context.Context, i int) error {
		if now := busy.Add(1); now > most.Load() {
			most.Store(now)
		}
		seen[i].Add(1)
		busy.Add(-1)
		return nil
	}, func(n int) { told = append(told, n) }); err != nil {
		t.Fatal(err)
	}
	for i := range seen {
		if got := seen[i].Load(); got != 1 {
			t.Errorf("%d was done %d times", i, got)
		}
	}
	if len(told) != n || told[n-1] != n || most.Load() > collectors {
		t.Errorf("%d at a time, told %v", most.Load(), told)
	}
	bad := errors.New("bad")
	var begun atomic.Int64
	var all sync.WaitGroup
	all.Add(collectors)
	err := severally(t.Context(), 10*n, func(ctx context.Context, i int) error {
		begun.Add(1)
		all.Done() // of each worker once: the first things they do all fail
		all.Wait()
		return bad
	}, func(int) { t.Error("something was done") })
	if !errors.Is(err, bad) || begun.Load() != collectors {
		t.Errorf("%v after %d were begun", err, begun.Load())
	}
	if err := severally(t.Context(), 0, nil, nil); err != nil {
		t.Error(err)
	}
}
