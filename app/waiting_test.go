package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// chainGateway returns a gateway with tools that feed each other: a.one makes a text from reads, b.two and c.three a
// text from a text, d.pair one from two.
func chainGateway(t *testing.T, rules ...string) *Gateway {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("testdata/demo/domain")))
	manifest, err := os.ReadFile(dir + "/manifest.yaml")
	must(t, err)
	for tool, in := range map[string]string{"a.one": "FASTQ_GZ", "b.two": "TEXT", "c.three": "TEXT", "d.pair": "TEXT"} {
		pack := fmt.Sprintf(`id: %s
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
deterministic: true
timeoutMs: 60000
limits: {maxInputBytes: 1048576, maxOutputBytes: 1048576}
inputSchema: {type: object, required: [x], additionalProperties: false, properties: {x: {type: string,
	pattern: "^art_[0-9A-HJKMNP-TV-Z]{26}$"}, n: {type: integer}}}
outputSchema: {type: object}
inputs: [{role: x, param: x, types: [%s], destRelpath: in/x}]
declaredOutputs: [{role: out, type: TEXT, label: %s.txt, srcRelpath: out/x}]
container: {image: seqkit}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 30}
execution: {kind: cli, cmd: [seqkit, cat, /work/in/x, "{{ params.n | default(1) }}"], stdout: out/x}
`, tool, in, tool)
		if tool == "d.pair" {
			pack = strings.NewReplacer("required: [x]", "required: [x, y]", "properties: {", `properties: {y: {type: string, pattern: "^art_[0-9A-HJKMNP-TV-Z]{26}$"}, `,
				"inputs: [", "inputs: [{role: y, param: y, types: [TEXT], destRelpath: in/y}, ").Replace(pack)
		}
		must(t, os.WriteFile(filepath.Join(dir, "toolpacks", tool+".tool.yaml"), []byte(pack), 0o644))
		manifest = append(manifest, []byte("  - {tool_id: "+tool+", kind: job_worker}\n")...)
	}
	must(t, os.WriteFile(dir+"/manifest.yaml", manifest, 0o644))
	return gatewayOver(t, t.TempDir(), dir, "version: 1\n"+strings.Join(rules, ""), func(s *site.Site) {
		s.Slurm.DefaultQOS, s.Notify.Origins = "normal", []string{"https://hooks.example.org"}
	})
}

func lab() gate.Caller {
	return gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "user:lab", Method: gate.ByPeer,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport, gate.CapSlurm}, []string{plan.ProjectID("demo")})}}
}

// does calls a tool that must succeed.
func (g *Gateway) does(t *testing.T, tool string, args map[string]any, into any) {
	t.Helper()
	if e := g.callBatch(t, tool, args, into); e != nil {
		t.Fatalf("%s with %v ended with %+v, want success", tool, args, e)
	}
}

// isOver ends a run as an engine does, with unique bytes as its output.
func (g *Gateway) isOver(t *testing.T, runID string, s run.State) (artifactID string) {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), runID)
	must(t, err)
	now, zero, ending := time.Now(), 0, run.EndedToolFailed
	w := run.Write{Event: run.Event{Type: "run.over", Data: map[string]any{}}}
	if s == run.Succeeded {
		a, err := g.addBytes(t.Context(), run.Artifact{ProjectID: v.Run.ProjectID, Type: "TEXT", Label: v.Run.ToolID + ".txt", Source: v.Run.ID},
			[]byte("made by "+v.Run.ID))
		must(t, err)
		artifactID, ending = a.ID, run.EndedOK
		w.Outputs = []run.Link{{Role: "out", ArtifactID: a.ID, Relpath: "out/x"}}
	}
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.FinishedAt, v.Run.ExitCode = s, run.Done, "ended", &now, &zero
	v.Attempt.Ending, v.Attempt.EndedAt = ending, &now
	w.Run, w.Attempts = v.Run, []run.Attempt{v.Attempt}
	if _, err := g.Ledger.Apply(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	g.loop.wakeUp()
	return artifactID
}

