package run

import (
	"maps"
	"slices"

	"slurmgate/visible"
)

// State is the coarse state of a run, which callers see first.
type State string

// The states. Blocked is not terminal: a verb resolves it.
const (
	Queued    State = "queued"
	Running   State = "running"
	Blocked   State = "blocked"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Values lists all states, for the schemas of answers.
func (State) Values() []string {
	return []string{string(Queued), string(Running), string(Blocked), string(Succeeded), string(Failed), string(Cancelled)}
}

// Terminal reports whether nothing more will happen to a run by itself.
func (s State) Terminal() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Phase is a run's position in the lifecycle.
type Phase string

// The phases, in the order a run passes them.
const (
	// Outputs of other runs are missing. The run has no site and no attempt, and no engine knows it. Once its inputs
	// exist, its id is an alias of the run with that content.
	WaitingForInputs Phase = "waiting_for_inputs"

	Staging Phase = "staging" // inputs, image and script are being put in place; nothing was submitted
	// Slurm has no room or does not answer, or a limit on runs in flight is reached; the run will be sent, nothing was
	// accepted
	Deferred    Phase = "deferred"
	Submitting  Phase = "submitting"  // the intent is durable, sbatch may have run
	Unconfirmed Phase = "unconfirmed" // sbatch ended without a receipt; the resolver settles it
	Pending     Phase = "pending"     // Slurm has the job
	InJob       Phase = "running"     // the job runs
	Completing  Phase = "completing"  // the job ended, Slurm is cleaning up
	Collecting  Phase = "collecting"  // outputs are being verified and registered

	NeedsOperator Phase = "needs_operator"            // only a person can decide
	AheadOfLedger Phase = "workspace_ahead_of_ledger" // the workspace has an attempt that the ledger does not know
	OutputsLate   Phase = "outputs_late"              // the job exited 0, but its outputs do not appear

	Done Phase = "done"
)

var states = map[Phase]State{WaitingForInputs: Queued, Staging: Queued, Deferred: Queued, Submitting: Queued, Unconfirmed: Queued,
	Pending: Queued,
	InJob:   Running, Completing: Running, Collecting: Running, NeedsOperator: Blocked, AheadOfLedger: Blocked, OutputsLate: Blocked}

// Unfinished lists the phases of runs that have a site and have not ended.
func Unfinished() []Phase {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(states)), func(p Phase) bool { return p == WaitingForInputs })
}

// StateOf returns the state that a phase belongs to; Done belongs to the three terminal states.
func StateOf(p Phase) State { return states[p] }

// enter puts the run into a phase, with the reason for it.
func (r *Run) enter(p Phase, reason, detail string) {
	r.State, r.Phase, r.Reason, r.Detail = StateOf(p), p, reason, visible.Text(detail)
}

// Ending is how an attempt ended.
type Ending string

// The endings. The first group is caused by the program, the plan or the site, the others by the infrastructure.
const (
	EndedOK            Ending = "ok"
	EndedToolFailed    Ending = "tool_failed"         // the program exited with a status other than 0
	EndedTimeLimit     Ending = "time_limit"          // the program's own limit, or Slurm's; or staging took longer than the pack allows
	EndedOutOfMemory   Ending = "out_of_memory"       //
	EndedOutputs       Ending = "outputs_rejected"    // exit 0, but declared outputs are missing or not acceptable
	EndedContract      Ending = "contract_broken"     // outputs violate the tool's output schema
	EndedImageMismatch Ending = "image_mismatch"      // exit 91: the image is not the pinned one
	EndedInputMismatch Ending = "input_mismatch"      // exit 92: an input is not the pinned one
	EndedInputMissing  Ending = "input_missing"       // exit 92
	EndedNotStarted    Ending = "program_not_started" // a container can be made, but the program is not in it, or cannot be executed
	EndedRunsDirFull   Ending = "runs_dir_full"       // exit 96: the disk of runs_dir is full, or a quota is used up
	EndedRejected      Ending = "rejected"            // Slurm refused the job for good
	EndedStaging       Ending = "staging"             // inputs, image or script could not be put in place
	EndedCancelled     Ending = "cancelled"           //
	EndedUnanswered    Ending = OutcomeUnknown        // a call of a service worker was sent, and no answer came

	// The node's fault: the same run may succeed on another node.
	EndedImageMissing  Ending = "image_missing"      // exit 91: the node does not have the image, which the gateway has verified
	EndedImageUnread   Ending = "image_unreadable"   // exit 91: the job cannot read it
	EndedInputUnread   Ending = "input_unreadable"   // exit 92
	EndedNoRuntime     Ending = "runtime_missing"    // exit 93: no Apptainer
	EndedRuntimeBroken Ending = "runtime_broken"     // Apptainer makes no container there
	EndedRuntimeOld    Ending = "runtime_too_old"    // Apptainer does not know an option
	EndedNoUserNS      Ending = "no_user_namespaces" // Apptainer may make no user namespace
	EndedNodeDiskFull  Ending = "node_disk_full"     // Apptainer has no room on the node's own disk
	EndedScratch       Ending = "scratch_missing"    // exit 97: the job can make no folder in slurm.scratch
	EndedControl       Ending = "control_unwritable" // exit 94, or Slurm cannot open the job's output file
	EndedRunsDirGone   Ending = "runs_dir_missing"   // exit 95: the attempt's folder is not there

	EndedProlog Ending = "prolog_failed" // Slurm's Prolog failed there, and Slurm drained the node

	EndedNodeFail  Ending = "node_fail"
	EndedBootFail  Ending = "boot_fail"
	EndedPreempted Ending = "preempted"
	EndedLost      Ending = "lost"   // the job started, and neither Slurm nor the workspace knows how it ended
	EndedAbsent    Ending = "absent" // the gateway has the claim: no job can ever execute this attempt
)

// Infrastructure reports whether the tool did not cause the ending, so that policy may allow a new attempt.
func (e Ending) Infrastructure() bool {
	return e.NodeFault() || e == EndedPreempted || e == EndedLost || e == EndedAbsent
}

// NodeFaults lists the endings that one node caused.
var NodeFaults = []Ending{EndedNodeFail, EndedBootFail, EndedImageMissing, EndedImageUnread, EndedInputUnread, EndedNoRuntime,
	EndedRuntimeBroken, EndedRuntimeOld, EndedNoUserNS, EndedNodeDiskFull, EndedScratch, EndedControl, EndedRunsDirGone,
	EndedProlog}

// NodeFault reports whether the node caused the ending.
func (e Ending) NodeFault() bool { return slices.Contains(NodeFaults, e) }
