package run_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// siteless is the order with its placement left to the site, and where the site sends it.
func siteless() (o run.Order, at plan.Placement) {
	o = order(func(p *plan.Params) { p.Spec.Placement = plan.Placement{} })
	qos := "normal"
	at = plan.Placement{Partition: "main", Account: "lab", QOS: &qos}
	o.Placement = &at
	return o, at
}

// What a plan leaves to the site is no part of its identity: it resolves onto each attempt, which policy judges and Slurm gets. A new
// attempt goes where the site sends jobs by then, and charges the account the first one charged.
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
			t.Error(d)
		}
		if d := cmp.Diff(first, w.job(0).spec.Spec.Placement); d != "" {
			t.Error(d)
		}
		w.with(func() { w.start(w.jobs[0]); w.end(w.jobs[0], "FAILED", 1); w.exitFile(w.jobs[0], 1, "tool_failed") })
		w.until(a.RunID, done)
		l.stop()

		// The admin moves the defaults; the same request is the same run.
		qos := "quick"
		w.cfg.Placement = plan.Placement{Partition: "fast", Account: "other", QOS: &qos}
		l = w.life()
		moved := w.cfg.Placement
		o.Placement = &moved
		if again := l.submit(o); again.RunID != a.RunID || !again.Replayed {
			t.Errorf("%+v", again)
		}
		if _, err := l.engine.Retry(context.Background(), a.RunID, 1, "again", plan.MoreResources{}); err != nil {
			t.Fatal(err)
		}
		v = w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Pending })
		second := plan.Placement{Partition: "fast", Account: "lab", QOS: &qos}
		if d := cmp.Diff(&second, v.Attempt.Placement); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(second, w.job(1).spec.Spec.Placement); d != "" {
			t.Error(d)
		}
		mu.Lock()
		defer mu.Unlock()
		if !asked["main"] || !asked["fast"] || asked[""] {
			t.Errorf("policy was asked about %v", asked)
		}
		attempts, err := w.ledger.Attempts(context.Background(), a.RunID)
		if err != nil || len(attempts) != 2 || attempts[0].Placement.Partition != "main" || attempts[1].Placement.Partition != "fast" {
			t.Errorf("%+v %v", attempts, err)
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
			t.Error(d)
		}
	})
}

// An attempt that the gateway opens by itself is placed anew too; a plan that names everything stays where it is.
func TestPlacementAfterInfrastructure(t *testing.T) {
	for name, c := range map[string]struct {
		named bool
		want  string
	}{"left to the site": {false, "fast"}, "named": {true, "short"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
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
					t.Errorf("%+v", at)
				}
			})
		})
	}
}

// earlierRun puts the run of an order into the ledger as it was made before, under a policy hash of that time.
func earlierRun(t *testing.T, w *world, o run.Order, policyHash string) string {
	t.Helper()
	params, err := o.Params.Previous(*o.Placement)
	if err != nil {
		t.Fatal(err)
	}
	id := plan.Identity{ToolName: o.ToolName, ContractVersion: o.ContractVersion, PolicyHash: policyHash, ParamsHash: plan.Hash(params)}
	token := strings.Repeat("e", 32)
	r := run.Run{ID: id.RunID(), ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion, ContractVersion: o.ContractVersion,
		PolicyHash: policyHash, ParamsHash: id.ParamsHash,
		PlanHash: id.PlanHash(), ProjectID: project, Actor: "human", State: run.Queued, Phase: run.Staging, AttemptN: 1}
	if _, _, err := w.ledger.Insert(t.Context(), run.New{Run: r, Params: params, Policy: o.Policy, Event: run.Event{Type: "run.created"},
		Submission: run.Submission{Token: token, JobName: run.JobName(r.ID, 1, token)}}); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// A run that was made when the params had their previous form answers the same request today, is carried on from its own params, and
// retried where it was sent then. The caller's own account was in its identity, and so were the artifacts' ids.
//
// proves ABI-18 CARD-04
func TestEarlierRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		o, _ := siteless()
		w.input(o)
		id := earlierRun(t, w, o, "sha256:of-then")
		w.cfg.Previous, w.cfg.Placement, w.auto = &run.Previous{Policies: []string{"sha256:other", "sha256:of-then"}},
			plan.Placement{Partition: "fast", Account: "other"}, true
		l := w.life()
		if a := l.submit(o); a.RunID != id || !a.Replayed {
			t.Errorf("%+v, want %s", a, id)
		}
		if p, err := l.engine.Preview(t.Context(), o); err != nil || p.RunID != id || !p.Exists || p.Placement.Partition != "main" ||
			plan.Hash(p.Params) != p.ParamsHash || p.PolicyHash != "sha256:of-then" {
			t.Errorf("%+v %v", p, err)
		}
		w.want(w.until(id, done), run.Succeeded, "ok")
		if at := w.job(0).spec.Spec.Placement; at.Partition != "main" || at.Account != "lab" || *at.QOS != "normal" {
			t.Errorf("it went to %+v", at)
		}
		// Another account, another artifact or a folder of the site was another run then, and is a new one now.
		for name, change := range map[string]func(*run.Order){
			"account": func(o *run.Order) { at := *o.Placement; at.Account = "teaching"; o.Placement = &at },
			"bind": func(o *run.Order) {
				o.Params.Tool = &plan.ToolExtra{Version: "1.0.0", MaxOutputBytes: 1000, Binds: []plan.Bind{{Name: "ref", Version: "1"}}}
			},
			"artifact": func(o *run.Order) { o.Params.Spec.IO.Inputs[0].ArtifactID = "art_" + strings.Repeat("7", 26) },
		} {
			other, _ := siteless()
			change(&other)
			if a := l.submit(other); a.RunID == id {
				t.Errorf("another %s, and it is the same run", name)
			}
		}
		if w.count("Send") != 3 { // the first, one for account and artifact together, one with the bind
			t.Error(w.count("Send"))
		}
	})
}

// The ledger looks for the earlier run in the transaction that would insert a new one: a submit that did not see it before finds it there.
func TestEarlierRunInTheTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		o, _ := siteless()
		w.input(o)
		w.cfg.Previous = &run.Previous{Policies: []string{"sha256:of-then"}}
		var id string
		l := w.life()
		w.with(func() {
			w.fault = func(op string, _ int) outcome {
				if op == "Insert" && id == "" {
					id = earlierRun(t, w, o, "sha256:of-then") // restored, or written by a gateway whose lock was bypassed
				}
				return outcome{}
			}
		})
		if a := l.submit(o); a.RunID != id || !a.Replayed {
			t.Errorf("%+v, want %s", a, id)
		}
		if page, err := w.ledger.List(t.Context(), ledger.Filter{}); err != nil || len(page.Runs) != 1 {
			t.Errorf("%+v %v", page, err)
		}
	})
}
