package rest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/slurm"
)

// Bounds of what is stored from any answer.
const (
	maxWord  = 2 << 10 // bytes of a name, a reason or a list of nodes
	maxWords = 10_000  // more than there are states, reasons and users; lists of nodes may be more
	maxJobs  = 1 << 20 // jobs of ours in one answer; each task of an array counts
)

// jobs collects our jobs from an answer, record by record. Jobs of others are not stored.
type jobs struct {
	record
	of     source
	user   string
	sought map[string]bool // ids whose records count under any name

	found    []run.Job
	usage    []run.Usage // instead of found, for all jobs of the user
	came     bool        // the list of jobs was read
	updated  number      // when the list of slurmctld last changed
	records  int
	readable int  // of these, for any user
	unread   int  // records that could not be read
	lost     bool // one of the unread may be any job
	firstWhy string
	example  string

	now   fields
	words map[string]string // interned values: states, reasons, users and nodes repeat in every record
}

// fields holds the values of one record.
type fields struct {
	seen            []string // members
	name            []byte
	named           bool
	workDir         []byte
	user            string
	id, array, task number
	tasks           string // of an array: the tasks that share this record
	state           []string
	why, said       string // Slurm's reason as a word, and as a sentence
	exit            exit
	ender           string // the user who cancelled the job; only accounting shows it
	job             run.Job
	used            used
}

// exit is an exit status.
type exit struct {
	code, signal int
	shown        bool
}

// source describes the daemon whose records an answer has, and which members are read.
type source struct {
	name   string // of the daemon, in messages
	member func(*jobs, string) error
	usage  bool
}

var (
	queued    = source{"slurmctld", (*jobs).queueMember, false}
	accounted = source{"slurmdbd", (*jobs).accountingMember, false}
	measured  = source{"slurmdbd", (*jobs).usageMember, true}
)

func newJobs(of source, user string, sought map[string]bool, about int) *jobs {
	return &jobs{of: of, user: user, sought: sought, found: make([]run.Job, 0, about), words: map[string]string{}}
}

var (
	errTwice   = errors.New("the list of jobs appears twice")
	errNoList  = errors.New("jobs is no list")
	errTooMany = errors.New("more jobs than a cluster can have")
)

// read reads the list of jobs.
func (j *jobs) read(d *jsontext.Decoder) error {
	if j.came {
		return errTwice
	}
	j.came, j.Decoder = true, d
	if d.PeekKind() != '[' {
		return errNoList
	}
	return each(d, func(*jsontext.Decoder) error {
		f := &j.now
		*f = fields{seen: f.seen[:0], name: f.name[:0], workDir: f.workDir[:0], state: f.state[:0], job: run.Job{Restarts: -1}}
		j.records++
		j.why = ""
		err := j.members(func(name string) error {
			switch {
			case name == "":
				return j.SkipValue()
			case slices.Contains(f.seen, name):
				j.odd("%s appears twice", name)
			default:
				f.seen = append(f.seen, name)
			}
			return j.of.member(j, name)
		})
		if err != nil {
			return err
		}
		j.take()
		if len(j.found)+len(j.usage) > maxJobs {
			return errTooMany
		}
		return nil
	})
}

func (j *jobs) readUpdate(d *jsontext.Decoder) (err error) {
	r := record{Decoder: d}
	j.updated, err = r.number()
	return err
}

// queueMember reads a member of a record from slurmctld.
func (j *jobs) queueMember(name string) (err error) {
	f := &j.now
	switch name {
	case "job_id":
		f.id, err = j.number()
	case "array_job_id":
		f.array, err = j.number()
	case "array_task_id":
		f.task, err = j.number()
	case "array_task_string":
		f.tasks, err = j.word()
	case "name":
		err = j.nameMember()
	case "user_name":
		f.user, err = j.word()
	case "current_working_directory":
		err = j.workDirMember()
	case "cluster":
		f.job.Cluster, err = j.word()
	case "partition":
		f.job.Partition, err = j.word()
	case "account":
		f.job.Account, err = j.word()
	case "time_limit":
		f.job.Limit, err = j.limit()
	case "nodes":
		f.job.Node, err = j.word()
	case "job_state":
		err = j.stateMember()
	case "state_reason":
		f.why, err = j.word()
	case "state_description":
		f.said, err = j.word()
	case "restart_cnt":
		err = j.restarts()
	case "exit_code":
		f.exit, err = j.exitMember()
	case "submit_time":
		f.job.Submitted, err = j.time()
	case "start_time":
		f.job.Started, err = j.time()
	case "end_time":
		f.job.Ended, err = j.time()
	case "step_id": // of the whole job; it has the job's SLUID
		err = j.nested(func(name string) (err error) {
			if name == "sluid" {
				f.job.SLUID, err = j.word()
				return err
			}
			return j.SkipValue()
		})
	default:
		err = j.SkipValue()
	}
	return err
}

// nested calls members for an object that may be null.
func (j *jobs) nested(f func(name string) error) error {
	if j.PeekKind() == 'n' {
		return j.SkipValue()
	}
	return j.members(f)
}

func (j *jobs) nameMember() error {
	f := &j.now
	if j.PeekKind() != '"' {
		return j.skipOdd("text")
	}
	text, err := j.text(maxWord)
	f.name, f.named = append(f.name[:0], bytes.ToValidUTF8(text, []byte("\uFFFD"))...), true
	return err
}

func (j *jobs) workDirMember() error {
	text, err := j.text(maxWord)
	j.now.workDir = append(j.now.workDir[:0], text...)
	return err
}

