package run_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// slowly limits the world's budget to one send a second, and makes every call answer immediately.
func (w *world) slowly() {
	w.cfg.SubmitWait = time.Nanosecond
	w.pace = func(ctx context.Context, _ bool) error {
		select {
		case <-time.After(time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// of returns a caller's n-th request in a project.
func of(projectName, caller string, n int) run.Order {
	o := order(func(p *plan.Params) {
		if projectName != "" {
			p.ProjectID = plan.ProjectID(projectName)
		}
		p.Spec.Execution.Command.Argv = []string{"tool", caller, fmt.Sprint(n)}
	})
	o.Asking.Principal = run.Principal{ID: "prn_" + caller, Name: "user:" + caller}
	return o
}

// sentOf counts the jobs that Slurm was given, by caller, among the first so many; 0: all.
func (w *world) sentOf(first int) map[string]int {
	n := map[string]int{}
	w.with(func() {
		for i, j := range w.jobs {
			if first == 0 || i < first {
				n[j.spec.Spec.Execution.Command.Argv[1]]++
			}
		}
	})
	return n
}

func (l *life) submitMany(projectName, caller string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, l.submit(of(projectName, caller, i)).RunID)
	}
	return ids
}

// Three projects share by their weights, and the callers of a project equally, late ones included.
//
// proves OPS-03
func TestSharesByWeight(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.slowly()
		w.cfg.Weight = func(id string) int { return map[string]int{plan.ProjectID("heavy"): 3}[id] }
		l := w.life()
		l.submitMany("heavy", "a", 100)
		l.submitMany("heavy", "b", 100)
		l.submitMany("light", "c", 100)
		time.Sleep(20 * time.Second)
		before := w.sentOf(0)
		l.submitMany("late", "d", 100)
		time.Sleep(100 * time.Second)
		after := w.sentOf(0)
		for caller, want := range map[string]int{"a": 30, "b": 30, "c": 20, "d": 20} {
			if n := after[caller] - before[caller]; n < want-3 || n > want+3 {
				t.Errorf("%s had %d of 100 sends, not %d (%v, then %v)", caller, n, want, before, after)
			}
		}
		l.stop()
	})
}

// A caller whose staging hangs, or whose runs always fail, delays no other caller.
func TestACallerInTroubleHoldsUpNobody(t *testing.T) {
	for _, trouble := range []string{"hangs", "fails"} {
		bubble(t, func(t *testing.T, w *world) {
			w.auto, w.cfg.SubmitWait = true, time.Nanosecond
			w.allowed = func(_ string, p plan.Params) error {
				switch {
				case p.Spec.Execution.Command.Argv[1] != "bad":
				case trouble == "hangs":
					time.Sleep(time.Hour) // like a filesystem that does not answer
				default:
					return fault.New(fault.Transport, "disk_full", "no space")
				}
				return nil
			}
			l := w.life()
			bad := l.submitMany("", "bad", 50)
			time.Sleep(5 * time.Second)
			began := time.Now()
			for i := range 5 {
				w.want(w.until(l.submit(of("", "good", i)).RunID, done), run.Succeeded, "ok")
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("while another caller's run %s, five runs took %s, want a minute at most", trouble, took)
			}
			for _, id := range bad {
				l.cancelRun(id)
			}
			w.wantAll(bad, run.Cancelled, "cancelled")
		})
	}
}

// A run that is cancelled while it waits leaves the line, and a gateway that starts in the middle continues as fairly
// as the one before.
func TestFairAfterCancelAndRestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.slowly()
		w.auto = true
		l := w.life()
		many := l.submitMany("", "many", 100)
		one := l.submitMany("other", "one", 10)
		time.Sleep(5 * time.Second)
		for _, id := range many[60:] {
			l.cancelRun(id)
		}
		l.crash()
		l = w.life()
		late := l.submit(of("", "late", 0)).RunID
		began := time.Now()
		for _, id := range append(one, late) {
			w.want(w.until(id, done), run.Succeeded, "ok")
		}
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("eleven runs of others took %s after a restart, want 40s at most", took)
		}
		for i, id := range many {
			v := w.until(id, done)
			if cancelled := v.Run.State == run.Cancelled; cancelled != (i >= 60) {
				t.Errorf("run %d is %s, want cancelled from run 60 on only", i, v.Run.State)
			}
		}
		if n := w.count("Send"); n != 60+10+1 {
			t.Errorf("71 runs were sent %d times, want once each", n)
		}
	})
}

