package run

import "time"

// Job is one record of Slurm's about one job.
type Job struct {
	Cluster   string
	ID        string // of a task ARRAY_TASK
	Task      *int   // of an array; nil with the array's name: a record of several of its tasks
	Name      string // of a task that of its array
	WorkDir   string // its working folder, where [Renamed] tells by it that the name is not the one that the job was sent with; else empty
	Attempt   string // then the name that the job was sent with, of a task its attempt's; empty where this gateway sent none from that folder
	User      string // whose job it is: its Unix user; "" where the record does not show it
	State     string // Slurm's own word, e.g. PENDING; without suffixes
	Why       string // Slurm's reason
	Class     Class  // what that state means here
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
	By        string // who cancelled it, a user's number or name, where accounting shows that
	Beside    bool   // not a record: Why is a line that a program printed besides, with its name; see [Queue.Harmless]
	Closed    bool   // accounting closed the record itself, because the controller had lost the job: nobody saw the job end
}

// Unusable says why a node takes no jobs.
type Unusable struct {
	State string     // in Slurm's words, e.g. drained
	Why   string     // its reason, e.g. Prolog error
	Since *time.Time // nil: not known
}

// Usage is what a job used according to accounting. The ledger stores it beside the attempt.
type Usage struct {
	JobID          string
	User           string // whose job it was; empty where only the gateway's own are shown
	Submitted      *time.Time
	ElapsedSeconds int64
	CPUSeconds     float64 // of all processes
	MaxRSSBytes    int64   // of the largest step; 0 when not measured (a short job ends before the first sample)
	AllocCPUs      int
}

// Unmeasured is an attempt that has ended and whose usage was not queried yet.
type Unmeasured struct {
	Token      string
	ExecutedAs string
	JobID      string
	Submitted  *time.Time // Slurm's own; nil when it was never shown
	CreatedAt  time.Time
	EndedAt    time.Time
}

// Class sorts Slurm's states by what they mean to a run.
type Class string

// The classes.
const (
	ClassPending    Class = "pending"
	ClassRunning    Class = "running"
	ClassCompleting Class = "completing"
	ClassEnded      Class = "ended"   // see Ending
	ClassUnknown    Class = "unknown" // a state this version does not know: reported, never guessed

	// ClassUnread is a record that could not be read: the job is there, and only its Name, its ID where it is shown, and in Why what is
	// wrong with the record are known, and its User where it is shown. One without a Name may be any job, or any of its User's, so an answer
	// with such a record does not show that one of those is absent.
	ClassUnread Class = "unread"
)
