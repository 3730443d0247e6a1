package run_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// counted adds the cgroup's count of OOM kills to the exit record of a job.
func (a *attempt) counted(oom int) {
	a.ctl["exit"] = append(bytes.TrimSuffix(a.ctl["exit"], []byte("\n")), fmt.Sprintf(" oom=%d\n", oom)...)
}

// leaves lets the script of a run's job end, while Slurm shows the state.
func (w *world) leaves(j *job, state string, class run.Class, f func(a *attempt)) {
	w.with(func() {
		w.finish(j)
		j.State, j.Class, j.Ended, j.ExitCode = state, class, nil, nil
		f(w.attempt(j.spec.RunID, j.spec.N))
	})
}

var live = map[string]run.Class{"RUNNING": run.ClassRunning, "COMPLETING": run.ClassCompleting}

// The files of a job are collected before Slurm reports its end only if its own cgroup counted no OOM kill. What Slurm
// reports afterwards is recorded and changes nothing.
func TestCollectedEarly(t *testing.T) {
	for state, class := range live {
		for _, late := range []string{"COMPLETED", "NODE_FAIL", "OUT_OF_MEMORY"} {
			bubbleRun(t, state+", then "+late, func(t *testing.T, w *world) {
				w.cfg.Attempts = 3
				a := w.life().submit(order())
				w.startJob(a.RunID)
				w.leaves(w.job(0), state, class, func(a *attempt) { a.counted(0) })
				began := time.Now()
				w.want(w.until(a.RunID, done), run.Succeeded, "ok")
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the run was collected after %s, want a minute at most", took)
				}
				w.with(func() { w.end(w.jobs[0], late, 0) })
				time.Sleep(5 * time.Minute)
				w.want(w.until(a.RunID, done), run.Succeeded, "ok")
				if n := w.remarks("job.ended", `"run_id":"`+a.RunID+`","slurm_state":"`+late+`"`); n != 1 {
					t.Errorf("what Slurm said at last is recorded %d times, want once", n)
				}
				w.oneJob(1)
			})
		}
	}
}

// If an OOM kill was counted, or there is no count, or the run is cancelled, or the record is not the claim holder's,
// or there is no whole manifest, the run waits for Slurm.
func TestNotCollectedEarly(t *testing.T) {
	for name, c := range map[string]struct {
		left   func(a *attempt)
		cancel bool
		then   string
		want   string
	}{
		"no count":         {func(*attempt) {}, false, "OUT_OF_MEMORY", "out_of_memory"},
		"an OOM kill":      {func(a *attempt) { a.counted(1) }, false, "OUT_OF_MEMORY", "out_of_memory"},
		"no count, fine":   {func(*attempt) {}, false, "COMPLETED", "ok"},
		"a cancel":         {func(a *attempt) { a.counted(0) }, true, "CANCELLED", "cancelled"},
		"no manifest":      {func(a *attempt) { a.counted(0); delete(a.ctl, "manifest") }, false, "TIMEOUT", "time_limit"},
		"another's record": {func(a *attempt) { a.counted(0); a.edit("exit", "restart=0", "restart=1") }, false, "TIMEOUT", "time_limit"},
	} {
		for state, class := range live {
			bubbleRun(t, name+", "+state, func(t *testing.T, w *world) {
				l, a := w.running()
				if c.cancel {
					w.with(func() { w.deaf = true })
					l.cancelRun(a.RunID)
				}
				w.leaves(w.job(0), state, class, c.left)
				time.Sleep(10 * time.Minute)
				if v := w.until(a.RunID, func(run.View) bool { return true }); v.Run.Phase != run.InJob && v.Run.Phase != run.Completing {
					t.Fatalf("after ten minutes in which Slurm shows the job as %s the run is %s (%s)", state, v.Run.Phase, v.Run.Reason)
				}
				w.with(func() { w.end(w.jobs[0], c.then, 0) })
				if v := w.until(a.RunID, done); v.Run.Reason != c.want {
					t.Errorf("Slurm says %s, and the run ended as %s (%s), want %s", c.then, v.Run.State, v.Run.Reason, c.want)
				}
			})
		}
	}
}

