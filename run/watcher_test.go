package run

import (
	"testing"
	"time"
)

// A loop that does not wake up at the end of its pause is late; a loop that works, however long, is not. proves OPS-01
func TestOverslept(t *testing.T) {
	now := time.Unix(1, 0)
	w := newWatcher(func() time.Time { return now })
	late := func(when string, want time.Duration) {
		t.Helper()
		if got := w.overslept(); got != want {
			t.Errorf("%s: %s late, want %s", when, got, want)
		}
	}
	late("before the first pause", 0)
	w.sleeps(time.Minute)
	late("at the begin of a pause", 0)
	now = now.Add(90 * time.Second)
	late("half a minute after its end", 30*time.Second)
	w.works()
	now = now.Add(time.Hour)
	late("in a cycle that takes an hour", 0)
}
