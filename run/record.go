package run

import (
	"encoding/json"
	"time"

	"slurmgate/plan"
)

// Run is one row of the ledger. Times are UTC.
type Run struct {
	ID              string
	Rev             int64 // compare-and-swap counter; 0 for a run not stored yet
	ToolID          string
	ToolName        string
	ToolVersion     string
	ContractVersion string
	PackHash        string // hash of the pack it was planned with; empty for a plan submitted as it is
	PolicyHash      string
	ParamsHash      string
	PlanHash        string
	ProjectID       string
	Site            string // where it executes; never changes
	ExecutedAs      string // the cluster's Unix user whose job and files it is; empty: the gateway's own. Never changes
	Actor           string
	Principal       Principal // whose call created it

	State      State
	Phase      Phase
	Reason     string // a code: what it waits for, or how it ended
	Detail     string // a sentence for people
	AttemptN   int    // the current attempt, from 1
	Warnings   []string
	ExitCode   *int
	CreatedAt  time.Time
	UpdatedAt  time.Time
	FinishedAt *time.Time

	CancelAt     *time.Time // when cancel was requested; never withdrawn
	CancelReason string

	ResultJSON       json.RawMessage // result_json: the submit answer from the start, with output once finished
	LogArtifactID    string
	ScriptArtifactID string

	Removed string // the removal that took what it made, since its latest attempt; "" for none. Set by the ledger, not by writes
}

// Principal is whom a call was made for: a name for people, and an id that never belongs to another.
type Principal struct {
	Name string
	ID   string // "" without a ledger that gives ids
}

// Attempt is one intended execution.
type Attempt struct {
	RunID     string
	N         int
	Token     string // its submission; empty until the intent
	ArrayTask *int   // task in the array of its newest send; nil: it was sent alone
	CreatedAt time.Time
	// Placement is where the attempt goes, with the site's defaults. Nil if the params are complete: for a plan
	// submitted as it is, for one for the gateway's own host, and for runs made when the params held the site's
	// defaults.
	Placement *plan.Placement
	// Resources are those of the attempt if a retry raised them; nil: the plan's.
	Resources *plan.Resources

	SlurmState string // the last state that Slurm reported, as Slurm names it
	SlurmWhy   string // Slurm's reason
	SlurmExit  string // exit code and signal of the ended job as Slurm prints them, e.g. 0:53; empty when it showed none
	Partition  string // this and the next two as Slurm shows them; empty before the job is seen, and if Slurm does not show it
	Account    string
	Limit      int64 // seconds; the limit it was sent with until Slurm shows one
	Node       string
	Avoid      []Avoided // nodes that it does not use
	// Inputs is how it gets the inputs that are not copied, by dest_relpath; nil: all are copied, or none was staged
	// yet.
	Inputs     map[string]Got
	ObservedAt *time.Time // when Slurm was last queried successfully about it
	StartedAt  *time.Time
	EndedAt    *time.Time
	MissedAt   *time.Time // time of the first complete query that did not show it (rule 8)
	Ending     Ending     // empty while it may still execute
	ExitCode   *int
	Usage      json.RawMessage // what the job itself recorded; null when nothing
}

// Submission is what is sent to Slurm for one attempt, alone or as a task of an array.
type Submission struct {
	Token       string // 32 hex digits
	JobName     string
	ScriptSHA   string // hex SHA-256 of ctl/script
	CreatedAt   time.Time
	Cluster     string     // empty until known
	JobID       string     // empty until known
	SubmittedAt *time.Time // as Slurm records it, when first seen
	SLUID       string     // if Slurm shows one
	Array       string     // the array of its newest send; empty: it was sent alone
}

// Send is one start of sbatch for a submission.
type Send struct {
	Token     string
	K         int // from 1
	StartedAt time.Time
	EndedAt   *time.Time
	Outcome   SendOutcome // empty while open
	ExitCode  *int
	Text      string // what sbatch printed, bounded
}

// SendOutcome is the outcome of a send.
type SendOutcome string

// The outcomes. Rejection, back-pressure and doubt are distinct.
const (
	SendAccepted SendOutcome = "accepted" // a receipt: Slurm returned a job id
	SendRejected SendOutcome = "rejected" // Slurm refused for good; no job exists from this send
	SendDeferred SendOutcome = "deferred" // Slurm has no room now; no job exists from this send
	SendDoubt    SendOutcome = "doubt"    // unknown
	SendNotRun   SendOutcome = "not_run"  // sbatch could not be started at all
)

// Artifact is immutable bytes with a name in a project.
type Artifact struct {
	ID        string
	ProjectID string
	SHA256    string
	Type      string
	Label     string
	SizeBytes int64
	CreatedAt time.Time
	Source    string // "import", or the run that made it
	Caller    string // [Share.Caller] of its owner; "" for none
	Erased    string // the erasure that removed its bytes, which held a secret; "" for none
	Removed   string // the removal that took its bytes, on request; "" for none
	// ExecutedAs is the user that the run that made it was executed as, who could have forged it; "" for the gateway's
	// own and imports.
	ExecutedAs string
}

// Payload is a small document of the gateway's own that the ledger itself stores under its checksum: the job script. It
// becomes durable with the transition that carries it.
type Payload struct {
	SHA256 string // 64 hex digits
	Data   []byte
}

// Link ties an artifact to a run.
type Link struct {
	Role       string
	ArtifactID string
	Relpath    string // dest_relpath of an input, src_relpath of an output, empty for gateway roles
}

// Event is one entry of the run history; the ledger numbers and chains it.
type Event struct {
	Type string // e.g. "run.intent"
	Data any    // JSON
}

// Write is one transaction on a run: the new values and the event that explains them. Nil parts are left
// as they are.
type Write struct {
	Run        Run       // Run.Rev is the revision it was read at
	Attempts   []Attempt // stored as given
	Submission *Submission
	Send       *Send
	Array      *ArrayRow  // an array that begins with this write, of its leader; Jobs is ignored
	Payloads   []Payload  // stored if not there yet
	Artifacts  []Artifact // registered if not there yet
	Outputs    []Link
	Event      Event
	Admit      func(project, caller Spent) error // like New.Admit, for a new attempt
	Row        *RowRef                           // the row for which a new attempt is opened; nil: none
	Asking     *Asking                           // the asking that opens a new attempt; nil: none is recorded
	Caller     json.RawMessage                   // whose rights start a run that waits for inputs, from now on; only with Asking
	// the run as it was read at Run.Rev, if the caller has it: what the write does not change need not be read again.
	// Only its attempt, submission and sends are used
	From *View
}

// View is a run with its current attempt and submission.
type View struct {
	Run        Run
	Attempt    Attempt
	Submission Submission
	Sends      int      // how many sends the submission has
	Waiting    *Waiting // set instead of an attempt, for a run without one; nil: it has an attempt

	Repeats bool // another attempt can only fail as this one did. Set by the ledger, not by writes
}
