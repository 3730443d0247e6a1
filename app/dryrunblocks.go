package app

import (
	"bytes"
	"encoding/json"
	"fmt"

	"slurmgate/blocks"
)

// This file renders the answers of dry runs.

// Says implements [blocks.Answer].
func (p CancelPreview) Says() blocks.Document {
	return blocks.Document{blocks.Say("%v: %v.", p.RunID, p.Message)}
}

// Says implements [blocks.Answer].
func (p ImportPreview) Says() blocks.Document {
	how := "It would be imported as"
	if !p.Created {
		how = "It is imported already, as"
	}
	return blocks.Document{p.facts(blocks.Say("%v %v: %v.", how, p.ArtifactID, p.brief()))}
}

// Says implements [blocks.Answer].
func (p RetryPreview) Says() blocks.Document {
	if p.WaitsAgain {
		return append(blocks.Document{blocks.Say("It would wait for its inputs again.")}, p.GetState.Says()...)
	}
	if p.NextAttempt == nil {
		return append(blocks.Document{blocks.Say("No attempt would be opened.")}, p.GetState.Says()...)
	}
	f := blocks.List("run", p.RunID, "state", string(p.State), "next attempt", p.Next, "CPUs", p.Resources.CPUs,
		"memory", blocks.Say("%v MiB", p.Resources.MemMB), "time limit", blocks.Say("%v s", p.Resources.TimeLimitSeconds), "raised", p.Raised)
	return blocks.Document{f}
}

// Says implements [blocks.Answer].
func (p ServicePreview) Says() blocks.Document {
	id, state := "a new one", ""
	if p.RunID != nil {
		id, state = *p.RunID, "would be created"
	}
	if p.State != nil {
		state = "already exists (" + string(*p.State) + ")"
	}
	d := blocks.Document{blocks.List("run", blocks.Say("%v  %v", id, state), "worker", p.Endpoint,
		"timeout", blocks.Say("%v s", p.TimeoutSec), "policy", p.PolicyHash)}
	var params bytes.Buffer
	if json.Indent(&params, p.Params, "", "  ") == nil {
		d = append(d, blocks.Quote{Text: params.String() + "\n"})
	}
	return d
}

// Says implements [blocks.Answer].
func (p BatchPlan) Says() blocks.Document {
	most := fmt.Sprintf("%.1f CPU hours, %.1f GiB hours of memory", p.CPUHours, p.MemGiBH)
	if p.GPUHours > 0 {
		most += fmt.Sprintf(", %.1f GPU hours", p.GPUHours)
	}
	var lines blocks.Lines
	lines.Add("%v rows, %v samples: %v new runs, %v that exist already; rows that share a run with another row: %v", p.Rows, p.Samples, p.New,
		p.Replays, p.Shared)
	lines.Add("the new runs reserve at most %v", most)
	return blocks.Document{lines, blocks.Warnings(p.Warnings)}
}