// A limit on runs in flight, of a project and of a caller, is kept whatever is submitted together and across a crash; a
// run that waits for a place gets it in turn, and a caller with no run in flight is not behind callers with many.
//
// proves OPS-03
func TestRunsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto, w.cfg.Workers, w.cfg.SendsAtOnce, w.cfg.SubmitWait = true, 8, 8, time.Nanosecond
		w.cfg.ProjectInFlight = func(id string) int { return map[string]int{project: 4}[id] }
		w.cfg.CallerInFlight = func(caller string) int { return map[string]int{"prn_many": 3}[caller] }
		w.send = func(int) sendKind {
			n := map[string]int{}
			for _, j := range w.jobs {
				if j.Class != run.ClassEnded {
					n[j.spec.Spec.Execution.Command.Argv[1]]++
				}
			}
			if n["many"] > 3 || n["many"]+n["two"] > 4 {
				t.Errorf("LIMIT: %v", n)
			}
			return accept
		}
		l := w.life()
		ids := l.submitMany("", "many", 30)
		v := w.until(ids[29], in(run.Deferred))
		if want := "the caller has 3 runs in flight (limit 3, runs_in_flight of the caller in the site file); this run is submitted when one " +
			"of them ends"; v.Run.Reason != run.CallerLimit || v.Run.Detail != want {
			t.Errorf("the run over the caller's limit says %s: %q, want %s: %q",
				v.Run.Reason, v.Run.Detail, run.CallerLimit, want)
		}
		ids = append(ids, l.submitMany("", "two", 20)...)
		v = w.until(ids[49], in(run.Deferred))
		if v.Run.Reason != run.ProjectLimit {
			t.Errorf("the run over the project's limit says %s: %q, want the reason %s",
				v.Run.Reason, v.Run.Detail, run.ProjectLimit)
		}
		time.Sleep(3 * time.Second)
		l.crash()
		l = w.life()
		free := l.submit(of("other", "two", 100)) // another project has its own limit, here none
		w.until(free.RunID, done)
		began := time.Now()
		for _, id := range l.submitMany("", "two", 5) {
			w.want(w.until(id, done), run.Succeeded, "ok")
		}
		w.wantAll(ids, run.Succeeded, "ok")
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("50 runs of a few seconds took %s: a free place waits", took)
		}
		w.wantCount("Send", 51)
	})
}

// A waiting run's reason says what it waits for: its turn, with the numbers of its caller, its project and all others;
// or a place among the runs in flight, with the limit. Of other projects it has only a number.
func TestWhatWaitsSaysOnWhom(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.slowly()
		w.cfg.ProjectInFlight = func(id string) int { return map[string]int{plan.ProjectID("full"): 2}[id] }
		l := w.life()
		ids := l.submitMany("", "many", 50)
		l.submitMany("other", "stranger", 20)
		mine := l.submitMany("", "one", 10)
		get := func(id string) run.GetAnswer {
			a, err := l.engine.Get(t.Context(), id, 0)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		a := get(mine[9])
		x := a.Waits
		if x == nil || x.Code != run.WaitsForTurn || x.Caller < 8 || x.Project < 50 || x.Others < 15 || x.Ahead < 30 || x.Ahead > 40 ||
			x.Limit != nil ||
			x.Busiest == nil || x.Busiest.PrincipalID != "prn_many" {
			t.Fatalf("the run in the middle waits for %+v, want its turn behind its caller's, its project's and others' runs", x)
		}
		want := fmt.Sprintf("waits for its turn: %d runs before it; its caller has %d waiting, its project %d, other projects %d", x.Ahead,
			x.Caller, x.Project, x.Others)
		if x.Text != want || a.Reason == nil || *a.Reason != "turn: "+want {
			t.Errorf("%s; %v", x.Text, a.Reason)
		}
		if last := get(ids[49]).Waits; last == nil || last.Ahead <= x.Ahead {
			t.Errorf("the last run waits for %+v, want behind more runs than the one in the middle", last)
		}
		full := l.submitMany("full", "two", 10)
		w.until(full[9], in(run.Deferred))
		v := get(full[9])
		if x := v.Waits; x == nil || x.Code != run.ProjectLimit || *x.Limit != 2 || *x.Current != 2 || x.Text != fmt.Sprintf(
			"waits: its project has 2 runs in flight (limit 2); %d runs before it", x.Ahead) {
			t.Errorf("the run of the full project waits for %+v, want for the limit of its project", x)
		}
		w.with(func() { w.auto = true })
		if v := w.until(mine[9], done); get(v.Run.ID).Waits != nil {
			t.Error("a finished run has Waits, want nil")
		}
		l.stop()
	})
}
