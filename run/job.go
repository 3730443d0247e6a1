package run

import "time"

// Job is one record of Slurm's about one job.
type Job struct {
	Cluster   string
	ID        string // of a task ARRAY_TASK
	Task      *int   // number in its array; nil with the array's name: a record of several of its tasks
	Name      string // of a task the name of its array
	WorkDir   string // its working folder, if [Renamed] shows by it that the job was renamed; else empty
	Attempt   string // with WorkDir: the name that the job was sent with, of a task its attempt's; empty: this gateway sent none from there
	User      string // the Unix user who owns the job; "": not shown
	State     string // as Slurm names it, e.g. PENDING; without suffixes
	Why       string // Slurm's reason
	Class     Class  // what that state means to a run
	Restarts  int    // -1 when not shown
	Node      string
	ExitCode  *int // of the batch script, when shown
	Signal    int
	Submitted *time.Time
	Started   *time.Time
	Ended     *time.Time
	SLUID     string
	Partition string // with the next two as squeue shows them to the gateway's own user; "" elsewhere
	Account   string
	Limit     int64  // seconds of wall time; 0: not shown
	By        string // the user who cancelled it, number or name, if accounting shows one
	Beside    bool   // not a record: Why is another line that a program printed, with the program's name; see [Queue.Harmless]
	Closed    bool   // accounting closed the record itself, because the controller had lost the job: its end was not seen
}

// Unusable is the state of a node that accepts no jobs.
type Unusable struct {
	State string     // as Slurm names it, e.g. drained
	Why   string     // Slurm's reason, e.g. Prolog error
	Since *time.Time // nil: not known
}

// Usage is what a job used according to accounting. The ledger stores it with the attempt.
type Usage struct {
	JobID          string
	User           string // the user who owned the job; empty if only the gateway's own jobs are shown
	Submitted      *time.Time
	ElapsedSeconds int64
	CPUSeconds     float64 // of all processes
	MaxRSSBytes    int64   // of the largest step; 0 when not measured (a short job ends before the first sample)
	AllocCPUs      int
}

// Unmeasured is an ended attempt whose usage was not queried yet.
type Unmeasured struct {
	Token      string
	ExecutedAs string
	JobID      string
	Submitted  *time.Time // by Slurm; nil when it was never shown
	CreatedAt  time.Time
	EndedAt    time.Time
}

// Class groups Slurm's states by what they mean to a run.
type Class string

// The classes.
const (
	ClassPending    Class = "pending"
	ClassRunning    Class = "running"
	ClassCompleting Class = "completing"
	ClassEnded      Class = "ended"   // see Ending
	ClassUnknown    Class = "unknown" // a state this version does not know: reported, never guessed

	// ClassUnread is a record that could not be read: the job exists, and only its Name, its ID and its User, where
	// shown, are known, and in Why what is wrong with the record. One without a Name may be of any job, or of any of
	// its User's, so an answer with such a record does not prove any of those absent.
	ClassUnread Class = "unread"
)
