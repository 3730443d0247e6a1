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
		l, a := w.submitted()
		if a.Replayed || a.State != run.Queued || a.Phase != run.Pending || *a.SlurmJobID != "100" || a.SlurmScriptArtifactID == nil ||
			*a.PollAfterSeconds < 1 || a.Warnings == nil || a.EquivalentRuns == nil {
			t.Errorf("the order is answered %+v, want a new run pending in job 100", a)
		}
		w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "waiting_in_slurm" && v.Run.Detail == "Priority" })
		w.startJob(a.RunID)
		w.with(func() { w.finish(w.jobs[0]) })
		v := w.ended(a.RunID, run.Succeeded, "ok")
		if *v.Run.ExitCode != 0 || v.Attempt.Ending != run.EndedOK || v.Attempt.Node != "n1" || v.Attempt.Usage == nil ||
			v.Run.FinishedAt == nil {
			t.Errorf("the run is %+v, want ended well on n1, with its usage", v)
		}
		got := w.outputs(a.RunID)
		if got["report"] != `{"role":"report"}` || got["table"] != `{"role":"table"}` || got["stdout"] != "said" ||
			!strings.Contains(got["log"], "ok, code 0") || !strings.HasPrefix(got["slurm_script"], "#!") {
			t.Errorf("the outputs are %q, want report, table, stdout, log and slurm_script", got)
		}
		if d := cmp.Diff([]string{"created", "intent", "receipt", "pending", "running", "collecting", "succeeded"}, w.events(a.RunID)); d != "" {
			t.Errorf("the events of the run differ (-want +got):\n%s", d)
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
			t.Errorf("the result is %s %v, want it succeeded with two outputs and the value of report", v.Run.ResultJSON, err)
		}
		c, err := l.engine.Collect(t.Context(), a.RunID, 0)
		if err != nil || !c.Ready || *c.ExitCode != 0 || c.PollAfterSeconds != nil || c.ArtifactsByRole["report"] == "" ||
			*c.LogArtifactID != c.ArtifactsByRole["log"] {
			t.Errorf("the results are %+v %v, want ready, with report and log", c, err)
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
				t.Errorf("the order again is answered %+v, want the first run and its job", a)
			}
		}
		again()
		w.startJob(first.RunID)
		again()
		l.stop()
		l = w.life()
		again()
		w.with(func() { w.exitFile(w.jobs[0], 3, "tool_failed"); w.end(w.jobs[0], "FAILED", 3) })
		w.until(first.RunID, done)
		again()
		if w.count("Send") != 1 || len(w.jobs) != 1 {
			t.Errorf("the replayed order was sent %d times as %d jobs, want once as one job", w.count("Send"), len(w.jobs))
		}
		other := l.submit(order(func(p *plan.Params) { p.Spec.Resources.CPUs = 2 }))
		if other.Replayed || other.RunID == first.RunID {
			t.Errorf("another order is answered %+v, want another run", other)
		}
	})
}

// A thousand concurrent callers: one staging, one send. proves ABI-18
//
// no race: each of its millions of steps is like the one before
func TestConcurrentSubmits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		w.input(order())
		var fresh atomic.Int64
		var ids sync.Map
		var wg sync.WaitGroup
		for range 1000 {
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
			t.Errorf("concurrent submits gave %d new runs, %d ids and the calls %v, want one of each", fresh.Load(), n, w.calls)
		}
	})
}

