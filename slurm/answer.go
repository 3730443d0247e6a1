package slurm

import (
	"bytes"
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/run"
)

// The format of an answer of squeue or sacct: each field ends with sep, the job's working folder and its name come
// last, and each record ends with the user whose jobs were requested. So no name of a foreign job can split a record or
// hide the next one, with any newlines and separators.
//
//	1234␟RUNNING␟None␟…␟/runs/run_…/a1␟sg-run_…␟lab␟⏎
//
// A record that cannot be read concerns its own job only: see the package comment.
const sep = "\x1f"

// NamePrefix starts the names of our jobs. The user's other jobs are ignored, unless one is a renamed job of ours.
const NamePrefix = "sg-"

// maxRecord bounds a record, in bytes. Real ones have a few hundred; the names of foreign jobs may have some thousands.
const maxRecord = 1 << 20

// answer reads an answer as it comes.
type answer struct {
	cols []column
	end  []byte // of each record
	rest []byte // the incomplete record
	long bool   // the record is longer than maxRecord, and rest is only its end
	read int    // records that could be read, foreign ones too
	jobs []run.Job

	unread  int    // records and other texts that could not be read
	lost    bool   // one of them may be the record of any job
	why     string // of the first of them
	example string // its text

	sought  map[string]bool // ids, in the first column, whose records count under any name
	fields  [][]byte
	scratch []byte
	words   map[string]string // interned values: states, reasons and nodes repeat in every record
	times   [colName + 1]seen // the last time of each column, as successive records often share it
}

// newAnswer prepares to read an answer about one user's jobs. cols are the fields before the user; about estimates the
// number of jobs.
func newAnswer(user string, cols []column, about int) *answer {
	return &answer{cols: cols, end: []byte(sep + user + sep + "\n"), jobs: make([]run.Job, 0, about), words: map[string]string{}}
}

// Write takes the next part of the answer. It never fails: a record that cannot be read is not the writer's error.
func (a *answer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			a.keep(p)
			break
		}
		line := p[:i+1]
		p = p[i+1:]
		if len(a.rest) > 0 {
			a.keep(line)
			line = a.rest
		}
		// A line feed may be part of a name.
		if body, ok := bytes.CutSuffix(line, a.end); ok {
			if a.long {
				a.loses("longer than a record can be", body)
			} else {
				a.record(body)
			}
			a.rest, a.long = a.rest[:0], false
		} else if len(a.rest) == 0 {
			a.keep(line)
		}
	}
	return n, nil
}

// keep appends to the incomplete record. Of a record that is too long it keeps only the end, which identifies it.
func (a *answer) keep(p []byte) {
	a.rest = append(a.rest, p...)
	if len(a.rest) > maxRecord {
		a.long = true
		a.rest = append(a.rest[:0], a.rest[len(a.rest)-len(a.end):]...)
	}
}

// whole returns the jobs of a complete answer. An answer that breaks off within a line, or of which nothing could be
// read, is an error.
func (a *answer) whole() ([]run.Job, error) {
	if n := len(a.rest); n > 0 {
		if a.rest[n-1] != '\n' {
			return nil, fmt.Errorf("the answer breaks off: %s", fault.Clip(string(a.rest)))
		}
		a.loses("no record", a.rest)
		a.rest = a.rest[:0]
	}
	if a.lost && a.read == 0 {
		return nil, fmt.Errorf("nothing in the answer is a record: %s", a.example)
	}
	if a.lost {
		return append(a.jobs, run.Job{Class: run.ClassUnread, Why: a.why}), nil
	}
	return a.jobs, nil
}

func (a *answer) report() (records int, why, example string) { return a.unread, a.why, a.example }

// loses counts an unreadable text that may be, or may contain, the record of any job.
func (a *answer) loses(why string, text []byte) {
	a.lost = true
	a.cannotRead(why, text)
}

func (a *answer) cannotRead(why string, text []byte) {
	if a.unread++; a.unread == 1 {
		a.why, a.example = why, fault.Clip(string(bytes.ReplaceAll(text, []byte(sep), []byte("|"))))
	}
}

// record reads the fields before the user. The last of them, the name, takes what is left.
func (a *answer) record(body []byte) {
	a.split(body)
	// A line feed belongs to a name or to a folder. In another field it ends something else: a text that is no record, or a record that broke
	// off.
	for bytes.IndexByte(body, '\n') >= 0 {
		before := len(body)
		for i := len(a.cols) - 1; i < len(a.fields) && (a.cols[i] == colName || a.cols[i] == colDir); i-- {
			before -= len(a.fields[i])
		}
		i := bytes.LastIndexByte(body[:before], '\n')
		if i < 0 {
			break
		}
		a.loses("no record", body[:i+1])
		body = body[i+1:]
		a.split(body)
	}
	if len(a.fields) < len(a.cols) {
		a.loses(fmt.Sprintf("%d fields instead of %d", len(a.fields), len(a.cols)), body)
		return
	}
	name := a.fields[len(a.fields)-1]
	ours := bytes.HasPrefix(name, []byte(NamePrefix))
	seps := bytes.Count(name, []byte(sep))
	if ours && (seps > 0 || bytes.IndexByte(name, '\n') >= 0) || seps > 0 && bytes.Contains(name, []byte(sep+NamePrefix)) ||
		seps >= len(a.cols)-1 || seps > 0 && bytes.IndexByte(a.workDir(), '\n') >= 0 {
		a.loses("more than one record", body)
		return
	}
	a.read++
	id, tasks, cut := unfold(a.fields[0])
	dir := a.renamed(name)
	if !ours && dir == "" && (len(a.sought) == 0 || !a.sought[string(a.fields[0])] && !a.seeks(string(id), tasks)) {
		return
	}
	a.fields[0] = id
	if len(a.jobs) == cap(a.jobs) { // doubled: append adds a quarter to a long list, and copies it each time
		a.jobs = slices.Grow(a.jobs, max(64, len(a.jobs)))
	}
	job, err := a.job()
	job.WorkDir = dir
	switch {
	case err != nil:
		a.cannotRead(err.Error(), body)
		a.jobs = append(a.jobs, run.Job{ID: job.ID, Task: job.Task, Name: string(name), WorkDir: dir, Class: run.ClassUnread, Why: err.Error()})
	case cut:
		if job = someTasks(job); job.Class == run.ClassUnread {
			a.cannotRead(job.Why, body)
		}
		a.jobs = append(a.jobs, job)
	default:
		a.jobs = append(a.jobs, split(job, tasks)...)
	}
}

// renamed returns the working folder of a job that was sent under another name than this one, else nothing.
func (a *answer) renamed(name []byte) string {
	if dir := a.workDir(); run.Renamed(name, dir) {
		return string(dir)
	}
	return ""
}

// workDir returns the working folder of the record, or nil if the answer has no such column.
func (a *answer) workDir() []byte {
	if i := slices.Index(a.cols, colDir); i >= 0 {
		return a.fields[i]
	}
	return nil
}

// seeks reports whether one of the tasks is sought.
func (a *answer) seeks(array string, tasks []int) bool {
	return slices.ContainsFunc(tasks, func(n int) bool { return a.sought[run.TaskID(array, n)] })
}

// split cuts a record into a.fields.
func (a *answer) split(body []byte) {
	a.fields = a.fields[:0]
	for rest := body; ; {
		field, after, more := bytes.Cut(rest, []byte(sep))
		if last := len(a.fields)+1 == len(a.cols); last || !more {
			if last {
				field = rest
			}
			a.fields = append(a.fields, field)
			return
		}
		a.fields, rest = append(a.fields, field), after
	}
}
