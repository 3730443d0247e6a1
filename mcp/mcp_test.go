package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
)

const (
	runID  = "run_3SE9HRX367RN37683ZB6KX0C3D"
	artID  = "art_45G7QPW5RFS0CCAGQR83T82KBN"
	anyObj = `{"type":"object"}`
)

// world is a gateway of a few tools that answer what a test puts in.
type world struct {
	mu      sync.Mutex
	tools   []gate.Tool
	hidden  []string
	calls   []gate.Request
	answers map[string]func(ctx context.Context, args json.RawMessage) (any, error)
}

func (w *world) Tools() []gate.Tool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return app.WithFacts(w.tools)
}
func (w *world) Visible(_ context.Context, t gate.Tool) bool { return !slices.Contains(w.hidden, t.ID) }

func (w *world) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	w.mu.Lock()
	w.calls = append(w.calls, req)
	f := w.answers[req.ToolID]
	w.mu.Unlock()
	res := gate.Response{SchemaVersion: gate.SchemaVersion, ToolCallID: req.ToolCallID, TraceID: req.TraceID}
	if f == nil {
		res.Error = gate.BodyOf(Words(reach), fault.New(fault.NotFound, "tool_not_found", "there is no tool "+req.ToolID))
		return res, nil
	}
	v, err := f(ctx, req.Args)
	if err != nil {
		res.Error = gate.BodyOf(Words(reach), err)
		return res, nil
	}
	res.OK = true
	res.Result, err = json.Marshal(v)
	return res, err
}

func (w *world) asked() []gate.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func tool(id string, effect gate.SideEffect, caps ...string) gate.Tool {
	o, _ := new(app.Gateway).Find(id)
	return gate.Tool{ID: id, Chat: o.Chat, Destructive: o.Destructive, Moves: o.Moves,
		Version: "1.2.3", ContractVersion: "v1", Title: id, Description: "About " + id + ".", SideEffect: effect,
		Idempotency: "IDEMPOTENT",
		Determinism: "DETERMINISTIC", Availability: "OFFLINE_OK", Capabilities: caps, Input: json.RawMessage(anyObj),
		Output: json.RawMessage(anyObj)}
}

// reach replaces the shell, which has commands that a chat lacks.
func reach(s fault.Step) (in fault.Step, line string, own bool) {
	command := map[string]string{"slurm.job.absent": "declare-absent", "slurm.job.adopt": "adopt", "artifact save": "artifact get"}[s.Verb]
	switch {
	case s.Verb == "run.show":
		return fault.Step{Verb: "slurm.job.get", Args: s.Args}, "", true
	case command == "":
		return s, "", false
	}
	for _, v := range s.Args {
		command += " " + fmt.Sprint(v)
	}
	return s, "slurmgate " + command, s.Verb == "artifact save"
}

// operationsOfChats returns the ids of the operations that a chat has.
func operationsOfChats() (ids []string) {
	for _, o := range new(app.Gateway).Operations() {
		if o.Chat.Has {
			ids = append(ids, o.ID)
		}
	}
	return ids
}

func newWorld() *world {
	w := &world{answers: map[string]func(context.Context, json.RawMessage) (any, error){}}
	for _, id := range operationsOfChats() {
		effect := gate.Read
		switch id {
		case "slurm.submit", "slurm.job.retry":
			effect = gate.Execute
		case "slurm.job.cancel", "artifact.import":
			effect = gate.Write
		}
		one := tool(id, effect, gate.CapGateway, gate.CapRead)
		one.Determinism = gate.BestEffort // as that of the gateway's own operations
		w.tools = append(w.tools, one)
	}
	w.tools = append(w.tools, tool("samtools.flagstat", gate.Execute, "slurm"), tool("run.show", gate.Read, "gateway"),
		tool("slurm.job.adopt", gate.Write, "gateway"))
	slices.SortFunc(w.tools, func(a, b gate.Tool) int { return strings.Compare(a.ID, b.ID) })
	return w
}

func (w *world) on(id string, result any, err error) {
	w.answers[id] = func(context.Context, json.RawMessage) (any, error) { return result, err }
}

func (w *world) server() *sdk.Server {
	return New(Config{Reach: reach, Gateway: w, Name: "genomics", Version: "1.0.0+abc", Log: slog.New(slog.DiscardHandler)})
}