// The same plan under another policy is another run; the answer names the first, or policy reuses it.
func TestEquivalentRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		first := l.submit(order())
		o := order()
		o.Policy = json.RawMessage(`{"version":1,"x":2}`)
		o.PolicyHash = plan.Hash(o.Policy)
		second := l.submit(o)
		if second.RunID == first.RunID || second.Replayed || !slices.Equal(second.EquivalentRuns, []string{first.RunID}) {
			t.Errorf("the order under another policy is answered %+v, want another run that names the first", second)
		}
		l.stop()
		w.cfg.ReuseAcross = true
		l = w.life()
		o.Policy = json.RawMessage(`{"version":1,"x":3}`)
		o.PolicyHash = plan.Hash(o.Policy)
		third := l.submit(o)
		if !third.Replayed || third.RunID != second.RunID && third.RunID != first.RunID || len(third.Warnings) != 1 {
			t.Errorf("the order that may reuse a run is answered %+v, want one of the two with a warning", third)
		}
		w.wantCount("Send", 2)
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
		"refused in words":        {[]sendKind{refuseWords}, run.Unconfirmed, run.RefusedInWords, run.Failed, "rejected", 0},
		"doubt, no job":           {[]sendKind{doubtNone}, run.Unconfirmed, "no_receipt", run.Failed, "absent", 0},
		"deferred, then doubt":    {[]sendKind{deferSend, doubtJob}, run.Deferred, "QOSMaxSubmitJobPerUserLimit", run.Succeeded, "ok", 1},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.send = sends(c.sends...)
			_, a := w.submitted()
			reason := ""
			if a.Reason != nil {
				reason = *a.Reason
			}
			if a.Phase != c.phase || !strings.HasPrefix(reason, c.reason) {
				t.Errorf("the order is answered with phase %s and reason %q, want %s and %q", a.Phase, reason, c.phase, c.reason)
			}
			w.with(func() { w.auto = true })
			w.want(w.until(a.RunID, done), c.state, c.ended)
			if len(w.jobs) != c.jobs || w.count("Send") != len(c.sends) {
				t.Errorf("the run had %d jobs by %d sends, want %d by %d", len(w.jobs), w.count("Send"), c.jobs, len(c.sends))
			}
		})
	}
}

// A refusal in a site's own message ends the run after one send, with the message, once the gateway has the claim: also
// if the gateway died in between, and slurmrestd's answer is lost. The runs of an array are sent once more, each alone.
// A cancelled run stays cancelled.
func TestRefusedInWords(t *testing.T) {
	const words = "Project alice-2 has used its hours"
	silent := failing(errTransient, "Queue")
	for _, restarted := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			w.send = sends(refuseWords)
			w.fault = silent
			l, a := w.submitted()
			if v := w.until(a.RunID, in(run.Unconfirmed)); !strings.Contains(v.Run.Detail, words) {
				t.Errorf("while Slurm does not answer the run says %s: %s", v.Run.Reason, v.Run.Detail)
			}
			if restarted {
				l.crash()
				w.with(func() { clear(w.sent) })
				l = w.life()
			}
			w.with(func() { w.fault = nil })
			v := w.ended(a.RunID, run.Failed, "rejected")
			claim := w.attempt(a.RunID, 1).ctl[run.ClaimFile]
			if !strings.Contains(v.Run.Detail, words) || w.count("Send") != 1 || !strings.Contains(string(claim), "void") {
				t.Errorf("after %d sends, with the claim %q: %s", w.count("Send"), claim, v.Run.Detail)
			}
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(refuseWords)
		w.fault = silent
		l, a := w.submitted()
		w.until(a.RunID, in(run.Unconfirmed))
		l.cancelRun(a.RunID)
		w.with(func() { w.fault = nil })
		if v := w.until(a.RunID, done); v.Run.State != run.Cancelled {
			t.Errorf("a cancelled run is %s: %s", v.Run.State, v.Run.Detail)
		}
	})
}

// A run that waits for room backs off, names the reason, and uses no more than one sbatch each time.
func TestDeferBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(deferSend)
		_, a := w.submitted()
		time.Sleep(10 * time.Minute)
		if n := w.count("Send"); n < 20 || n > 80 {
			t.Errorf("there were %d sends in ten minutes, want 20 to 80", n)
		}
		w.with(func() { w.send = nil })
		w.until(a.RunID, in(run.Pending))
		sends, err := w.ledger.Sends(t.Context(), w.attempt(a.RunID, 1).token)
		if err != nil || len(sends) != w.count("Send") {
			t.Error(err)
		}
		for i, s := range sends[:len(sends)-1] {
			if s.Outcome != run.SendDeferred || s.K != i+1 || *s.ExitCode != 1 || s.EndedAt == nil {
				t.Errorf("the send is %+v, want deferred, in its turn, and ended", s)
			}
		}
	})
}

// Nothing is recorded for an image that is missing.
func TestImageMissing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.fault = failing(fault.New(fault.NotFound, "image_not_found", "no such image"), "Verify")
		_, err := w.life().engine.Submit(t.Context(), order())
		if fault.CodeOf(err) != "image_not_found" {
			t.Error(err)
		}
		if p, _ := w.ledger.List(t.Context(), ledgerAll); len(p.Runs) != 0 {
			t.Errorf("after the refused order the ledger lists %+v, want no runs", p)
		}
	})
}

