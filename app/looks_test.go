package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/plan"
)

// says makes a call as a principal and decodes its answer; code is the expected error, "" for none.
func (g *Gateway) says(t *testing.T, who gate.Caller, tool string, args any, code string, into any) gate.Response {
	t.Helper()
	req := request(t, g.toolOf(t, tool), args, false)
	res := g.Gate.Call(t.Context(), who, req)
	switch {
	case code == "" && res.Error != nil, code != "" && (res.Error == nil || res.Error.Code != code):
		t.Fatalf("%s %s: %+v, want %q", tool, req.Args, res.Error, code)
	case into != nil && res.Error == nil:
		must(t, json.Unmarshal(res.Result, into))
	}
	return res
}

// recorded waits until all calls so far are recorded: an effect is answered when its record is durable, and records
// are written in order.
func (g *Gateway) recorded(t *testing.T, admin gate.Caller) {
	t.Helper()
	g.says(t, admin, "artifact.import", map[string]any{"text": fmt.Sprint("at ", time.Now().UnixNano()), "label": "mark"}, "", nil)
}

func everything(name string, projects ...string) gate.Caller {
	return gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: name, Method: gate.ByPeer,
		Rights: gate.RightsOf([]string{gate.All}, projects)}}
}

type lookAnswer struct {
	Run string `json:"provenance_run_id"`
}

// The provenance_run_id of a read call can be looked up by its caller and by an admin: its tool, its canonical params
// with the snapshot, and when it was asked. Others do not find it, and every verb that takes a run explains such an
// id.
//
// proves ARC-11
func TestProvenanceIsFound(t *testing.T) {
	g := tableGateway(t)
	admin := everything("user:boss", gate.All)
	b := g.fill(t, "own")
	reader := gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "token:reader", Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead}, []string{b.project})}}
	other := reader
	other.Name = "token:other"
	for tool, args := range map[string]map[string]any{"artifact.list": {"type": "BAM"}, "run.list": {}, "slurm.job.get": {"run_id": b.run},
		"artifact.get": {"artifact_id": b.artifact}, "tool.list": {}, "run.diff": {"a": b.run, "b": b.run}} {
		var first, again lookAnswer
		g.says(t, reader, tool, args, "", &first)
		res := g.says(t, reader, tool, args, "", &again)
		if first != again {
			t.Errorf("%s twice: %v %v", tool, first, again)
		}
		g.recorded(t, admin)
		for name, who := range map[string]gate.Caller{"who asked": reader, "an admin": admin} {
			var found CallRun
			g.says(t, who, "run.provenance", map[string]any{"run_id": first.Run}, "", &found)
			d := identityDoc{strings.ReplaceAll(tool, ".", "_"), found.ContractVersion, found.PolicyHash, found.Params}
			if found.RunID != first.Run || found.ToolID != tool || d.runID() != first.Run || found.Calls != 2 ||
				found.ToolCallIDs[0] != res.ToolCallID || found.FirstAskedAt.After(found.LastAskedAt) {
				t.Errorf("%s for %s: %+v", tool, name, found)
			}
			for _, verb := range []string{"slurm.job.get", "slurm.job.collect", "slurm.job.logs", "slurm.job.cancel", "run.show"} {
				if verb == "slurm.job.cancel" && name != "an admin" {
					continue // the reader may not cancel
				}
				res := g.says(t, who, verb, map[string]any{"run_id": first.Run}, "run_is_a_call", nil)
				if m := res.Error.Message; !strings.Contains(m, "a call of "+tool) || !strings.Contains(m, "asked 2 times") {
					t.Errorf("%s: %s", verb, m)
				}
			}
		}
		g.says(t, other, "run.provenance", map[string]any{"run_id": first.Run}, "run_not_found", nil)
		g.says(t, other, "slurm.job.get", map[string]any{"run_id": first.Run}, "run_not_found", nil)
		var calls EventList
		g.says(t, admin, "event.list", map[string]any{"provenance_run_id": first.Run}, "", &calls)
		if len(calls.Events) != 2 || calls.Total != 2 || !calls.TotalExact {
			t.Errorf("%s: %d events of %d", tool, len(calls.Events), calls.Total)
		}
	}
	g.says(t, admin, "run.provenance", map[string]any{"run_id": b.run}, "run_is_a_job", nil)
	g.says(t, admin, "run.provenance", map[string]any{"run_id": "run_" + strings.Repeat("7", 26)}, "run_not_found", nil)
}

