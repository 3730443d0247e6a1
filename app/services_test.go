package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/policy"
	"slurmgate/retention"
	"slurmgate/run"
	"slurmgate/toolpack"
	"slurmgate/worker"
)

// bench is a gateway whose tools are executed by a worker of the test.
type bench struct {
	*Gateway
	t      *testing.T
	mu     sync.Mutex
	got    []worker.Request                                     // that the worker received
	answer func(w http.ResponseWriter, r worker.Request, n int) // see answers
}

func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req worker.Request
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/run" {
		b.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	b.mu.Lock()
	b.got = append(b.got, req)
	n, answer := len(b.got), b.answer
	b.mu.Unlock()
	answer(w, req, n)
}

// answers sets how the worker answers further requests, which n counts from 1. A request whose caller gave up may
// still come.
func (b *bench) answers(f func(w http.ResponseWriter, r worker.Request, n int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

func (b *bench) sent() []worker.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got
}

// says writes an answer of the contract; rest is its output or error.
func says(w http.ResponseWriter, r worker.Request, ok bool, rest string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"ok":%v,"meta":{"trace_id":%q,"tool_run_id":%q,"duration_ms":1},%s}`, ok, r.Meta.TraceID, r.Meta.ToolRunID, rest)
}

const workerManifest = `domain_id: web
version: "0.1"
tools:
  - tool_id: web.scrape
    kind: service_worker
    description: Fetches a page
    transport: {type: http, base_url: "URL", endpoint: /run}
    timeout_sec: 20
    input_schema_ref: in.json
    output_schema_ref: out.json
  - tool_id: web.count
    kind: service_worker
    transport: {type: http, base_url: "URL", endpoint: /run}
    timeout_sec: 20
    input_schema_ref: count.json
  - tool_id: web.hash
    kind: service_worker
    deterministic: true
    transport: {type: http, base_url: "URL", endpoint: /run}
    timeout_sec: 20
`

// workerGateway returns a gateway over the ledger in dir, whose tools web.scrape and web.hash the bench executes.
func workerGateway(t *testing.T, dir, policy string) *bench {
	t.Helper()
	b := &bench{t: t, answer: func(w http.ResponseWriter, r worker.Request, n int) {
		says(w, r, true, fmt.Sprintf(`"output":{"text":"page %d"}`, n))
	}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	domain := t.TempDir()
	for name, text := range map[string]string{"manifest.yaml": strings.ReplaceAll(workerManifest, "URL", server.URL),
		"policies.yaml": "version: 1\n",
		"in.json": `{"type":"object","additionalProperties":false,"required":["url"],"properties":{"url":{"type":"string"},` +
			`"depth":{"type":"integer","default":1},"project_id":{"type":"string"}}}`,
		"count.json": `{"type":"object","additionalProperties":false,"required":["data"],"properties":{"data":` + kinds()["artifact"] +
			`,"more":{"type":"array","items":` + kinds()["artifact"] + `}}}`,
		"out.json": `{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`} {
		must(t, os.WriteFile(filepath.Join(domain, name), []byte(text), 0o600))
	}
	b.Gateway = gatewayOver(t, dir, domain, "version: 1\n"+policy)
	if _, err := b.Sites.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// scrape returns the envelope of a call of web.scrape.
func scrape(url string) gate.Request {
	return gate.NewRequest("web.scrape", "0.1.0", json.RawMessage(`{"url":"`+url+`"}`))
}

func hashCall(text string) gate.Request {
	return gate.NewRequest("web.hash", "0.1.0", json.RawMessage(`{"text":"`+text+`"}`))
}

func (b *bench) call(r gate.Request) gate.Response {
	return b.Gate.Call(b.t.Context(), gate.Process(), r)
}

func (b *bench) run(id string) run.View {
	b.t.Helper()
	v, err := b.Ledger.View(b.t.Context(), id)
	must(b.t, err)
	return v
}

// A call of a service worker is a run. It is stored as running before the worker has a byte of it, the worker gets
// its id and an absolute deadline, and its answer is the worker's output and nothing else.
//
// proves AX-05 AX-04 ARC-11
func TestWorkerCallIsARun(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	var then run.View
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
		then = b.run(r.Meta.ToolRunID)
		says(w, r, true, `"output":{"text":"hello"}`)
	})
	began := time.Now()
	req := scrape("https://example.org")
	res := b.call(req)
	if string(res.Result) != `{"text":"hello"}` || !res.OK || res.RunID == "" {
		t.Fatalf("the call returned run %q, %s, %+v", res.RunID, res.Result, res.Error)
	}
	got := b.sent()[0]
	if got.Meta.TraceID != req.TraceID || got.Meta.ToolRunID != res.RunID || got.Meta.DomainID != "web" ||
		string(got.Input) != `{"depth":1,"url":"https://example.org"}` {
		t.Errorf("the worker got %+v with %s", got.Meta, got.Input)
	}
	if d := time.UnixMilli(got.Meta.DeadlineMS).Sub(began); d < 19*time.Second || d > 20*time.Second+time.Since(began) {
		t.Errorf("the deadline is %s away, want the tool's 20 s", d)
	}
	if then.Run.State != run.Running || then.Run.Site != run.WorkerSite || then.Attempt.StartedAt == nil {
		t.Errorf("when the worker had the call: %+v", then)
	}
	v := b.run(res.RunID)
	if v.Run.State != run.Succeeded || v.Attempt.Ending != run.EndedOK || v.Submission.Token != "" || v.Run.PackHash == "" {
		t.Errorf("the run: state %s, ending %s, token %q, pack hash %q", v.Run.State, v.Attempt.Ending, v.Submission.Token, v.Run.PackHash)
	}
	params, err := b.Ledger.Params(t.Context(), v.Run.ParamsHash)
	if want := `"worker":{"call":"` + req.ToolCallID + `","input":{"depth":1,"url":"https://example.org"},"tool_version":"0.1.0"}}`; err != nil ||
		!strings.HasSuffix(string(params), want) {
		t.Errorf("%s %v", params, err)
	}
	var story RunStory
	b.says(t, gate.Process(), "run.show", map[string]any{"run_id": res.RunID}, "", &story)
	if len(story.Events) != 2 || story.Image != "" || len(story.Attempts) != 1 || story.Attempts[0].Placement != nil {
		t.Errorf("run.show: %d events, image %q, %d attempts; want 2 events, no image, 1 attempt without placement", len(story.Events),
			story.Image, len(story.Attempts))
	}
}

// The same call is the same run: a repeated envelope, and one that comes while the first is in progress, send
// nothing. Another call is another run. A deterministic tool answers from the run that succeeded, and tries again
// after a failure.
//
// proves ARC-11 AX-05
func TestSameWorkerCallIsTheSameRun(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	entered, leave := make(chan struct{}, 9), make(chan struct{})
	b.answers(func(w http.ResponseWriter, r worker.Request, n int) {
		entered <- struct{}{}
		<-leave
		says(w, r, true, fmt.Sprintf(`"output":{"text":"page %d"}`, n))
	})
	req, both := scrape("https://example.org"), make(chan gate.Response, 2)
	go func() { both <- b.call(req) }()
	<-entered
	go func() { both <- b.call(req) }()
	close(leave)
	first, second := <-both, <-both
	third, other := b.call(req), b.call(scrape("https://example.org"))
	for _, r := range []gate.Response{second, third} {
		if string(r.Result) != `{"text":"page 1"}` || r.RunID != first.RunID {
			t.Errorf("the repeated call returned run %s, %s, %+v; want page 1 of %s", r.RunID, r.Result, r.Error, first.RunID)
		}
	}
	if string(first.Result) != `{"text":"page 1"}` || string(other.Result) != `{"text":"page 2"}` || other.RunID == first.RunID ||
		len(b.sent()) != 2 {
		t.Errorf("%s %s; sent %d", first.Result, other.Result, len(b.sent()))
	}

	b.answers(func(w http.ResponseWriter, r worker.Request, n int) {
		if n == 3 {
			says(w, r, false, `"error":{"code":"INTERNAL","message":"broken","retryable":false}`)
			return
		}
		says(w, r, true, `"output":{"sum":"abc"}`)
	})
	failed, ok, again := b.call(hashCall("x")), b.call(hashCall("x")), b.call(hashCall("x"))
	const sum = `{"sum":"abc"}`
	if failed.Error == nil || failed.Error.Code != worker.Failed || string(ok.Result) != sum || string(again.Result) != sum ||
		failed.RunID != again.RunID || ok.RunID != again.RunID || len(b.sent()) != 4 {
		t.Errorf("hash calls: %+v, then %s, then %s; %d requests, want a failure, two answers, 4", failed.Error, ok.Result, again.Result,
			len(b.sent()))
	}
	if v := b.run(ok.RunID); v.Run.AttemptN != 2 || v.Run.State != run.Succeeded {
		t.Errorf("the run has %d attempts and is %s, want 2 and succeeded", v.Run.AttemptN, v.Run.State)
	}
}

// The error of a worker, and what the gateway reports about it, is the run's end and the caller's answer: code, kind,
// whether to try again, and the worker's own details.
//
// proves AX-06
func TestWorkerErrors(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	report := func(code string, retryable bool) string {
		return fmt.Sprintf(`"error":{"code":%q,"message":"it said no","retryable":%v,"details":{"status":401,"kind":"x"}}`, code, retryable)
	}
	for _, c := range []struct {
		name, rest string
		code, kind string
		retryable  bool
		details    bool
	}{
		{"upstream, may pass", report("UPSTREAM_ERROR", true), worker.Upstream, "transport", true, true},
		{"upstream, for good", report("UPSTREAM_ERROR", false), worker.Upstream, "tool", false, true},
		{"validation", report("VALIDATION_ERROR", false), worker.Validation, "validation", false, true},
		{"timeout", report("TIMEOUT", true), worker.TimedOut, "timeout", true, true},
		{"internal", report("INTERNAL", false), worker.Failed, "internal", false, true},
		{"unknown code", report("NO", false), worker.Envelope, "internal", false, false},
		{"not of the schema", `"output":{"title":1}`, "worker_output", "internal", false, false},
		{"another's run", "", worker.Envelope, "internal", false, false},
		{"gone", "hang up", worker.Unknown, "unknown", false, false},
	} {
		b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
			switch c.rest {
			case "":
				r.Meta.ToolRunID = "run_0000000000000000000000000A"
				says(w, r, true, `"output":{"text":"x"}`)
			case "hang up":
				panic(http.ErrAbortHandler)
			default:
				says(w, r, strings.HasPrefix(c.rest, `"output"`), c.rest)
			}
		})
		res := b.call(scrape("https://example.org"))
		e := res.Error
		if e == nil || e.Code != c.code || e.Details["kind"] != c.kind || e.Retryable != c.retryable ||
			(e.Details["worker"] != nil) != c.details {
			t.Errorf("%s: the call ended with %+v, want %s, %s, retryable %t", c.name, e, c.code, c.kind, c.retryable)
			continue
		}
		if c.details && e.Details["worker"].(map[string]any)["status"] != 401.0 || c.details && !strings.Contains(e.Message, "it said no") {
			t.Errorf("%s: the worker's details are %v in %q", c.name, e.Details["worker"], e.Message)
		}
		if v := b.run(res.RunID); v.Run.State != run.Failed || v.Run.Reason != c.code || v.Run.ExitCode != nil {
			t.Errorf("%s: the run is %s because of %s, exit code %v; want failed, %s, none", c.name, v.Run.State, v.Run.Reason, v.Run.ExitCode,
				c.code)
		}
	}
}

// At :run a failed call has the code and the retryable that the worker contract gives it, and the status of the table. An answer that
// was lost is INTERNAL and not retryable: the tool may have run.
//
// proves AX-06
func TestCodesAtRun(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	v := visitor{t, httpapi.Handler(httpapi.Config{Gate: b.Gate, Auth: fixedCaller{gate.All}, DomainID: b.Domain.ID(),
		Version: b.CatalogVersion}, nil)}
	for _, c := range []struct {
		rest      string
		status    int
		code      string
		retryable bool
	}{
		{`"error":{"code":"UPSTREAM_ERROR","message":"m","retryable":true}`, 503, "UPSTREAM_ERROR", true},
		{`"error":{"code":"UPSTREAM_ERROR","message":"m","retryable":false}`, 502, "UPSTREAM_ERROR", false},
		{`"error":{"code":"VALIDATION_ERROR","message":"m","retryable":false}`, 400, "VALIDATION_ERROR", false},
		{`"error":{"code":"TIMEOUT","message":"m","retryable":true}`, 504, "TIMEOUT", true},
		{`"error":{"code":"INTERNAL","message":"m","retryable":false}`, 500, "INTERNAL", false},
		{`"output":{"title":1}`, 500, "INTERNAL", false}, // not of the schema
		{"hang up", 500, "INTERNAL", false},
	} {
		b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
			if c.rest == "hang up" {
				panic(http.ErrAbortHandler)
			}
			says(w, r, strings.HasPrefix(c.rest, `"output"`), c.rest)
		})
		res := v.post("/v1/tools/web.scrape:run", `{"input":{"url":"https://example.org"}}`)
		var got struct {
			Error struct {
				Code      string
				Retryable bool
			}
		}
		must(t, json.Unmarshal(res.Body.Bytes(), &got))
		if res.Code != c.status || got.Error.Code != c.code || got.Error.Retryable != c.retryable {
			t.Errorf("%s: %d %s, retryable %v; want %d %s, %v", c.rest, res.Code, got.Error.Code, got.Error.Retryable, c.status, c.code, c.retryable)
		}
	}
}

// A call whose gateway died has failed with outcome_unknown once the next one starts. The same idempotency key gives
// that outcome, and no request is sent again, whether the tool is deterministic or not; a retry does not send it
// either.
//
// proves AX-05
func TestWorkerCallInDoubt(t *testing.T) {
	dir := t.TempDir()
	b := workerGateway(t, dir, "")
	hold := make(chan struct{})
	entered := make(chan struct{}, 2)
	b.answers(func(http.ResponseWriter, worker.Request, int) {
		entered <- struct{}{}
		<-hold
	})
	key := "once"
	var ids []string
	asked := []gate.Request{scrape("https://example.org"), hashCall("x")}
	for i := range asked {
		k := fmt.Sprint(key, i)
		asked[i].IdempotencyKey = &k
		go b.call(asked[i])
		<-entered
		ids = append(ids, b.sent()[i].Meta.ToolRunID)
	}
	b2 := workerGateway(t, dir, "")
	for i, id := range ids {
		v := b2.run(id)
		if v.Run.State != run.Failed || v.Run.Reason != run.OutcomeUnknown || v.Attempt.Ending != run.EndedUnanswered {
			t.Errorf("the run %s is %s because of %s, ending %s; want an unknown outcome", id, v.Run.State, v.Run.Reason, v.Attempt.Ending)
		}
		again := asked[i]
		again.ToolCallID = gate.NewRequest("a.b", "1.0.0", nil).ToolCallID
		res := b2.call(again)
		if res.Error == nil || res.Error.Code != run.OutcomeUnknown || res.Error.Retryable || res.RunID != id {
			t.Errorf("the repeated call returned run %s with %+v; want %s, outcome_unknown", res.RunID, res.Error, id)
		}
		b2.says(t, gate.Process(), "slurm.job.retry", map[string]any{"run_id": id, "after_attempt": 1}, "worker_call", nil)
		b2.says(t, gate.Process(), "slurm.job.logs", map[string]any{"run_id": id}, "no_log", nil)
	}
	if n := len(b2.sent()); n != 0 {
		t.Errorf("sent again: %d", n)
	}
	close(hold)
}

// A cancel ends the gateway's wait immediately, with an unknown outcome. A later answer of the worker changes
// nothing.
func TestCancelWorkerCall(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	entered, left := make(chan string, 1), make(chan struct{})
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
		entered <- r.Meta.ToolRunID
		<-left
		says(w, r, true, `"output":{"text":"late"}`)
	})
	answers := make(chan gate.Response, 1)
	go func() { answers <- b.call(scrape("https://example.org")) }()
	id := <-entered
	var got CancelAnswer
	b.says(t, gate.Process(), "slurm.job.cancel", map[string]any{"run_id": id, "reason": "enough"}, "", &got)
	if got.State != run.Cancelled || got.Executed != "maybe" || !strings.Contains(got.Message, "unknown whether the worker finished") {
		t.Errorf("the cancel: state %s, executed %s, %q; want cancelled, maybe", got.State, got.Executed, got.Message)
	}
	res := <-answers
	close(left)
	if res.Error == nil || res.Error.Code != "cancelled" || res.RunID != id || res.Error.Retryable {
		t.Errorf("the call ended with %+v, want the code cancelled", res.Error)
	}
	if v := b.run(id); v.Run.State != run.Cancelled || strings.Contains(string(v.Run.ResultJSON), "late") {
		t.Errorf("the run is %s with the result %s, want cancelled and no late answer", v.Run.State, v.Run.ResultJSON)
	}
}

// An answer beyond 32 KiB is an artifact of the run's project and an output of the run; a repeated call names the
// same one. A secret in an answer is stored nowhere.
//
// proves ARC-01 HTC-04
func TestLargeWorkerAnswer(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	secret := "ghp_" + strings.Repeat("aB3dE5gH7j", 4)[:36]
	b.answers(func(w http.ResponseWriter, r worker.Request, n int) {
		text := secret
		if n == 1 {
			text = strings.Repeat("word ", 10000) + secret
		}
		says(w, r, true, fmt.Sprintf(`"output":{"text":%q}`, text))
	})
	req := scrape("https://example.org")
	first, again, small := b.call(req), b.call(req), b.call(scrape("https://example.org/small"))
	if first.ResultRef == nil || again.ResultRef == nil || *first.ResultRef != *again.ResultRef || first.RunID != again.RunID || !small.OK {
		t.Fatalf("the calls ended with %+v, %+v, %+v; want one artifact for both large ones", first.Error, again.Error, small.Error)
	}
	v := b.run(first.RunID)
	outputs, err := b.Ledger.Outputs(t.Context(), first.RunID)
	if err != nil || len(outputs) != 1 || outputs[0].Role != run.OutputRole || outputs[0].Artifact.ProjectID != v.Run.ProjectID ||
		gate.RefPrefix+outputs[0].ArtifactID != *first.ResultRef || outputs[0].Artifact.Source != first.RunID {
		t.Fatalf("the outputs are %v, %v; want the answer of %s", outputs, err, first.RunID)
	}
	stored, err := artifacts{b.Gateway}.Read(t.Context(), outputs[0].ArtifactID, 1<<20)
	if err != nil || strings.Contains(string(stored), secret) || len(stored) < 50000 {
		t.Errorf("%d bytes %v", len(stored), err)
	}
	for _, text := range []string{string(small.Result), string(b.run(small.RunID).Run.ResultJSON)} {
		if strings.Contains(text, secret) || !strings.Contains(text, gate.Redacted) {
			t.Error(text)
		}
	}
	var collected run.CollectAnswer
	b.says(t, gate.Process(), "slurm.job.collect", map[string]any{"run_id": small.RunID}, "", &collected)
	if !collected.Ready || string(collected.Output) != string(small.Result) {
		t.Errorf("collect: ready %t, output %s; want %s", collected.Ready, collected.Output, small.Result)
	}
	refused := b.call(scrape("https://example.org/?token=" + secret))
	if refused.Error == nil || refused.Error.Code != "secret_in_args" || len(b.sent()) != 2 {
		t.Errorf("the call ended with %+v, want the code secret_in_args", refused.Error)
	}
}

// Ids in a worker's answer are only text: neither the answer nor its record is about another's run.
func TestWorkerNamesAnothersRun(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	other := b.call(scrape("https://example.org/other")).RunID
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
		says(w, r, true, fmt.Sprintf(`"output":{"text":%q,"run_id":%q,"target_run_id":%q}`, other, other, other))
	})
	res := b.call(scrape("https://example.org"))
	if res.RunID == other || len(res.Resources.WorkspaceIDs) != 1 || res.Resources.WorkspaceIDs[0] != res.RunID {
		t.Errorf("the call of run %s names the workspaces %v, want its own run", res.RunID, res.Resources.WorkspaceIDs)
	}
}

// Calls of workers have separate slots: when all slots of a tool are in use one more call is refused, with advice,
// and no other call is delayed.
//
// proves AX-08
func TestWorkerCallsHaveTheirOwnSlots(t *testing.T) {
	t.Parallel() // it waits for seconds
	b := workerGateway(t, t.TempDir(), "concurrency: {global: 1, per_tool: {web_scrape: 1}}\nworkers: {max_calls: 2}\n")
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
		entered <- struct{}{}
		<-leave
		says(w, r, true, `"output":{"text":"x"}`)
	})
	done := make(chan gate.Response, 1)
	go func() { done <- b.call(scrape("https://example.org")) }()
	<-entered
	if res := b.call(gate.NewRequest("tool.list", BuiltinVersion, json.RawMessage(`{}`))); !res.OK {
		t.Errorf("an operation beside a worker's call: %+v", res.Error)
	}
	full := b.call(scrape("https://example.org"))
	if full.Error == nil || full.Error.Code != "too_many_calls" || !full.Error.Retryable || full.RunID != "" {
		t.Errorf("the call ended with %+v, want the code too_many_calls", full.Error)
	}
	close(leave)
	if res := <-done; !res.OK {
		t.Errorf("the call ended with %+v, want success", res.Error)
	}
	if n, err := b.Ledger.Index("table").Open(t.Context(), b.run((b.sent()[0]).Meta.ToolRunID).Run.ProjectID); err != nil || n != 0 {
		t.Errorf("%d open runs, %v", n, err)
	}
}

// Service workers need a separate capability: the right to submit jobs is not the right to send data into a network.
func TestWorkerCapability(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	may := func(capability string) gate.Caller {
		return gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "user:x", ID: "prn_x",
			Rights: gate.RightsOf([]string{capability}, []string{gate.All})}}
	}
	res := b.Gate.Call(t.Context(), may(gate.CapSlurm), scrape("https://example.org"))
	if res.Error == nil || res.Error.Code != "capability_denied" {
		t.Errorf("the call ended with %+v, want the code capability_denied", res.Error)
	}
	if res := b.Gate.Call(t.Context(), may(gate.CapWorker), scrape("https://example.org")); !res.OK || len(b.sent()) != 1 {
		t.Errorf("the call ended with %+v, want success", res.Error)
	}
}

// A hybrid tool starts jobs, unless policy sends its calls to its worker; a policy that names another tool there is
// refused.
//
// proves AX-07
func TestHybridByPolicy(t *testing.T) {
	domain := t.TempDir()
	must(t, os.CopyFS(domain, os.DirFS("../domains/genomics")))
	file := filepath.Join(domain, "manifest.yaml")
	manifest, err := os.ReadFile(file)
	must(t, err)
	text := strings.Replace(string(manifest), "{tool_id: seqkit.stats, kind: job_worker}",
		`{tool_id: seqkit.stats, kind: hybrid, transport: {type: http, base_url: "http://127.0.0.1:9", endpoint: /run}}`, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil || text == string(manifest) {
		t.Fatal(err)
	}
	for policy, want := range map[string]string{"": gate.CapSlurm, "workers: {hybrid: [seqkit_stats]}\n": gate.CapWorker} {
		g := gatewayOver(t, t.TempDir(), domain, "version: 1\nconcurrency: {per_tool: {seqkit_stats: 2}}\n"+policy)
		tool, err := g.Gate.Registry().Find("seqkit.stats")
		if err != nil || len(tool.Capabilities) != 1 || tool.Capabilities[0] != want {
			t.Errorf("%q: %v %v", policy, tool.Capabilities, err)
		}
		if runs := g.RunLimits()["seqkit_stats"]; (runs == 2) != (want == gate.CapSlurm) {
			t.Errorf("%q: %d runs", policy, runs)
		}
	}
	wrong := []byte("version: 1\nworkers: {hybrid: [samtools_flagstat]}\n")
	must(t, os.WriteFile(filepath.Join(domain, "policies.yaml"), wrong, 0o600))
	if _, _, err := ReadDomain(domain, toolpack.AllowMissingImages); fault.CodeOf(err) != "POLICY-UNKNOWN-HYBRID_TOOL" {
		t.Error(err)
	}
}

// The gateway waits no longer than the deadline. The run then ends with an unknown outcome, and the caller gets a
// timeout.
func TestWorkerAnswersLate(t *testing.T) {
	t.Parallel() // it waits for seconds
	b := workerGateway(t, t.TempDir(), "")
	left := make(chan struct{})
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) { <-left })
	defer close(left)
	c := gate.Call{Caller: gate.Process(), Request: scrape("https://example.org"), Args: []byte(`{"url":"x"}`),
		Value: map[string]any{"url": "x"}}
	s := b.services()[0]
	var err error
	for s.TimeoutSec = 3; len(b.sent()) == 0; s.TimeoutSec *= 2 { // until the call reaches the worker in that time
		c.ID = scrape("").ToolCallID
		_, err = b.serviceHandler(s)(t.Context(), c)
	}
	if fault.CodeOf(err) != run.OutcomeUnknown || fault.KindOf(err) != fault.Timeout ||
		gate.BodyOf(fault.Words(fault.Step.String), err).Retryable {
		t.Errorf("%v", err)
	}
	if v := b.run(b.sent()[0].Meta.ToolRunID); v.Run.Reason != run.OutcomeUnknown || v.Run.State != run.Failed {
		t.Errorf("the run is %s because of %s, want failed, outcome_unknown", v.Run.State, v.Run.Reason)
	}
}

// Calls of workers are not jobs: they count in no share of a cluster, and have no workspace to remove and no row in a
// month's usage.
func TestWorkerCallsAreNoJobs(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	res := b.call(scrape("https://example.org"))
	v := b.run(res.RunID)
	var usage UsageMonth
	b.says(t, gate.Process(), "usage.month", map[string]any{}, "", &usage)
	if len(usage.Rows) != 0 {
		t.Errorf("%d rows of usage, want none", len(usage.Rows))
	}
	left, err := b.Ledger.Workspaces(t.Context(), time.Now().Add(time.Hour), retention.Workspace{}, 10)
	if err != nil || len(left) != 0 {
		t.Errorf("%d workspaces, %v; want none", len(left), err)
	}
	other := b.call(scrape("https://example.com"))
	var diff RunDiff
	b.says(t, gate.Process(), "run.diff", map[string]any{"a": res.RunID, "b": other.RunID}, "", &diff)
	if diff.Same || len(diff.Parts) != 1 || len(diff.Changes) != 2 {
		t.Errorf("run.diff: same %t, parts %v, changes %v; want 1 part and 2 changes", diff.Same, diff.Parts, diff.Changes)
	}
	var list RunList
	b.says(t, gate.Process(), "run.list", map[string]any{"tool_id": "web.scrape"}, "", &list)
	if list.Total != 2 || list.Runs[0].Site != run.WorkerSite || list.Runs[0].ProjectID != v.Run.ProjectID {
		t.Errorf("run.list: %d runs %v; want 2 of the workers' site and project %s", list.Total, list.Runs, v.Run.ProjectID)
	}
}

// The event of a call whose answer is an artifact has the answer's hash and handle, and so has that of a repeated
// call.
//
// proves HTC-08 HTC-09
func TestLargeAnswerOfAWorkerIsRecorded(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	b.answers(func(w http.ResponseWriter, r worker.Request, _ int) {
		says(w, r, true, `"output":{"text":"`+strings.Repeat("word ", 10000)+`"}`)
	})
	req, key := scrape("https://example.org/large"), "k"
	req.IdempotencyKey = &key
	first := b.call(req)
	again := scrape("https://example.org/large")
	again.IdempotencyKey = &key
	second := b.call(again)
	if first.Error != nil || first.ResultRef == nil || second.ResultRef == nil || *second.ResultRef != *first.ResultRef {
		t.Fatalf("answers %v, %v; want the same artifact twice", first.ResultRef, second.ResultRef)
	}
	a, err := b.Ledger.Artifact(t.Context(), strings.TrimPrefix(*first.ResultRef, gate.RefPrefix))
	must(t, err)
	b.Gate.Close()
	page, err := b.Ledger.Calls(t.Context(), ledger.CallFilter{ToolID: "web.scrape"})
	if err != nil || len(page.Calls) != 2 {
		t.Fatalf("%d records, %v; want 2", len(page.Calls), err)
	}
	for _, e := range page.Calls {
		var said struct {
			Hash string `json:"result_hash"`
			Ref  string `json:"result_ref"`
		}
		if err := json.Unmarshal(e.Event, &said); err != nil || said.Hash != a.SHA256 || said.Ref != *first.ResultRef {
			t.Errorf("%s: result_hash %q, result_ref %q, %v; want %s, %s", e.Name(), said.Hash, said.Ref, err, a.SHA256, *first.ResultRef)
		}
	}
}

// A worker's tool without a time limit has the default one of policy, and a tool with one keeps its own.
//
// proves AX-08
func TestDefaultTimeoutOfWorkers(t *testing.T) {
	g := &Gateway{Policy: &policy.Policy{DefaultTimeoutSec: 77}}
	for given, want := range map[int64]time.Duration{0: 77 * time.Second, 20: 20 * time.Second} {
		if got := g.serviceTimeout(toolpack.Service{TimeoutSec: given}); got != want {
			t.Errorf("a worker's tool with timeout_sec %d (0: none) has %s, want %s", given, got, want)
		}
	}
}
