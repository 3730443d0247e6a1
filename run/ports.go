package run

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// The ports: how the lifecycle reaches a site. Each has a conformance suite in run/runtest, which every implementation
// passes, the fake of this package's tests included. They name runs, attempts and control files, never files of this
// host, so that a site may be remote: resolved paths appear only in [JobSpec], as jobs see them. Every error has a
// fault kind.

// Renderer turns a job into its script and its list of pinned files. It is pure: the same JobSpec gives the same bytes.
type Renderer interface {
	Render(JobSpec) (script, pinned []byte, err error)
	// RenderArray returns the script of a job with an Array: it executes the script of its task's attempt, if that
	// still has the bytes it had when the array was sent.
	RenderArray(JobSpec) (script []byte, err error)
}

// Submitter sends jobs. An array is sent whole or refused whole; its receipt is the array's id.
type Submitter interface {
	// Send starts sbatch once in its own helper process and waits for it. When ctx ends first, Send returns SendDoubt
	// and sbatch continues: it is never killed. Send never starts a second sbatch.
	Send(ctx context.Context, job JobSpec, k int) SendResult
	// Receipt reads what an earlier send left. held: its sbatch is still running. When sbatch has ended, the result is
	// what its files prove, SendDoubt if they prove nothing.
	Receipt(ctx context.Context, job JobSpec, k int) (res SendResult, held bool)
}

// Queue shows what Slurm knows now about all jobs of this gateway. Each task of an array is a job, with the array's
// name; see [Job].
type Queue interface {
	// Jobs returns one error-free answer about this user's jobs, including ended ones that Slurm still remembers. An
	// answer that breaks off is an error. A record that cannot be read is a job of [ClassUnread], so nothing that was
	// printed is taken for absence. Jobs whose names are not a gateway's are left out, except those that [Renamed]
	// recognises by their working folder, and those with the ids in sought.
	Jobs(ctx context.Context, sought map[string]bool) ([]Job, error)
	// Harmless records that a line printed with an answer, the Why of a [Job], does not mean that jobs are left out: an
	// answer of Jobs or of [Accounting.Records] with that line showed the jobs of all runs it was about, at least one.
	// Later answers need not report the line.
	Harmless(why string)
	// Unusable returns the nodes that accept no jobs because they are drained or down, by name. NotFound if Slurm
	// cannot be queried for nodes.
	Unusable(ctx context.Context) (map[string]Unusable, error)
	// SeesAll is called after an answer that does not show a job, before that counts as absence. It returns nil if
	// Slurm shows the gateway's user all jobs that can be this gateway's; a site may hide the jobs of other users, and
	// its answers show no error then.
	SeesAll(ctx context.Context) error
	// MessageTimeout returns how long Slurm's commands and daemons wait for an answer (slurm.conf(5)). It does not
	// change while Slurm runs. If it cannot be queried the fault is NotFound, and [DefaultMessageTimeout] applies.
	MessageTimeout(ctx context.Context) (time.Duration, error)
}

// DefaultMessageTimeout is the MessageTimeout of a slurm.conf that sets none.
const DefaultMessageTimeout = 10 * time.Second

// messageTimeout returns the queue's MessageTimeout, or Slurm's default if it cannot be queried.
func messageTimeout(ctx context.Context, q Queue) (time.Duration, error) {
	d, err := q.MessageTimeout(ctx)
	if fault.Is(err, fault.NotFound) {
		return DefaultMessageTimeout, nil
	}
	return d, err
}

// Accounting shows what Slurm recorded about this gateway's jobs. A site without it answers with a NotFound fault, as
// [NoAccounting] does: that means no answer, not "no jobs".
type Accounting interface {
	// Records returns one answer about the jobs with the names and users in of since a time; it may have others too. It
	// may have jobs of [ClassUnread], as [Queue.Jobs] may.
	Records(ctx context.Context, since time.Time, of ...JobKey) ([]Job, error)
	// Usage returns what ended jobs used that have the ids and users in of and were submitted since a time; it may have
	// others too.
	Usage(ctx context.Context, since time.Time, of ...JobKey) ([]Usage, error)
}

