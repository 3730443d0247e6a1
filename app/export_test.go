package app

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/export"
	"slurmgate/gate"
	"slurmgate/worker"
)

// archived is the archive of a run, as bytes and as verify judges it.
func archived(t *testing.T, g *Gateway, runID string) ([]byte, export.Report) {
	t.Helper()
	a, err := g.Export(t.Context(), ExportArgs{RunID: runID})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := a.WriteTo(t.Context(), &out); err != nil || int64(out.Len()) != a.Size() {
		t.Fatalf("%d of %d bytes: %v", out.Len(), a.Size(), err)
	}
	file := filepath.Join(t.TempDir(), a.Name())
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := export.Verify(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), report
}

// Calls of service workers can be taken away as jobs can: a short answer, one that is an artifact, and a failure. Neither a new key nor a
// look changes a byte.
//
// proves EXP-01 AX-05
func TestExportOfWorkerCalls(t *testing.T) {
	b := workerGateway(t, t.TempDir(), "")
	b.answer = func(w http.ResponseWriter, r worker.Request, n int) {
		switch n {
		case 1:
			says(w, r, true, `"output":{"text":"short"}`)
		case 2:
			says(w, r, true, `"output":{"text":"`+strings.Repeat("word ", 10000)+`"}`)
		default:
			says(w, r, false, `"error":{"code":"UPSTREAM_ERROR","message":"quota","retryable":true,"details":{}}`)
		}
	}
	calls := []string{b.call(scrape("https://example.org/1")).RunID, b.call(scrape("https://example.org/2")).RunID,
		b.call(scrape("https://example.org/3")).RunID}
	var before [][]byte
	for i, id := range calls {
		data, report := archived(t, b.Gateway, id)
		hasAnswer := i < 2
		if !report.OK || !report.Signature.Signed || report.RunID != id || hasAnswer != bytes.Contains(data, []byte("output.json")) {
			t.Errorf("call %d: %+v", i, report)
		}
		before = append(before, data)
	}
	b.says(t, gate.Process(), "key.rotate", map[string]any{}, "", nil)
	b.says(t, gate.Process(), "run.show", map[string]any{"run_id": calls[0]}, "", nil)
	for i, id := range calls {
		if data, report := archived(t, b.Gateway, id); !report.OK || !bytes.Equal(data, before[i]) {
			t.Errorf("call %d: other bytes after a rotated key and a look: %+v", i, report)
		}
	}
}