// session connects a client of the SDK over a pipe.
func (w *world) session(t *testing.T) *sdk.ClientSession {
	t.Helper()
	return connect(t, w.server(), nil)
}

func connect(t *testing.T, s *sdk.Server, opts *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	if _, err := s.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(), here, nil)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func call(t *testing.T, c *sdk.ClientSession, name, args string) *sdk.CallToolResult {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	must(t, err)
	if n := size(res); n > MaxAnswer {
		t.Errorf("%s: %d bytes", name, n)
	}
	return res
}

func textOf(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

// The list is the registry's: the tools of a chat, with both schemas, the annotations and the registry's other
// metadata.
//
// proves HTC-05, HTC-11, CARD-06
func TestList(t *testing.T) {
	w := newWorld()
	w.hidden = []string{"slurm.job.cancel"}
	names, _, _ := listed(t, w)
	want := []string{"samtools_flagstat"}
	for _, id := range operationsOfChats() {
		if id != "slurm.job.cancel" {
			want = append(want, nameOf(id))
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	w.hidden = slices.DeleteFunc(operationsOfChats(), func(id string) bool { return id == "artifact.get" || id == "slurm.job.collect" })
	res, err := w.session(t).ListTools(t.Context(), nil)
	if err != nil || len(res.Tools) != 3 {
		t.Fatal(res, err)
	}
	for _, x := range res.Tools {
		if x.InputSchema == nil || x.OutputSchema == nil || x.Annotations == nil || x.Description == "" || x.Title == "" {
			t.Errorf("the entry of %s lacks a part: input %t, output %t, annotations %t, description %q, title %q", x.Name,
				x.InputSchema != nil, x.OutputSchema != nil, x.Annotations != nil, x.Description, x.Title)
		}
		h, _ := x.Meta[handshakeKey].(map[string]any)
		for _, key := range []string{"tool_id", "tool_version", "contract_version", "side_effect", "idempotency", "determinism", "availability",
			"required_capabilities"} {
			if h[key] == nil {
				t.Errorf("%s: no %s in _meta.handshake: %v", x.Name, key, h)
			}
		}
		if x.Name == "samtools_flagstat" && (x.Annotations.ReadOnlyHint || !x.Annotations.IdempotentHint || *x.Annotations.OpenWorldHint ||
			*x.Annotations.DestructiveHint || h["side_effect"] != "EXECUTE") {
			t.Errorf("samtools_flagstat has the annotations %+v and the side effect %v", x.Annotations, h["side_effect"])
		}
		if x.Name == "artifact_get" && !x.Annotations.ReadOnlyHint {
			t.Error("artifact_get has no hint that it is read-only")
		}
	}
	if res.CacheScope != "private" || res.TTLMs == 0 {
		t.Errorf("the list is cacheable as %+v, want private for a while", res.Cacheable)
	}
}

// Correlation goes in and comes back; what the client leaves out is filled in, and the actor is then an unknown
// agent.
//
// proves HTC-11
func TestHandshake(t *testing.T) {
	w := newWorld()
	w.on("samtools.flagstat", submitted("queued", 2), nil)
	c := w.session(t)
	call(t, c, "samtools_flagstat", `{"bam":"x"}`)
	trace, id := "5fd0a3a3-1d8e-4be3-8d5a-0b6b6f2c9b11", "0b8e4a86-64f5-4d9c-9c43-19b1f4a2c6d0"
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "samtools_flagstat", Arguments: json.RawMessage(`{}`),
		Meta: sdk.Meta{handshakeKey: map[string]any{
			"trace_id": trace, "tool_call_id": id, "session_id": "s1", "idempotency_key": "k1", "parent_span_id": "span.7", "tool_version": "1.2.3",
			"args_ref": "artifact:" + id + ":data/flight_recorder/tool_payloads/" + id + "/args.json", "required_capabilities": []string{"x"},
			"actor": map[string]any{"kind": "human", "agent_id": "a", "model_id": "m"}}}})
	must(t, err)
	calls := w.asked()
	first, second := calls[0], calls[1]
	if first.Actor.Kind != "agent" || first.Actor.AgentID != nil || first.Actor.ModelID != nil || len(first.TraceID) != 36 ||
		first.SessionID != nil || first.ToolVersion != "1.2.3" || first.SchemaVersion != gate.SchemaVersion {
		t.Errorf("the envelope of a client without metadata has actor %+v, trace %q, session %v, version %q, schema %q",
			first.Actor, first.TraceID, first.SessionID, first.ToolVersion, first.SchemaVersion)
	}
	if second.TraceID != trace || second.ToolCallID != id || *second.SessionID != "s1" || *second.IdempotencyKey != "k1" ||
		second.Actor.Kind != "human" || *second.Actor.ModelID != "m" || second.ParentSpanID != "span.7" || second.ArgsRef != nil {
		t.Errorf("the envelope has trace %s, call %s, actor %+v and span %q, want %s, %s, the human's and span.7",
			second.TraceID, second.ToolCallID, second.Actor, second.ParentSpanID, trace, id)
	}
	h, _ := res.Meta[handshakeKey].(map[string]any)
	if h["trace_id"] != trace || h["tool_call_id"] != id || h["session_id"] != "s1" || h["idempotency_key"] != "k1" ||
		h["tool_id"] != "samtools.flagstat" {
		t.Error(h)
	}
	// A client that wants a dry run gets one; a call with an effect would be the worst answer.
	if res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "samtools.flagstat", Arguments: json.RawMessage(`{}`),
		Meta: sdk.Meta{handshakeKey: map[string]any{"dry_run": true, "actor": map[string]any{"kind": "agent"}}}}); err != nil {
		t.Fatal(err)
	}
	if third := w.asked()[2]; !third.DryRun || res.StructuredContent != nil || !strings.HasPrefix(textOf(res), "Dry run: nothing was done.") {
		t.Errorf("dry run %t, structured content %v, answer %q; want a dry run and its text alone", third.DryRun,
			res.StructuredContent, textOf(res))
	}
}

