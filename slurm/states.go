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
var states = classes(map[run.Class]string{
	// SPECIAL_EXIT: requeued and held after a special exit code; EXPEDITING: requeued with priority
	run.ClassPending: "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT EXPEDITING",
	// STOPPED: by SIGSTOP, keeps its CPUs; CONFIGURING, POWER_UP_NODE: nodes boot
	run.ClassRunning:    "RUNNING SUSPENDED STOPPED SIGNALING RESIZING CONFIGURING POWER_UP_NODE",
	run.ClassCompleting: "COMPLETING STAGE_OUT",
	run.ClassEnded: "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY REVOKED LAUNCH_FAILED " +
		"RECONFIG_FAIL",
})

func classes(states map[run.Class]string) map[string]run.Class {
	of := map[string]run.Class{}
	for class, words := range states {
		for _, state := range strings.Fields(words) {
			of[state] = class
		}
	}
	return of
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
