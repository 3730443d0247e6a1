package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// limited makes every sbatch of the test's tool check that with it at most the allowed number of jobs can execute.
func (w *world) limited(most int) {
	w.auto, w.cfg.InFlight = true, map[string]int{"test_tool": most}
	w.send = func(int) sendKind {
		n := 1
		for _, j := range w.jobs {
			claim := string(w.attempt(j.spec.RunID, j.spec.N).ctl["claim"])
			void := claim != "" && !strings.Contains(claim, "job="+j.ID+" ") // cancelled: Slurm may still list it, but it cannot execute
			if j.Class != run.ClassEnded && !void {
				n++
			}
		}
		if n > most {
			w.t.Errorf("LIMIT: %d jobs, policy allows %d", n, most)
		}
		return accept
	}
}

// Policy's limit of a tool's runs bounds those that are with Slurm or running, however many are submitted and however
// many workers there are. The others wait with a reason, and are sent by themselves.
//
// proves AX-08
func TestRunsOfOneTool(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.limited(2)
		w.cfg.Workers, w.cfg.SendsAtOnce, w.cfg.SubmitWait = 8, 8, time.Nanosecond
		l := w.life()
		var ids []string
		for i := range 20 {
			ids = append(ids, l.submit(order(placed("lab", "short", nil, i+1))).RunID)
		}
		v := w.until(ids[19], in(run.Deferred))
		const want = "policy allows 2 runs of test.tool at a time (concurrency.per_tool.test_tool), and 2 are submitted or running; this run " +
			"is submitted when one of them ends"
		if v.Run.Reason != run.ConcurrencyLimit || v.Run.Detail != want || v.Sends != 0 {
			t.Errorf("%s: %s (%d sends)", v.Run.Reason, v.Run.Detail, v.Sends)
		}
		began := time.Now()
		w.wantAll(ids, run.Succeeded, "ok")
		if d := time.Since(began); d > 3*time.Minute {
			t.Errorf("20 runs of a few seconds took %s: a free place waits", d)
		}
		w.wantCount("Send", 20)
	})
}

// Other tools, and plans submitted as they are, do not wait for it.
func TestLimitOfAnotherTool(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.InFlight = map[string]int{"test_tool": 1}
		l := w.life()
		l.wantPhase(order(), run.Pending)
		other := order(placed("lab", "short", nil, 2))
		other.ToolID, other.ToolName = "test.other", "test_other"
		raw := order(placed("lab", "short", nil, 3))
		raw.PackHash, raw.Pack = "", nil
		for _, o := range []run.Order{other, raw} {
			l.wantPhase(o, run.Pending)
		}
		l.wantPhase(order(placed("lab", "short", nil, 4)), run.Deferred)
	})
}

// Whatever ends a run, or prevents its send, frees its place; a waiting run can be cancelled.
func TestPlacesAreGivenBack(t *testing.T) {
	for name, kind := range map[string]sendKind{"refused": reject, "no room": deferSend, "not run": notRun, "lost": doubtNone} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.auto, w.cfg.InFlight = true, map[string]int{"test_tool": 1}
			w.deferred = run.SendResult{Scope: run.ScopeRun}
			w.send = sends(kind, accept)
			l := w.life()
			first := l.submit(order())
			gone := l.submit(order(placed("lab", "short", nil, 2)))
			l.cancelRun(gone.RunID)
			next := l.submit(order(placed("lab", "short", nil, 3)))
			w.want(w.until(next.RunID, done), run.Succeeded, "ok")
			w.until(first.RunID, done)
		})
	}
}

// A gateway that dies at any moment leaves a count that the next one restores: never one run too many, and none that
// waits for ever.
func TestLimitSurvivesCrashes(t *testing.T) {
	for n := 1; n <= 60; n++ {
		bubbleRun(t, fmt.Sprint("operation ", n), func(t *testing.T, w *world) {
			w.limited(1)
			w.cfg.SubmitWait, w.cfg.Attempts = time.Nanosecond, 2
			w.fault = func(_ string, k int) outcome { return outcome{kill: k == n} }
			l := w.life()
			var ids []string
			orders := []run.Order{order(placed("lab", "short", nil, 1)), order(placed("lab", "short", nil, 2)),
				order(placed("lab", "short", nil, 3))}
			for _, o := range orders {
				w.input(o)
				if a, err := l.engine.Submit(t.Context(), o); err == nil {
					ids = append(ids, a.RunID)
				}
			}
			time.Sleep(time.Minute)
			l.crash()
			l = w.life()
			for _, o := range orders {
				ids = append(ids, l.submit(o).RunID)
			}
			w.wantAll(ids, run.Succeeded, "ok")
		})
	}
}