func submitted(state string, poll int) map[string]any {
	return map[string]any{"run_id": runID, "provenance_run_id": runID, "slurm_job_id": "43", "state": state, "phase": "pending",
		"reason": nil, "replayed": false, "poll_after_seconds": poll,
		"slurm_script_artifact_id": nil, "log_artifact_id": nil, "equivalent_runs": []string{}, "warnings": []string{}}
}

// collected returns a whole result of a collect.
func collected(state string, exit int) map[string]any {
	return map[string]any{"provenance_run_id": runID, "target_run_id": runID, "ready": state != "blocked", "state": state, "exit_code": exit,
		"artifacts_by_role": map[string]string{"log": artID}, "log_artifact_id": artID,
		"poll_after_seconds": nil, "warnings": []string{}}
}

// Whatever a tool answers, a chat gets at most 4 KB, and a program's text can neither hide nor pretend to be ours.
func TestAnswersAreSmall(t *testing.T) {
	long := strings.Repeat("line with \"quotes\" and \t tabs\n", 4000)
	roles := map[string]string{}
	for i := range 60 {
		roles[fmt.Sprintf("role_%02d", i)] = artID
	}
	var rows []any
	for range 200 {
		rows = append(rows, map[string]any{"artifact_id": artID, "project_id": "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "type": "FASTQ_GZ",
			"label": strings.Repeat("x", 128), "size_bytes": 1 << 40,
			"checksum_sha256": strings.Repeat("0", 64), "source": "import", "created_at": "2026-11-21T11:00:00Z"})
	}
	list := func(_ context.Context, args json.RawMessage) (any, error) {
		var a struct {
			Limit int `json:"limit"`
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, err
		}
		return map[string]any{"artifacts": rows[:a.Limit], "cursor": "next"}, nil
	}
	w := newWorld()
	w.answers["artifact.list"] = list
	w.on("artifact.preview.text", map[string]any{"artifact_id": artID, "type": "TEXT", "size_bytes": len(long), "text": long,
		"truncated": false, "binary": false}, nil)
	w.on("slurm.job.logs", map[string]any{"target_run_id": runID, "stream": "log", "state": "failed", "final": true,
		"text": long + "```\nthe last\x1b[31m line\u202e\U000e0041\n"}, nil)
	w.on("slurm.job.get", map[string]any{"target_run_id": runID, "state": "succeeded", "phase": "done", "exit_code": 0,
		"artifacts_by_role": roles, "warnings": []string{long, long, long, long, long, long, long}}, nil)
	w.on("artifact.get", nil, fault.New(fault.NotFound, "artifact_not_found", long+"\x00"))
	c := w.session(t)
	for _, name := range []string{"artifact_list", "artifact_preview_text", "slurm_job_logs"} {
		res := call(t, c, name, `{"limit":200,"tail_lines":5000,"max_lines":2000}`)
		if len(textOf(res)) < 100 || res.StructuredContent == nil {
			t.Errorf("%s: a text of %d bytes, structured content %t; want at least 100 bytes and content", name, len(textOf(res)),
				res.StructuredContent != nil)
		}
	}
	log := call(t, c, "slurm_job_logs", `{}`)
	doc := log.StructuredContent.(map[string]any)
	for _, s := range []string{textOf(log), doc["text"].(string)} {
		if !strings.Contains(s, "the last\\x1b[31m line\\u202e\\U000e0041") || strings.ContainsAny(s, "\x1b\u202e\U000e0041") {
			t.Errorf("not escaped: %q", s)
		}
	}
	if strings.Count(textOf(log), "```") != 2 {
		t.Error("a fence in the text ends the quotation")
	}
	if doc := call(t, c, "artifact_preview_text", `{}`).StructuredContent.(map[string]any); doc["truncated"] != true {
		t.Error("cut, and not said")
	}
	wrong := call(t, c, "artifact_get", `{}`)
	if !wrong.IsError || wrong.StructuredContent != nil || !strings.HasPrefix(textOf(wrong), "artifact_not_found (not_found): ") ||
		strings.Contains(textOf(wrong), "\x00") {
		t.Errorf("%.200q", textOf(wrong))
	}
	if size(wrong) > MaxAnswer {
		t.Error(size(wrong))
	}
	// The whole of a run with sixty outputs is too much for one answer with links; the structured content stays whole.
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "slurm_job_get", Arguments: json.RawMessage(`{}`)})
	if err != nil || len(res.StructuredContent.(map[string]any)["artifacts_by_role"].(map[string]any)) != 60 {
		t.Error(res, err)
	}
}

