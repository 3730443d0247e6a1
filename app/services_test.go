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

	"slurmgate/gate"
	"slurmgate/run"
	"slurmgate/worker"
)

// bench is a gateway whose tools are carried out by a worker of the test.
type bench struct {
	*Gateway
	t      *testing.T
	mu     sync.Mutex
	got    []worker.Request                                     // that the worker received
	answer func(w http.ResponseWriter, r worker.Request, n int) // n counts from 1
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
	n := len(b.got)
	b.mu.Unlock()
	b.answer(w, req, n)
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
  - tool_id: web.hash
    kind: service_worker
    deterministic: true
    transport: {type: http, base_url: "URL", endpoint: /run}
    timeout_sec: 20
`

// workerGateway is a gateway over the ledger in dir, whose tools web.scrape and web.hash the bench carries out.
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
		"out.json": `{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`} {
		if err := os.WriteFile(filepath.Join(domain, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.Gateway = gatewayOver(t, dir, domain, "version: 1\n"+policy)
	if _, err := b.Sites.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// scrape is the envelope of a call of web.scrape.
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
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// A call of a service worker is a run. It is stored as running before the worker has a byte of it, the worker is told its id and an
// absolute deadline, and its answer is the worker's output and nothing else.
//
// proves AX-05 AX-04 ARC-11
func TestWorkerCallIsARun(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	var then run.View
	b.answer = func(w http.ResponseWriter, r worker.Request, _ int) {
		then = b.run(r.Meta.ToolRunID)
		says(w, r, true, `"output":{"text":"hello"}`)
	}
	began := time.Now()
	req := scrape("https://example.org")
	res := b.call(req)
	if string(res.Result) != `{"text":"hello"}` || !res.OK || res.RunID == "" {
		t.Fatalf("%+v %+v", res, res.Error)
	}
	got := b.sent()[0]
	if got.Meta.TraceID != req.TraceID || got.Meta.ToolRunID != res.RunID || got.Meta.DomainID != "web" ||
		string(got.Input) != `{"depth":1,"url":"https://example.org"}` {
		t.Errorf("%+v %s", got.Meta, got.Input)
	}
	if d := time.UnixMilli(got.Meta.DeadlineMS).Sub(began); d < 19*time.Second || d > 30*time.Second {
		t.Errorf("the deadline is %s away", d)
	}
	if then.Run.State != run.Running || then.Run.Site != run.WorkerSite || then.Attempt.StartedAt == nil {
		t.Errorf("when the worker had the call: %+v", then)
	}
	v := b.run(res.RunID)
	if v.Run.State != run.Succeeded || v.Attempt.Ending != run.EndedOK || v.Submission.Token != "" || v.Run.PackHash == "" {
		t.Errorf("%+v", v)
	}
	params, err := b.Ledger.Params(t.Context(), v.Run.ParamsHash)
	if want := `"worker":{"call":"` + req.ToolCallID + `","input":{"depth":1,"url":"https://example.org"},"tool_version":"0.1.0"}}`; err != nil ||
		!strings.HasSuffix(string(params), want) {
		t.Errorf("%s %v", params, err)
	}
	var story RunStory
	b.says(t, gate.Process(), "run.show", map[string]any{"run_id": res.RunID}, "", &story)
	if len(story.Events) != 2 || story.Image != "" || len(story.Attempts) != 1 || story.Attempts[0].Placement != nil {
		t.Errorf("%+v", story)
	}
}
