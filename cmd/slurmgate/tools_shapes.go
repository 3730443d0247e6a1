package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"slurmgate/gate"
	"slurmgate/run"
)

// needs returns the capabilities that an operation of the gateway needs: "gateway", which marks it as one (AX-01), and one for what it
// does.
func needs(id string, effect gate.SideEffect) []string {
	what := gate.CapSlurm
	switch {
	case strings.HasPrefix(id, "token."), strings.HasPrefix(id, "event."):
		what = gate.CapAdmin
	case strings.HasPrefix(id, "approval."):
		what = gate.CapApprove
	case effect == gate.Read:
		what = gate.CapRead
	case strings.HasPrefix(id, "artifact."):
		what = gate.CapImport
	case slices.Contains([]string{"slurm.job.absent", "slurm.job.adopt"}, id):
		what = gate.CapOperate
	}
	return []string{gate.CapGateway, what}
}

// shapes are the schemas of the operations' answers, derived from the answers' types.
func shapes() map[string]json.RawMessage {
	return map[string]json.RawMessage{
		submitToolID:             gate.SchemaOf[run.SubmitAnswer](),
		"slurm.job.get":          gate.SchemaOf[run.GetAnswer](),
		"slurm.job.collect":      gate.SchemaOf[run.CollectAnswer](),
		"slurm.job.cancel":       gate.SchemaOf[cancelAnswer](),
		recollectToolID:          gate.SchemaOf[recollectAnswer](),
		"slurm.job.retry":        gate.SchemaOf[run.SubmitAnswer](),
		"slurm.job.absent":       gate.SchemaOf[stateAnswer](),
		"slurm.job.adopt":        gate.SchemaOf[stateAnswer](),
		"slurm.job.logs":         gate.SchemaOf[run.LogsAnswer](),
		"run.list":               gate.SchemaOf[runList](),
		"run.show":               gate.SchemaOf[runStory](),
		"run.diff":               gate.SchemaOf[runDiff](),
		provenanceToolID:         gate.SchemaOf[callRun](),
		"artifact.import":        gate.SchemaOf[importAnswer](),
		"artifact.list":          gate.SchemaOf[artifactList](),
		"artifact.get":           gate.SchemaOf[artifactLook](),
		"artifact.verify":        gate.SchemaOf[verified](),
		"artifact.preview.table": gate.SchemaOf[tableAnswer](),
		"artifact.preview.image": gate.SchemaOf[imageAnswer](),
		gcToolID:                 gate.SchemaOf[gcAnswer](),
		"artifact.preview.text":  gate.SchemaOf[previewAnswer](),
		"tool.list":              gate.SchemaOf[toolList](),
		"tool.show":              gate.SchemaOf[toolDoc](),
		"token.create":           gate.SchemaOf[tokenCreated](),
		"token.list":             gate.SchemaOf[tokenList](),
		"token.revoke":           gate.SchemaOf[tokenAnswer](),
		"approval.list":          gate.SchemaOf[approvalList](),
		"approval.answer":        gate.SchemaOf[approvalAnswered](),
		"event.record":           gate.SchemaOf[shellRecorded](),
		"event.list":             gate.SchemaOf[eventList](),
		"event.show":             gate.SchemaOf[eventStory](),
		"event.verify":           gate.SchemaOf[eventsVerified](),
	}
}

// idempotencyOf says what a repeated call of a tool does: nothing more, but for those named here. A tool of the domain finds its run.
func idempotencyOf(toolID string) string {
	switch toolID {
	case "token.create":
		return gate.NonIdempotent
	case "event.record":
		return gate.IdempotentWithKey
	}
	return gate.Idempotent
}

// described adds what is said of the operations beside what they do: the schemas of their answers, what a repeated call does, and that
// those which decide over others are no chat's.
func (g *gateway) described(tools []gate.Tool) []gate.Tool {
	known := shapes()
	for i := range tools {
		t := &tools[i]
		if t.Output == nil {
			t.Output = known[t.ID]
		}
		switch t.ID {
		case "artifact.import":
			t.DryRun = handler(g.rehearseImport)
		case submitToolID:
			t.DryRun = handler(g.rehearseSubmit)
		case "slurm.job.cancel", "slurm.job.absent", "slurm.job.retry", recollectToolID:
			t.DryRun = handler(g.rehearseVerb)
		case gcToolID:
			t.DryRun = handler(g.rehearseGC)
		}
		t.Idempotency = idempotencyOf(t.ID)
		if t.ID != provenanceToolID && bytes.Contains(t.Input, []byte(`"run_id":`+runIDSchema)) {
			t.Handle = g.explained(t.Handle)
		}
		if slices.Contains(t.Capabilities, gate.CapAdmin) || slices.Contains(t.Capabilities, gate.CapApprove) {
			t.Bindings = []gate.Transport{gate.Local, gate.Other}
		}
		if t.ID == "event.record" {
			t.Bindings = []gate.Transport{gate.Local}
		}
	}
	return tools
}
