package run

import (
	"slices"
	"strings"

	"slurmgate/fault"
)

// LongWait is how long, in seconds, one call may wait for a run.
const LongWait = 30

// NextSteps returns what can be done next about a run. It follows from the state, the phase and the reason alone; what
// is recorded of a run names no commands.
func NextSteps(v View) []fault.Step {
	id := v.Run.ID
	cancel := fault.Do("slurm.job.cancel", "run_id", id)
	retry := fault.Do("slurm.job.retry", "run_id", id, "after_attempt", v.Run.AttemptN)
	logs := fault.Do("slurm.job.logs", "run_id", id)
	if v.Run.Site == WorkerSite && (v.Run.State == Failed || v.Run.State == Cancelled) { // only another call sends it again
		return []fault.Step{fault.Do("run.show", "run_id", id)}
	}
	if v.Run.Removed != "" {
		return []fault.Step{retry}
	}
	if v.Waiting != nil {
		return waitingSteps(v, cancel, retry)
	}
	switch v.Run.State {
	case Queued, Running:
		if v.Run.Reason == claimWaits && v.Run.ExecutedAs != "" {
			return []fault.Step{fault.Do("run.show", "run_id", id), fault.Do("slurm.job.absent", "run_id", id)}
		}
		if v.Run.Reason == NeverStarts {
			return []fault.Step{cancel, fault.Do("run.show", "run_id", id)}
		}
		return []fault.Step{fault.Do("slurm.job.collect", "run_id", id, "wait_seconds", LongWait), cancel}
	case Blocked:
		return blockedSteps(v, cancel)
	case Succeeded:
		return []fault.Step{fault.Do("slurm.job.collect", "run_id", id)}
	case Cancelled:
		return []fault.Step{retry}
	}
	switch v.Run.Reason {
	case string(EndedImageMismatch), string(EndedImageMissing):
		return []fault.Step{fault.Do("image verify"), retry}
	case string(EndedInputMismatch), string(EndedInputMissing):
		return []fault.Step{fault.Do("artifact.verify", "all", true), retry}
	case string(EndedNoRuntime), string(EndedControl), string(EndedRunsDirGone), string(EndedRunsDirFull), string(EndedRuntimeBroken),
		string(EndedRuntimeOld), string(EndedNoUserNS), string(EndedNodeDiskFull), string(EndedImageUnread), string(EndedInputUnread),
		string(EndedProlog):
		return []fault.Step{fault.Do("doctor"), retry}
	}
	if v.Repeats {
		return []fault.Step{logs, fault.Do("run.show", "run_id", id)}
	}
	if v.Submission.JobID == "" { // nothing ran, so there is no log
		return []fault.Step{fault.Do("run.show", "run_id", id), retry}
	}
	return []fault.Step{logs, retry}
}

// FailsAgain reports whether another attempt of a deterministic tool can only fail as this one did: its outputs were
// refused for their content, not for a limit that may be raised or a filesystem that may recover.
func FailsAgain(ending Ending, reason string) bool {
	passing := []string{"OUTPUT-CHANGED", OutputSize, OutputUnreadable, OutputOwner, "OUTPUT-MANIFEST"}
	return (ending == EndedOutputs || ending == EndedContract) && !slices.Contains(passing, reason)
}

func blockedSteps(v View, cancel fault.Step) []fault.Step {
	id := v.Run.ID
	switch v.Run.Phase {
	case OutputsLate:
		return []fault.Step{fault.Do("slurm.job.recollect", "run_id", id), cancel}
	case NeedsOperator:
		return []fault.Step{fault.Do("slurm.job.adopt", "run_id", id), fault.Do("slurm.job.absent", "run_id", id), cancel}
	}
	return []fault.Step{cancel}
}

// PlainDetail returns a recorded detail without the commands that older programs wrote into it.
func PlainDetail(s string) string {
	for _, mark := range []string{" Or ", ". Next: "} {
		if i := strings.LastIndex(s, mark); i >= 0 && strings.Contains(s[i:], "slurmgate ") {
			s = strings.TrimRight(s[:i], ".; ")
		}
	}
	return s
}
