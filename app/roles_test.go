package app

import (
	"encoding/json"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/run"
)

// A run of an older ledger with an output LOG beside the gateway's own log can be read again.
func TestRunWithRolesThatDifferOnlyInCase(t *testing.T) {
	g := tableGateway(t)
	b := g.fill(t, "own")
	v, err := g.Ledger.View(t.Context(), b.run)
	if err != nil {
		t.Fatal(err)
	}
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
		x, err := g.Gate.Registry().Find(id)
		if err != nil {
			t.Fatal(err)
		}
		res := g.Gate.Call(t.Context(), gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "me",
			Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}},
			gate.NewRequest(id, x.Version, json.RawMessage(`{"run_id":"`+b.run+`"}`)))
		if !res.OK {
			t.Errorf("%s: %+v", id, res.Error)
		}
	}
}
