package app

import (
	"strings"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/retention"
)

// This file renders the answers about removed data.

// Says implements [blocks.Answer].
func (a GCAnswer) Says() blocks.Document {
	verb := "removed"
	if a.DryRun {
		verb = "would remove"
	}
	t := blocks.Table{Columns: blocks.Columns(verb, "what", "size", "from before")}
	var l blocks.Lines
	for _, x := range []struct {
		what, setting string
		retention.Tally
	}{
		{"workspaces of finished runs", "retention.workspace_days", a.Workspaces},
		{"imports that no run used", "retention.import_days", a.Imports},
		{"bytes without an artifact", "", a.Bytes},
	} {
		if x.KeptSince == "" {
			x.KeptSince = "kept for ever: " + x.setting + " is 0"
		}
		t.Rows = append(t.Rows, []any{x.Count, x.what, blocks.Bytes(x.Bytes), x.KeptSince})
		for _, name := range x.Named {
			if a.DryRun {
				l.Add("%v  %v", verb, name)
			}
		}
	}
	addSkipped(&l, "kept", a.Kept)
	return blocks.Document{t, l}
}

func addSkipped(l *blocks.Lines, what string, items []retention.Skipped) {
	for _, k := range items {
		l.Add("%v  %v  %v", what, k.Name, blocks.Data(k.Why))
	}
}

// addLeft lists what is still pending, and where a gateway cannot reach.
func addLeft(l *blocks.Lines, pending []retention.Skipped, outside []string) {
	if addSkipped(l, "still there", pending); len(pending) > 0 {
		l.Add("what is still there is tried again when the gateway starts")
	}
	for _, o := range outside {
		l.Add("out of reach  %v", o)
	}
}

// Says implements [blocks.Answer].
func (a EraseAnswer) Says() blocks.Document {
	verb := "erased"
	if a.DryRun {
		verb = "would erase"
	}
	var l blocks.Lines
	var next blocks.Next
	if len(a.Found) == 0 {
		l.Add("the secret was found nowhere")
		a.Outside = nil
	}
	for _, f := range a.Found {
		l.Add("%v  %v %v", verb, f.Count, f.What)
		for _, name := range f.Named {
			if a.DryRun {
				l.Add("    %v", name)
			}
		}
	}
	for _, id := range a.InFlight {
		l.Add("in flight  %v holds the secret and must end first", id)
		next = append(next, fault.Do("slurm.job.cancel", "run_id", id))
	}
	addSkipped(&l, "not searched", a.Skipped)
	if a.Left > 0 {
		l.Add("found again  %v places got the secret meanwhile: run the same command again", a.Left)
	}
	if a.ID != "" {
		l.Add("erasure  %v", a.ID)
	}
	addLeft(&l, a.Pending, a.Outside)
	return blocks.Document{l, next}
}

// Says implements [blocks.Answer].
func (a RemovalAnswer) Says() blocks.Document {
	verb := "removed"
	if a.DryRun {
		verb = "would remove"
	}
	var l blocks.Lines
	each := func(ids []string, format string) {
		for _, id := range ids {
			l.Add(format, id)
		}
	}
	each(a.Runs, verb+"  %v")
	for _, x := range a.Artifacts {
		l.Add("%v  %v  %v  %v", verb, x.ArtifactID, blocks.Bytes(x.SizeBytes), blocks.Data(x.Label))
		if x.Others > 0 {
			l.Add("    its bytes stay: other artifacts have the same bytes (%v)", x.Others)
		}
	}
	each(a.Workspaces, verb+"  the workspace of %v")
	if a.Records > 0 {
		l.Add("%v  %v answers and texts from the records of earlier calls", verb, a.Records)
	}
	for _, x := range a.Withdrawn {
		l.Add("no longer yours  %v  it stays for %v", x.ID, strings.Join(x.Askers, ", "))
	}
	each(a.Already, "already removed  %v")
	addSkipped(&l, "kept", a.Kept)
	each(a.Copies, "still has a copy  the workspace of %v (with_runs removes it, gc does in time)")
	l.Add("frees %v in the artifact store", blocks.Bytes(a.FreedBytes))
	if a.ID != "" {
		l.Add("removal  %v", a.ID)
	}
	if len(a.Artifacts)+len(a.Runs) == 0 {
		a.Outside = nil
	}
	addLeft(&l, a.Pending, a.Outside)
	return blocks.Document{l}
}