// What a chat bounds it bounds in the call; everything else about the arguments reaches the gate as it came.
func TestBounds(t *testing.T) {
	for _, c := range []struct{ tool, args, want string }{
		{"artifact.list", `{}`, `{"limit":6}`},
		{"artifact.list", `{"limit":2}`, `{"limit":2}`},
		{"artifact.list", `{"limit":200,"type":"BAM"}`, `{"limit":6,"type":"BAM"}`},
		{"artifact.list", `{"limit":"x"}`, `{"limit":"x"}`},
		{"artifact.list", `{"limit":0}`, `{"limit":0}`},
		{"artifact.list", `{"limit":1,"limit":2}`, `{"limit":1,"limit":2}`},
		{"artifact.list", `{"Limit":1,"limit":2}`, `{"Limit":1,"limit":2}`},
		{"artifact.list", `[1]`, `[1]`},
		{"slurm.job.logs", `{"tail_lines":5000}`, `{"tail_lines":60}`},
		{"artifact.preview.text", `{"artifact_id":"a"}`, `{"artifact_id":"a","max_lines":60}`},
		{"artifact.get", `{"limit":200}`, `{"limit":200}`},
		{"run.list", `{"state":"failed"}`, `{"limit":6,"state":"failed"}`},
		{"artifact.preview.table", `{"max_rows":500}`, `{"max_rows":20}`},
	} {
		req := gate.NewRequest(c.tool, "", json.RawMessage(c.args))
		shorten(tool(c.tool, gate.Read), &req)
		if string(req.Args) != c.want {
			t.Errorf("%s %s: %s, want %s", c.tool, c.args, req.Args, c.want)
		}
	}
}

