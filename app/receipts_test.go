package app

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"slurmgate/export/receipt"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// ended ends the run of the belongings with an output of random bytes.
func (g *Gateway) ended(t *testing.T, b belongings) {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), b.run)
	if err != nil {
		t.Fatal(err)
	}
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
