package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// chainPack defines a tool that adds a word to a text, or fails on request.
func chainPack(name string) string {
	return strings.ReplaceAll("id: chain.NAME\n"+packHead+`inputSchema: {type: object, required: [text], additionalProperties: false, properties: {text: {type: string}, how: {type: string, enum: [copy, fail], default: copy}}}
outputSchema: {type: object}
inputs: [{role: text, param: text, types: [TEXT], destRelpath: in/text}]
declaredOutputs: [{role: NAME, type: TEXT, label: NAME.txt, srcRelpath: out/NAME.txt}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
execution: {kind: cli, cmd: [testprog, "{{ params.how }}", "NAME\n"], stdin: in/text, stdout: out/NAME.txt}
`, "NAME", name)
}

// chainTools adds such tools to a site's domain. Its gateway does not run yet.
func (s *site) chainTools(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.addTool("chain."+name, chainPack(name))
	}
}

// after starts chain.two on the output of a run that has not ended, and returns a function that checks it after that.
func (s *site) after(runID string) (check func(want string)) {
	s.t.Helper()
	var next submitted
	if s.ok(&next, "run", "chain.two", "-i", "text="+runID+":result"); next.Phase != "waiting_for_inputs" {
		s.t.Errorf("chain.two on the output of a run that is not over is %v, want waiting_for_inputs", next)
	}
	return func(want string) {
		s.t.Helper()
		l := s.wait(next.RunID)
		if got := string(s.bytesOf(l.Roles["two"])); l.State != "succeeded" || got != want+"two\n" || l.RunID == next.RunID {
			s.t.Errorf("the run that waited: %v, made %q; want %q", l, got, want+"two\n")
		}
	}
}

const chainSteps = `steps:
  - {name: one, tool: chain.one}
  - {name: two, tool: chain.two, from: {text: one.one}}
  - {name: three, tool: chain.three, from: {text: two.two}}
`

