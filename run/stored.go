package run

import (
	"encoding/json"

	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// Types that the ledger stores and returns, other than runs and attempts.

// RowRef identifies the row of a batch for which a run is made, found or retried. The transaction that does so is
// refused with [RowWithdrawn] if nothing is to be submitted or retried for the row any more, because its batch was
// cancelled meanwhile.
type RowRef struct {
	BatchID string
	N       int
}

// WaitRef identifies a run that waits for outputs of others, as it was set waiting for the Attempt-th time. A change is
// refused (not_waiting) if it no longer waits, or was cancelled and set waiting again meanwhile.
type WaitRef struct {
	RunID   string
	Attempt int
}

// RowWithdrawn is the code of a refusal because the batch was cancelled.
const RowWithdrawn = "row_withdrawn"

// Waiter is a run that waits for the gateway, with the share whose turns apply to it.
type Waiter struct {
	RunID string
	Share
}

// Flying is a run with what limits on runs in flight need of it.
type Flying struct {
	Waiter
	Tool string // the name of its toolpack; empty for a plan submitted as it is
}

// Watched is the part of an open run that shows whether Slurm's answer changes the run. A gateway watches up to
// 100,000.
type Watched struct {
	RunID       string
	ExecutedAs  string
	Phase       Phase
	JobName     string
	JobID       string
	Cluster     string
	SlurmState  string
	SlurmWhy    string
	Partition   string
	Account     string
	Limit       int64 // seconds
	Missed      bool  // Attempt.MissedAt is set
	Renamed     bool  // Run.Reason is [JobRenamed]
	CancelAsked bool  // Run.CancelAt is set
}

// Output is a registered output with its artifact.
type Output struct {
	Link
	Artifact Artifact
}

// Directory is a directory artifact's list of files.
type Directory struct {
	SHA256    string // checksum of the list, and so of the artifact
	ListBytes int64
	Files     []tree.File
	InPlace   bool // the files stay where their owner has them; only the list is stored
}

// New is a run about to be stored.
type New struct {
	Run        Run
	Submission Submission      // of the first attempt; its token marks the attempt's folder. Zero for a call of a service worker
	Params     json.RawMessage // canonical
	Policy     json.RawMessage // canonical policy snapshot
	Pack       json.RawMessage // canonical definition of the pack, whose hash is Run.PackHash; empty for a plan submitted as it is
	Placement  *plan.Placement // of the first attempt
	Sought     Sought          // what identifies an existing run of the request
	Inputs     []Link
	Names      map[string]string // the request's names for the outputs, by role
	Waited     *WaitRef          // the waiting run that becomes this one, in the same transaction; nil: none
	Row        *RowRef           // the row that this run is for, recorded in the same transaction; nil: none
	Asking     *Asking           // recorded for the run, new or known, in the same transaction; nil: none
	Event      Event
	// Admit is called in the transaction of a new run, after it is written, with what its project and its caller have
	// had then. An error rolls the transaction back; nil: not checked.
	Admit func(project, caller Spent) error
}

// Spent is what a project, or a caller, has had of the site, the run in question included. Days and months are UTC, by
// when attempts were opened. An attempt counts with its CPUs for its time limit until it has ended, then with the time
// that its job ran.
type Spent struct {
	RunsToday           int64 // attempts
	CPUSecondsThisMonth int64
}

// Sought identifies the run of a request.
type Sought struct {
	RunID      string
	PlanHash   string
	PolicyHash string
	Site       string // the site that the caller named; empty: any
	ExecutedAs string // only runs executed as this user are the request's; empty: only the gateway's own
	Shared     bool   // runs executed as other users count as equivalent; else they are not disclosed
}