// A run whose place was reserved and whose intent could not be recorded frees the place.
func TestPlaceWithoutIntent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.limited(1)
		down := true
		w.fault = failingWhile(&down, fault.New(fault.Transport, "ledger_busy", "not now"), "Apply")
		l, a := w.submitted()
		w.with(func() { down = false })
		b := l.submit(order(placed("lab", "short", nil, 2)))
		if b.Phase != run.Pending {
			t.Errorf("a run after the restart is %+v, want pending", b)
		}
		for _, id := range []string{a.RunID, b.RunID} {
			w.want(w.until(id, done), run.Succeeded, "ok")
		}
	})
}

// Staging may take as long as the pack allows. A run that takes longer ends, and names the time; nothing is submitted.
func TestStagingTime(t *testing.T) {
	for name, c := range map[string]struct {
		copying time.Duration
		raw     bool
		state   run.State
		reason  string
	}{
		"in time":           {59 * time.Second, false, run.Succeeded, "ok"},
		"too slow":          {61 * time.Second, false, run.Failed, "time_limit"},
		"slow, not by pack": {61 * time.Second, true, run.Succeeded, "ok"},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.auto, w.copying, w.asked.timeout = true, c.copying, time.Minute
			o := order()
			if c.raw {
				o.PackHash, o.Pack = "", nil
			}
			l := w.life()
			v := w.ended(l.submit(o).RunID, c.state, c.reason)
			if c.state == run.Succeeded {
				return
			}
			const want = "staging took 1m0s; the toolpack's timeoutMs allows 1m0s. Nothing was submitted. Raise timeoutMs, or retry the run " +
				"when the filesystem is faster"
			if v.Run.Detail != want || v.Attempt.Ending != run.EndedTimeLimit || w.count("Send") != 0 {
				t.Errorf("%s (%s), %d sends", v.Run.Detail, v.Attempt.Ending, w.count("Send"))
			}
			w.with(func() { w.copying = 0 })
			must(l.engine.Retry(t.Context(), v.Run.ID, run.RetryOrder{After: 1}))
			w.want(w.until(v.Run.ID, done), run.Succeeded, "ok")
		})
	}
}

// A filesystem that is unavailable is waited for however long it takes: that is not staging time. Each try has the
// whole time.
func TestStagingTimeWithoutFilesystem(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto, w.copying, w.asked.timeout = true, 50*time.Second, time.Minute
		away := true
		w.fault = failingWhile(&away, errTransient, "StageInputs")
		_, a := w.submitted()
		time.Sleep(20 * time.Minute)
		w.want(w.until(a.RunID, in(run.Staging)), run.Queued, "staging_waits")
		w.with(func() { away = false })
		w.want(w.until(a.RunID, done), run.Succeeded, "ok")
	})
}

// Runs on the gateway's own host count too, together with those in Slurm; a new attempt takes a place like the first.
func TestLimitOfLocalRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.limited(1)
		w.auto = false
		local := order()
		local.Params.Spec.Placement, local.Params.Docker = plan.Placement{}, true
		l := w.life()
		here := l.submit(local)
		w.until(here.RunID, in(run.Pending))
		next := l.submit(order(placed("lab", "short", nil, 2)))
		if next.Phase != run.Deferred || !strings.HasPrefix(*next.Reason, run.ConcurrencyLimit) {
			t.Errorf("the next run is %+v, want deferred for the limit", next)
		}
		l.cancelRun(here.RunID)
		w.until(next.RunID, in(run.Pending))
		if again := l.submit(local); again.Phase != run.Deferred || again.Attempt != 2 {
			t.Errorf("the run that was retried is %+v, want its second attempt deferred", again)
		}
		w.with(func() { w.auto = true })
		for _, id := range []string{here.RunID, next.RunID} {
			w.want(w.until(id, done), run.Succeeded, "ok")
		}
	})
}