// became waits until a run that waited has become another, and returns the id of that run.
func (g *Gateway) became(t *testing.T, id string) (runID string) {
	t.Helper()
	await(t, func() (bool, string) {
		v, err := g.Ledger.View(t.Context(), id)
		must(t, err)
		if runID = v.Run.ID; v.Waiting != nil {
			return false, fmt.Sprintf("run %s waits as %s (%s %s), want it started", id, v.Run.State, v.Waiting.Code, v.Waiting.Message)
		}
		return runID != id, fmt.Sprintf("run %s never waited", id)
	})
	return runID
}

// endedWaiting waits until a run that waits for outputs has failed.
func (g *Gateway) endedWaiting(t *testing.T, id string) run.Run {
	t.Helper()
	var v run.View
	await(t, func() (bool, string) {
		v = g.waiting(t, id)
		return v.Run.State == run.Failed, fmt.Sprintf("waiting run %s is %s (%s), want failed", id, v.Run.State, v.Reason())
	})
	return v.Run
}

// waiting reads a run that waits for outputs, or ended before it started.
func (g *Gateway) waiting(t *testing.T, id string) run.View {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), id)
	if err != nil || v.Waiting == nil {
		t.Fatalf("View(%s) = run %s, which is %s, %v; want one that waits, or ended before it started", id, v.Run.ID, v.Run.Phase, err)
	}
	return v
}

// await waits until ok returns true; on failure the test reports ok's last report.
func await(t *testing.T, ok func() (done bool, report string)) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		done, report := ok()
		if done {
			return
		}
		if time.Now().After(until) {
			t.Fatal("after a minute: " + report)
		}
	}
}

