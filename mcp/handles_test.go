package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/gate"
)

func handle(n int) string { return fmt.Sprintf("file_%026d", n) }

// filing returns a gateway that imports files by their handles: file_…N is art_…N. Handle 13 is unknown.
func filing() *world {
	w := newWorld()
	w.answers["artifact.import"] = func(_ context.Context, args json.RawMessage) (any, error) {
		var a struct {
			FileID string `json:"file_id"`
		}
		if err := json.Unmarshal(args, &a); err != nil || a.FileID == handle(13) {
			return nil, fault.New(fault.NotFound, "file_not_found", "there is no file "+a.FileID+" for you to import")
		}
		id := "art_" + strings.TrimPrefix(a.FileID, "file_")
		return map[string]any{"artifact_id": id, "type": "FASTQ_GZ", "created": true, "size_bytes": 3,
			"label": "C" + id[max(0, len(id)-2):] + ".fastq.gz"}, nil
	}
	w.answers["batch.run"] = func(_ context.Context, args json.RawMessage) (any, error) {
		if strings.Contains(string(args), "file_") {
			return nil, fault.Invalid("the sheet has a mistake; nothing was started", fault.Problem{Code: "SHEET-INPUT", Msg: "is no id"})
		}
		return map[string]any{"batch_id": "batch_x", "name": "qc", "rows": 2, "replayed": false}, nil
	}
	for i := range w.tools {
		if w.tools[i].ID == "batch.run" {
			w.tools[i].SideEffect = gate.Execute
		}
	}
	return w
}

// A call that names files gets their artifacts: each is imported once, by a separate call in the same trace, and the
// answer names them.
//
// proves MANY-01
func TestFilesOfACall(t *testing.T) {
	art := func(n int) string { return fmt.Sprintf("art_%026d", n) }
	for _, c := range []struct{ tool, args, reaches, says string }{
		{"samtools_flagstat", `{"bam":"` + handle(1) + `"}`, `{"bam":"` + art(1) + `"}`, "Imported for this call: " + art(1) + ` "C01.fastq.gz".`},
		{"tool_run", `{"tool":"samtools.flagstat","arguments":{"bams":["` + handle(1) + `","` + handle(2) + `","` + handle(1) + `"]}}`,
			`{"bams":["` + art(1) + `","` + art(2) + `","` + art(1) + `"]}`, art(2)},
		{"samtools_flagstat", `{"bam":"` + art(7) + `","name":"of ` + handle(1) + `"}`, `{"bam":"` + art(7) + `","name":"of ` + handle(1) + `"}`, "Submitted"},
		{"batch_run", `{"sheet":"sample\treads\nS1\t` + handle(1) + `\nS2\t` + handle(2) + `;` + handle(3) + `"}`,
			`{"sheet":"sample\treads\nS1\t` + art(1) + `\nS2\t` + art(2) + `;` + art(3) + `"}`, art(3)},
		{"slurm_submit", `{"x":"` + handle(1) + `"}`, `{"x":"` + handle(1) + `"}`, ""},
	} {
		w := filing()
		w.on("samtools.flagstat", submitted("queued", 2), nil)
		w.on("slurm.submit", submitted("queued", 2), nil)
		text := textOf(call(t, w.session(t), c.tool, c.args))
		calls := w.asked()
		last := calls[len(calls)-1]
		if string(last.Args) != c.reaches || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: reached as %s, answered %s", c.tool, c.args, last.Args, text)
		}
		for _, one := range calls[:len(calls)-1] {
			if one.ToolID != "artifact.import" && one.ToolID != "artifact.get" || one.ToolID == "artifact.import" && one.TraceID != last.TraceID ||
				one.ToolCallID == last.ToolCallID {
				t.Errorf("the call %s of %s has the trace %s, want another id and an import in the trace %s",
					one.ToolCallID, one.ToolID, one.TraceID, last.TraceID)
			}
		}
	}
}

// Files follow the project of the call, or of an artifact in the same call.
func TestProjectOfFiles(t *testing.T) {
	for _, c := range []struct{ args, project string }{
		{`{"rows":[{"reads":"` + handle(1) + `"}]}`, ""},
		{`{"project_id":"demo","rows":[{"reads":"` + handle(1) + `"}]}`, "demo"},
		{`{"rows":[{"reads":"` + handle(1) + `","genome":"` + artID + `"}]}`, "proj_of_the_artifact"},
	} {
		w := filing()
		w.on("artifact.get", map[string]any{"artifact_id": artID, "project_id": "proj_of_the_artifact"}, nil)
		call(t, w.session(t), "batch_run", c.args)
		calls := w.asked()
		i := slices.IndexFunc(calls, func(r gate.Request) bool { return r.ToolID == "artifact.import" })
		var a struct {
			ProjectID string `json:"project_id"`
		}
		if i < 0 || json.Unmarshal(calls[i].Args, &a) != nil || a.ProjectID != c.project {
			t.Errorf("%s: the import has the project %q among the calls %+v, want %q", c.args, a.ProjectID, calls, c.project)
		}
	}
}

