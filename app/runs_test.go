package app

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/run"
	"slurmgate/site"
)

// A run with an output LOG besides the gateway's own log can be read.
func TestRunWithRolesThatDifferOnlyInCase(t *testing.T) {
	g := tableGateway(t)
	b := g.fill(t, "own")
	v, err := g.Ledger.View(t.Context(), b.run)
	must(t, err)
	now, code := time.Now().UTC(), 0
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.FinishedAt, v.Run.ExitCode = run.Succeeded, run.Done, "ok", &now, &code
	v.Run.ResultJSON = json.RawMessage(`{"output":{"LOG":{"artifact_id":"` + b.artifact + `"}}}`)
	v.Attempt.Ending, v.Attempt.EndedAt, v.Attempt.ExitCode = run.EndedOK, &now, &code
	w := run.Write{Run: v.Run, Attempts: []run.Attempt{v.Attempt}, Outputs: []run.Link{{Role: "LOG", ArtifactID: b.artifact,
		Relpath: "out/x"}, {Role: "log", ArtifactID: b.artifact}}, Event: run.Event{Type: "run.succeeded"}}
	if _, err := g.Ledger.Apply(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"slurm.job.get", "slurm.job.collect"} {
		x := g.toolOf(t, id)
		res := g.Gate.Call(t.Context(), gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "me",
			Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}},
			gate.NewRequest(id, x.Version, json.RawMessage(`{"run_id":"`+b.run+`"}`)))
		if !res.OK {
			t.Errorf("%s: %+v", id, res.Error)
		}
	}
}

// A caller sees the progress of its own import while it lasts; others see nothing of it.
//
// proves DATA-05
func TestProgressOfACall(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\n")
	var err error
	if g.Importer, err = artifact.NewImporter(g.Store, artifact.ImportPolicy{MaxBytes: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	look := func(who gate.Caller, id string) *run.Moving {
		t.Helper()
		res := g.Gate.Call(t.Context(), who, gate.NewRequest("call.progress", BuiltinVersion, []byte(`{"tool_call_id":"`+id+`"}`)))
		var p ProgressAnswer
		if res.Error != nil || json.Unmarshal(res.Result, &p) != nil || p.ToolCallID != id {
			t.Fatal(res)
		}
		return p.Moving
	}
	r, w := io.Pipe()
	who := importer
	who.ID, who.Body, who.BodyBytes = "p1", r, 5<<20
	req := gate.NewRequest("artifact.import", BuiltinVersion, []byte(`{"upload":true}`))
	over := make(chan gate.Response, 1)
	go func() {
		res := g.Gate.Call(t.Context(), who, req)
		r.CloseWithError(fmt.Errorf("the call has ended: %v", res.Error))
		over <- res
	}()
	if _, err := w.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	me, other := importer, importer
	me.ID, other.ID = "p1", "p2"
	deadline := time.Now().Add(time.Minute)
	for {
		m := look(me, req.ToolCallID)
		if m != nil && m.What == "importing" && m.TotalBytes == 5<<20 && m.DoneBytes >= 2<<20 && m.DoneBytes <= 3<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(m)
		}
	}
	if m := look(other, req.ToolCallID); m != nil {
		t.Error("another caller sees it", *m)
	}
	if _, err := w.Write(make([]byte, 2<<20)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if res := <-over; res.Error != nil {
		t.Fatal(res.Error)
	}
	if m := look(me, req.ToolCallID); m != nil {
		t.Error("it has ended", *m)
	}
}

// A notice of a batch, by its name or id, goes to places that the site allows; a receiver is named, so that no call
// has its URL.
//
// proves MANY-05
func TestNotifyBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hook")
	must(t, os.WriteFile(file, []byte("https://hooks.example.org/services/T000/B000/XXXXXXXXXXXXXXXXXXXXXXXX"), 0o600))
	g := gatewayOver(t, t.TempDir(), "testdata/demo/domain", "version: 1\n", func(s *site.Site) {
		s.Slurm.DefaultQOS = "normal"
		s.Notify.Receivers = []site.NotifyReceiver{{Name: "lab-slack", URLFile: file, Body: site.TextBody}}
	})
	ids := g.reads(t, 1)
	var began BatchStarted
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": "sample,reads\nA," + ids[0] + "\n"},
		&began); err != nil {
		t.Fatalf("batch.run ended with %+v", err)
	}
	var told NotifyAnswer
	if err := g.callBatch(t, "run.notify", map[string]any{"batch": "b", "url": "receiver:lab-slack"}, &told); err != nil || !told.Added ||
		told.BatchID != began.BatchID || told.RunID != "" || len(told.Notices) != 1 || told.Notices[0].State != "waiting" {
		t.Errorf("run.notify: added %t, batch %q, run %q, notices %v, %+v; want one that waits", told.Added, told.BatchID, told.RunID,
			told.Notices, err)
	}
	if err := g.callBatch(t, "run.notify", map[string]any{"batch": began.BatchID}, &told); err != nil || told.Added ||
		len(told.Notices) != 1 || told.Notices[0].URL != "receiver:lab-slack" {
		t.Errorf("run.notify without a url: added %t, notices %v, %+v; want only the list", told.Added, told.Notices, err)
	}
	for want, args := range map[string]map[string]any{
		"notice_denied":    {"batch": "b", "url": "receiver:other"},
		"batch_not_found":  {"batch": "c", "url": "receiver:lab-slack"},
		"NOTICE-OF":        {"url": "receiver:lab-slack"},
		"NOTICE-OF: both ": {"url": "receiver:lab-slack", "batch": "b", "run_id": "run_" + strings.Repeat("7", 26)},
	} {
		want, _, _ = strings.Cut(want, ":")
		err := g.callBatch(t, "run.notify", args, &told)
		if err == nil || err.Code != want && !strings.Contains(err.Message, "either run_id or batch") && err.Code != "run_not_found" {
			t.Errorf("run.notify with %v ended with %+v, want %s", args, err, want)
		}
	}
	// The row is dropped: the batch has ended, and the notice becomes due in the same transaction.
	var changed BatchChanged
	if err := g.callBatch(t, "batch.cancel", map[string]any{"batch": "b"}, &changed); err != nil || changed.Changed != 1 || !changed.Over {
		t.Errorf("batch.cancel: %d rows changed, ended %t, %+v; want 1 and the end", changed.Changed, changed.Over, err)
	}
	if err := g.callBatch(t, "run.notify", map[string]any{"batch": "b"}, &told); err != nil || told.Notices[0].State != "due" {
		t.Errorf("run.notify after the end: notices %v, %+v; want one that is due", told.Notices, err)
	}
}
