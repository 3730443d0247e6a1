package run_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/plan"
	"slurmgate/run"
)

// siteless returns the order with its placement left to the site, and where the site sends it.
func siteless() (o run.Order, at plan.Placement) {
	o = order(func(p *plan.Params) { p.Spec.Placement = plan.Placement{} })
	qos := "normal"
	at = plan.Placement{Partition: "main", Account: "lab", QOS: &qos}
	o.Placement = &at
	return o, at
}

// What a plan leaves to the site is no part of its identity: it is resolved for each attempt, and policy and Slurm get
// the result. A new attempt goes where the site sends jobs by then, and charges the account that the first one charged.
//
// proves ABI-07
func TestPlacementOfEachAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		asked := map[string]bool{}
		w.allowed = func(_ string, p plan.Params) error {
			mu.Lock()
			defer mu.Unlock()
			asked[p.Spec.Placement.Partition] = true
			return nil
		}
		o, first := siteless()
		l := w.life()
		a := l.submit(o)
		v := w.until(a.RunID, in(run.Pending))
		if d := cmp.Diff(&first, v.Attempt.Placement); d != "" {
			t.Errorf("the placement of the first attempt differs (-want +got):\n%s", d)
		}
		if d := cmp.Diff(first, w.job(0).spec.Spec.Placement); d != "" {
			t.Errorf("the placement of the first job differs (-want +got):\n%s", d)
		}
		w.with(func() { w.start(w.jobs[0]); w.end(w.jobs[0], "FAILED", 1); w.exitFile(w.jobs[0], 1, "tool_failed") })
		w.until(a.RunID, done)
		l.stop()

		// The admin changes the defaults; the same request is the same run.
		qos := "quick"
		w.cfg.Placement = plan.Placement{Partition: "fast", Account: "other", QOS: &qos}
		l = w.life()
		moved := w.cfg.Placement
		o.Placement = &moved
		l.wantSame(o, a.RunID)
		must(l.engine.Retry(context.Background(), a.RunID, run.RetryOrder{After: 1, Why: "again"}))
		v = w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Pending })
		second := plan.Placement{Partition: "fast", Account: "lab", QOS: &qos}
		if d := cmp.Diff(&second, v.Attempt.Placement); d != "" {
			t.Errorf("the placement of the second attempt differs (-want +got):\n%s", d)
		}
		if d := cmp.Diff(second, w.job(1).spec.Spec.Placement); d != "" {
			t.Errorf("the placement of the second job differs (-want +got):\n%s", d)
		}
		mu.Lock()
		defer mu.Unlock()
		if !asked["main"] || !asked["fast"] || asked[""] {
			t.Errorf("policy was asked about %v", asked)
		}
		attempts, err := w.ledger.Attempts(context.Background(), a.RunID)
		if err != nil || len(attempts) != 2 || attempts[0].Placement.Partition != "main" || attempts[1].Placement.Partition != "fast" {
			t.Errorf("the attempts are %+v %v, want main, then fast", attempts, err)
		}
		events, err := w.ledger.Events(context.Background(), a.RunID)
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, e := range events {
			for _, partition := range []string{"main", "fast"} {
				if strings.Contains(string(e.Data), `"partition":"`+partition+`"`) {
					told = append(told, e.Type+" "+partition)
				}
			}
		}
		if d := cmp.Diff([]string{"run.created main", "run.retry fast"}, told); d != "" {
			t.Errorf("the events that name a partition differ (-want +got):\n%s", d)
		}
	})
}

// An attempt that the gateway opens by itself gets a new placement too; a plan that names everything keeps its own.
func TestPlacementAfterInfrastructure(t *testing.T) {
	for name, c := range map[string]struct {
		named bool
		want  string
	}{"left to the site": {false, "fast"}, "named": {true, "short"}} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.cfg.Attempts, w.cfg.Placement = 2, plan.Placement{Partition: "fast", Account: "other"}
			o, _ := siteless()
			if c.named {
				o = order()
			}
			a := w.life().submit(o)
			w.until(a.RunID, in(run.Pending))
			w.with(func() { w.start(w.jobs[0]); w.end(w.jobs[0], "NODE_FAIL", 1) })
			w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Pending })
			if at := w.job(1).spec.Spec.Placement; at.Partition != c.want || at.Account != "lab" {
				t.Errorf("the second attempt is placed at %+v, want its row's partition and the same account", at)
			}
		})
	}
}