// JobKey identifies a job for accounting: Records uses Name and User, Usage uses ID and User.
type JobKey struct {
	ID   string
	Name string
	User string // empty: the gateway's own
}

// Canceller cancels jobs.
type Canceller interface {
	// Cancel asks Slurm to cancel the job that has both this id and this name: for a task, its id and the array's name.
	// shown is the name that Slurm shows instead, if the job was renamed; else it is empty. The id may name several
	// tasks of one array, see [JobIDs]: then one call cancels all that still exist. A job that is already gone is no
	// error.
	Cancel(ctx context.Context, jobID, name, shown string) error
}

// Workspace has the files of runs, on the filesystem that jobs see. Attempt folders are addressed by run and number.
// What a call writes is durable when it returns. If the folder of an attempt is missing, the fault is NotFound with
// code attempt_missing; an unavailable filesystem is a Transport fault.
type Workspace interface {
	// StageInputs creates <runs_dir>/<run_id>/in and fills it with private, verified copies; afterwards in/ holds the inputs and
	// nothing else. Checksums are computed from the bytes written. Calling it again, after a crash too, leads to the same bytes. A
	// Transport fault may be retried, a Validation fault never. What it wrote may become durable only with OpenAttempt, which comes before
	// anything is sent.
	StageInputs(ctx context.Context, runID string, inputs []plan.Input, open Opener) error
	// OpenAttempt creates <run_id>/a<n>/ctl, marked with token, with the control files in it, in one exclusive step:
	// all of it is durable and read back when it returns. Called again with the same token it succeeds and rewrites the
	// files. A folder with another token, or none, is a Conflict fault with code workspace_ahead_of_ledger.
	OpenAttempt(ctx context.Context, runID string, n int, token string, files ...ControlFile) error
	// OpenTogether does what OpenAttempt does for attempts of several runs, which may cost less than one call each. It
	// returns an error for each, in their order: nil where OpenAttempt would have succeeded.
	OpenTogether(ctx context.Context, list []Opening) []error
	// ReadControlFrom reads at most limit bytes of a control file from a byte on, bypassing a network filesystem's
	// caches; a negative from counts from the end, and past the end there is nothing. NotFound when the file does not
	// exist.
	ReadControlFrom(ctx context.Context, runID string, n int, name string, from, limit int64) (Part, error)
	// TakeClaim hard-links content into place as the claim, unless there is one. It returns the content of the claim
	// file afterwards, which may be another writer's.
	TakeClaim(ctx context.Context, runID string, n int, content []byte) ([]byte, error)
	// OpenOutput opens a declared output for reading: a regular file below out/, one link, owned by the job's user, no
	// symlink on the path. Anything else is a Tool fault naming the reason.
	OpenOutput(ctx context.Context, runID string, n int, srcRelpath string) (io.ReadCloser, int64, error)
	// Undeclared lists at most limit files below out/ that are not among declared, and not in a folder that is.
	Undeclared(ctx context.Context, runID string, n int, declared []string, limit int) ([]string, error)
	// RemoveRun removes a finished run's files and leaves a file in place of each attempt's folder, so that no job of
	// the run can start. attempts has the tokens of all attempts by number: a run with another attempt is left
	// unchanged, with a Conflict fault. still is called when nothing else is in flight; if it returns false, nothing is
	// removed.
	RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (freed int64, err error)
	// RunSize returns the bytes of a run's files; 0 when it has none.
	RunSize(ctx context.Context, runID string) (int64, error)
	// EachFile calls f with every regular file of a run's workspace until f fails or returns false; with none when
	// there is no workspace.
	EachFile(ctx context.Context, runID string, f func(open func() (io.ReadCloser, error)) (more bool, err error)) error
	// RunDir returns the absolute path of a run's folder as jobs see it.
	RunDir(runID string) string
}