// word reads a text and interns it, because many records have the same.
func (j *jobs) word() (string, error) {
	text, err := j.text(maxWord)
	if w, ok := j.words[string(text)]; ok || len(text) == 0 {
		return w, err
	}
	w := strings.ToValidUTF8(string(text), "\uFFFD")
	if len(j.words) < maxWords {
		j.words[string(text)] = w
	}
	return w, err
}

// stateMember reads a state: the base state and flags.
func (j *jobs) stateMember() error {
	return j.elements(func() error {
		w, err := j.word()
		if len(j.now.state) < 64 {
			j.now.state = append(j.now.state, w)
		}
		return err
	})
}

func (j *jobs) restarts() error {
	n, err := j.number()
	if n.set {
		j.now.job.Restarts = int(min(max(n.n, -1), 1<<31-1))
	}
	return err
}

// limit reads minutes and returns seconds.
func (j *jobs) limit() (int64, error) {
	n, err := j.number()
	if n.infinite {
		return run.Unlimited, err
	}
	return 60 * max(0, min(n.n, run.Unlimited/60)), err
}

// time reads seconds since 1970; 0 gives nil.
func (j *jobs) time() (*time.Time, error) {
	n, err := j.number()
	switch {
	case n.n < 0 || n.n > 1<<40:
		j.odd("%s is no time", j.name)
		return nil, err
	case !n.set || n.n == 0:
		return nil, err
	}
	at := time.Unix(n.n, 0).UTC()
	return &at, err
}

// exitMember reads an exit status: code and signal.
func (j *jobs) exitMember() (e exit, err error) {
	var code, signal number
	err = j.nested(func(name string) (err error) {
		switch name {
		case "return_code":
			code, err = j.number()
		case "signal":
			err = j.nested(func(name string) (err error) {
				if name == "id" {
					signal, err = j.number()
					return err
				}
				return j.SkipValue()
			})
		default:
			err = j.SkipValue()
		}
		return err
	})
	if code.n < 0 || code.n > 255 || signal.n < 0 || signal.n > 255 {
		j.odd("exit_code is no exit status")
		return e, err
	}
	return exit{int(code.n), int(signal.n), code.set || signal.set}, err
}

// take appends the record's job if it is ours.
func (j *jobs) take() {
	f := &j.now
	if f.user != "" && f.user != j.user {
		j.readable++
		return
	}
	job := &f.job
	job.ID, job.Task = identity(f.id, f.array, f.task)
	array := job.ID
	if job.Task != nil {
		job.ID = run.TaskID(array, *job.Task)
	}
	if run.Renamed(f.name, f.workDir) {
		job.WorkDir = string(f.workDir)
	}
	switch ours := j.of.usage || bytes.HasPrefix(f.name, []byte(slurm.NamePrefix)) || job.WorkDir != "" || j.sought[job.ID] ||
		j.sought[array]; {
	case !f.named || !ours && job.ID == "" && len(j.sought) > 0:
		j.lost = true
		j.odd("no name, or no id")
		j.cannotRead()
		return
	case !ours:
		j.readable++
		return
	}
	j.readable++
	job.Name = string(f.name)
	tasks, ok := slurm.TasksOf(f.tasks)
	if f.task.set || f.tasks == "" {
		tasks, ok = []int{-1}, true
	}
	j.finish()
	switch {
	case job.ID == "":
		j.odd("no job id")
	case !ok && job.Class == run.ClassEnded: // an ended record hides no open task
		tasks = []int{-1}
	case !ok || len(j.found)+len(tasks) > maxJobs:
		j.odd("the tasks of the array cannot be told: %s", fault.Clip(f.tasks))
	}
	if j.why != "" {
		j.cannotRead()
	}
	switch {
	case j.of.usage && j.why == "":
		j.measure()
		return
	case j.of.usage:
		return
	case j.why != "":
		j.found = append(j.found, run.Job{ID: job.ID, Task: job.Task, Name: job.Name, WorkDir: job.WorkDir, Class: run.ClassUnread, Why: j.why})
		return
	}
	for _, n := range tasks {
		one := *job
		if n >= 0 {
			one.ID, one.Task = run.TaskID(array, n), &n
		}
		j.found = append(j.found, one)
	}
}

// finish derives state, class and reason of the job, and drops values that do not hold in its state.
func (j *jobs) finish() {
	f := &j.now
	job := &f.job
	job.State, job.Class = slurm.StateOf(f.state)
	if job.State == "" {
		j.odd("no state")
	}
	if j.of.name == accounted.name {
		job.By = f.ender
	}
	job.Closed = j.of.name == accounted.name && job.State == "CANCELLED" && f.ender == ""
	if job.Why = f.said; f.said == "" && f.why != "None" {
		job.Why = f.why
	}
	if job.Node == "None assigned" || job.Node == "(null)" {
		job.Node = ""
	}
	// Slurm shows some values before they hold: expected start and end, and the exit status of a job that has not
	// ended.
	switch {
	case job.Class != run.ClassEnded:
		job.Ended = nil
	case f.exit.shown:
		job.ExitCode, job.Signal = new(f.exit.code), f.exit.signal
	}
	if job.Class == run.ClassPending {
		job.Started = nil
	}
}

func (j *jobs) cannotRead() {
	if j.unread++; j.unread == 1 {
		j.firstWhy, j.example = j.why, fault.Clip(j.now.job.ID+" "+string(j.now.name))
	}
}
