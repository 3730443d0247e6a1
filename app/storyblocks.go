package app

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"slurmgate/blocks"
	"slurmgate/plan"
	"slurmgate/visible"
)

// This file renders the answers about the record of a run.

// Says implements [blocks.Answer].
func (r CallRun) Says() blocks.Document {
	f := blocks.List("run", r.RunID, "call of", blocks.Say("%v (contract %v)", r.ToolID, r.ContractVersion), "policy", r.PolicyHash,
		"params", string(r.Params), "asked", blocks.Say("%v times, first %v, last %v", r.Calls, r.FirstAskedAt, r.LastAskedAt))
	for _, id := range r.ToolCallIDs {
		f.Add("call", id)
	}
	return blocks.Document{f}
}

// Says implements [blocks.Answer].
func (r RunDiff) Says() blocks.Document {
	if r.Same {
		return blocks.Document{blocks.Say("The same run.")}
	}
	t := blocks.Table{Columns: blocks.Columns("what", "a", "b")}
	for _, p := range r.Parts {
		t.Rows = append(t.Rows, []any{p.Part, p.A, p.B})
	}
	for _, x := range r.Changes {
		t.Rows = append(t.Rows, []any{x.Path, blocks.Data(cmp.Or(string(x.A), "(absent)")), blocks.Data(cmp.Or(string(x.B), "(absent)"))})
	}
	if r.More {
		return blocks.Document{t, blocks.Say("There is more; the answer as JSON has all of it.")}
	}
	return blocks.Document{t}
}

// Says implements [blocks.Answer].
func (r RunStory) Says() blocks.Document {
	reason := strings.TrimSuffix(r.Reason+": "+r.Detail, ": ")
	if reason == "ok" {
		reason = ""
	}
	f := blocks.List("run", r.RunID, "tool", blocks.Say("%v %v (contract %v)", r.ToolID, r.ToolVersion, r.ContractVersion),
		"state", blocks.Say("%v (%v)", r.State, r.Phase), "reason", blocks.Reason(reason), "project", r.ProjectID, "site", r.Site,
		"as user", r.ExecutedAs, "asked by", r.Principal)
	for _, k := range r.AskedAlso {
		how := blocks.Say("%v, on %v", k.Principal, k.AskedAt)
		if k.BatchID != nil {
			how = blocks.Say("%v by %v", how, *k.BatchID)
		}
		if k.WithdrawnAt != nil {
			how = blocks.Say("%v, withdrawn on %v", how, *k.WithdrawnAt)
		}
		f.Add("also", how)
	}
	f.Add("policy", r.PolicyHash)
	f.Add("params", r.ParamsHash)
	p, err := plan.DecodeParams(r.Params)
	if err == nil && p.Worker != nil {
		r.addCall(&f, *p.Worker)
	} else {
		r.addJob(&f, p)
	}
	for _, in := range r.Inputs {
		said := blocks.Say("%v  %v  %v → %v", in.Role, in.Type, in.ArtifactID, in.Relpath)
		if in.Strength != "" {
			said = blocks.Say("%v  %v", said, in.Strength)
		}
		if x := in.InPlace; x != nil {
			said = blocks.Say("%v (%v, registered by %v on %v)", said, x.On, x.RegisteredBy, x.RegisteredAt)
		}
		f.Add("input", said)
	}
	for _, o := range r.Outputs {
		f.Add("output", blocks.Say("%v  %v  %v  %v", o.Role, o.Type, o.ArtifactID, blocks.Bytes(o.SizeBytes)))
	}
	d := blocks.Document{f}
	if len(r.Sends) > 0 {
		t := blocks.Table{Columns: blocks.Columns("send", "at", "outcome", "answer")}
		t.Columns[3].Width = 100
		for _, k := range r.Sends {
			t.Rows = append(t.Rows, []any{k.Send, k.StartedAt, k.Outcome, blocks.Data(k.Text)})
		}
		d = append(d, t)
	}
	t := blocks.Table{Columns: blocks.Columns("event", "at", "type", "data")}
	t.Columns[3].Width = 100
	for _, e := range r.Events {
		t.Rows = append(t.Rows, []any{e.Seq, e.At, e.Type, blocks.Data(e.Data)})
	}
	return append(d, t, blocks.Warnings(r.Warnings), blocks.Next(r.NextSteps))
}

// addJob adds the facts of a run as a job, and the course of its attempts.
func (r RunStory) addJob(f *blocks.Facts, p plan.Params) {
	f.Add("image", r.Image)
	if x := p.Spec.Resources; x.CPUs > 0 { // the params could be read
		c := p.Spec.Execution.Command
		f.Add("command", fmt.Sprintf("%q", c.Argv))
		for _, argv := range c.Pipe {
			f.Add("| into", fmt.Sprintf("%q", argv))
		}
		f.Add("stdin", c.Stdin)
		f.Add("requested", joined(", ", fmt.Sprintf("%d CPUs, %d MiB, %s", x.CPUs, x.MemMB, time.Duration(x.TimeLimitSeconds)*time.Second),
			p.Spec.Placement.Text()))
	}
	f.Add("job", fmt.Sprintf("%s  %s  attempt %d  node %s  slurm %s", cmp.Or(r.SlurmJobID, "-"), r.JobName, r.Attempt, cmp.Or(r.Node, "-"),
		cmp.Or(r.SlurmState, "-")))
	f.Add("exit", r.ExitCode)
	for _, t := range r.Attempts {
		where := ""
		if t.Placement != nil {
			where = t.Placement.Text()
		}
		how := joined("  ", fmt.Sprint(t.Attempt), cmp.Or(string(t.Ending), "open"), where, t.Resources.Raised(p.Spec.Resources))
		f.Add("attempt", blocks.Say("%v  %v", how, t.used()))
	}
	if r.WorkspaceGone != nil {
		f.Add("workspace", blocks.Say("removed on %v; the run's artifacts still exist", *r.WorkspaceGone))
	} else {
		f.Add("workspace", r.Workspace)
	}
}

// addCall adds the arguments of a call of a service worker and its answer.
func (r RunStory) addCall(f *blocks.Facts, c plan.Call) {
	f.Add("arguments", visible.Cell(string(c.Input), 200))
	if r.Call != nil && r.Call.Error == nil {
		f.Add("answer", visible.Cell(cmp.Or(r.Call.OutputRef, string(r.Call.Output)), 200))
	}
}

// used describes what an attempt's job used.
func (t AttemptDoc) used() blocks.Sentence {
	if t.ElapsedSeconds == nil {
		return blocks.Say("nothing measured")
	}
	said := blocks.Say("%v elapsed, %v CPU", secondsText(*t.ElapsedSeconds), secondsText(*t.CPUSeconds))
	if t.CPUEfficiency != nil {
		said = blocks.Say("%v (%v %% of its CPUs)", said, math.Round(100**t.CPUEfficiency))
	}
	if t.MaxRSSBytes != nil {
		said = blocks.Say("%v, %v memory (%v %% of the requested)", said, blocks.Bytes(*t.MaxRSSBytes), math.Round(100**t.MemEfficiency))
	}
	return blocks.Say("%v, by %v", said, map[string]string{"job": "the job's own record", "accounting": "Slurm's accounting"}[t.Source])
}

func secondsText(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}

// joined joins texts, without the empty ones.
func joined(between string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), between)
}