// Codes of the Tool faults about a declared output that is rejected.
const (
	OutputMissing    = "OUTPUT-MISSING"    // no such file (yet: a network filesystem may show it later)
	OutputSymlink    = "OUTPUT-SYMLINK"    // it, or a folder on the way, is a symlink
	OutputIrregular  = "OUTPUT-IRREGULAR"  // a folder, pipe, socket or device
	OutputHardlink   = "OUTPUT-HARDLINK"   // the file has another name too
	OutputOwner      = "OUTPUT-OWNER"      // a user other than the job's owns it
	OutputUnreadable = "OUTPUT-UNREADABLE" // the gateway may not read it
	OutputSize       = "OUTPUT-SIZE"       // larger than the limit
	OutputFiles      = "OUTPUT-FILES"      // a folder with too many files
	OutputName       = "OUTPUT-NAME"       // a file of a folder has a name that a directory artifact cannot have
	OutputEmpty      = "OUTPUT-EMPTY"      // a folder without files
)

// Opener opens the bytes with a checksum, and returns how many there are. NotFound when there are none. The reader may
// be a file of this host ([os.File]), which a workspace on this host can copy without reading it.
type Opener func(ctx context.Context, sha256 string) (r io.ReadCloser, size int64, err error)

// ControlFile is a control file that the gateway writes for the job.
type ControlFile struct {
	Name string
	Data []byte
}

// Opening is an attempt to be opened, see [Workspace].
type Opening struct {
	RunID string
	N     int
	Token string
	Files []ControlFile
}

// ReadControl reads at most limit bytes of a control file of a workspace, the last ones when tail is set. The errors are those of
// ReadControlFrom.
func ReadControl(ctx context.Context, w Workspace, runID string, n int, name string, limit int64, tail bool) ([]byte, error) {
	from := int64(0)
	if tail {
		from = -limit
	}
	p, err := w.ReadControlFrom(ctx, runID, n, name, from, limit)
	return p.Data, err
}

// OpenEach opens attempts by one call each, several in parallel. It implements OpenTogether for a workspace without a
// cheaper way.
func OpenEach(ctx context.Context, w interface {
	OpenAttempt(ctx context.Context, runID string, n int, token string, files ...ControlFile) error
}, list []Opening) []error {
	errs := make([]error, len(list))
	parallel(len(list), func(i int) { errs[i] = w.OpenAttempt(ctx, list[i].RunID, list[i].N, list[i].Token, list[i].Files...) })
	return errs
}

// Images is the store of pinned images.
type Images interface {
	// Verify hashes the image with this digest (64 hex) where the image is, and returns its absolute path as jobs see
	// it; a cached result for the same state of the file suffices. NotFound when the store does not have it.
	Verify(ctx context.Context, digest string) (path string, err error)
	// ExecArgs returns the arguments after "apptainer" for a plan: exec and its options, the folders of the site named
	// by binds, the image and the program. Each input that is not copied is mounted over its placeholder, read-only.
	ExecArgs(spec plan.Spec, binds []plan.Bind, inputs []Placed, imagePath, runDir, attemptDir string) []string
}

// Objects is the gateway's content-addressed store.
type Objects interface {
	// Put stores at most limit bytes of r and returns checksum and size. If r is longer, that is a Policy fault and nothing is stored.
	Put(ctx context.Context, r io.Reader, limit int64) (sha256 string, size int64, err error)
	// Reader is an [Opener].
	Reader(ctx context.Context, sha256 string) (r io.ReadCloser, size int64, err error)
}

// NoAccounting is the [Accounting] of a site that has none.
type NoAccounting struct{}

// AccountingDisabled is the code of the fault.
const AccountingDisabled = "accounting_disabled"

// Records returns the fault [AccountingDisabled].
func (NoAccounting) Records(context.Context, time.Time, ...JobKey) ([]Job, error) {
	return nil, fault.New(fault.NotFound, AccountingDisabled, "this site has no accounting")
}

// Usage returns the fault [AccountingDisabled].
func (n NoAccounting) Usage(ctx context.Context, since time.Time, _ ...JobKey) ([]Usage, error) {
	_, err := n.Records(ctx, since)
	return nil, err
}

// SendResult is what a send proved.
type SendResult struct {
	Outcome  SendOutcome
	JobID    string // for SendAccepted
	Cluster  string // if sbatch named one
	Code     string // Slurm's own name of the reason, for rejected and deferred
	Scope    Scope  // for deferred and not run: what the reason applies to
	ExitCode *int   // of sbatch, if known
	Text     string // what sbatch printed, bounded
}

