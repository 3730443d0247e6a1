package slurm

import (
	"strings"

	"slurmgate/run"
)

// states is what each of Slurm's states means to a run: every base state and every flag that squeue or
// sacct may show in its place (Slurm 22.05 to 26.05).
//
// A job with a flag has not ended. REQUEUED and the like wait for a new start (it will find the claim taken);
// sacct shows REQUEUED for the record of the start that was given up, which is not the job's end either.
var states = map[string]run.Class{
	"PENDING":       run.ClassPending,
	"REQUEUED":      run.ClassPending,
	"REQUEUE_FED":   run.ClassPending,
	"REQUEUE_HOLD":  run.ClassPending,
	"RESV_DEL_HOLD": run.ClassPending,
	"SPECIAL_EXIT":  run.ClassPending, // requeued and held after a special exit code

	"RUNNING":       run.ClassRunning,
	"SUSPENDED":     run.ClassRunning,
	"STOPPED":       run.ClassRunning, // SIGSTOP; keeps its CPUs
	"SIGNALING":     run.ClassRunning,
	"RESIZING":      run.ClassRunning,
	"CONFIGURING":   run.ClassRunning, // nodes boot
	"POWER_UP_NODE": run.ClassRunning,
	"EXPEDITING":    run.ClassPending, // requeued with priority

	"COMPLETING": run.ClassCompleting,
	"STAGE_OUT":  run.ClassCompleting,

	"COMPLETED":     run.ClassEnded,
	"CANCELLED":     run.ClassEnded,
	"FAILED":        run.ClassEnded,
	"TIMEOUT":       run.ClassEnded,
	"NODE_FAIL":     run.ClassEnded,
	"PREEMPTED":     run.ClassEnded,
	"BOOT_FAIL":     run.ClassEnded,
	"DEADLINE":      run.ClassEnded,
	"OUT_OF_MEMORY": run.ClassEnded,
	"REVOKED":       run.ClassEnded,
	"LAUNCH_FAILED": run.ClassEnded,
	"RECONFIG_FAIL": run.ClassEnded,
}

// stateOf reads a state as squeue and sacct print it: "CANCELLED by 1001" and a cut "COMPLETED+" lose
// what is behind the word. A word that is not in the table is kept and sorted as unknown.
func stateOf(s string) (state string, class run.Class) {
	state, _, _ = strings.Cut(strings.TrimSpace(s), " ")
	state = strings.TrimSuffix(state, "+")
	if c, ok := states[state]; ok {
		return state, c
	}
	return state, run.ClassUnknown
}