// A chain of three: the second and third wait, and become ordinary runs one after the other, with the ids that
// requests with the artifacts have. Every read by the id under which a run waited finds the run.
//
// proves MANY-04
func TestChainOfRuns(t *testing.T) {
	g := chainGateway(t)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	id := g.reads(t, 1)[0]
	var one, two, three, again run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id}, &one)
	g.does(t, "b.two", map[string]any{"x": one.RunID + ":out"}, &two)
	g.does(t, "c.three", map[string]any{"x": two.RunID + ":out", "n": 3}, &three)
	g.does(t, "c.three", map[string]any{"x": two.RunID + ":out", "n": 3}, &again)
	if two.Phase != run.WaitingForInputs || two.State != run.Queued || len(two.WaitsFor) != 1 || two.WaitsFor[0].RunID != one.RunID ||
		again.RunID != three.RunID || !again.Replayed || three.Replayed {
		t.Fatalf("b.two: phase %s, waits for %v; c.three: %s, replayed %t, then %s, replayed %t", two.Phase, two.WaitsFor, three.RunID,
			three.Replayed, again.RunID, again.Replayed)
	}
	var got run.GetAnswer
	if g.does(t, "slurm.job.get", map[string]any{"run_id": three.RunID}, &got); got.Phase != run.WaitingForInputs || got.Reason == nil ||
		!strings.Contains(*got.Reason, two.RunID+" (waits itself)") {
		t.Errorf("slurm.job.get of c.three: phase %s, reason %v; want that %s waits itself", got.Phase, got.Reason, two.RunID)
	}
	var list RunList
	if g.does(t, "run.list", map[string]any{}, &list); list.Total != 1 || list.WaitingTotal != 2 || list.Waiting[0].RunID != three.RunID {
		t.Errorf("run.list: %d runs, %d waiting, %v; want 1 and 2, %s first", list.Total, list.WaitingTotal, list.Waiting, three.RunID)
	}
	var story RunStory
	if g.does(t, "run.show", map[string]any{"run_id": three.RunID}, &story); story.Phase != run.WaitingForInputs || len(story.Events) != 1 {
		t.Errorf("run.show: phase %s, %d events; want it waiting with 1", story.Phase, len(story.Events))
	}
	var first, w, second string
	var ending sync.WaitGroup
	begun := make(chan struct{}, 1)
	ending.Go(func() {
		<-begun
		first = g.isOver(t, one.RunID, run.Succeeded)
		w = g.became(t, two.RunID)
		second = g.isOver(t, w, run.Succeeded)
	})
	if e := g.callBatchIn(context.WithValue(t.Context(), waitBegins{}, begun), t, "slurm.job.get",
		map[string]any{"run_id": two.RunID, "wait_seconds": 30}, &got); e != nil || got.Alias != two.RunID {
		t.Errorf("slurm.job.get of a run that starts during the wait: error %v, alias %q; want alias %s", e, got.Alias, two.RunID)
	}
	ending.Wait()
	var asked run.SubmitAnswer
	if g.does(t, "b.two", map[string]any{"x": first}, &asked); asked.RunID != w || !asked.Replayed {
		t.Errorf("asked with the artifact: %+v, want %s", asked, w)
	}
	if g.does(t, "slurm.job.get", map[string]any{"run_id": two.RunID}, &got); got.TargetRunID != w || got.Alias != two.RunID {
		t.Errorf("slurm.job.get by the former id: run %s, alias %s; want %s, %s", got.TargetRunID, got.Alias, w, two.RunID)
	}
	list = RunList{}
	g.does(t, "run.list", map[string]any{"id_prefix": two.RunID[:20]}, &list)
	if list.WaitingTotal != 1 || list.Waiting[0].RunID != two.RunID {
		t.Errorf("run.list by the beginning of an id under which a run waited = %+v, want it by %s", list.Waiting, two.RunID)
	}
	last := g.became(t, three.RunID)
	if g.does(t, "c.three", map[string]any{"x": two.RunID + ":out", "n": 3}, &asked); asked.RunID != last {
		t.Errorf("the same call of c.three returned %s, want %s", asked.RunID, last)
	}
	third := g.isOver(t, last, run.Succeeded)
	var tree TraceAnswer
	g.does(t, "artifact.trace", map[string]any{"artifact_id": third}, &tree)
	var ids []string
	for _, x := range tree.Traced {
		ids = append(ids, x.ArtifactID)
	}
	if !slices.Equal(ids, []string{third, second, first, id}) || !tree.Complete || tree.Traced[2].MadeBy.Inputs[0].ArtifactID != id {
		t.Errorf("artifact.trace: %v, complete %t; want the chain of 4", ids, tree.Complete)
	}
	for limit, cut := range map[int]bool{1: false, 2: true} { // the first is never cut off
		g.does(t, "artifact.trace", map[string]any{"artifact_id": third, "limit": limit}, &tree)
		if len(tree.Traced) != limit || tree.Complete || tree.Traced[0].MadeBy == nil || tree.Traced[limit-1].CutOff != cut {
			t.Errorf("artifact.trace of at most %d: %d artifacts, complete %t, the last cut off: want %t", limit, len(tree.Traced), tree.Complete,
				cut)
		}
	}
	if n := len(g.runIDs(t)); n != 3 {
		t.Errorf("%d runs", n)
	}
}

// A request names first the artifact, then the run that makes it: the same run answers. Two promises of one thing are
// one run.
//
// proves MANY-04
func TestPromiseAfterArtifact(t *testing.T) {
	g := chainGateway(t)
	id := g.reads(t, 2)
	var x, y, a, p, q run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id[0]}, &x)
	g.does(t, "a.one", map[string]any{"x": id[1]}, &y)
	g.does(t, "b.two", map[string]any{"x": x.RunID + ":out"}, &p)
	g.does(t, "c.three", map[string]any{"x": p.RunID + ":out"}, &q)
	out := g.isOver(t, x.RunID, run.Succeeded)
	g.does(t, "b.two", map[string]any{"x": out}, &a) // before the gateway processes the one that waits
	g.StartLoop(t.Context())
	defer g.StopLoop()
	if w := g.became(t, p.RunID); w != a.RunID {
		t.Errorf("the run that waited became %s, want %s", w, a.RunID)
	}
	var also run.SubmitAnswer // by the other name of its input
	g.does(t, "c.three", map[string]any{"x": a.RunID + ":out"}, &also)
	if also.RunID == q.RunID {
		t.Error("two promises have one id")
	}
	g.isOver(t, a.RunID, run.Succeeded)
	v, w := g.became(t, q.RunID), g.became(t, also.RunID)
	if v != w {
		t.Errorf("%s and %s", v, w)
	}
}

