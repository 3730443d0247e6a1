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
	PackHash        string // of the pack it was planned with; empty for a plan submitted as it is
	PolicyHash      string
	ParamsHash      string
	PlanHash        string
	ProjectID       string
	Site            string // where it executes; never changes
	ExecutedAs      string // the cluster's Unix user whose job and files it is; empty: the gateway's own. Never changes
	Actor           string
	Principal       Principal // whose call made it

	State      State
	Phase      Phase
	Reason     string // one word: what it waits for, or how it ended
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

	Removed string // the removal that took what it made, since its latest attempt; "" for none. The ledger says it, no write does
}

// Principal is who a call was made for: a name for people, and an id that never belongs to another.
type Principal struct {
	Name string
	ID   string // "" where no ledger gives ids
}

// Attempt is one intended execution.
type Attempt struct {
	RunID     string
	N         int
	Token     string // its submission; empty until the intent
	ArrayTask *int   // in the array of its newest send; nil: it was sent alone
	CreatedAt time.Time
	// Placement is where the attempt goes, with what the site adds to what was asked for. Nil where the params name it all: of a plan
	// submitted as it is, of one for the gateway's own host, and of runs made when the params held the site's defaults.
	Placement *plan.Placement
	// Resources are those of the attempt where a retry raised them; nil: the plan's.
	Resources *plan.Resources

	SlurmState string // the last state Slurm reported, in its words
	SlurmWhy   string // its reason
	SlurmExit  string // exit code and signal of the ended job as Slurm prints them, e.g. 0:53; empty when it showed none
	Partition  string // as Slurm shows it, with the next two; empty before the job is seen, and where Slurm does not show it
	Account    string
	Limit      int64 // seconds; what it was sent with until Slurm shows it
	Node       string
	Avoid      []Avoided // nodes that it does not use
	// Inputs is how it gets those that are not copied, by dest_relpath; nil: all are, or none was staged yet.
	Inputs     map[string]Got
	ObservedAt *time.Time // when Slurm was last queried successfully about it
	StartedAt  *time.Time
	EndedAt    *time.Time
	MissedAt   *time.Time // first complete query that did not show it (rule 8)
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

// The outcomes. Rejection, back-pressure and doubt are three things.
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
	Caller    string // [Share.Caller] of whoever's it is; "" is nobody
	Erased    string // the erasure that removed its bytes, which held a secret; "" for none
	Removed   string // the removal that took its bytes, because somebody asked; "" for none
	// ExecutedAs is the user that the run was executed as that made it, and who could have forged it; "" for the gateway's own and imports.
	ExecutedAs string
}

// Payload is a small document of the gateway's own that the ledger itself stores under its checksum: the job script. It is durable with
// the transition it comes with.
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
	Attempts   []Attempt // stored as they stand here
	Submission *Submission
	Send       *Send
	Array      *ArrayRow  // that begins with this write, of its leader; Jobs is not looked at
	Payloads   []Payload  // stored if not there yet
	Artifacts  []Artifact // registered if not there yet
	Outputs    []Link
	Event      Event
	Admit      func(project, caller Spent) error // as New.Admit, for a new attempt
	Row        *RowRef                           // for which a new attempt is opened; nil: for none
	Asking     *Asking                           // whose request opens one; nil: none is recorded
	Caller     json.RawMessage                   // with whose rights a run that waits for inputs is started from now on; only with Asking
	// the run as it was read at Run.Rev, where the caller has it: what the write leaves alone need not be read again. Only its attempt,
	// submission and sends are looked at
	From *View
}

// View is a run with its current attempt and submission.
type View struct {
	Run        Run
	Attempt    Attempt
	Submission Submission
	Sends      int      // how many sends the submission has
	Waiting    *Waiting // in place of an attempt, which the run has not had; nil: it has one

	Repeats bool // another attempt can only fail as this one did. The ledger says it, and no write
}
