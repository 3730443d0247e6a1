package run_test

import (
	"fmt"
	"testing"
	"time"

	"slurmgate/run"
)

// Fifty callers whose runs are each executed as themselves cost one query of the queue a cycle, as one caller does, and
// each has an equal share of the sends, however many runs the first has waiting.
//
// proves SITE-08
func TestFiftyCallers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.slowly()
		l := w.life()
		submit := func(caller string, i int) {
			o := of("", caller, i)
			o.Params.ExecutedAs = caller
			l.submit(o)
		}
		for i := range 120 { // more in all than one transaction of the watcher
			submit("greedy", i)
		}
		for c := range 49 {
			for i := range 3 {
				submit(fmt.Sprintf("user%d", c), i)
			}
		}
		start := w.sentOf(0)
		time.Sleep(100 * time.Second) // a send a second: two rounds
		sent := w.sentOf(0)
		for c := range 49 {
			user := fmt.Sprintf("user%d", c)
			if n := sent[user] - start[user]; n < 1 || n > 3 {
				t.Errorf("%s had %d of 100 sends, want 1 to 3", user, n)
			}
		}
		if n := sent["greedy"] - start["greedy"]; n > 10 {
			t.Errorf("the caller greedy had %d of 100 sends, want at most 10", n)
		}
		looks := func() int { before := w.count("Queue"); time.Sleep(10 * time.Minute); return w.count("Queue") - before }
		w.with(func() {
			for _, j := range w.jobs {
				if j.User == "" || j.User == "gateway" {
					t.Errorf("the job %+v is the gateway's, want its caller's", j.Job)
				}
			}
		})
		time.Sleep(10 * time.Minute) // all are sent
		if n := looks(); n < 1 || n > int(10*time.Minute/w.cfg.Ceiling)+1 {
			t.Errorf("the queue was queried %d times in ten minutes for fifty users with %d jobs, want once a cycle", n, len(w.jobs))
		}
		var first []string
		w.with(func() {
			for _, j := range w.jobs[:5] {
				w.start(j)
				w.finish(j)
				first = append(first, j.spec.RunID)
			}
		})
		w.wantAll(first, run.Succeeded, "ok") // none is missed among so many
		l.stop()
	})
}
