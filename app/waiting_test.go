package app

import (
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
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// chainGateway is a gateway with three tools that feed each other: a.one makes a text of reads, b.two and c.three a text of a text.
func chainGateway(t *testing.T, rules ...string) *Gateway {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/before/domain")); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(dir + "/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for tool, in := range map[string]string{"a.one": "FASTQ_GZ", "b.two": "TEXT", "c.three": "TEXT"} {
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
		if err := os.WriteFile(filepath.Join(dir, "toolpacks", tool+".tool.yaml"), []byte(pack), 0o644); err != nil {
			t.Fatal(err)
		}
		manifest = append(manifest, []byte("  - {tool_id: "+tool+", kind: job_worker}\n")...)
	}
	if err := os.WriteFile(dir+"/manifest.yaml", manifest, 0o644); err != nil {
		t.Fatal(err)
	}
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
		t.Fatalf("%s %v: %+v", tool, args, e)
	}
}

// isOver ends a run as an engine would, with bytes of its own as its output.
func (g *Gateway) isOver(t *testing.T, runID string, s run.State) (artifactID string) {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), runID)
	if err != nil {
		t.Fatal(err)
	}
	now, zero, ending := time.Now(), 0, run.EndedToolFailed
	w := run.Write{Event: run.Event{Type: "run.over", Data: map[string]any{}}}
	if s == run.Succeeded {
		a, err := g.addBytes(t.Context(), run.Artifact{ProjectID: v.Run.ProjectID, Type: "TEXT", Label: v.Run.ToolID + ".txt", Source: v.Run.ID},
			[]byte("made by "+v.Run.ID))
		if err != nil {
			t.Fatal(err)
		}
		artifactID, ending = a.ID, run.EndedOK
		w.Outputs = []run.Link{{Role: "out", ArtifactID: a.ID, Relpath: "out/x"}}
	}
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.FinishedAt, v.Run.ExitCode = s, run.Done, "ended", &now, &zero
	v.Attempt.Ending, v.Attempt.EndedAt = ending, &now
	w.Run, w.Attempts = v.Run, []run.Attempt{v.Attempt}
	if _, err := g.Ledger.Apply(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return artifactID
}

// started waits until a run that waited has become another.
func (g *Gateway) waited(t *testing.T, id string, state ledger.WaitingState) ledger.WaitingRun {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		w, err := g.Ledger.Waiting(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if w.State == state {
			return w
		}
		if time.Now().After(until) {
			t.Fatalf("%+v, want %s", w, state)
		}
	}
}

