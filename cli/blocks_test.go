package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/run"
)

// The shell prints each block of a document in its own form, leaves advice out, and continues a list with the arguments of its call.
func TestDocument(t *testing.T) {
	at := time.Date(2026, 11, 28, 9, 30, 0, 0, time.Local)
	facts := blocks.List("run", "run_1", "reason", blocks.Reason("tool_failed: exit 3"), "job", "", "created", at)
	facts.Brief = blocks.Say("said in one sentence")
	d := blocks.Document{
		blocks.Say("Batch %v has %v rows%v.", blocks.Data("b"), 2, blocks.Say("")), blocks.Advise("Look again in %v s.", 7), facts,
		blocks.Artifacts{{ID: "art_1", Name: "log"}}, blocks.Warnings{"little room"},
		blocks.Table{Noun: "batches", Total: 9, Columns: blocks.Columns("batch", "size*", "states"),
			Rows: [][]any{{"b1", blocks.Bytes(20 << 20), nil}}},
		blocks.More{Verb: "batch.list", Argument: "cursor", Value: "c"},
		blocks.Next{fault.Do("slurm.job.logs", "run_id", "run_1")},
	}
	var b strings.Builder
	printDocument(&b, d, app.BatchListArgs{Principal: "me"})
	want := `Batch b has 2 rows.
run      run_1
reason   tool_failed: exit 3
created  2026-11-28 09:30:00
output  art_1  log
warning: little room
batch  size    states
b1     20 MiB  -
1 of 9 batches
Next: slurmgate batch list --principal me --cursor c
Next: slurmgate logs run_1
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("a document at the shell (-want +got):\n%s", diff)
	}
}

// What is advice for a chat is a step at the shell.
func TestGetOfASuccess(t *testing.T) {
	var a run.GetAnswer
	a.TargetRunID, a.State, a.Phase = "run_1", run.Succeeded, run.Done
	a.ArtifactsByRole = map[string]string{"summary": "art_1"}
	a.NextSteps = []fault.Step{fault.Do("slurm.job.collect", "run_id", "run_1")}
	var b strings.Builder
	printDocument(&b, a.Says(), nil)
	want := `run     run_1
state   succeeded (done)
output  art_1  summary
Next: slurmgate collect run_1
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("get of a run that succeeded, at the shell (-want +got):\n%s", diff)
	}
}

// A table reads at the shell as in a chat, with its cells aligned, and ends with the command for the rows that follow.
func TestTablePreview(t *testing.T) {
	var a app.TableAnswer
	a.ArtifactID, a.Type, a.SizeBytes, a.ColumnsTotal, a.FirstRow, a.Truncated = "art_1", "TSV", 20<<20, 2, 3, true
	a.Columns = []artifact.Column{{Name: "name", Type: "text"}, {Name: "n", Type: "integer"}}
	a.Rows = [][]string{{"long|name", "1"}, {"c", "22"}}
	a.Warnings = []string{"line 7 has 3 cells"}
	var b strings.Builder
	printDocument(&b, a.Says(), app.TableArgs{ArtifactArgs: app.ArtifactArgs{ArtifactID: "art_1"}, FirstRow: 3})
	want := `art_1 (TSV, 20 MiB): a table of 2 columns; rows 3 to 4, counted from 0.
name (text)  n (integer)
long|name    1
c            22
Next: slurmgate artifact preview art_1 --as table --first 5
warning: line 7 has 3 cells
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("a table's preview at the shell (-want +got):\n%s", diff)
	}
}
