package run

import (
	"context"
	"fmt"
)

// judge decides how the job ended, from Slurm's state and the exit file. Success needs both (promise 4);
// a tool's failure needs the exit file, because Slurm cannot tell a tool's status from the script's.
//
// Without an exit file the claim shows who executed; never means that no job had it, and the gateway has it now.
func (e *Engine) judge(ctx context.Context, v View, x *Exit, claim Claim, never bool) verdict {
	slurm := v.Attempt.SlurmState
	byState := Job{State: slurm}.EndingOf()
	if x == nil {
		return e.judgeWithoutExit(ctx, v, byState, claim, never)
	}
	code := x.Code
	d := verdict{exit: &code}
	why := x.Reason
	if why != "ok" && !x.stopped() && e.stoppedBySlurm(v) {
		// TERM goes to every process of the job: what the script waited for may have been killed by it before the script knew. An image
		// whose checksum was interrupted is not a wrong image.
		if !x.ofProgram() {
			d.exit = nil
		}
		why = "terminated"
	}
	switch why {
	case "ok":
		d.ending = EndedOK
		if slurm != "" && slurm != "COMPLETED" {
			d.ending, d.detail = byState, "the program exited 0, but Slurm says that the job ended "+slurm
			if byState == EndedOK || byState == EndedToolFailed {
				d.ending = EndedLost
			}
		}
	case "image_mismatch":
		d = verdict{ending: EndedImageMismatch, detail: "the image on the compute node does not have the pinned checksum; nothing ran. The " +
			"job printed: " + e.tail(ctx, v)}
	case "input_mismatch":
		d = verdict{ending: EndedInputMismatch, detail: "an input on the compute node does not have the pinned checksum; nothing ran. The job " +
			"printed: " + e.tail(ctx, v)}
	case "runtime_missing":
		d = verdict{ending: EndedNoRuntime, detail: "Apptainer was not found on node " + x.Node}
	case "time_limit":
		d.ending, d.detail = EndedTimeLimit, "the program reached the plan's time limit"
	case "control_unwritable":
		d = verdict{ending: EndedControl, detail: "the job could not write its control files on node " + x.Node + "; nothing ran"}
	case "runtime_failed":
		d.ending, d.detail = EndedNoRuntime, "Apptainer could not start the program: "+e.tail(ctx, v)
	case "tool_failed":
		d.ending, d.detail = EndedToolFailed, fmt.Sprintf("the program exited with status %d: %s", code, e.tail(ctx, v))
	default: // terminated, killed: Slurm knows why
		d.ending = byState
		if slurm == "" && v.Run.CancelAt != nil {
			d.ending = EndedCancelled
		} else if slurm == "FAILED" && why == "terminated" {
			// The script was terminated, and not because of a limit; a program cannot do that. A second start ends with 90: so FAILED.
			d.ending, d.detail = EndedPreempted, "the job was stopped in Slurm, not through slurmgate, and not cancelled: it was requeued, or "+
				"its script was sent TERM"
		} else if byState == EndedOK || byState == EndedToolFailed {
			d.ending, d.detail = EndedToolFailed, fmt.Sprintf("the program was killed by a signal (status %d): %s", code, e.tail(ctx, v))
		}
	}
	switch {
	case d.ending == EndedOutOfMemory:
		d.detail = "the job used more memory than the plan's mem_mb"
	case d.ending == EndedCancelled && v.Run.CancelAt == nil:
		d.detail = "the job was cancelled in Slurm, not through slurmgate"
	case d.ending == EndedCancelled:
		d.detail = v.Run.CancelReason
	}
	if d.ending == EndedToolFailed && slurm == "OUT_OF_MEMORY" {
		d.ending, d.detail = EndedOutOfMemory, "the job used more memory than the plan's mem_mb"
	}
	if d.detail == "" && d.ending != EndedOK {
		d.detail = "Slurm says " + slurm
	}
	return d
}

// stoppedBySlurm reports whether Slurm ended the job early, according to Slurm or, if it no longer knows the job, because we requested it.
func (e *Engine) stoppedBySlurm(v View) bool {
	switch v.Attempt.SlurmState {
	case "CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED":
		return true
	}
	return v.Attempt.SlurmState == "" && v.Run.CancelAt != nil
}

// judgeWithoutExit: the script left no exit file, so the program's own ending is not known.
func (e *Engine) judgeWithoutExit(ctx context.Context, v View, byState Ending, claim Claim, never bool) verdict {
	switch {
	case v.Attempt.SlurmWhy == "BadConstraints":
		// slurmctld stores such a record of a job it refused at submission.
		return verdict{ending: EndedRejected, detail: "Slurm refused the job: its constraints cannot be met (BadConstraints)"}
	case claim.Void && !never:
		return verdict{ending: EndedAbsent, detail: "the gateway has the claim: nothing was executed"}
	case byState == EndedOK, byState == EndedToolFailed:
		if never {
			return verdict{ending: EndedBootFail, detail: "the job ended (" + orElse(v.Attempt.SlurmState,
				"unknown") + ") before its script took the claim; nothing was executed: " + e.tail(ctx, v)}
		}
		return verdict{ending: EndedLost, detail: "the job took the claim but left no exit file; Slurm says " + orElse(v.Attempt.SlurmState,
			"nothing")}
	case byState == EndedOutOfMemory:
		return verdict{ending: byState, detail: "the job used more memory than the plan's mem_mb"}
	case byState == EndedCancelled && v.Run.CancelAt == nil:
		return verdict{ending: byState, detail: "the job was cancelled in Slurm, not through slurmgate"}
	case byState == EndedCancelled:
		return verdict{ending: byState, detail: v.Run.CancelReason}
	}
	return verdict{ending: byState, detail: "Slurm says " + v.Attempt.SlurmState + " " + v.Attempt.SlurmWhy}
}
