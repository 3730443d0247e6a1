package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// The answer of a sweep or a verification depends on the state that it found, and so does its run: the same state is
// the same run at any time, another state is another run.
//
// proves ARC-11
func TestSnapshotsOfTheStore(t *testing.T) {
	g := tableGateway(t)
	admin := everything("user:boss", gate.All)
	b := g.fill(t, "own")
	var x run.Artifact
	state := func() map[string]string {
		t.Helper()
		var err error
		if x, err = g.Ledger.Artifact(t.Context(), b.artifact); err != nil {
			t.Fatal(err)
		}
		var sweep GCAnswer
		var one, all Verified
		g.says(t, admin, "gateway.gc", map[string]any{"dry_run": true}, "", &sweep)
		g.says(t, admin, "artifact.verify", map[string]any{"artifact_id": b.artifact}, "", &one)
		g.says(t, admin, "artifact.verify", map[string]any{"all": true}, "", &all)
		if one.Snapshot.Checked != 1 || all.Snapshot.Checked != all.Checked || one.Snapshot.BytesRead != one.BytesRead ||
			sweep.Snapshot.LedgerSeq == 0 {
			t.Errorf("%+v %+v %+v", sweep.Snapshot, one.Snapshot, all.Snapshot)
		}
		return map[string]string{"gc": sweep.ProvenanceRunID, "one": one.ProvenanceRunID, "all": all.ProvenanceRunID}
	}
	before := state()
	for _, step := range []struct {
		name    string
		do      func() error
		changes map[string]bool
	}{
		{"nothing", func() error { return nil }, nil},
		{"another run", func() error { g.fill(t, "next"); return nil }, map[string]bool{"gc": true, "all": true}},
		{"damaged bytes", func() error { return damageObject(g, x.SHA256, []byte("changed\n")) }, map[string]bool{"one": true, "all": true}},
		{"missing bytes", func() error { return damageObject(g, x.SHA256, nil) }, map[string]bool{"one": true, "all": true}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		after := state()
		for what, id := range after {
			if (id != before[what]) != step.changes[what] {
				t.Errorf("%s: %s was %s, is %s", step.name, what, before[what], id)
			}
		}
		before = after
	}
}

// damageObject changes or removes stored bytes without the store.
func damageObject(g *Gateway, sum string, bytes []byte) error {
	dir := filepath.Join(g.Site.Gateway.StateDir, "artifacts")
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(path) != sum {
			return err
		}
		if err := os.Remove(path); err != nil || bytes == nil {
			return err
		}
		return os.WriteFile(path, bytes, 0o400)
	})
}

// The same read of an unchanged ledger is the same run at any time; the answers of those left out change with every
// recorded call.
//
// proves ARC-11
func TestTheSameReadIsTheSameRun(t *testing.T) {
	g := chainGateway(t)
	admin := everything("user:boss", gate.All)
	reads := g.reads(t, 2)
	var started BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "a.one", "name": "b", "sheet": "sample,x\nA," + reads[0] + "\n"}, &started)
	g.StartLoop(t.Context())
	g.settle(t)
	g.StopLoop()
	var rows BatchRowsAnswer
	g.does(t, "batch.rows", map[string]any{"batch": "b"}, &rows)
	over := belongings{project: plan.ProjectID("demo"), name: "demo", run: *rows.Rows[0].RunID}
	over.artifact = g.isOver(t, over.run, run.Succeeded)
	var open run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": reads[1]}, &open)
	queued := over
	queued.run = open.RunID
	g.says(t, admin, "reference.add", map[string]any{"name": "genome", "artifact_id": reads[0]}, "", nil)
	call := g.says(t, admin, "run.list", map[string]any{}, "", nil).ToolCallID
	g.recorded(t, admin)
	named := map[string]any{"batch": started.BatchID, "approval_id": g.question(t, lab().Principal, gate.All).ID, "tool_id": "a.one",
		"tool_call_id": call}
	aboutCalls := []string{"event.list", "event.verify", "run.provenance"}
	elsewhere := []string{"slurm.job.logs", "batch.table", "artifact.preview.image"} // they need files that this gateway does not have
	answered := map[string]bool{}
	round := func() map[string]string {
		ids := map[string]string{}
		for _, x := range g.Gate.Registry().List() {
			if x.SideEffect != gate.Read || slices.Contains(aboutCalls, x.ID) {
				continue
			}
			for _, args := range slices.Concat(g.argsOf(t, x, over), g.argsOf(t, x, queued)) {
				delete(args, "wait_seconds")
				for name, value := range named {
					if args[name] != nil {
						args[name] = value
					}
				}
				if x.ID == "reference.show" {
					args["name"] = "genome"
				}
				var answer lookAnswer
				req := request(t, x, args, false)
				res := g.Gate.Call(t.Context(), admin, req)
				if res.OK && res.ResultRef == nil {
					must(t, json.Unmarshal(res.Result, &answer))
					ids[x.ID+" "+string(req.Args)], answered[x.ID] = answer.Run, true
				}
			}
		}
		return ids
	}
	first := round()
	for call, id := range round() {
		if !plan.IsRunID(id) || first[call] != id {
			t.Errorf("%s was the run %s, and is the run %s", call, first[call], id)
		}
	}
	for _, x := range g.Gate.Registry().List() {
		if x.SideEffect == gate.Read && !answered[x.ID] && !slices.Contains(slices.Concat(aboutCalls, elsewhere), x.ID) {
			t.Errorf("no call of %s was answered, so nothing is known of it", x.ID)
		}
	}
}