// One file that cannot be imported stops the call: the gate refuses it as it came, and the answer names the file. A
// call that the caller may not make imports nothing.
func TestFilesNotImported(t *testing.T) {
	w := filing()
	res := call(t, w.session(t), "batch_run", `{"rows":[{"reads":"`+handle(1)+`"},{"reads":"`+handle(13)+`"}]}`)
	want := handle(13) + " could not be imported, and nothing was started: there is no file"
	if calls := w.asked(); !res.IsError || !strings.HasPrefix(textOf(res), "file_not_found (not_found): "+want) ||
		calls[len(calls)-1].ToolID != "batch.run" || !strings.Contains(string(calls[len(calls)-1].Args), handle(1)) {
		t.Errorf("the answer is %q after the calls %+v, want %q and a refused batch.run with the handle", textOf(res),
			calls, want)
	}
	w = filing()
	w.hidden = []string{"samtools.flagstat"}
	w.on("samtools.flagstat", nil, fault.New(fault.Capability, "capability_denied", "no"))
	if res = call(t, w.session(t), "samtools_flagstat", `{"bam":"`+handle(1)+`"}`); !res.IsError || len(w.asked()) != 1 {
		t.Errorf("a call without the capability: error %t, answer %q, calls %+v; want an error and one call", res.IsError,
			textOf(res), w.asked())
	}
}

// A dry run imports nothing either: the imports before it are dry runs too.
func TestFilesOfADryRun(t *testing.T) {
	w := filing()
	w.on("artifact.import", map[string]any{"dry_run": true, "would": map[string]any{"artifact_id": artID, "label": "x"}}, nil)
	w.on("samtools.flagstat", map[string]any{"dry_run": true}, nil)
	if _, err := w.session(t).CallTool(t.Context(), &sdk.CallToolParams{Name: "samtools_flagstat",
		Arguments: json.RawMessage(`{"bam":"` + handle(1) + `"}`),
		Meta:      sdk.Meta{handshakeKey: map[string]any{"dry_run": true, "actor": map[string]any{"kind": "agent"}}}}); err != nil {
		t.Fatal(err)
	}
	calls := w.asked()
	if len(calls) != 2 || !calls[0].DryRun || !calls[1].DryRun || string(calls[1].Args) != `{"bam":"`+artID+`"}` {
		t.Errorf("the dry run made the calls %+v, want a dry import and a dry call with %s", calls, artID)
	}
}

// A list with the whole schema of a tool shows that it takes handles: a client may validate calls against it.
func TestSchemaTakesHandles(t *testing.T) {
	x := tool("a.b", gate.Execute, gate.CapSlurm)
	x.Input = json.RawMessage(`{"type":"object","properties":{"reads":{"type":"string","pattern":"^(art_[0-9A-HJKMNP-TV-Z]{26}|ref:x)$"}}}`)
	if raw, ok := entry(x).InputSchema.(json.RawMessage); !ok || !strings.Contains(string(raw), `^((art|file)_[0-9A-HJKMNP-TV-Z]{26}|ref:x)$`) {
		t.Errorf("%s", raw)
	}
}

// heard records the progress that a client receives.
type heard struct {
	mu   sync.Mutex
	said []sdk.ProgressNotificationParams
}

func (h *heard) client() *sdk.ClientOptions {
	return &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.said = append(h.said, *r.Params)
	}}
}

// A client that asks for it receives the progress of an import, of the files that are imported for a call, and of the
// bytes of a run that it waits for. The progress grows, as the protocol requires.
func TestBytesAreTold(t *testing.T) {
	for _, c := range []struct{ tool, args, message string }{
		{"artifact_import", `{"path":"/x"}`, "importing: 20 of 100 bytes, 10 bytes/s, 8 s left"},
		{"samtools_flagstat", `{"bams":["` + handle(1) + `","` + handle(2) + `"]}`, "0 of 2 files imported; importing: 20 of 100 bytes"},
		{"slurm_job_collect", `{"run_id":"` + runID + `","wait_seconds":30}`, "collecting: 40 of 100 bytes"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := filing()
				began := time.Now()
				moving := func(what string) map[string]any {
					n := int64(time.Since(began) / time.Second)
					return map[string]any{"moving": map[string]any{"what": what, "done_bytes": 10 * n, "total_bytes": 100, "bytes_per_second": 10,
						"seconds_left": 10 - n}}
				}
				w.answers["call.progress"] = func(context.Context, json.RawMessage) (any, error) { return moving("importing"), nil }
				w.answers["slurm.job.get"] = func(context.Context, json.RawMessage) (any, error) { return moving("collecting"), nil }
				w.tools = append(w.tools, tool(asking, gate.Read, "gateway"))
				slow := w.answers["artifact.import"]
				w.answers["artifact.import"] = func(ctx context.Context, args json.RawMessage) (any, error) {
					time.Sleep(5*time.Second + time.Millisecond)
					return slow(ctx, args)
				}
				w.answers["slurm.job.collect"] = func(context.Context, json.RawMessage) (any, error) {
					time.Sleep(5 * time.Second)
					return collected("succeeded", 0), nil
				}
				w.on("samtools.flagstat", submitted("queued", 2), nil)
				var h heard
				s := connect(t, w.server(), h.client())
				if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.args),
					Meta: sdk.Meta{"progressToken": "p"}}); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				h.mu.Lock()
				defer h.mu.Unlock()
				last, found := 0.0, false
				for _, p := range h.said {
					if p.Progress <= last || p.ProgressToken != "p" {
						t.Errorf("%v after %v", p.Progress, last)
					}
					last, found = p.Progress, found || strings.HasPrefix(p.Message, c.message)
				}
				if !found {
					t.Errorf("the client received %+v, want %q", h.said, c.message)
				}
				s.Close()
				synctest.Wait()
			})
		})
	}
}
