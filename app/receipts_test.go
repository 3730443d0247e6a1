package app

import (
	"archive/zip"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/export"
	"slurmgate/export/receipt"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/worker"
)

// ended ends the run of the belongings with an output of random bytes.
func (g *Gateway) ended(t *testing.T, b belongings) {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), b.run)
	must(t, err)
	sum := make([]byte, 32)
	for i := range sum {
		sum[i] = byte(rand.Uint32())
	}
	out := run.Artifact{ProjectID: b.project, SHA256: hex.EncodeToString(sum), Type: "TEXT", Label: "report.txt", SizeBytes: 7, Source: b.run}
	if out.ID, err = plan.ArtifactID(out.ProjectID, out.SHA256, out.Type, out.Label); err != nil {
		t.Fatal(err)
	}
	if _, _, err = g.Ledger.AddArtifact(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	now, zero := time.Now(), 0
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.FinishedAt, v.Run.ExitCode = run.Succeeded, run.Done, "ok", &now, &zero
	v.Attempt.Ending, v.Attempt.EndedAt = run.EndedOK, &now
	if _, err = g.Ledger.Apply(t.Context(), run.Write{Run: v.Run, Attempts: []run.Attempt{v.Attempt},
		Outputs: []run.Link{{Role: "report", ArtifactID: out.ID, Relpath: "out/report.txt"}},
		Event:   run.Event{Type: "run.succeeded", Data: map[string]any{}}}); err != nil {
		t.Fatal(err)
	}
}

// A receipt comes through the gate as it is stored: nothing in it looks like a secret, and canonical JSON changes no byte of the envelope.
// The keys that the gateway lists verify it, also after a rotation.
//
// proves EXP-02
func TestReceiptsThroughTheGate(t *testing.T) {
	g := tableGateway(t)
	admin := gate.Rights{{Capabilities: []string{gate.All}, Projects: []string{gate.All}}}
	who := gate.Caller{Transport: gate.Local,
		Principal: gate.Principal{ID: "prn_AAAAAAAAAAAAAAAA", Name: "user:ada", Method: gate.ByPeer, Rights: admin}}
	b := g.fill(t, "one")
	g.says(t, who, "run.receipt", map[string]any{"run_id": b.run}, "run_active", nil)
	for i := range 60 {
		b := g.fill(t, strings.Repeat("x", 7+i))
		g.ended(t, b)
		var got ReceiptAnswer
		g.says(t, who, "run.receipt", map[string]any{"run_id": b.run, "attempt": 1}, "", &got)
		stored, err := g.Ledger.Receipt(t.Context(), b.run, 0)
		if err != nil || string(got.Envelope) != string(stored.Envelope) {
			t.Fatalf("%s\n%s\n%v", got.Envelope, stored.Envelope, err)
		}
		if i == 30 {
			var made KeyAnswer
			g.says(t, who, "key.rotate", map[string]any{}, "", &made)
		}
		if i%30 != 29 {
			continue
		}
		var list KeyList
		g.says(t, who, "key.list", map[string]any{}, "", &list)
		var keys []receipt.Key
		for _, k := range list.Keys {
			key, err := receipt.ParsePEM(k.PublicKey)
			if err != nil || key.ID != k.KeyID {
				t.Fatal(k, err)
			}
			keys = append(keys, key)
		}
		v, err := receipt.VerifyEnvelope(got.Envelope, keys)
		var shown receipt.Statement
		if err != nil || json.Unmarshal(got.Statement, &shown) != nil || shown.Predicate.RunID != v.Statement.Predicate.RunID ||
			v.Statement.Predicate.SubjectIs != "outputs" || v.KeyIDs[0] != got.KeyID || len(keys) != 1+i/30 {
			t.Errorf("%+v %s %v", v, got.Statement, err)
		}
	}
}

// archived returns the archive of a run as bytes, and the result of its verification.
func archived(t *testing.T, g *Gateway, runID string) ([]byte, export.Report) {
	t.Helper()
	a, err := g.Export(t.Context(), ExportArgs{RunID: runID})
	must(t, err)
	var out bytes.Buffer
	if err := a.WriteTo(t.Context(), &out); err != nil || int64(out.Len()) != a.Size() {
		t.Fatalf("%d of %d bytes: %v", out.Len(), a.Size(), err)
	}
	file := filepath.Join(t.TempDir(), a.Name())
	must(t, os.WriteFile(file, out.Bytes(), 0o600))
	report, err := export.Verify(t.Context(), file, nil)
	must(t, err)
	return out.Bytes(), report
}