// Scope is the set of sends to which a reason not to send now applies.
type Scope string

// The scopes, from the narrowest.
const (
	ScopeRun       Scope = ""          // only this run
	ScopePartition Scope = "partition" // to the same partition
	ScopeQOS       Scope = "qos"       // of the same account and QOS
	ScopeAccount   Scope = "account"   // of the same account
	ScopeSite      Scope = "site"      // all
)

// Contracts has the contracts that runs must keep.
type Contracts interface {
	// Contract returns the contract of the pack with this pack_hash: the one the run was planned with, whether or not it is loaded.
	// NotFound if the pack is neither in the ledger (an older gateway did not store it) nor loaded, Validation if this version
	// cannot use it.
	Contract(ctx context.Context, packHash string) (Contract, error)
}

// Contract is what a pack requires of its runs.
type Contract interface {
	// Timeout returns how long staging an attempt may take; 0: not limited.
	Timeout() time.Duration
	// AfterOutOfMemory returns the memory in MiB, and AfterTimeLimit the time limit in seconds, that a retry gives the
	// next attempt when this much was too little: the same if the pack sets no factor.
	AfterOutOfMemory(memMB int) int
	AfterTimeLimit(seconds int) int
	// CheckOutput validates the output object of a finished run. A violation is a Tool fault.
	CheckOutput(output json.RawMessage) error
	// Verify reports whether the bytes of the input of a role are checked to their end before a job gets them.
	Verify(role string) bool
	// Least returns the least number of bytes, and of lines, that the output of a role must have; for a gzip file the
	// lines are those it inflates to.
	Least(role string) (bytes, rows int64)
	// Asks reports whether the pack has conditions for the content of a JSON output.
	Asks(role string) bool
	// CheckValue checks the content of a JSON output against the pack's conditions. A violation is a Tool fault.
	CheckValue(role string, content json.RawMessage) error
	// LineFiles lists the files of the output of a role that the pack has patterns of lines for: their paths in a
	// directory, "" for an output that is one file. Standard error is the one file of the role stderr.
	LineFiles(role string) []string
	// Line returns what a line of such a file means: [LineFailure] or [LineWarning] with the pack's message, or
	// neither.
	Line(role, path, line string) (is, message string)
}

// Part is a part of a file.
type Part struct {
	Data []byte
	From int64 // the offset of Data, in bytes
}

// What a line means by a pack's patterns.
const (
	LineFailure = "failure"
	LineWarning = "warning"
)

// Formats knows the formats of artifact types.
type Formats interface {
	// Check returns a check of a file against a type, made while the file's bytes are written to it; rows: count its
	// lines too.
	Check(typ string, rows bool) FormatCheck
	// CheckInput returns the complete check of an input: all there is to check of a file of the type, whatever it
	// costs.
	CheckInput(typ string) FormatCheck
}

// FormatCheck is the check of one file. Its Write never fails. It must be closed in any case.
type FormatCheck interface {
	io.WriteCloser
	// Finish returns what is wrong with the file, once all bytes are written; nil when nothing was found.
	Finish() error
	// Lines returns how many lines were counted, after a Finish without an error.
	Lines() int64
}

// Store is the ledger as the lifecycle uses it.
type Store interface {
	// Insert stores a new run with its first attempt, inputs and params, in one transaction. If there is a run that
	// [Index.Find] would return as known, Insert returns it with created false and changes nothing else. n.Waited,
	// n.Row and n.Asking are recorded for the run, new or known, in the same transaction.
	Insert(ctx context.Context, n New) (v View, created bool, err error)
	// View reads a run. NotFound if absent.
	View(ctx context.Context, runID string) (View, error)
	// AskFor records an asking of a run, and that a row (nil: none) is that run, and reads the run, in one transaction.
	// NotFound when there is no such run. Repeating it changes nothing.
	AskFor(ctx context.Context, runID string, a Asking, row *RowRef) (View, error)
	// Withdraw takes askings of the write's run back and, if none is left, carries the write out, as Apply does; all in
	// one transaction. held are the askings that are left: then nothing else is changed.
	Withdraw(ctx context.Context, w Write, by Withdrawal) (v View, held []Asker, err error)
	// Apply carries out one transition with its event. A run that is no longer at Write.Run.Rev is a Conflict fault
	// with code stale_run, and nothing is changed.
	Apply(ctx context.Context, w Write) (View, error)
	// ApplyAll carries out several transitions in one transaction: all of them, or none. The views are in the order of the writes.
	ApplyAll(ctx context.Context, list []Write) ([]View, error)
	// Params reads the canonical params of a run.
	Params(ctx context.Context, paramsHash string) (json.RawMessage, error)
}