// A chain of three: the second and third wait, and become ordinary runs one after the other, with the ids that requests with the artifacts
// have. Every look by the id under which a run waited finds the run.
//
// proves MANY-04
func TestChainOfRuns(t *testing.T) {
	g := chainGateway(t)
	g.StartWaitingRuns(t.Context())
	defer g.StopWaitingRuns()
	id := g.reads(t, 1)[0]
	var one, two, three, again run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id}, &one)
	g.does(t, "b.two", map[string]any{"x": one.RunID + ":out"}, &two)
	g.does(t, "c.three", map[string]any{"x": two.RunID + ":out", "n": 3}, &three)
	g.does(t, "c.three", map[string]any{"x": two.RunID + ":out", "n": 3}, &again)
	if two.Phase != run.WaitingForInputs || two.State != run.Queued || len(two.WaitsFor) != 1 || two.WaitsFor[0].RunID != one.RunID ||
		again.RunID != three.RunID || !again.Replayed || three.Replayed {
		t.Fatalf("%+v %+v %+v", two, three, again)
	}
	var got run.GetAnswer
	if g.does(t, "slurm.job.get", map[string]any{"run_id": three.RunID}, &got); got.Phase != run.WaitingForInputs || got.Reason == nil ||
		!strings.Contains(*got.Reason, two.RunID+" (waits itself)") {
		t.Errorf("%+v", got)
	}
	var list RunList
	if g.does(t, "run.list", map[string]any{}, &list); list.Total != 1 || list.WaitingTotal != 2 || list.Waiting[0].RunID != three.RunID {
		t.Errorf("%+v", list)
	}
	var story RunStory
	if g.does(t, "run.show", map[string]any{"run_id": three.RunID}, &story); story.Phase != run.WaitingForInputs || len(story.Events) != 1 {
		t.Errorf("%+v", story)
	}
	var first string
	var ending sync.WaitGroup
	ending.Go(func() {
		time.Sleep(300 * time.Millisecond) // the look below has begun
		first = g.isOver(t, one.RunID, run.Succeeded)
	})
	if g.does(t, "slurm.job.get", map[string]any{"run_id": two.RunID, "wait_seconds": 2}, &got); got.Alias != two.RunID {
		t.Errorf("a wait for a run that starts meanwhile: %+v", got)
	}
	ending.Wait()
	w := g.waited(t, two.RunID, ledger.WaitingStarted)
	var asked run.SubmitAnswer
	if g.does(t, "b.two", map[string]any{"x": first}, &asked); asked.RunID != w.Became || !asked.Replayed {
		t.Errorf("asked with the artifact: %+v, want %s", asked, w.Became)
	}
	if g.does(t, "slurm.job.get", map[string]any{"run_id": two.RunID}, &got); got.TargetRunID != w.Became || got.Alias != two.RunID {
		t.Errorf("%+v", got)
	}
	second := g.isOver(t, w.Became, run.Succeeded)
	last := g.waited(t, three.RunID, ledger.WaitingStarted)
	if g.does(t, "c.three", map[string]any{"x": two.RunID + ":out", "n": 3}, &asked); asked.RunID != last.Became {
		t.Errorf("%+v", asked)
	}
	third := g.isOver(t, last.Became, run.Succeeded)
	var tree TraceAnswer
	g.does(t, "artifact.trace", map[string]any{"artifact_id": third}, &tree)
	var ids []string
	for _, x := range tree.Traced {
		ids = append(ids, x.ArtifactID)
	}
	if !slices.Equal(ids, []string{third, second, first, id}) || !tree.Complete || tree.Traced[2].MadeBy.Inputs[0].ArtifactID != id {
		t.Errorf("%v %+v", ids, tree)
	}
	for limit, cut := range map[int]bool{1: false, 2: true} { // the first is never cut off
		g.does(t, "artifact.trace", map[string]any{"artifact_id": third, "limit": limit}, &tree)
		if len(tree.Traced) != limit || tree.Complete || tree.Traced[0].MadeBy == nil || tree.Traced[limit-1].CutOff != cut {
			t.Errorf("limit %d: %+v", limit, tree)
		}
	}
	if n := len(g.runIDs(t)); n != 3 {
		t.Errorf("%d runs", n)
	}
}

// The artifact was asked for first, then the run that makes it: the same run answers. Two promises of one thing are one run.
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
	g.does(t, "b.two", map[string]any{"x": out}, &a) // before the gateway looks after the one that waits
	g.StartWaitingRuns(t.Context())
	defer g.StopWaitingRuns()
	if w := g.waited(t, p.RunID, ledger.WaitingStarted); w.Became != a.RunID {
		t.Errorf("%+v, want %s", w, a.RunID)
	}
	var also run.SubmitAnswer // by the other name of what it waits for
	g.does(t, "c.three", map[string]any{"x": a.RunID + ":out"}, &also)
	if also.RunID == q.RunID {
		t.Error("two promises have one id")
	}
	g.isOver(t, a.RunID, run.Succeeded)
	v, w := g.waited(t, q.RunID, ledger.WaitingStarted), g.waited(t, also.RunID, ledger.WaitingStarted)
	if v.Became != w.Became {
		t.Errorf("%s and %s", v.Became, w.Became)
	}
}