// Calls of service workers can be exported as jobs can: a short answer, one that is an artifact, and a failure. A
// read call changes no byte, a new key only the signature, the keys, and the lists of files that have the keys.
//
// proves EXP-01 AX-05
func TestExportOfWorkerCalls(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	b.answers(func(w http.ResponseWriter, r worker.Request, n int) {
		switch n {
		case 1:
			says(w, r, true, `"output":{"text":"short"}`)
		case 2:
			says(w, r, true, `"output":{"text":"`+strings.Repeat("word ", 10000)+`"}`)
		default:
			says(w, r, false, `"error":{"code":"UPSTREAM_ERROR","message":"quota","retryable":true,"details":{}}`)
		}
	})
	calls := []string{b.call(scrape("https://example.org/1")).RunID, b.call(scrape("https://example.org/2")).RunID,
		b.call(scrape("https://example.org/3")).RunID}
	var before [][]byte
	for i, id := range calls {
		data, report := archived(t, b.Gateway, id)
		hasAnswer := i < 2
		if !report.OK || !report.Signature.Signed || report.RunID != id || hasAnswer != bytes.Contains(data, []byte("output.json")) {
			t.Errorf("the archive of call %d: run %s, problems %v, signed %t; want output.json: %t", i, report.RunID, report.Problems,
				report.Signature.Signed, hasAnswer)
		}
		before = append(before, data)
	}
	b.says(t, gate.Process(), "run.show", map[string]any{"run_id": calls[0]}, "", nil)
	for i, id := range calls {
		if data, report := archived(t, b.Gateway, id); !report.OK || !bytes.Equal(data, before[i]) {
			t.Errorf("call %d: other bytes after a look: %+v", i, report)
		}
	}
	b.says(t, gate.Process(), "key.rotate", map[string]any{}, "", nil)
	for i, id := range calls {
		data, report := archived(t, b.Gateway, id)
		if !report.OK || len(report.Signature.KeyIDs) != 2 {
			t.Errorf("call %d after a rotated key: intact %v, keys %q; want it intact, with the keys of receipt and archive", i, report.OK,
				report.Signature.KeyIDs)
		}
		signing := []string{"MANIFEST", "MANIFEST.dsse.json", "keys.json", "ro-crate-metadata.json"}
		if got, want := without(t, data, signing), without(t, before[i], signing); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("call %d after a rotated key: other files than %q changed", i, signing)
		}
	}
}

// A run whose receipt was erased, because it held a secret, can still be exported: the archive lists what is missing,
// and is signed.
//
// proves EXP-01
func TestExportAfterAnErasure(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	b.answers(func(w http.ResponseWriter, r worker.Request, n int) { says(w, r, true, `"output":{"text":"short"}`) })
	made := b.Gate.Call(t.Context(), everything("user:"+leaked, gate.All), scrape("https://example.org/1"))
	if res := b.eraseCall(t, everything("user:boss", gate.All), map[string]any{"reason": "it leaked"}, leaked, nil); !res.OK {
		t.Fatalf("erase: %+v", res.Error)
	}
	data, report := archived(t, b.Gateway, made.RunID)
	if !report.OK || !report.Signature.Signed || bytes.Contains(data, []byte(leaked)) || bytes.Contains(data, []byte("receipt.dsse.json\n")) ||
		!strings.Contains(strings.Join(report.Notes, "\n"), "receipt.dsse.json is not in the archive") {
		t.Errorf("intact %v, problems %v, notes %q, signature %+v; want it intact, without the receipt", report.OK, report.Problems, report.Notes,
			report.Signature)
	}
}

// without returns the files of an archive except those with some names.
func without(t *testing.T, data []byte, names []string) map[string][]byte {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	must(t, err)
	files := map[string][]byte{}
	for _, f := range z.File {
		in, err := f.Open()
		if err == nil && !slices.Contains(names, f.Name) {
			files[f.Name], err = io.ReadAll(in)
		}
		must(t, err)
	}
	return files
}