// Answers about tokens, approvals and calls have a snapshot: two calls about the same state are the same run, and
// they are different runs if and only if the answer differs, also if only the time has changed it.
//
// proves ARC-11
func TestSnapshotsOfAccess(t *testing.T) {
	g := tableGateway(t)
	admin := everything("user:boss", gate.All)
	ask := func(tool string, args map[string]any) string {
		if args == nil {
			args = map[string]any{}
		}
		var l lookAnswer
		g.says(t, admin, tool, args, "", &l)
		if !plan.IsRunID(l.Run) {
			t.Errorf("%s: %q", tool, l.Run)
		}
		return l.Run
	}
	expired := gate.Token{ID: "tok_" + strings.Repeat("B", 16), Name: "old", SecretSHA256: strings.Repeat("0", 64), CreatedBy: "x",
		ExpiresAt: time.Now().Add(-time.Hour)}
	question := gate.Question{Who: gate.Principal{Name: "token:chat"}, ToolID: "x.y", ToolVersion: "1.0.0", Binding: strings.Repeat("1", 64),
		ArgsHash: strings.Repeat("2", 64), Payload: json.RawMessage(`{}`), Expires: time.Now().Add(time.Hour)}
	var asked gate.Approval
	var created TokenCreated
	for _, step := range []struct {
		name    string
		do      func() error
		changes string // of token.list, approval.list, approval.list --all
	}{
		{"nothing", func() error { return nil }, ""},
		{"a look", func() error { ask("run.list", nil); return nil }, ""},
		{"a token", func() error {
			g.says(t, admin, "token.create", map[string]any{"name": "a", "capabilities": []string{"read"}, "projects": []string{"p"},
				"expires_in_seconds": 3600}, "", &created)
			return nil
		}, "tokens"},
		{"an expired token", func() error { return g.Ledger.AddToken(t.Context(), expired) }, "tokens"},
		{"a revocation", func() error {
			g.says(t, admin, "token.revoke", map[string]any{"token_id": created.TokenID}, "", nil)
			return nil
		}, "tokens"},
		{"the same again", func() error {
			g.says(t, admin, "token.revoke", map[string]any{"token_id": created.TokenID}, "", nil)
			return nil
		}, ""},
		{"a question", func() (err error) { asked, err = g.Ledger.Ask(t.Context(), question); return err }, "approvals all"},
		{"an answer", func() error {
			g.says(t, admin, "approval.answer", map[string]any{"approval_id": asked.ID, "approve": true, "uses": 2}, "", nil)
			return nil
		}, "approvals all"},
		{"a use", func() error { return g.Ledger.Begin(t.Context(), nil, asked.ID) }, "all"},
	} {
		state := func() map[string]string {
			return map[string]string{"tokens": ask("token.list", nil), "approvals": ask("approval.list", nil), "all": ask("approval.list",
				map[string]any{"all": true})}
		}
		before := state()
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		after := state()
		for what := range before {
			if changed := before[what] != after[what]; changed != strings.Contains(" "+step.changes+" ", " "+what+" ") {
				t.Errorf("after %s the run of %s is another: %t", step.name, what, changed)
			}
		}
	}
	// Of calls: a page of past calls stays the same run; the newest page is another with each call.
	g.recorded(t, admin)
	past := map[string]any{"chain": "effects"}
	if first, again := ask("event.list", past), ask("event.list", past); first != again {
		t.Error("no effect was recorded, and the list of effects is another run")
	}
	one := ask("event.list", past)
	g.recorded(t, admin)
	if ask("event.list", past) == one {
		t.Error("an effect was recorded, and the list of effects is the same run")
	}
	var tokens TokenList
	g.says(t, admin, "token.list", map[string]any{}, "", &tokens)
	if s := tokens.Snapshot; tokens.Total != 2 || s.Tokens != 2 || s.Revoked != 1 || s.Expired != 1 {
		t.Errorf("%+v", s)
	}
}
