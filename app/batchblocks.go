package app

import (
	"fmt"
	"strings"

	"slurmgate/blocks"
	"slurmgate/fault"
)

// This file renders the answers about batches.

// CountsText lists the number of rows in each state.
func (d BatchDoc) CountsText() string {
	var parts []string
	for _, state := range []string{"succeeded", "running", "queued", "waiting", "blocked", "failed", "refused", "cancelled"} {
		if n := d.Counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

func (d BatchDoc) sentence() blocks.Sentence {
	return blocks.Say("Batch %v has %v rows: %v.", d.Name, d.Rows, d.CountsText())
}

// statusStep returns the step that reads a batch again; a chat waits up to 30 seconds.
func statusStep(name string) blocks.Next {
	return blocks.Next{fault.Do("batch.status", "batch", name, "wait_seconds", 30)}
}

// Says implements [blocks.Answer].
func (a BatchStatusAnswer) Says() blocks.Document {
	d := blocks.Document{a.sentence(), blocks.Details("batch", a.BatchID, "tool", a.ToolID, "by", a.Principal, "created", a.CreatedAt)}
	for _, x := range a.Steps {
		d = append(d, blocks.Details(x.Step, fmt.Sprintf("%d rows: %s", x.Rows, x.CountsText())))
	}
	if a.Waits != nil {
		d = append(d, blocks.Say("Rows wait: %v.", blocks.Reason(a.Waits.Message)))
	}
	var causes blocks.Lines
	for _, c := range a.Causes {
		causes = append(causes, c.sentence())
	}
	d = append(d, causes)
	switch {
	case !a.Over:
		d = append(d, blocks.Advise("It continues without this chat. Next: %v.", statusStep(a.Name)))
	case len(a.NextSteps) > 0:
		d = append(d, blocks.Advise("It is over."), blocks.Next(a.NextSteps))
		for _, s := range a.NextSteps {
			if s.Verb == "batch.table" {
				d = append(d, blocks.Advise("sort_by of %v puts the worst first.", blocks.Verb(s.Verb)))
			}
		}
	}
	return d
}

func (c BatchCauseDoc) sentence() blocks.Sentence {
	step, reason, more := blocks.Say(""), blocks.Say(""), ""
	if c.Step != "" {
		step = blocks.Say("Step %v: ", c.Step)
	}
	if !strings.HasPrefix(c.Cause, c.Reason) {
		reason = blocks.Say(": %v", blocks.Reason(c.Reason))
	}
	samples := c.Samples[:min(len(c.Samples), 3)]
	if int64(len(samples)) < c.Rows {
		more = " and others"
	}
	return blocks.Say("%v%v %v, %v%v, for example %v%v.", step, c.Rows, c.State, c.Cause, reason,
		blocks.Data(strings.Join(samples, ", ")), more)
}

// Says implements [blocks.Answer].
func (a BatchRowsAnswer) Says() blocks.Document {
	t := blocks.Table{Noun: "rows", Of: "batch " + a.Name, Total: a.Total, Columns: blocks.Columns("row", "sample", "state", "run", "reason")}
	var first *BatchOutput
	for _, r := range a.Rows {
		reason := blocks.Reason(r.Reason)
		if r.State == "succeeded" {
			reason = ""
		}
		row := []any{r.Row, blocks.Data(r.Sample), r.State, r.RunID, reason}
		if r.Outputs != nil && len(t.Columns) == len(row) {
			t.Columns = append(t.Columns, blocks.Column{Name: "outputs"})
		}
		var outputs blocks.Artifacts
		for i, o := range r.Outputs {
			outputs = append(outputs, blocks.Artifact{ID: o.ArtifactID, Name: o.Role, Type: o.Type})
			if first == nil {
				first = &r.Outputs[i]
			}
		}
		t.Rows = append(t.Rows, append(row, outputs))
	}
	d := blocks.Document{t}
	if a.AfterRow != nil {
		d = append(d, blocks.More{Verb: "batch.rows", Argument: "after_row", Value: *a.AfterRow})
	}
	if first != nil {
		d = append(d, lookSteps(first.ArtifactID, first.Type))
	}
	return d
}

// Says implements [blocks.Answer].
func (l BatchList) Says() blocks.Document {
	t := l.table("batches", "newest first", "batch", "created", "tool", "name", "rows", "states")
	for _, b := range l.Batches {
		t.Rows = append(t.Rows, []any{b.BatchID, b.CreatedAt, b.ToolID, blocks.Data(b.Name), b.Rows, b.CountsText()})
	}
	d := append(blocks.Document{t}, continues("batch.list", l.Cursor)...)
	if len(l.Batches) > 0 {
		d = append(d, blocks.Next{fault.Do("batch.status", "batch", l.Batches[0].BatchID)})
	}
	return d
}

// Says implements [blocks.Answer].
func (a BatchStarted) Says() blocks.Document {
	d := blocks.Document{blocks.Say("Accepted: batch %v with %v rows.", a.Name, a.Rows),
		blocks.Advise("The gateway submits them; nothing else is needed.")}
	if a.Existed {
		d = blocks.Document{blocks.Say("The same was requested before: batch %v with %v rows. Nothing was submitted again.", a.Name, a.Rows)}
	}
	if a.BatchID != a.Name { // several steps have only the name
		d = append(d, blocks.Details("batch", a.BatchID))
	}
	for _, x := range a.Steps {
		d = append(d, blocks.Details(x.Step, fmt.Sprintf("%s  %s  %d rows", x.BatchID, x.ToolID, x.Rows)))
	}
	return append(d, blocks.Warnings(a.Warnings), statusStep(a.Name))
}

// Says implements [blocks.Answer].
func (a BatchChanged) Says() blocks.Document {
	return blocks.Document{blocks.Say("%v.", a.Message), a.sentence(), statusStep(a.Name)}
}

// Says implements [blocks.Answer].
func (a BatchTableAnswer) Says() blocks.Document {
	unfinished := blocks.Say("")
	if a.Pending+a.Failed > 0 {
		unfinished = blocks.Say("%v rows are not finished, %v did not succeed", a.Pending, a.Failed)
	}
	if a.Role == "" {
		return blocks.Document{blocks.Say("Batch %v has no outputs: %v.", a.Name, unfinished)}
	}
	head := blocks.Say("Output %v of %v of %v rows", a.Role, len(a.Rows), a.Total)
	if unfinished.Format != "" {
		head = blocks.Say("%v (%v)", head, unfinished)
	}
	if more := a.AllOf - len(a.Fields); more > 0 {
		head = blocks.Say("%v, %v of %v fields; others by their names in fields", head, len(a.Fields), a.AllOf)
	}
	t := blocks.Table{Columns: []blocks.Column{{Name: "sample", Width: 40}}}
	for _, name := range a.Fields {
		t.Columns = append(t.Columns, blocks.Column{Name: name, Data: true, Width: 30})
	}
	for _, r := range a.Rows {
		row := []any{blocks.Data(r.Sample)}
		for _, v := range r.Values {
			row = append(row, blocks.Data(v))
		}
		t.Rows = append(t.Rows, row)
	}
	d := blocks.Document{blocks.Say("%v.", head), t}
	if len(a.Others) > 0 {
		d = append(d, blocks.Details("other fields", blocks.Data(strings.Join(a.Others, ", "))))
	}
	return append(d, blocks.Warnings(a.Warnings))
}