// An input that will never exist ends the runs that wait for it, along the whole chain, with a reason; once the cause
// is mended a retry has them wait again. A cancel reports what waits. A caller that has lost a right gets nothing
// done with it.
//
// proves MANY-04
func TestBrokenPromises(t *testing.T) {
	g := chainGateway(t)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	id := g.reads(t, 3)
	var x, p, q run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id[0]}, &x)
	g.does(t, "b.two", map[string]any{"x": x.RunID + ":out"}, &p)
	g.does(t, "c.three", map[string]any{"x": p.RunID + ":out"}, &q)
	g.isOver(t, x.RunID, run.Failed)
	g.endedWaiting(t, p.RunID)
	if w := g.endedWaiting(t, q.RunID); w.Reason != "input_failed" || !strings.Contains(w.Detail, p.RunID+" is failed") {
		t.Errorf("the last run of the chain ended because of %s (%s), want input_failed by %s", w.Reason, w.Detail, p.RunID)
	}
	var got run.CollectAnswer
	if g.does(t, "slurm.job.collect", map[string]any{"run_id": p.RunID}, &got); !got.Ready || got.State != run.Failed ||
		len(got.NextSteps) != 2 {
		t.Errorf("collect: ready %t, state %s, steps %v; want failed and two steps", got.Ready, got.State, got.NextSteps)
	}
	var none any
	if e := g.callBatch(t, "slurm.job.retry", map[string]any{"run_id": p.RunID, "after_attempt": 1}, &none); e == nil ||
		e.Code != "input_failed" {
		t.Errorf("the retry ended with %+v, want input_failed", e)
	}
	if e := g.callBatch(t, "slurm.job.logs", map[string]any{"run_id": p.RunID}, &none); e == nil || e.Code != "never_started" {
		t.Errorf("the call ended with %+v, want the code never_started", e)
	}
	g.does(t, "slurm.job.retry", map[string]any{"run_id": x.RunID, "after_attempt": 1}, &x)
	g.does(t, "slurm.job.retry", map[string]any{"run_id": p.RunID, "after_attempt": 1}, &p)
	g.does(t, "slurm.job.retry", map[string]any{"run_id": q.RunID, "after_attempt": 1}, &q)
	if p.Phase != run.WaitingForInputs || p.Attempt != 2 || q.Phase != run.WaitingForInputs {
		t.Errorf("after the retries: phase %s in attempt %d, and phase %s; want both waiting", p.Phase, p.Attempt, q.Phase)
	}
	var c CancelAnswer
	if g.does(t, "slurm.job.cancel", map[string]any{"run_id": p.RunID}, &c); c.State != run.Cancelled || c.Executed != "never" ||
		c.Waiters != 1 ||
		!slices.Equal(c.WaitingRuns, []string{q.RunID}) {
		t.Errorf("the cancel: state %s, executed %s, %d waiters %v; want cancelled, never, %s", c.State, c.Executed, c.Waiters,
			c.WaitingRuns, q.RunID)
	}
	g.endedWaiting(t, q.RunID)

	// A run that has failed, a role that does not exist, a run that does not exist.
	var y run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id[1]}, &y)
	for in, want := range map[string]string{y.RunID + ":oot": "did you mean out?", "run_00000000000000000000000000:out": "run_not_found",
		p.RunID + ":out": "is cancelled"} {
		if e := g.callBatch(t, "b.two", map[string]any{"x": in}, &none); e == nil || !strings.Contains(e.Code+fmt.Sprint(e.Details), want) {
			t.Errorf("b.two with %s ended with %+v, want %q", in, e, want)
		}
	}

	// The caller has lost the right by the time the input is there.
	var z run.SubmitAnswer
	g.does(t, "b.two", map[string]any{"x": y.RunID + ":out"}, &z)
	w := g.waiting(t, z.RunID)
	var who batchCaller
	must(t, json.Unmarshal(w.Waiting.Caller, &who))
	who.Rights = gate.RightsOf([]string{gate.CapRead}, []string{plan.ProjectID("demo")})
	raw, err := json.Marshal(who)
	must(t, err)
	g.does(t, "slurm.job.cancel", map[string]any{"run_id": z.RunID}, new(CancelAnswer))
	if _, err := g.Sites.Retry(t.Context(), z.RunID, run.RetryOrder{After: 1, Caller: raw,
		Asking: &run.Asking{Principal: w.Waiting.Principal}}); err != nil {
		t.Fatal(err)
	}
	g.loop.wakeUp() // as a retry does: the loop may have found no waiting run
	g.isOver(t, y.RunID, run.Succeeded)
	if w := g.endedWaiting(t, z.RunID); w.Reason != "capability_denied" {
		t.Errorf("the run ended because of %s, want capability_denied", w.Reason)
	}
}

