package slurm

import (
	"slices"
	"strings"

	"slurmgate/run"
)

// states maps Slurm's states to classes: every base state and every flag that squeue or sacct may show in its place
// (Slurm 22.05 to 26.05).
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

// stateOf parses a state as squeue and sacct print it: "CANCELLED by 1001" and a cut "COMPLETED+" are reduced to the
// word. A word that is not in the table is returned with ClassUnknown.
func stateOf(s string) (state string, class run.Class) {
	state, _, _ = strings.Cut(strings.TrimSpace(s), " ")
	state = strings.TrimSuffix(state, "+")
	if c, ok := states[state]; ok {
		return state, c
	}
	return state, run.ClassUnknown
}

// flags lists the states that squeue shows in place of the base state, in order of precedence. (job_state_string)
var flags = strings.Fields("COMPLETING STAGE_OUT CONFIGURING RESIZING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT STOPPED REVOKED " +
	"RESV_DEL_HOLD SIGNALING EXPEDITING")

// hidden lists the flags that squeue does not show if there is a base state.
var hidden = strings.Fields("LAUNCH_FAILED RECONFIG_FAIL POWER_UP_NODE UPDATE_DB")

// StateOf returns the state for words as slurmrestd shows them: the base state and flags, or the one word that squeue
// prints. If any word is unknown, it returns that word with ClassUnknown. Without words the state is empty.
func StateOf(words []string) (state string, class run.Class) {
	first := len(flags)
	for _, word := range words {
		if _, known := states[word]; !known && !slices.Contains(hidden, word) {
			return stateOf(word)
		}
		switch i := slices.Index(flags, word); {
		case i >= 0 && i < first:
			state, first = word, i
		case i < 0 && first == len(flags) && (state == "" || slices.Contains(hidden, state)):
			state = word
		}
	}
	return stateOf(state)
}
