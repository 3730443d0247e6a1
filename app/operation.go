package app

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
		"slurm.job.cancel":       gate.SchemaOf[CancelAnswer](),
		recollectToolID:          gate.SchemaOf[RecollectAnswer](),
		"slurm.job.retry":        gate.SchemaOf[run.SubmitAnswer](),
		"slurm.job.absent":       gate.SchemaOf[StateAnswer](),
		"slurm.job.adopt":        gate.SchemaOf[StateAnswer](),
		"slurm.job.logs":         gate.SchemaOf[run.LogsAnswer](),
		"run.list":               gate.SchemaOf[RunList](),
		"run.show":               gate.SchemaOf[RunStory](),
		"run.diff":               gate.SchemaOf[RunDiff](),
		provenanceToolID:         gate.SchemaOf[CallRun](),
		"artifact.import":        gate.SchemaOf[ImportAnswer](),
		"artifact.list":          gate.SchemaOf[ArtifactList](),
		"artifact.get":           gate.SchemaOf[ArtifactLook](),
		"artifact.verify":        gate.SchemaOf[Verified](),
		"artifact.preview.table": gate.SchemaOf[TableAnswer](),
		"artifact.preview.image": gate.SchemaOf[ImageAnswer](),
		gcToolID:                 gate.SchemaOf[GCAnswer](),
		"artifact.preview.text":  gate.SchemaOf[PreviewAnswer](),
		"tool.list":              gate.SchemaOf[ToolList](),
		"tool.show":              gate.SchemaOf[ToolDoc](),
		"token.create":           gate.SchemaOf[TokenCreated](),
		"token.list":             gate.SchemaOf[TokenList](),
		"token.revoke":           gate.SchemaOf[TokenAnswer](),
		"approval.list":          gate.SchemaOf[ApprovalList](),
		"approval.answer":        gate.SchemaOf[approvalAnswered](),
		"event.record":           gate.SchemaOf[shellRecorded](),
		"event.list":             gate.SchemaOf[EventList](),
		"event.show":             gate.SchemaOf[EventStory](),
		"event.verify":           gate.SchemaOf[EventsVerified](),
	}
}

// IdempotencyOf says what a repeated call of a tool does: nothing more, but for those named here. A tool of the domain finds its run.
func IdempotencyOf(toolID string) string {
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
func (g *Gateway) described(tools []gate.Tool) []gate.Tool {
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
		t.Idempotency = IdempotencyOf(t.ID)
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
