package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// From request to registered outputs. proves CARD-05, ABI-15, ARC-08
func TestHappyPath(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		a := l.submit(order())
		if a.Replayed || a.State != run.Queued || a.Phase != run.Pending || *a.SlurmJobID != "100" || a.SlurmScriptArtifactID == nil ||
			*a.PollAfterSeconds < 1 || a.Warnings == nil || a.EquivalentRuns == nil {
			t.Errorf("%+v", a)
		}
		w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "waiting_in_slurm" && v.Run.Detail == "Priority" })
		w.with(func() { w.start(w.jobs[0]) })
		w.until(a.RunID, in(run.InJob))
		w.with(func() { w.finish(w.jobs[0]) })
		v := w.until(a.RunID, done)
		w.want(v, run.Succeeded, "ok")
		if *v.Run.ExitCode != 0 || v.Attempt.Ending != run.EndedOK || v.Attempt.Node != "n1" || v.Attempt.Usage == nil ||
			v.Run.FinishedAt == nil {
			t.Errorf("%+v", v)
		}
		got := w.outputs(a.RunID)
		if got["report"] != `{"role":"report"}` || got["table"] != `{"role":"table"}` || got["stdout"] != "said" ||
			!strings.Contains(got["log"], "ok, code 0") || !strings.HasPrefix(got["slurm_script"], "#!") {
			t.Error(got)
		}
		if d := cmp.Diff([]string{"created", "intent", "receipt", "pending", "running", "collecting", "succeeded"}, w.events(a.RunID)); d != "" {
			t.Error(d)
		}
		var res struct {
			State  string
			Output map[string]struct {
				Value json.RawMessage
				Label string
			}
		}
		if err := json.Unmarshal(v.Run.ResultJSON, &res); err != nil || res.State != "succeeded" ||
			string(res.Output["report"].Value) != `{"role":"report"}` || res.Output["table"].Value != nil || len(res.Output) != 2 {
			t.Errorf("%s %v", v.Run.ResultJSON, err)
		}
		c, err := l.engine.Collect(t.Context(), a.RunID, 0, noRun)
		if err != nil || !c.Ready || *c.ExitCode != 0 || c.PollAfterSeconds != nil || c.ArtifactsByRole["report"] == "" ||
			*c.LogArtifactID != c.ArtifactsByRole["log"] {
			t.Errorf("%+v %v", c, err)
		}
	})
}

// The same request is the same run in every state it passes, and nothing is sent again. proves ABI-18, CARD-04
func TestReplay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		first := l.submit(order())
		again := func() {
			a := l.submit(order())
			if !a.Replayed || a.RunID != first.RunID || *a.SlurmJobID != *first.SlurmJobID {
				t.Errorf("%+v", a)
			}
		}
		again()
		w.with(func() { w.start(w.jobs[0]) })
		w.until(first.RunID, in(run.InJob))
		again()
		l.stop()
		l = w.life()
		again()
		w.with(func() { w.exitFile(w.jobs[0], 3, "tool_failed"); w.end(w.jobs[0], "FAILED", 3) })
		w.until(first.RunID, done)
		again()
		if w.count("Send") != 1 || len(w.jobs) != 1 {
			t.Error(w.count("Send"), len(w.jobs))
		}
		other := l.submit(order(func(p *plan.Params) { p.Spec.Resources.CPUs = 2 }))
		if other.Replayed || other.RunID == first.RunID {
			t.Errorf("%+v", other)
		}
	})
}

// Ten thousand callers at once: one staging, one send. proves ABI-18
func TestConcurrentSubmits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		w.input(order())
		var fresh atomic.Int64
		var ids sync.Map
		var wg sync.WaitGroup
		for range 10_000 {
			wg.Go(func() {
				a, err := l.engine.Submit(context.Background(), order())
				if err != nil {
					t.Error(err)
				}
				if !a.Replayed {
					fresh.Add(1)
				}
				ids.Store(a.RunID, true)
			})
		}
		wg.Wait()
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		if fresh.Load() != 1 || n != 1 || w.count("StageInputs") != 1 || w.count("Send") != 1 {
			t.Error(fresh.Load(), n, w.calls)
		}
	})
}

