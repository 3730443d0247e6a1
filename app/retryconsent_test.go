package app

import (
	"encoding/json"
	"testing"

	"slurmgate/gate"
	"slurmgate/run"
)

// faces returns callers with every right on the project, by face.
func faces() map[gate.Transport]gate.Caller {
	out := map[gate.Transport]gate.Caller{}
	for _, by := range []gate.Transport{gate.Local, gate.MCP, gate.Other} {
		who := lab()
		who.Transport = by
		out[by] = who
	}
	return out
}

// outcome returns the code of the error that a call ends with; empty: it succeeded.
func (g *Gateway) outcome(t *testing.T, who gate.Caller, tool string, args map[string]any, into any) string {
	t.Helper()
	res := g.Gate.Call(t.Context(), who, request(t, g.toolOf(t, tool), args, false))
	if res.Error != nil {
		return res.Error.Code
	}
	if into != nil {
		must(t, json.Unmarshal(res.Result, into))
	}
	return ""
}

// asks returns the requests that wait for an answer, newest first.
func (g *Gateway) asks(t *testing.T) []gate.Approval {
	t.Helper()
	list, _, _, err := g.Ledger.Approvals(t.Context(), nil, false)
	must(t, err)
	return list
}

// approved makes a call that needs an approval, and has it approved by the gateway's owner.
func (g *Gateway) approved(t *testing.T, who gate.Caller, tool string, args map[string]any) gate.Approval {
	t.Helper()
	if code := g.outcome(t, who, tool, args, nil); code != gate.ConsentRequired {
		t.Fatalf("%s %v: outcome %q; want %s", tool, args, code, gate.ConsentRequired)
	}
	a := g.asks(t)[0]
	if code := g.answers(t, gate.Process().Principal, a, true); code != "" {
		t.Fatalf("approve %s: %s", a.ID, code)
	}
	return a
}

func (g *Gateway) newestAttempt(t *testing.T, runID string) int {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), runID)
	must(t, err)
	return v.Run.AttemptN
}

// A retry starts a job of the run's tool, so where policy wants an approval for that tool, it wants one for each
// retry, on every face: for the attempt after the named one, and for the resources that were shown. A call that
// starts nothing needs no approval.
//
// proves HTC-07
func TestRetryNeedsTheToolsApproval(t *testing.T) {
	for by, who := range faces() {
		t.Run(string(by), func(t *testing.T) {
			g := chainGateway(t, "consent: {tools: [b_two], request_expires_seconds: 3600}\n")
			x := g.made(t)
			call := map[string]any{"x": x, "n": 5}
			g.approved(t, who, "b.two", call)
			var made run.SubmitAnswer
			if code := g.outcome(t, who, "b.two", call, &made); code != "" {
				t.Fatal(code)
			}
			retry := func(after int, more map[string]any) map[string]any {
				args := map[string]any{"run_id": made.RunID, "after_attempt": after}
				if more != nil {
					args["resources"] = more
				}
				return args
			}
			if code := g.outcome(t, who, "slurm.job.retry", retry(1, nil), nil); code != "run_active" || len(g.asks(t)) != 0 {
				t.Errorf("retry of a run that is not over: outcome %q, %d requests; want run_active and none", code, len(g.asks(t)))
			}
			g.isOver(t, made.RunID, run.Failed)

			// 16 times the memory and 60 times the time of what was approved, any number of times.
			much := map[string]any{"mem_mb": 1600, "time_limit_seconds": 1800}
			for range 3 {
				if code := g.outcome(t, who, "slurm.job.retry", retry(1, much), nil); code != gate.ConsentRequired {
					t.Fatalf("retry with more: outcome %q; want %s", code, gate.ConsentRequired)
				}
			}
			a := g.asks(t)[0]
			if r := a.Covers.Resources; len(g.asks(t)) != 1 || r == nil || r.MemMB != 1600 || r.TimeLimitSeconds != 1800 ||
				a.Covers.Tool != "b_two" || a.Covers.Attempt != 2 || a.Covers.ParamsHash == "" {
				t.Errorf("the request covers %+v with %+v; want attempt 2 of b_two with 1600 MiB and 1800 s", a.Covers, r)
			}
			if code := g.outcome(t, who, "slurm.job.retry", retry(1, nil), nil); code != gate.ConsentRequired {
				t.Errorf("retry with what the plan has: outcome %q; want %s", code, gate.ConsentRequired)
			}
			if n := g.newestAttempt(t, made.RunID); n != 1 {
				t.Fatalf("attempt %d was opened without an approval", n)
			}
			if code := g.answers(t, gate.Process().Principal, a, true); code != "" {
				t.Fatal(code)
			}
			if code := g.outcome(t, who, "slurm.job.retry", retry(1, map[string]any{"mem_mb": 1700}), nil); code != gate.ConsentRequired {
				t.Errorf("retry with more than was approved: outcome %q; want %s", code, gate.ConsentRequired)
			}
			if code := g.outcome(t, who, "slurm.job.retry", retry(1, much), nil); code != "" || g.newestAttempt(t, made.RunID) != 2 {
				t.Fatalf("the retry that was approved: outcome %q, attempt %d; want attempt 2", code, g.newestAttempt(t, made.RunID))
			}
			if code := g.outcome(t, who, "slurm.job.retry", retry(1, much), nil); code != "" || g.newestAttempt(t, made.RunID) != 2 {
				t.Errorf("the same retry again: outcome %q, attempt %d; want it found, without another approval", code, g.newestAttempt(t, made.RunID))
			}
			g.isOver(t, made.RunID, run.Failed)
			code, n := g.outcome(t, who, "slurm.job.retry", retry(2, nil), nil), g.newestAttempt(t, made.RunID)
			if code != gate.ConsentRequired || n != 2 {
				t.Errorf("another retry: outcome %q, attempt %d; want %s and attempt 2", code, n, gate.ConsentRequired)
			}
		})
	}
}

// made returns the output of a run of a.one, which needs no approval.
func (g *Gateway) made(t *testing.T) (artifactID string) {
	t.Helper()
	var first run.SubmitAnswer
	if code := g.outcome(t, lab(), "a.one", map[string]any{"x": g.reads(t, 1)[0]}, &first); code != "" {
		t.Fatal(code)
	}
	return g.isOver(t, first.RunID, run.Succeeded)
}
