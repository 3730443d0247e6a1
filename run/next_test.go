package run

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
)

// What to do next follows from a run's state, phase and reason, for each that there can be.
func TestNextSteps(t *testing.T) {
	for _, c := range []struct {
		state  State
		phase  Phase
		reason string
		job    string
		want   string
	}{
		{Queued, Staging, "", "", "slurm.job.collect run_id=r wait_seconds=30|slurm.job.cancel run_id=r"},
		{Queued, Deferred, "", "", "slurm.job.collect run_id=r wait_seconds=30|slurm.job.cancel run_id=r"},
		{Running, InJob, "", "7", "slurm.job.collect run_id=r wait_seconds=30|slurm.job.cancel run_id=r"},
		{Blocked, OutputsLate, "outputs_late", "7", "slurm.job.recollect run_id=r|slurm.job.cancel run_id=r"},
		{Blocked, AheadOfLedger, "", "", "slurm.job.cancel run_id=r"},
		{Blocked, NeedsOperator, "", "7", "slurm.job.adopt run_id=r|slurm.job.absent run_id=r|slurm.job.cancel run_id=r"},
		{Succeeded, Done, "", "7", "slurm.job.collect run_id=r"},
		{Cancelled, Done, "", "", "slurm.job.retry after_attempt=2 run_id=r"},
		{Failed, Done, "tool_failed", "7", "slurm.job.logs run_id=r|slurm.job.retry after_attempt=2 run_id=r"},
		{Failed, Done, "rejected", "", "run.show run_id=r|slurm.job.retry after_attempt=2 run_id=r"},
		{Failed, Done, "image_mismatch", "7", "image verify|slurm.job.retry after_attempt=2 run_id=r"},
		{Failed, Done, "input_mismatch", "7", "artifact.verify all=true|slurm.job.retry after_attempt=2 run_id=r"},
		{Failed, Done, "runtime_missing", "7", "doctor|slurm.job.retry after_attempt=2 run_id=r"},
	} {
		v := View{Run: Run{ID: "r", State: c.state, Phase: c.phase, Reason: c.reason, AttemptN: 2}, Submission: Submission{JobID: c.job}}
		var got []string
		for _, s := range NextSteps(v) {
			got = append(got, s.String())
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s %s %s: %s, want %s", c.state, c.phase, c.reason, strings.Join(got, "|"), c.want)
		}
	}
}

// Another attempt of a deterministic tool whose outputs were refused gives the same outputs: a retry is offered only if
// the refusal did not depend on them.
func TestNoRetryThatOnlyFailsAgain(t *testing.T) {
	for _, c := range []struct {
		ending  Ending
		reason  string
		repeats bool
		retry   bool
	}{
		{EndedOutputs, "OUTPUT-MISSING", true, false},
		{EndedContract, "OUTPUT-FORMAT", true, false},
		{EndedContract, "STDERR-FAILURE", true, false},
		{EndedOutputs, "OUTPUT-MISSING", false, true},
		{EndedOutputs, "OUTPUT-CHANGED", true, true},
		{EndedOutputs, OutputSize, true, true},
		{EndedToolFailed, "tool_failed", true, true},
	} {
		v := View{Run: Run{ID: "r", State: Failed, Phase: Done, Reason: c.reason, AttemptN: 1}, Attempt: Attempt{Ending: c.ending},
			Submission: Submission{JobID: "7"}, Repeats: c.repeats && FailsAgain(c.ending, c.reason)}
		offered := slices.ContainsFunc(NextSteps(v), func(s fault.Step) bool { return s.Verb == "slurm.job.retry" })
		if offered != c.retry {
			t.Errorf("%s, %s (deterministic: %t): a retry is offered: %t, want %t", c.ending, c.reason, c.repeats, offered, c.retry)
		}
	}
}

// The answers of the verbs that change a run have the next steps of its new state.
func TestVerbsNameNextSteps(t *testing.T) {
	v := View{Run: Run{ID: "r", State: Failed, Phase: Done, Reason: "tool_failed", AttemptN: 3}, Submission: Submission{JobID: "7"}}
	for verb, answer := range map[string]any{"cancel": (&Engine{}).cancelAnswer(v), "recollect": RecollectAnswer{GetState: Outline(v)},
		"adopt, absent": Outline(v)} {
		raw, err := json.Marshal(answer)
		if err != nil || !strings.Contains(string(raw),
			`"next_steps":[{"verb":"slurm.job.logs","args":{"run_id":"r"}},{"verb":"slurm.job.retry","args":{"after_attempt":3,"run_id":"r"}}]`) {
			t.Errorf("the answer to %s is %s %v, want the steps logs and retry in it", verb, raw, err)
		}
	}
}

// A detail that older programs recorded is shown without its commands, and otherwise unchanged.
func TestOldDetails(t *testing.T) {
	for old, want := range map[string]string{
		"the attempt's folder is gone. Next: restore the newer ledger, or slurmgate cancel run_X":                                      "the attempt's folder is gone",
		"the job exited 0 and its manifest does not show up. Next: slurmgate collect once the filesystem is well, or slurmgate cancel": "the job exited 0 and its manifest does not show up",
		"cannot read x. Next: let the gateway's user read it again; the run then goes on by itself. Or slurmgate cancel run_X":         "cannot read x. Next: let the gateway's user read it again; the run then goes on by itself",
		`Slurm shows job 7 as "x". Next: scontrol update jobid=7 jobname=y; or leave it: when it ends, what it left is taken over`:     `Slurm shows job 7 as "x". Next: scontrol update jobid=7 jobname=y; or leave it: when it ends, what it left is taken over`,
		"the program exited with status 3: Or this": "the program exited with status 3: Or this",
	} {
		if got := (View{Run: Run{Reason: "r", Detail: old}}).Reason(); got != "r: "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A recorded error has its advice and no commands.
func TestProseOfErrors(t *testing.T) {
	err := fault.New(fault.Transport, "c", "cannot read x").WithNext("check the disk").WithSteps(fault.Do("doctor"))
	if got := fault.Prose(err); got != "cannot read x. Next: check the disk" {
		t.Errorf("the fault's prose is %q, want the message and what to do next", got)
	}
	if got := fault.Prose(fault.New(fault.Tool, "c", "ended").WithSteps(fault.Do("doctor"))); got != "ended" {
		t.Errorf("the prose of a fault that has only steps is %q, want the message", got)
	}
}
