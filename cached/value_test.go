package cached

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A value is fetched once for all concurrent callers, again when it is old or on demand, never within the pause, and
// the last answer is kept while no newer one arrives.
func TestValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Value[int]
		asked, err := 0, error(nil)
		ask := func(context.Context) (int, error) {
			asked++
			time.Sleep(2 * time.Second)
			return asked, err
		}
		look := func(demand bool) State[int] {
			return v.Look(time.Now, Rule{Fresh: time.Hour, Pause: time.Minute, Limit: time.Minute}, demand, ask)
		}
		away := errors.New("away")
		for _, step := range []struct {
			what   string
			after  time.Duration
			err    error
			demand bool
			asked  int // queries made by then
			value  int
		}{
			{"the first look", 0, nil, false, 1, 1}, {"a fresh value", time.Minute, nil, false, 1, 1}, {"on demand", 0, nil, true, 2, 2},
			{"on demand within the pause", 0, nil, true, 2, 2}, {"an old value, and no answer", time.Hour, away, false, 3, 2},
			{"within the pause after that", time.Second, away, false, 3, 2}, {"after the pause", time.Minute, nil, false, 4, 4},
		} {
			time.Sleep(step.after)
			err = step.err
			if s := look(step.demand); s.Busy != nil && (s.Wait(t.Context(), time.Second) || !look(true).Wait(t.Context(), 2*time.Second)) {
				t.Errorf("%s: the query did not take 2 s", step.what)
			}
			synctest.Wait()
			if s := look(false); asked != step.asked || s.Value != step.value || s.Err != step.err {
				t.Errorf("%s: asked %d times, the value is %d (%v), want %d times and %d", step.what, asked, s.Value, s.Err, step.asked, step.value)
			}
		}
	})
}
