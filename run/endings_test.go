package run

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// emptyWorkspace has an attempt that left no file.
type emptyWorkspace struct{ Workspace }

func (emptyWorkspace) ReadControlFrom(context.Context, string, int, string, int64, int64) (Part, error) {
	return Part{}, fault.New(fault.NotFound, "control_missing", "no file")
}

// The ways in which the job script and Slurm can report a job's end, reasons that this version does not know included.
var (
	exitReasons = []string{"ok", "image_mismatch", "input_mismatch", "runtime_missing", "time_limit", "control_unwritable", "runtime_failed",
		"tool_failed", "terminated", "killed", "a word of a later script"}
	endStates = []string{"", "COMPLETED", "FAILED", "CANCELLED", "REVOKED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL",
		"LAUNCH_FAILED", "RECONFIG_FAIL", "PREEMPTED", "REQUEUED", "A_LATER_STATE"}
	withoutExit = []string{"no exit file", "no exit file, claim of the gateway", "no exit file, never claimed", "no exit file, refused"}
)

// ended judges an attempt that ended in this way.
func ended(reason, state string, cancelled bool) verdict {
	e := &Engine{Parts: Parts{Workspace: emptyWorkspace{}}}
	v := View{Attempt: Attempt{SlurmState: state, SlurmWhy: "None"}}
	if cancelled {
		v.Run.CancelAt, v.Run.CancelReason = &time.Time{}, "enough"
	}
	var x *Exit
	without := ""
	switch reason {
	case "no exit file":
		without = jobClaimed
	case "no exit file, claim of the gateway":
		without = gatewayClaimed
	case "no exit file, never claimed":
		without = neverClaimed
	case "no exit file, refused":
		without, v.Attempt.SlurmWhy = jobClaimed, "BadConstraints"
	case "ok":
		x = &Exit{Reason: reason, Node: "n1"}
	default:
		x = &Exit{Reason: strings.TrimPrefix(reason, "exit file: "), Code: 7, Node: "n1"}
	}
	return e.judge(context.Background(), v, plan.Resources{MemMB: 100, TimeLimitSeconds: 60}, x, without, false)
}

// Every cell of the table is an ending, and success needs both sources; a reason in an exit file cannot select a row
// for attempts without one.
func TestEndingTable(t *testing.T) {
	all := map[Ending]bool{"-": true}
	for _, e := range append(NodeFaults, EndedOK, EndedInputMissing, EndedNotStarted, EndedRunsDirFull, EndedToolFailed, EndedTimeLimit,
		EndedOutOfMemory, EndedImageMismatch, EndedInputMismatch,
		EndedNoRuntime, EndedControl, EndedRejected, EndedCancelled, EndedNodeFail, EndedBootFail, EndedPreempted, EndedLost, EndedAbsent) {
		all[e] = true
	}
	for reason, row := range endings {
		if len(row.cells) != 12 || !all[row.own] {
			t.Errorf("%s: %d columns, own ending %s", reason, len(row.cells), row.own)
		}
		for column, cell := range row.cells {
			if cell == "slurm" {
				cell = endings["(slurm)"].cells[column]
			}
			if cell != "own" && !all[Ending(cell)] || cell == "-" && reason != "(slurm)" {
				t.Errorf("the ending for the reason %s in the column %s is %q, want a known one", reason, column, cell)
			}
			if reason != "(slurm)" && cell == string(EndedOK) || (cell == "own" && row.own == EndedOK) != (reason == "ok" && (column == "gone" ||
				column == "gone+cancel" || column == "COMPLETED")) {
				t.Errorf("the reason %s with Slurm's state %s: success differs from the rule that both sources must agree", reason, column)
			}
		}
	}
	for reason := range endings {
		if _, ok := explanations[reason]; !ok && reason != "(slurm)" {
			t.Errorf("the reason %s has no explanation", reason)
		}
	}
	for _, reason := range []string{"(void)", "(slurm)", "(refused)", "other"} {
		if d := ended("exit file: "+reason, "COMPLETED", false); d.ending != EndedToolFailed {
			t.Errorf("an exit file with the reason %s gives the ending %s, want tool_failed", reason, d.ending)
		}
	}
}

// How an attempt ended, for every exit reason and every state of Slurm's. The golden file was written by the program
// that decided it in code; only REVOKED, which is now CANCELLED throughout, and the exit code of unknown reasons
// differ.
func TestEndings(t *testing.T) {
	var got strings.Builder
	for _, reason := range append(exitReasons, withoutExit...) {
		for _, state := range endStates {
			for _, cancelled := range []bool{false, true} {
				d := ended(reason, state, cancelled)
				exit := "-"
				if d.exit != nil {
					exit = fmt.Sprint(*d.exit)
				}
				if d.ending == "" || d.detail == "" && d.ending != EndedOK {
					t.Errorf("judge(%s, %s, cancelled %v) gives the ending %q with the detail %q, want both", reason, state, cancelled, d.ending, d.detail)
				}
				fmt.Fprintf(&got, "%s | %s | cancelled %v | %s | exit %s | %s\n", reason, state, cancelled, d.ending, exit, d.detail)
			}
		}
	}
	const golden = "testdata/endings.golden"
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got.String(), "\n") {
		if i >= len(was) || line != was[i] {
			t.Fatalf("line %d:\n%s\nwas\n%s", i+1, line, was[min(i, len(was)-1)])
		}
	}
}

// The program of a pipe that failed first is named. proves DATA-03
func TestEndingOfPipe(t *testing.T) {
	e := &Engine{Parts: Parts{Workspace: emptyWorkspace{}}}
	v := View{Attempt: Attempt{SlurmState: "FAILED"}}
	for code, want := range map[int]string{3: "program 2 of the pipe exited with status 3: ",
		141: "program 2 of the pipe was stopped by SIGPIPE (status 141), because the next program ended without reading everything: "} {
		d := e.judge(context.Background(), v, plan.Resources{}, &Exit{Reason: "tool_failed", Code: code, Program: 2}, "", false)
		if !strings.HasPrefix(d.detail, want) {
			t.Errorf("the detail is %q, want the prefix %q", d.detail, want)
		}
	}
}