// Faults of staging, and of the intent that stores the script: another try, an end, or a person.
func TestStagingFaults(t *testing.T) {
	for _, op := range []string{"StageInputs", "OpenAttempt", "Apply"} {
		for _, kind := range []fault.Kind{fault.Transport, fault.Timeout, fault.Validation, fault.Conflict} {
			if op == "Apply" && kind != fault.Transport {
				continue
			}
			bubbleRun(t, fmt.Sprint(op, " ", kind), func(t *testing.T, w *world) {
				w.auto = true
				w.fault = func(o string, _ int) outcome {
					if o == op && w.calls[op] <= 2 {
						return outcome{skip: true, err: fault.New(kind, "some_fault", "of the filesystem")}
					}
					return outcome{}
				}
				_, a := w.submitted()
				v := w.until(a.RunID, done)
				if kind.Retryable() {
					w.want(v, run.Succeeded, "ok")
				} else {
					w.want(v, run.Failed, "some_fault")
					if w.count("Send") != 0 || v.Attempt.Ending != run.EndedStaging {
						t.Errorf("the calls are %v and the ending is %s, want no Send and %s",
							w.calls, v.Attempt.Ending, run.EndedStaging)
					}
				}
			})
		}
	}
}

// A workspace with an attempt that the ledger does not know, as after a restored backup, stops the run; cancel resolves
// it and nothing was sent.
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
			t.Errorf("the order is answered %+v, want blocked with the job to cancel", a)
		}
		l.wantCancel(a.RunID, run.Cancelled, "maybe")
		w.wantCount("Send", 0)
	})
}

// Get never queries Slurm.
func TestGet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, a := w.submitted()
		w.until(a.RunID, func(v run.View) bool { return v.Attempt.SlurmState == "PENDING" })
		synctest.Wait()
		before := w.count("Queue")
		for range 100 {
			g, err := l.engine.Get(t.Context(), a.RunID, 0)
			if err != nil || g.State != run.Queued || g.TargetRunID != a.RunID || g.ObservedAt == nil {
				t.Fatalf("the look at the run is %+v %v, want queued", g, err)
			}
		}
		w.wantCount("Queue", before)
		w.startJob(a.RunID)
		start := time.Now()
		g, err := l.engine.Get(t.Context(), a.RunID, 3*time.Second)
		if err != nil || time.Since(start) != 3*time.Second || g.State != run.Running {
			t.Errorf("Get returned after %s with %+v %v, want %s after 3s", time.Since(start), g, err, run.Running)
		}
		time.AfterFunc(2*time.Second, func() { w.with(func() { w.finish(w.jobs[0]) }) })
		if g, err = l.engine.Get(t.Context(), a.RunID, 30*time.Second); err != nil || g.State != run.Succeeded ||
			g.PollAfterSeconds != nil {
			t.Errorf("the look that waits is %+v %v, want the end", g, err)
		}
		if _, err := l.engine.Get(t.Context(), "run_none", 0); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	})
}

func TestLogs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, a := w.submitted()
		w.with(func() { w.start(w.jobs[0]); w.attempt(a.RunID, 1).ctl["stdout"] = []byte("half\xff") })
		w.until(a.RunID, in(run.InJob))
		g, err := l.engine.Logs(t.Context(), a.RunID, "stdout", run.LogPart{Limit: 100})
		if err != nil || g.Text != "half\uFFFD" || g.Final {
			t.Errorf("the log is %+v %v, want what is there so far", g, err)
		}
		if g, err = l.engine.Logs(t.Context(), a.RunID, "stderr", run.LogPart{Limit: 100}); err != nil || g.Text != "" {
			t.Errorf("the log of stderr is %+v %v, want none", g, err)
		}
		w.with(func() { w.finish(w.jobs[0]) })
		w.until(a.RunID, done)
		w.with(func() { w.attempt(a.RunID, 1).ctl["stdout"] = []byte("changed later") })
		for stream, want := range map[string]string{"stdout": "said\n", "log": "said\n"} {
			if g, err = l.engine.Logs(t.Context(), a.RunID, stream, run.LogPart{Limit: 11}); err != nil || !strings.HasSuffix(want, g.Text) &&
				!strings.HasSuffix(g.Text, want) || !g.Final || len(g.Text) > 11 {
				t.Errorf("Logs of %s gives %+v %v, want at most 11 bytes of %q, final", stream, g, err, want)
			}
		}
	})
}