// A repeated request with outputs of runs is the same run, whatever the state of that run and of those: a cancelled
// one does not start, and one whose input failed is no error.
func TestChainedRequestRepeated(t *testing.T) {
	g := chainGateway(t)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	id := g.reads(t, 3)
	var x, y, z, cancelled, failed, pair, again run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id[0]}, &x)
	g.does(t, "a.one", map[string]any{"x": id[1]}, &y)
	g.does(t, "a.one", map[string]any{"x": id[2]}, &z)
	g.does(t, "b.two", map[string]any{"x": x.RunID + ":out"}, &cancelled)
	g.does(t, "b.two", map[string]any{"x": y.RunID + ":out"}, &failed)
	g.does(t, "slurm.job.cancel", map[string]any{"run_id": cancelled.RunID}, new(CancelAnswer))
	g.isOver(t, x.RunID, run.Succeeded)
	g.does(t, "d.pair", map[string]any{"x": x.RunID + ":out", "y": z.RunID + ":out"}, &pair) // one of two exists
	g.isOver(t, y.RunID, run.Failed)
	g.endedWaiting(t, failed.RunID)
	g.isOver(t, z.RunID, run.Succeeded)
	became := g.became(t, pair.RunID)
	before := g.runIDs(t)
	for _, c := range []struct {
		tool string
		args map[string]any
		id   string
		want run.State
	}{{"b.two", map[string]any{"x": x.RunID + ":out"}, cancelled.RunID, run.Cancelled},
		{"b.two", map[string]any{"x": y.RunID + ":out"}, failed.RunID, run.Failed},
		{"d.pair", map[string]any{"x": x.RunID + ":out", "y": z.RunID + ":out"}, became, run.Queued}} {
		again = run.SubmitAnswer{}
		if g.does(t, c.tool, c.args, &again); again.RunID != c.id || again.State != c.want || !again.Replayed {
			t.Errorf("the call %s %v repeated is run %s, %s, replayed %v; want %s, %s, true", c.tool, c.args, again.RunID, again.State,
				again.Replayed, c.id, c.want)
		}
	}
	if after := g.runIDs(t); !slices.Equal(after, before) {
		t.Errorf("runs after the calls were repeated: %v, want those before: %v", after, before)
	}
}

// A gateway that dies between the creation of the run that a waiting one becomes and the step after it finds the run
// again: the next gateway makes the same call.
//
// proves MANY-04
func TestWaitingSurvives(t *testing.T) {
	g := chainGateway(t)
	id := g.reads(t, 1)[0]
	var x, p run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id}, &x)
	g.does(t, "b.two", map[string]any{"x": x.RunID + ":out"}, &p)
	g.isOver(t, x.RunID, run.Succeeded)
	w := g.waiting(t, p.RunID)
	for range 3 {
		must(t, g.startWaiting(t.Context(), w))
	}
	if n := len(g.runIDs(t)); n != 2 {
		t.Errorf("%d runs", n)
	}
	must(t, g.Ledger.EndWaiting(t.Context(), w.WaitRef(), "input_failed", "x"))
	g.became(t, p.RunID) // and did not fail
}