// Three tools over two samples from one steps file: the runs of later steps wait for the earlier ones, survive a kill
// of the gateway, and start by themselves; where one sample's first step fails to write its output, the other two end
// with a reason. A request with the artifact itself finds the run that waited; the output's trace leads back to the
// import. Webhooks report each end of a batch once, and the end of a run that never started.
//
// proves MANY-04 MANY-05
// short: many runs
func TestChains(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.chainTools("one", "two", "three")
	hook := newHook(t)
	s.replace("site.yaml", "import:\n", "notify: {origins: ["+strconv.Quote(hook.url)+"]}\nimport:\n")
	d := s.serve()
	sheet := "sample,text,one.how\n"
	for _, x := range []string{"A", "C"} {
		how := map[string]string{"C": "fail"}[x]
		sheet += x + "," + s.file(x+".txt", x+"\n") + "," + how + "\n"
	}
	steps := s.file("steps.yaml", chainSteps)
	bad := s.file("bad.yaml", strings.Replace(chainSteps, "one.one", "one.uno", 1))
	if f := s.fails(2, "batch", "run", "--steps", bad, "--sheet", s.file("s.csv", sheet), "--name", "all"); !strings.Contains(text(t, f),
		`no output \"uno\"`) {
		t.Errorf("steps that name an unknown output fail with %s, want its name", text(t, f))
	}
	run := []string{"batch", "run", "--steps", steps, "--sheet", s.file("s.csv", sheet), "--name", "all"}
	var began struct {
		Rows  int
		Steps []struct{ Step, Name string }
	}
	if s.ok(&began, run...); began.Rows != 6 || len(began.Steps) != 3 {
		t.Fatalf("batch run of three steps over two samples returned %+v, want 6 rows of 3 steps", began)
	}
	var list struct {
		Waiting []struct {
			RunID string `json:"run_id"`
			Phase string
		}
	}
	until(t, "a run that waits", func() bool {
		s.ok(&list, "runs", "list", "--sample", "C")
		return len(list.Waiting) > 0
	})
	never := list.Waiting[0].RunID
	s.ok(nil, "notify", never, hook.url+"/run")
	s.ok(nil, "notify", "all.three", hook.url+"/batch")
	d.signal("KILL")
	d.ended(t)
	s.serve()
	var now struct {
		Counts map[string]int
		Over   bool
		Steps  []struct {
			Step   string
			Counts map[string]int
		}
		Causes []struct{ Step, Cause, Reason string }
	}
	s.cli("batch", "wait", "all", "--timeout", timeLeft(t), "--json").object(t, &now)
	if !now.Over || now.Counts["succeeded"] != 3 || now.Counts["failed"]+now.Counts["refused"] != 3 || len(now.Steps) != 3 {
		t.Fatalf("batch wait returned %+v, want 3 rows that succeeded and 3 that did not", now)
	}
	causes := fmt.Sprint(now.Causes)
	for _, want := range []string{"one tool_failed", "two input_failed", "three input_failed"} {
		if !strings.Contains(causes, want) {
			t.Errorf("no %s among %s", want, causes)
		}
	}
	if e := hook.notices(t, "/batch", 1)[0]; e.Type != "batch.over" || e.Data.Name != "all.three" || e.Data.Counts["succeeded"] != 1 {
		t.Errorf("the webhook of the batch is %+v, want batch.over of all.three with one success", e)
	}
	if e := hook.notices(t, "/run", 1)[0]; e.Type != "run.over" || e.Data.RunID != never || e.Data.State != "failed" ||
		e.Data.Reason != "input_failed" {
		t.Errorf("the webhook of run %s is %+v, want run.over, failed for input_failed", never, e)
	}
	s.ok(nil, "batch", "retry", "all.three") // the input still fails
	if two := hook.notices(t, "/batch", 2); two[0].Data.NoticeID == two[1].Data.NoticeID || two[1].Data.Counts["succeeded"] != 1 {
		t.Errorf("after a retry the webhooks are %+v, want two different notices", two)
	}
	var rows struct {
		Samples []struct {
			Sample string
			RunID  string `json:"run_id"`
		}
	}
	s.ok(&rows, "batch", "status", "all.three", "--samples", "--state", "succeeded")
	if len(rows.Samples) != 1 {
		t.Fatalf("the rows of all.three that succeeded are %+v, want one", rows.Samples)
	}
	a := rows.Samples[0]
	got := s.wait(a.RunID)
	if out := string(s.bytesOf(got.Roles["three"])); out != "A\none\ntwo\nthree\n" {
		t.Errorf("the chain's output is %q, want a word of each tool", out)
	}
	var tree struct{ Traced []traced }
	s.ok(&tree, "trace", got.Roles["three"])
	if len(tree.Traced) != 4 || tree.Traced[3].Origin != "import" || tree.Traced[3].ArtifactID != tree.Traced[2].MadeBy.Inputs[0].ArtifactID {
		t.Fatalf("trace of the last output shows %+v, want four artifacts, the last imported", tree.Traced)
	}
	two := tree.Traced[1]
	// Both ways to ask find it: by the artifact, and by the run that makes the artifact.
	for _, in := range []string{"text=" + two.ArtifactID, "text=" + two.MadeBy.RunID + ":two"} {
		var again struct {
			RunID    string `json:"run_id"`
			Replayed bool
		}
		if s.ok(&again, "run", "chain.three", "-i", in); again.RunID != a.RunID || !again.Replayed {
			t.Errorf("chain.three with -i %s is run %s (replayed %v), want a replay of %s", in, again.RunID,
				again.Replayed, a.RunID)
		}
	}
}

// hook receives webhooks on the login node.
type hook struct {
	url  string
	mu   sync.Mutex
	said map[string][]ended // by path
}

// ended is the body of a webhook.
type ended struct {
	Type string
	Data struct {
		NoticeID      string `json:"notice_id"`
		RunID         string `json:"run_id"`
		State, Reason string
		Name          string
		Counts        map[string]int
	}
}

func newHook(t testing.TB) *hook {
	t.Helper()
	l := listenInCluster(t)
	h := &hook{url: "http://" + l.Addr().String(), said: map[string][]ended{}}
	srv := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e ended
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil || r.Header.Get("webhook-id") != e.Data.NoticeID {
			t.Errorf("a webhook with the id %q has the body %+v (%v), want the notice's id",
				r.Header.Get("webhook-id"), e, err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.said[r.URL.Path] = append(h.said[r.URL.Path], e)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return h
}

// notices waits until n webhooks came to a path, and returns them. It fails the test if more came.
func (h *hook) notices(t testing.TB, path string, n int) (list []ended) {
	t.Helper()
	until(t, "webhooks", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		list = slices.Clone(h.said[path])
		return len(list) >= n
	})
	if len(list) != n {
		t.Fatalf("%d webhooks came to %s, want %d: %+v", len(list), path, n, list)
	}
	return list
}

type traced struct {
	ArtifactID string `json:"artifact_id"`
	Origin     string
	MadeBy     struct {
		RunID  string `json:"run_id"`
		ToolID string `json:"tool_id"`
		Inputs []struct {
			ArtifactID string `json:"artifact_id"`
		}
	} `json:"made_by"`
}
