package app

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// The tables that a read call may change: the records of the call itself.
var recordTables = []string{"call_chains", "tool_call_events", "tool_payloads", "call_runs", "call_about"}

// tables returns the content of the ledger except the records of calls, one text for each table.
func (g *Gateway) tables(t *testing.T) map[string]string {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(g.Site.Gateway.StateDir, "ledger.db")+"?mode=ro")
	must(t, err)
	defer db.Close()
	texts := func(q string) (out []string) {
		rows, err := db.Query(q)
		if err != nil {
			t.Fatal(q, err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		must(t, err)
		for rows.Next() {
			row := make([]any, len(columns))
			for i := range row {
				row[i] = new(any)
			}
			must(t, rows.Scan(row...))
			line := ""
			for _, v := range row {
				line += fmt.Sprint(*v.(*any)) + "|"
			}
			out = append(out, line)
		}
		must(t, rows.Err())
		return out
	}
	out := map[string]string{}
	for _, name := range texts("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		name = strings.TrimSuffix(name, "|")
		if !slices.Contains(recordTables, name) {
			out[name] = strings.Join(texts("SELECT * FROM "+name+" ORDER BY 1, 2"), "\n")
		}
	}
	return out
}

// late stores a run whose outputs are late.
func (g *Gateway) late(t *testing.T, b belongings, n int) string {
	t.Helper()
	params := json.RawMessage(fmt.Sprintf(`{"late":%d}`, n))
	id := plan.Identity{ToolName: "samtools_flagstat", ContractVersion: "v1", PolicyHash: g.Policy.Hash, ParamsHash: plan.Hash(params)}
	runID, token := id.RunID(), fmt.Sprintf("%032x", 1000+n)
	_, _, err := g.Ledger.Insert(t.Context(), run.New{Params: params, Policy: g.Policy.Snapshot,
		Run: run.Run{ID: runID, Site: g.Site.Name, ToolID: "samtools.flagstat", ToolName: "samtools_flagstat", ToolVersion: "1.0.0",
			ContractVersion: "v1",
			PolicyHash:      id.PolicyHash, ParamsHash: id.ParamsHash,
			PlanHash: id.PlanHash(), ProjectID: b.project, Actor: "human", State: run.Blocked, Phase: run.OutputsLate, Reason: "outputs_late",
			AttemptN: 1, ResultJSON: json.RawMessage(`{}`)},
		Submission: run.Submission{Token: token, JobName: run.JobName(runID, 1, token), CreatedAt: time.Now()},
		Event:      run.Event{Type: "run.created", Data: map[string]any{}}})
	must(t, err)
	return runID
}

// Each tool's declared effect is compared with the changes in the ledger: a READ tool, called with every set of its
// arguments, changes no table but the records of calls; a WRITE tool changes one. A tool without a case fails.
//
// proves HTC-12
func TestEffectsAreAsDeclared(t *testing.T) {
	g := tableGateway(t)
	admin := everything("user:boss", gate.All)
	b := g.fill(t, "own")
	late := b
	late.run = g.late(t, b, 1)
	token := gate.Token{ID: "tok_" + strings.Repeat("B", 16), Name: "t", SecretSHA256: strings.Repeat("0", 64), CreatedBy: "x",
		ExpiresAt: time.Now().Add(time.Hour)}
	must(t, g.Ledger.AddToken(t.Context(), token))
	asked, err := g.Ledger.Ask(t.Context(), gate.Question{Who: gate.Principal{Name: "token:chat"}, ToolID: "x.y", ToolVersion: "1.0.0",
		Binding: strings.Repeat("1", 64), ArgsHash: strings.Repeat("2", 64),
		Payload: json.RawMessage(`{}`), Expires: time.Now().Add(time.Hour)})
	must(t, err)
	alice := gate.ProjectUser{Name: "alice", UID: 1001}
	if _, err := g.Ledger.UserProject(t.Context(), alice); err != nil {
		t.Fatal(err)
	}
	g.ProjectUser = func(context.Context, string) (gate.ProjectUser, error) {
		return gate.ProjectUser{Name: "alice", UID: 2002}, nil
	}
	changes := map[string]map[string]any{
		"project.rebind":  {"user": "alice", "same_person": true},
		"artifact.import": {"text": "new", "label": "new"}, "token.create": {"name": "a", "capabilities": []string{"read"},
			"projects": []string{"own"}, "expires_in_seconds": 3600},
		"token.revoke": {"token_id": token.ID}, "approval.answer": {"approval_id": asked.ID, "approve": true},
		"slurm.job.recollect": {"run_id": late.run},
		"gateway.drain":       {"reason": "r"}, "gateway.resume": {}, // in this order
		"key.rotate": {}, "reference.add": {"name": "genome", "artifact_id": b.artifact}, "reference.remove": {"name": "genome"},
	}
	// These act on Slurm, a shared filesystem or a container; e2e drives them against the real ones. event.record
	// writes a record of a call, which is in none of the tables compared.
	elsewhere := []string{"slurm.submit", "slurm.job.cancel", "slurm.job.retry", "slurm.job.absent", "slurm.job.adopt", "gateway.gc",
		"secret.erase", "event.record", "artifact.remove", "run.remove", "batch.run", "batch.retry", "batch.cancel",
		"run.notify"}
	for _, p := range g.Domain.Packs().List() {
		elsewhere = append(elsewhere, p.ID())
	}
	call := func(x gate.Tool, args map[string]any) (gate.Response, []string) {
		before := g.tables(t)
		res := g.Gate.Call(t.Context(), admin, request(t, x, args, false))
		var changed []string
		for name, text := range g.tables(t) {
			if before[name] != text {
				changed = append(changed, name)
			}
		}
		return res, changed
	}
	looks := 0
	for _, x := range g.Gate.Registry().List() {
		if x.SideEffect != gate.Read {
			continue
		}
		for _, things := range []belongings{b, late} {
			for _, args := range g.argsOf(t, x, things) {
				delete(args, "wait_seconds") // a waiting call shows nothing more
				res, changed := call(x, args)
				if res.ResultRef != nil { // an answer too large for an envelope is stored as an artifact, with its event
					changed = slices.DeleteFunc(changed, func(table string) bool {
						return slices.Contains([]string{"artifacts", "artifact_counts", "project_use", "caller_use", "events"}, table)
					})
				}
				if len(changed) > 0 {
					t.Errorf("%s is declared READ, and %v with %v changed", x.ID, changed, args)
				}
				looks++
			}
		}
	}
	if looks < 60 {
		t.Errorf("only %d looks: does the check see the tools?", looks)
	}
	for _, x := range g.Gate.Registry().List() {
		args, here := changes[x.ID]
		switch {
		case x.SideEffect == gate.Read, !here && slices.Contains(elsewhere, x.ID):
		case !here:
			t.Errorf("%s is declared %s and has no case: add one to this check", x.ID, x.SideEffect)
		default:
			if res, changed := call(x, args); res.Error != nil || len(changed) == 0 {
				t.Errorf("%s is declared %s, and changed %v: %+v", x.ID, x.SideEffect, changed, res.Error)
			}
			delete(changes, x.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(changes)) {
		t.Errorf("a case for %s, which is no tool that changes anything", id)
	}
}