// remarks counts the events of a type without a run whose data contains a text.
func (w *world) remarks(typ, text string) (n int) {
	events, err := w.ledger.Events(context.Background(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		if e.Type == typ && strings.Contains(string(e.Data), text) {
			n++
		}
	}
	return n
}

func (a *attempt) edit(file, old, with string) {
	a.ctl[file] = bytes.Replace(a.ctl[file], []byte(old), []byte(with), 1)
}

// NODE_FAIL, BOOT_FAIL and the status by which a second start reports that the claim is another's do not outweigh the
// exit record and the whole manifest of the claim's holder: nothing is executed again. All other states keep their
// meaning, and so do these without the record or the manifest.
func TestFinishedWorkIsKept(t *testing.T) {
	whole := func(*attempt) {}
	for name, c := range map[string]struct {
		state string
		code  int
		left  func(a *attempt)
		kept  bool
		why   string
	}{
		"NODE_FAIL":          {"NODE_FAIL", 0, whole, true, "ok"},
		"BOOT_FAIL":          {"BOOT_FAIL", 0, whole, true, "ok"},
		"FAILED 90:0":        {"FAILED", 90, whole, true, "ok"},
		"FAILED 1:0":         {"FAILED", 1, whole, false, "lost"},
		"LAUNCH_FAILED":      {"LAUNCH_FAILED", 0, whole, false, "boot_fail"},
		"PREEMPTED":          {"PREEMPTED", 0, whole, false, "preempted"},
		"OUT_OF_MEMORY":      {"OUT_OF_MEMORY", 0, whole, false, "out_of_memory"},
		"TIMEOUT":            {"TIMEOUT", 0, whole, false, "time_limit"},
		"CANCELLED":          {"CANCELLED", 0, whole, false, "cancelled"},
		"no manifest":        {"NODE_FAIL", 0, func(a *attempt) { delete(a.ctl, "manifest") }, false, "node_fail"},
		"half a manifest":    {"NODE_FAIL", 0, func(a *attempt) { a.edit("manifest", "end\n", "") }, false, "node_fail"},
		"another's manifest": {"FAILED", 90, func(a *attempt) { a.edit("manifest", "restart=0", "restart=1") }, false, "lost"},
		"another's claim":    {"NODE_FAIL", 0, func(a *attempt) { a.edit("claim", "restart=0", "restart=1") }, false, "node_fail"},
		"no exit record":     {"NODE_FAIL", 0, func(a *attempt) { delete(a.ctl, "exit") }, false, "node_fail"},
		"other bytes":        {"NODE_FAIL", 0, func(a *attempt) { a.out["out/t.tsv"] = "lost in the node's memory" }, false, "node_fail"},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			v := ended(t, w, nil, func(j *job, a *attempt) {
				w.finish(j)
				w.end(j, c.state, c.code)
				c.left(a)
			})
			if (v.Run.State == run.Succeeded) != c.kept || v.Run.Reason != c.why || v.Attempt.SlurmState != c.state {
				t.Errorf("Slurm says %s %d:0, and the run is %s (%s: %s), want %s", v.Attempt.SlurmState, c.code, v.Run.State, v.Run.Reason,
					v.Run.Detail, c.why)
			}
		})
	}
}

// A job that squeue no longer shows ends as accounting says, if its exit record does not show whether it was killed for
// lack of memory.
func TestAccountingKnowsMore(t *testing.T) {
	for name, c := range map[string]struct {
		count bool
		want  string
	}{"no count": {false, "out_of_memory"}, "counted 0": {true, "ok"}} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			silent := true
			w.accounting = func() ([]run.Job, error) {
				if silent {
					return nil, fault.New(fault.Transport, "slurm_unreachable", "sacct: connection refused")
				}
				return []run.Job{w.jobs[0].Job}, nil
			}
			a := w.life().submit(order())
			w.startJob(a.RunID)
			w.with(func() {
				w.finish(w.jobs[0])
				w.end(w.jobs[0], "OUT_OF_MEMORY", 0)
				if w.jobs[0].forgot = true; c.count {
					w.attempt(a.RunID, 1).counted(0)
				}
			})
			if !c.count {
				time.Sleep(10 * time.Minute)
				if v := w.until(a.RunID, func(run.View) bool { return true }); v.Run.Phase != run.InJob || v.Run.Reason != "accounting_waits" {
					t.Errorf("while accounting does not answer the run is %s (%s), want running (accounting_waits)", v.Run.Phase, v.Run.Reason)
				}
			}
			w.with(func() { silent = false })
			if v := w.until(a.RunID, done); v.Run.Reason != c.want {
				t.Errorf("the run ended as %s (%s), want %s", v.Run.State, v.Run.Reason, c.want)
			}
		})
	}
}