// Index has the other queries of the lifecycle.
type Index interface {
	// Waiting lists the runs in one of the phases, oldest first, at most limit (0: all) of those that come after the run after (empty:
	// all).
	Waiting(ctx context.Context, after string, limit int, phases ...Phase) ([]Waiter, error)
	// Open counts the unfinished runs of a project, on all sites.
	Open(ctx context.Context, projectID string) (int64, error)
	// InPhases calls f with each run in one of the phases, with what limits on runs in flight need. f must not call the
	// ledger.
	InPhases(ctx context.Context, f func(Flying), phases ...Phase) error
	// Watched calls f with each run in one of the phases, in no order, from one snapshot. f must not call the ledger.
	Watched(ctx context.Context, f func(Watched), phases ...Phase) error
	// Newest returns the number of the newest event of any run, 0 if absent.
	Newest(ctx context.Context) (int64, error)
	// Find looks for the run of a request, and lists equivalent ones: runs with its plan hash under another identity
	// that are in flight or succeeded. known is empty when the request has no run yet. The run of a request that names
	// a site is the one with its own id, or one on that site that was made without naming it; the run of a request that
	// names none may be on any site. Of several known runs, the one with the request's own id comes first, then the
	// newest.
	Find(ctx context.Context, s Sought) (known string, equivalent []string, err error)
	// Ended reports whether every attempt with a job name has ended. NotFound when this ledger never sent such a job.
	Ended(ctx context.Context, jobName string) (bool, error)
	// Array reads an array by its name. NotFound when this ledger never sent it.
	Array(ctx context.Context, name string) (ArrayRow, error)
	// SentAs returns the name of an attempt's job, and the array in which it was sent last, "" if it was sent alone.
	// NotFound when this ledger has no such attempt.
	SentAs(ctx context.Context, runID string, n int) (jobName, array string, err error)
	// ArrayOf returns the array in which the attempt with this job name was sent last; empty: it was sent alone, or is
	// unknown.
	ArrayOf(ctx context.Context, jobName string) (name string, err error)
	// Voided returns when the newest attempt since a time ended as absent, or as cancelled after a send: its job may
	// still appear. nil: none did.
	Voided(ctx context.Context, since time.Time) (*time.Time, error)
	// Unmeasured lists attempts whose job started and ended between two times and whose usage is not recorded, oldest first, at most limit.
	Unmeasured(ctx context.Context, since, until time.Time, limit int) ([]Unmeasured, error)
	// Measure records what jobs used, by token; nil: accounting does not know. Existing records are left unchanged.
	Measure(ctx context.Context, used map[string]*Usage) error
	// Used returns what accounting recorded about the job of a submission, by its token; nil: nothing, or it was not
	// queried yet.
	Used(ctx context.Context, token string) (*Usage, error)
	// Outputs lists a run's outputs.
	Outputs(ctx context.Context, runID string) ([]Output, error)
	// Unverified lists the inputs of a run whose bytes are not recorded as Verified with their type.
	Unverified(ctx context.Context, runID string) ([]Output, error)
	// Verified records that bytes passed every check of a type: they need not be checked again. Repeating it changes
	// nothing.
	Verified(ctx context.Context, sha256, typ string) error
	// AddDirectory records the stored objects that a directory's list names; they are kept as long as an artifact with
	// that list exists. It must be called before the artifact is registered. A Transport fault with code
	// artifact_bytes_missing: some are not stored. Repeating it changes nothing.
	AddDirectory(ctx context.Context, d Directory) error
	// Remark records an event without a change of a run.
	Remark(ctx context.Context, e Event) error
	// Seq returns the number of the newest event of a run.
	Seq(ctx context.Context, runID string) (int64, error)
}
