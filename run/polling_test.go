package run_test

import (
	"testing"
	"time"

	"slurmgate/run"
)

// Watching a hundred jobs queries Slurm as often as watching one. proves MANY-03
func TestQueriesDoNotGrowWithRuns(t *testing.T) {
	queries := map[int]int{}
	for _, n := range []int{1, 100} {
		bubble(t, func(t *testing.T, w *world) {
			l := w.life()
			list, ids := several(n)
			l.submitAll(list)
			w.untilAll(ids, in(run.Pending))
			time.Sleep(10 * time.Minute) // until the watcher queries at its longest interval
			before := w.count("Queue")
			time.Sleep(20 * time.Minute)
			queries[n] = w.count("Queue") - before
		})
	}
	if queries[1] == 0 || queries[100] > queries[1]+1 {
		t.Errorf("in twenty minutes a hundred pending jobs cost %d queries and one costs %d, want as many", queries[100], queries[1])
	}
}