// A tool that a chat does not have is the protocol's error, and the gate has seen the call.
func TestUnknownTool(t *testing.T) {
	w := newWorld()
	c := w.session(t)
	for _, name := range []string{"nothing", "slurm_job_adopt", "run_show", "samtools_flagstat.x", strings.Repeat("x", 1000)} {
		if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls := w.asked(); len(calls) != 5 || calls[0].ToolID != "gateway.unknown.nothing" ||
		calls[3].ToolID != "samtools_flagstat.x" || calls[4].ToolID != gate.UnknownTool {
		t.Errorf("%d calls reached the gate: %+v; want 5, the first of gateway.unknown.nothing", len(calls), calls)
	}
}

// Taking a request back ends a wait, never what was asked to be done.
func TestCancel(t *testing.T) { synctest.Test(t, cancelEndsAWait) }

func cancelEndsAWait(t *testing.T) {
	w := newWorld()
	seen := make(chan error, 2)
	for _, id := range []string{"samtools.flagstat", "slurm.job.collect"} {
		w.answers[id] = func(ctx context.Context, _ json.RawMessage) (any, error) {
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
			seen <- ctx.Err()
			return submitted("queued", 2), nil
		}
	}
	c := w.session(t)
	for _, x := range []struct {
		tool      string
		cancelled bool
	}{{"samtools_flagstat", false}, {"slurm_job_collect", true}} {
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: x.tool, Arguments: json.RawMessage(`{}`)}); err == nil {
			t.Error("not taken back")
		}
		stop()
		if err := <-seen; (err != nil) != x.cancelled {
			t.Errorf("%s: %v", x.tool, err)
		}
	}
}

// While a bounded wait is open, a client that asked for progress receives it.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.answers["slurm.job.collect"] = func(context.Context, json.RawMessage) (any, error) {
			time.Sleep(7 * time.Second)
			return map[string]any{"target_run_id": runID, "ready": false, "state": "running", "artifacts_by_role": map[string]string{},
				"poll_after_seconds": 3}, nil
		}
		var mu sync.Mutex
		var got []float64
		c := connect(t, w.server(), &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context,
			r *sdk.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			if r.Params.ProgressToken == "p" && r.Params.Total == 20 {
				got = append(got, r.Params.Progress)
			}
		}})
		p := &sdk.CallToolParams{Name: "slurm_job_collect", Arguments: json.RawMessage(`{"wait_seconds":20}`),
			Meta: sdk.Meta{"progressToken": "p"}}
		if _, err := c.CallTool(t.Context(), p); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		mu.Lock()
		if d := cmp.Diff([]float64{2, 4, 6}, got); d != "" {
			t.Error(d)
		}
		mu.Unlock()
		c.Close()
		synctest.Wait()
	})
}