// The same plan under another policy is another run; the answer says so, or policy reuses the first.
func TestEquivalentRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		first := l.submit(order())
		o := order()
		o.Policy = json.RawMessage(`{"version":1,"x":2}`)
		o.PolicyHash = plan.Hash(o.Policy)
		second := l.submit(o)
		if second.RunID == first.RunID || second.Replayed || !slices.Equal(second.EquivalentRuns, []string{first.RunID}) {
			t.Errorf("%+v", second)
		}
		l.stop()
		w.cfg.ReuseAcross = true
		l = w.life()
		o.Policy = json.RawMessage(`{"version":1,"x":3}`)
		o.PolicyHash = plan.Hash(o.Policy)
		third := l.submit(o)
		if !third.Replayed || third.RunID != second.RunID && third.RunID != first.RunID || len(third.Warnings) != 1 {
			t.Errorf("%+v", third)
		}
		if w.count("Send") != 2 {
			t.Error(w.count("Send"))
		}
	})
}

// What each outcome of a send leads to.
func TestSendOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		sends  []sendKind
		phase  run.Phase
		reason string
		state  run.State // in the end, with jobs moving on
		ended  string
		jobs   int
	}{
		"accepted": {[]sendKind{accept}, run.Pending, "", run.Succeeded, "ok", 1},
		"rejected": {[]sendKind{reject}, run.Done, "rejected", run.Failed, "rejected", 0},
		"deferred, then accepted": {[]sendKind{deferSend, deferSend, accept}, run.Deferred, "QOSMaxSubmitJobPerUserLimit", run.Succeeded, "ok",
			1},
		"deferred, then rejected": {[]sendKind{deferSend, reject}, run.Deferred, "QOSMaxSubmitJobPerUserLimit", run.Failed, "rejected", 0},
		"not run, then accepted":  {[]sendKind{notRun, accept}, run.Deferred, "sbatch_not_started", run.Succeeded, "ok", 1},
		"doubt, job there":        {[]sendKind{doubtJob}, run.Unconfirmed, "no_receipt", run.Succeeded, "ok", 1},
		"doubt, no job":           {[]sendKind{doubtNone}, run.Unconfirmed, "no_receipt", run.Failed, "absent", 0},
		"deferred, then doubt":    {[]sendKind{deferSend, doubtJob}, run.Deferred, "QOSMaxSubmitJobPerUserLimit", run.Succeeded, "ok", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.send = func(n int) sendKind { return c.sends[n-1] }
				l := w.life()
				a := l.submit(order())
				if a.Phase != c.phase || c.reason != "" && (a.Reason == nil || !strings.HasPrefix(*a.Reason, c.reason)) {
					t.Errorf("%+v", a)
				}
				w.with(func() { w.auto = true })
				w.want(w.until(a.RunID, done), c.state, c.ended)
				if len(w.jobs) != c.jobs || w.count("Send") != len(c.sends) {
					t.Error(len(w.jobs), w.count("Send"))
				}
			})
		})
	}
}

// Waiting for room backs off, says why, and uses no more than one sbatch each time.
func TestDeferBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(int) sendKind { return deferSend }
		l := w.life()
		a := l.submit(order())
		time.Sleep(10 * time.Minute)
		if n := w.count("Send"); n < 20 || n > 80 {
			t.Errorf("%d sends in ten minutes", n)
		}
		w.with(func() { w.send = nil })
		w.until(a.RunID, in(run.Pending))
		sends, err := w.ledger.Sends(t.Context(), w.attempt(a.RunID, 1).token)
		if err != nil || len(sends) != w.count("Send") {
			t.Error(err)
		}
		for i, s := range sends[:len(sends)-1] {
			if s.Outcome != run.SendDeferred || s.K != i+1 || *s.ExitCode != 1 || s.EndedAt == nil {
				t.Errorf("%+v", s)
			}
		}
	})
}

// Nothing is recorded for an image that is not there.
func TestImageMissing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.fault = func(op string, _ int) outcome {
			if op == "Verify" {
				return outcome{err: fault.New(fault.NotFound, "image_not_found", "no such image")}
			}
			return outcome{}
		}
		_, err := w.life().engine.Submit(t.Context(), order())
		if fault.CodeOf(err) != "image_not_found" {
			t.Error(err)
		}
		if p, _ := w.ledger.List(t.Context(), ledgerAll); len(p.Runs) != 0 {
			t.Error(p)
		}
	})
}

// What staging, and the intent that keeps the script, may run into: another try, an end, or a person.
func TestStagingFaults(t *testing.T) {
	for _, op := range []string{"StageInputs", "OpenAttempt", "Apply"} {
		for _, kind := range []fault.Kind{fault.Transport, fault.Timeout, fault.Validation, fault.Conflict} {
			if op == "Apply" && kind != fault.Transport {
				continue
			}
			t.Run(fmt.Sprint(op, " ", kind), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					w.auto = true
					w.fault = func(o string, _ int) outcome {
						if o == op && w.calls[op] <= 2 {
							return outcome{skip: true, err: fault.New(kind, "some_fault", "of the filesystem")}
						}
						return outcome{}
					}
					l := w.life()
					a := l.submit(order())
					v := w.until(a.RunID, done)
					if kind.Retryable() {
						w.want(v, run.Succeeded, "ok")
					} else {
						w.want(v, run.Failed, "some_fault")
						if w.count("Send") != 0 || v.Attempt.Ending != run.EndedStaging {
							t.Error(w.calls, v.Attempt.Ending)
						}
					}
				})
			})
		}
	}
}

