package app

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/run"
)

// A caller sees how far the own import is, while it lasts; others see nothing of it.
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