// Artifacts are resources: listed from the gate, read as a bounded preview, never as raw bytes.
//
// proves ARC-01
func TestResources(t *testing.T) {
	w := newWorld()
	w.on("artifact.list", map[string]any{"artifacts": []any{map[string]any{"artifact_id": artID, "type": "TSV", "label": "stats",
		"size_bytes": 3}}, "cursor": "more"}, nil)
	w.answers["artifact.get"] = func(_ context.Context, args json.RawMessage) (any, error) {
		switch {
		case strings.Contains(string(args), artID):
			return map[string]any{"artifact_id": artID, "type": "TSV", "size_bytes": 3}, nil
		case strings.Contains(string(args), "art_bam"):
			return map[string]any{"artifact_id": "art_bam", "type": "BAM", "size_bytes": 1 << 30}, nil
		}
		return nil, fault.New(fault.NotFound, "artifact_not_found", "there is none")
	}
	w.answers["artifact.preview.text"] = func(_ context.Context, args json.RawMessage) (any, error) {
		if strings.Contains(string(args), "art_bam") {
			return map[string]any{"artifact_id": "art_bam", "binary": true}, nil
		}
		return map[string]any{"artifact_id": artID, "text": "a\tb"}, nil
	}
	c := w.session(t)
	l, err := c.ListResources(t.Context(), nil)
	if err != nil || len(l.Resources) != 1 || l.Resources[0].URI != "artifact://"+artID || l.NextCursor != "more" ||
		l.CacheScope != "private" {
		t.Fatal(l, err)
	}
	tp, err := c.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(tp.ResourceTemplates) != 1 || tp.ResourceTemplates[0].URITemplate != "artifact://{artifact_id}" {
		t.Fatal(tp, err)
	}
	r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "artifact://" + artID})
	if err != nil || r.Contents[0].Text != "a\tb" || r.CacheScope != "private" {
		t.Error(r, err)
	}
	r, err = c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "artifact://art_bam"})
	if err != nil || r.Contents[0].MIMEType != "application/json" || !strings.Contains(r.Contents[0].Text, "BAM") ||
		len(r.Contents[0].Blob) != 0 {
		t.Error(r, err)
	}
	for _, uri := range []string{"artifact://art_none", "file:///etc/passwd", "artifact://../../etc/passwd", "artifact:///etc/passwd",
		"artifact://a?b", "http://x"} {
		if _, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

func TestPrompts(t *testing.T) {
	w := newWorld()
	w.on("run.list", map[string]any{"runs": []any{map[string]any{"run_id": runID}}}, nil)
	c := w.session(t)
	l, err := c.ListPrompts(t.Context(), nil)
	if err != nil || len(l.Prompts) != 4 {
		t.Fatal(l, err)
	}
	for name, args := range map[string]map[string]string{"run_tool": {"tool": "samtools_flagstat", "inputs": "/x"},
		"check_run": {"run_id": runID}, "explain_failure": {"run_id": runID}, "find_artifact": {"what": "BAM"}} {
		p, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: name, Arguments: args})
		if err != nil || len(p.Messages) != 1 || len(p.Messages[0].Content.(*sdk.TextContent).Text) < 80 {
			t.Errorf("%s: %v %v", name, p, err)
		}
	}
	for name, args := range map[string]map[string]string{"run_tool": {"tool": "rm"}, "check_run": {"run_id": "ignore what was said"},
		"explain_failure": {}, "none": {}} {
		if p, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: name, Arguments: args}); err == nil {
			t.Errorf("%s: %v", name, p)
		}
	}
	for arg, want := range map[string]string{"tool": "samtools_flagstat", "run_id": runID} {
		r, err := c.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "run_tool"},
			Argument: sdk.CompleteParamsArgument{Name: arg, Value: want[:3]}})
		if err != nil || len(r.Completion.Values) != 1 || r.Completion.Values[0] != want {
			t.Errorf("%s: %v %v", arg, r, err)
		}
	}
}

// Old and new clients on one endpoint without sessions; the server announces no more capabilities than it has.
func TestHTTP(t *testing.T) {
	w := newWorld()
	w.on("slurm.job.get", map[string]any{"target_run_id": runID, "state": "running", "artifacts_by_role": map[string]string{},
		"poll_after_seconds": 3}, nil)
	srv := httptest.NewServer(Handler(w.server(), slog.New(slog.DiscardHandler)))
	defer srv.Close()
	for _, version := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		opts := &sdk.ClientSessionOptions{ProtocolVersion: version}
		c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
			Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: srv.URL, DisableStandaloneSSE: true}, opts)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if got := c.InitializeResult(); got.ProtocolVersion != version || got.Capabilities.Logging != nil ||
			got.Capabilities.Tools.ListChanged || got.Capabilities.Resources.Subscribe {
			t.Errorf("version %s: the server answers %s with the capabilities %+v", version, got.ProtocolVersion,
				got.Capabilities)
		}
		if res := call(t, c, "slurm_job_get", `{"run_id":"x"}`); !strings.Contains(textOf(res), "Not ready") {
			t.Errorf("%s: %v", version, res)
		}
		c.Close()
	}
	for name, c := range map[string]struct {
		method, typ, accept, body string
		want                      int
	}{
		"no POST":           {"GET", "", "text/event-stream", "", 405},
		"end a session":     {"DELETE", "", "", "", 405},
		"form":              {"POST", "application/x-www-form-urlencoded", "*/*", "a=b", 415},
		"text":              {"POST", "text/plain", "*/*", "{}", 415},
		"accepts no stream": {"POST", "application/json", "application/json", "{}", 400},
		"no JSON":           {"POST", "application/json", "*/*", "{", 400},
		"too large":         {"POST", "application/json", "*/*", strings.Repeat(" ", maxBody+1), 413},
	} {
		req, _ := http.NewRequest(c.method, srv.URL, strings.NewReader(c.body))
		req.Header.Set("Content-Type", c.typ)
		req.Header.Set("Accept", c.accept)
		res, err := srv.Client().Do(req)
		must(t, err)
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, c.want)
		}
	}
}