// What will never be there ends what waits for it, along the whole chain, with a reason; after the cause is mended a retry has it wait
// again. A cancel tells what waits. What a caller may no longer do is not done for it.
//
// proves MANY-04
func TestBrokenPromises(t *testing.T) {
	g := chainGateway(t)
	g.StartWaitingRuns(t.Context())
	defer g.StopWaitingRuns()
	id := g.reads(t, 3)
	var x, p, q run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id[0]}, &x)
	g.does(t, "b.two", map[string]any{"x": x.RunID + ":out"}, &p)
	g.does(t, "c.three", map[string]any{"x": p.RunID + ":out"}, &q)
	g.isOver(t, x.RunID, run.Failed)
	g.waited(t, p.RunID, ledger.WaitingFailed)
	if w := g.waited(t, q.RunID, ledger.WaitingFailed); w.Code != "input_failed" || !strings.Contains(w.Message, p.RunID+" is failed") {
		t.Errorf("%+v", w)
	}
	var got run.CollectAnswer
	if g.does(t, "slurm.job.collect", map[string]any{"run_id": p.RunID}, &got); !got.Ready || got.State != run.Failed ||
		len(got.NextSteps) != 2 {
		t.Errorf("%+v", got)
	}
	var none any
	if e := g.callBatch(t, "slurm.job.retry", map[string]any{"run_id": p.RunID, "after_attempt": 1}, &none); e == nil ||
		e.Code != "input_failed" {
		t.Errorf("%+v", e)
	}
	if e := g.callBatch(t, "slurm.job.logs", map[string]any{"run_id": p.RunID}, &none); e == nil || e.Code != "never_started" {
		t.Errorf("%+v", e)
	}
	g.does(t, "slurm.job.retry", map[string]any{"run_id": x.RunID, "after_attempt": 1}, &x)
	g.does(t, "slurm.job.retry", map[string]any{"run_id": p.RunID, "after_attempt": 1}, &p)
	g.does(t, "slurm.job.retry", map[string]any{"run_id": q.RunID, "after_attempt": 1}, &q)
	if p.Phase != run.WaitingForInputs || p.Attempt != 2 || q.Phase != run.WaitingForInputs {
		t.Errorf("%+v %+v", p, q)
	}
	var c CancelAnswer
	if g.does(t, "slurm.job.cancel", map[string]any{"run_id": p.RunID}, &c); c.State != run.Cancelled || c.Executed != "never" ||
		c.Waiters != 1 ||
		!slices.Equal(c.WaitingRuns, []string{q.RunID}) {
		t.Errorf("%+v", c)
	}
	g.waited(t, q.RunID, ledger.WaitingFailed)

	// A run that is over and failed, a role that is not there, a run of nobody.
	var y run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id[1]}, &y)
	for in, want := range map[string]string{y.RunID + ":oot": "did you mean out?", "run_00000000000000000000000000:out": "run_not_found",
		p.RunID + ":out": "is cancelled"} {
		if e := g.callBatch(t, "b.two", map[string]any{"x": in}, &none); e == nil || !strings.Contains(e.Code+fmt.Sprint(e.Details), want) {
			t.Errorf("%s: %+v", in, e)
		}
	}

	// Whoever asked may not any more when the input is there.
	var z run.SubmitAnswer
	g.does(t, "b.two", map[string]any{"x": y.RunID + ":out"}, &z)
	w, err := g.Ledger.Waiting(t.Context(), z.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var who batchCaller
	if err := json.Unmarshal(w.Caller, &who); err != nil {
		t.Fatal(err)
	}
	who.Rights = gate.RightsOf([]string{gate.CapRead}, []string{plan.ProjectID("demo")})
	raw, err := json.Marshal(who)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Ledger.EndWaiting(t.Context(), z.RunID, ledger.WaitingCancelled, "cancelled", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Ledger.WaitAgain(t.Context(), z.RunID, 1, "x", w.Principal, raw); err != nil {
		t.Fatal(err)
	}
	g.isOver(t, y.RunID, run.Succeeded)
	if w := g.waited(t, z.RunID, ledger.WaitingFailed); w.Code != "capability_denied" {
		t.Errorf("%+v", w)
	}
}

// A gateway that dies between the run that a waiting one becomes and whatever follows finds the run again: the next one makes the same
// call.
//
// proves MANY-04
func TestWaitingSurvives(t *testing.T) {
	g := chainGateway(t)
	id := g.reads(t, 1)[0]
	var x, p run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id}, &x)
	g.does(t, "b.two", map[string]any{"x": x.RunID + ":out"}, &p)
	g.isOver(t, x.RunID, run.Succeeded)
	w, err := g.Ledger.Waiting(t.Context(), p.RunID)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := g.startWaiting(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(g.runIDs(t)); n != 2 {
		t.Errorf("%d runs", n)
	}
	if _, err := g.Ledger.EndWaiting(t.Context(), p.RunID, ledger.WaitingCancelled, "cancelled", "x"); err != nil {
		t.Fatal(err)
	}
	if now := g.waited(t, p.RunID, ledger.WaitingStarted); now.Became == "" {
		t.Errorf("a run that has started was cancelled: %+v", now)
	}
}
