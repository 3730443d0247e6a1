package heap

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

func TestPercent(t *testing.T) {
	for living, want := range map[uint64]int{0: 1100, 4 << 20: 1100, 12 << 20: 300, 16 << 20: 200, 24<<20 - 1: 100, 24 << 20: 100, 48 << 20: 100, 1 << 40: 100, math.MaxUint64 / 2: 100} {
		if got := Percent(living); got != want {
			t.Errorf("%d living bytes: %d percent, want %d", living, got, want)
		}
	}
}

// What is alive is told by this Go, so the pace follows it; afterwards it is Go's own.
func TestPace(t *testing.T) {
	t.Setenv("GOGC", "")
	runtime.GC()
	if n := alive(); n == 0 || n >= Room {
		t.Fatalf("%d bytes alive in a test that keeps nothing", n)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { Pace(ctx); close(ended) }()
		synctest.Wait()
		if got := debug.SetGCPercent(100); got < 300 {
			t.Errorf("a heap with almost nothing alive is collected at %d percent", got)
		}
		stop()
		<-ended
	})
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("afterwards %d percent", got)
	}
}