// A workspace that knows an attempt the ledger does not, as after a restored backup, stops the run; cancel
// resolves it and nothing was sent.
func TestWorkspaceAheadOfLedger(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		o := order()
		_, id, err := o.Identity()
		if err != nil {
			t.Fatal(err)
		}
		w.attempts[id.RunID()+"/1"] = newAttempt("another")
		l := w.life()
		a := l.submit(o)
		if a.State != run.Blocked || a.Phase != run.AheadOfLedger || len(a.NextSteps) != 1 || a.NextSteps[0].Verb != "slurm.job.cancel" {
			t.Errorf("%+v", a)
		}
		c, err := l.engine.Cancel(t.Context(), a.RunID, "")
		if err != nil || c.State != run.Cancelled || c.Executed != "maybe" || w.count("Send") != 0 {
			t.Errorf("%+v %v", c, err)
		}
	})
}

// A look never asks Slurm; the same look at the same ledger is the same call. Part of ARC-11.
func TestGet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		a := l.submit(order())
		w.until(a.RunID, func(v run.View) bool { return v.Attempt.SlurmState == "PENDING" })
		synctest.Wait()
		before := w.count("Queue")
		call := lookOf(plan.Identity{ToolName: "slurm_job_get", ContractVersion: "v1", PolicyHash: "p"})
		var last run.GetAnswer
		for i := range 100 {
			g, err := l.engine.Get(t.Context(), a.RunID, 0, call)
			if err != nil || g.State != run.Queued || g.TargetRunID != a.RunID || i > 0 && g.ProvenanceRunID != last.ProvenanceRunID ||
				g.ObservedAt == nil {
				t.Fatalf("%+v %v", g, err)
			}
			last = g
		}
		if w.count("Queue") != before {
			t.Error("a look asked Slurm")
		}
		w.with(func() { w.start(w.jobs[0]) })
		w.until(a.RunID, in(run.InJob))
		if g, err := l.engine.Get(t.Context(), a.RunID, 0, call); err != nil || g.ProvenanceRunID == last.ProvenanceRunID ||
			!plan.IsRunID(g.ProvenanceRunID) {
			t.Error("the ledger moved, the look's identity did not", err)
		}
		start := time.Now()
		g, err := l.engine.Get(t.Context(), a.RunID, 3*time.Second, call)
		if err != nil || time.Since(start) != 3*time.Second || g.State != run.Running {
			t.Error(time.Since(start), g, err)
		}
		time.AfterFunc(2*time.Second, func() { w.with(func() { w.finish(w.jobs[0]) }) })
		if g, err = l.engine.Get(t.Context(), a.RunID, 30*time.Second, call); err != nil || g.State != run.Succeeded ||
			g.PollAfterSeconds != nil {
			t.Errorf("%+v %v", g, err)
		}
		if _, err := l.engine.Get(t.Context(), "run_none", 0, call); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	})
}

func TestLogs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		a := l.submit(order())
		w.with(func() { w.start(w.jobs[0]); w.attempt(a.RunID, 1).ctl["stdout"] = []byte("half\xff") })
		w.until(a.RunID, in(run.InJob))
		g, err := l.engine.Logs(t.Context(), a.RunID, "stdout", 100, noRun)
		if err != nil || g.Text != "half\uFFFD" || g.Final {
			t.Errorf("%+v %v", g, err)
		}
		if g, err = l.engine.Logs(t.Context(), a.RunID, "stderr", 100, noRun); err != nil || g.Text != "" {
			t.Errorf("%+v %v", g, err)
		}
		w.with(func() { w.finish(w.jobs[0]) })
		w.until(a.RunID, done)
		w.with(func() { w.attempt(a.RunID, 1).ctl["stdout"] = []byte("changed later") })
		for stream, want := range map[string]string{"stdout": "said\n", "log": "said\n"} {
			if g, err = l.engine.Logs(t.Context(), a.RunID, stream, 11, noRun); err != nil || !strings.HasSuffix(want, g.Text) &&
				!strings.HasSuffix(g.Text, want) || !g.Final || len(g.Text) > 11 {
				t.Errorf("%s: %+v %v", stream, g, err)
			}
		}
	})
}
