package slurm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// An answer of squeue or sacct as it is asked for here: each field ends with sep, the job's name stands last but one, and each
// record ends with the user it was asked for. So no name can break a record in two or swallow the next, whatever
// newlines and separators foreign jobs have in theirs.
//
//	1234␟RUNNING␟None␟…␟sg-run_…␟lab␟⏎
const sep = "\x1f"

// columns are the fields of an answer in their order.
type column int

const (
	colID column = iota
	colState
	colAccounted // the state in accounting
	colReason
	colRestarts
	colNode
	colExit
	colSubmit
	colStart
	colEnd
	colCluster
	colSLUID
	colName
)

// namePrefix is what the names of our jobs start with; the user's other jobs are none of our business, unless one is ours renamed.
const namePrefix = "sg-"

// answer reads an answer as it comes. A single record that is not as asked for makes the whole answer worthless.
type answer struct {
	cols []column
	end  []byte // of each record
	rest []byte // the record that has begun
	jobs []run.Job
	err  error

	sought  map[string]bool // ids, in the first column, whose records count under any name
	fields  [][]byte
	scratch []byte
	words   map[string]string // states, reasons, nodes: few, and in every record
	times   [colName + 1]seen // the last of each column: neighbours have the same
}

// seen is a time and how it was written.
type seen struct {
	text string
	at   *time.Time
}

// newAnswer expects an answer about a user's jobs, about so many; cols are the fields before the user.
func newAnswer(user string, cols []column, about int) *answer {
	return &answer{cols: cols, end: []byte(sep + user + sep + "\n"), jobs: make([]run.Job, 0, about), words: map[string]string{}}
}

// Write takes the next part of the answer. It never fails: who prints is not to blame.
func (a *answer) Write(p []byte) (int, error) {
	n := len(p)
	for a.err == nil {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			a.rest = append(a.rest, p...)
			break
		}
		line := p[:i+1]
		p = p[i+1:]
		if len(a.rest) > 0 {
			a.rest = append(a.rest, line...)
			line = a.rest
		}
		// A line feed may be part of a name.
		if body, ok := bytes.CutSuffix(line, a.end); ok {
			a.record(body)
			a.rest = a.rest[:0]
		} else if len(a.rest) == 0 {
			a.rest = append(a.rest, line...)
		}
	}
	return n, nil
}

// whole returns the jobs when the answer has come to its end.
func (a *answer) whole() ([]run.Job, error) {
	if a.err == nil && len(a.rest) > 0 {
		a.err = fmt.Errorf("the answer is incomplete")
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.jobs, nil
}

// record reads the fields before the user. The last of them, the name, takes what is left.
func (a *answer) record(body []byte) {
	a.fields = a.fields[:0]
	for rest := body; ; {
		field, after, more := bytes.Cut(rest, []byte(sep))
		if last := len(a.fields)+1 == len(a.cols); last || !more {
			if last {
				field = rest
			}
			a.fields = append(a.fields, field)
			break
		}
		a.fields, rest = append(a.fields, field), after
	}
	if len(a.fields) < len(a.cols) {
		a.err = fmt.Errorf("a record has %d fields, not %d: %s", len(a.fields), len(a.cols), fault.Clip(string(body)))
		return
	}
	if !bytes.HasPrefix(a.fields[len(a.fields)-1], []byte(namePrefix)) && (len(a.sought) == 0 || !a.sought[string(a.fields[0])]) {
		return
	}
	job, err := a.job()
	if err != nil {
		a.err = fmt.Errorf("%w in %s", err, fault.Clip(string(bytes.Join(a.fields, []byte("|")))))
		return
	}
	a.jobs = append(a.jobs, job)
}

// job makes a job of the fields.
func (a *answer) job() (run.Job, error) {
	j := run.Job{Restarts: -1}
	var exit, signal int
	var exited bool
	var err error
	for i, f := range a.fields {
		switch c := a.cols[i]; c {
		case colID: // with the name in one piece of memory
			a.scratch = append(append(a.scratch[:0], f...), a.fields[len(a.fields)-1]...)
			both := string(a.scratch)
			j.Name = both[len(f):]
			j.ID, j.Task, err = parseID(both[:len(f)])
		case colState, colAccounted:
			// Whoever cancels a job stands behind the word. A controller that starts without its jobs has accounting end them too, and
			// there is nobody behind it.
			word := a.word(f)
			j.Closed = c == colAccounted && strings.TrimSpace(word) == "CANCELLED"
			if j.State, j.Class = stateOf(word); j.State == "" {
				err = fmt.Errorf("no state")
			}
		case colReason:
			if string(f) != "None" {
				j.Why = a.word(f)
			}
		case colRestarts:
			j.Restarts, err = strconv.Atoi(a.word(f))
		case colNode:
			if string(f) != "None assigned" && string(f) != "(null)" {
				j.Node = a.word(f)
			}
		case colExit:
			exited = true
			exit, signal, err = parseExit(a.word(f))
		case colSubmit:
			j.Submitted, err = a.time(c, f)
		case colStart:
			j.Started, err = a.time(c, f)
		case colEnd:
			j.Ended, err = a.time(c, f)
		case colCluster:
			j.Cluster = a.word(f)
		case colSLUID:
			j.SLUID = string(f)
		case colName: // see colID
		}
		if err != nil {
			return run.Job{}, err
		}
	}
	// Slurm shows some things before they are so: expected start and end, and the exit status of a job that has not ended.
	switch {
	case j.Class != run.ClassEnded:
		j.Ended = nil
	case exited:
		j.ExitCode, j.Signal = new(exit), signal
	}
	if j.Class == run.ClassPending {
		j.Started = nil
	}
	return j, nil
}

// manyWords is more than there are states, reasons and names of clusters; nodes may be more.
const manyWords = 10_000

// word is a field that many records have the same.
func (a *answer) word(f []byte) string {
	if w, ok := a.words[string(f)]; ok {
		return w
	}
	w := string(f)
	if len(a.words) < manyWords {
		a.words[w] = w
	}
	return w
}

// time reads a time, or takes the one of the record before.
func (a *answer) time(c column, f []byte) (*time.Time, error) {
	if last := a.times[c]; last.text != "" && last.text == string(f) {
		return last.at, nil
	}
	at, err := parseTime(string(f))
	a.times[c] = seen{string(f), at}
	return at, err
}

// parseID reads 1234 and 1234_5.
func parseID(s string) (id string, task *int, err error) {
	id, sub, array := strings.Cut(s, "_")
	if !allDigits(id) {
		return "", nil, fmt.Errorf("no job id")
	}
	if array {
		n, err := strconv.Atoi(sub)
		if err != nil || !allDigits(sub) {
			return "", nil, fmt.Errorf("no array task")
		}
		task = &n
	}
	return id, task, nil
}

func allDigits(s string) bool {
	return s != "" && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// parseExit reads code:signal.
func parseExit(s string) (code, signal int, err error) {
	a, b, ok := strings.Cut(s, ":")
	code, err1 := strconv.Atoi(a)
	signal, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("no exit status")
	}
	return code, signal, nil
}

// parseTime reads seconds since 1970, or one of Slurm's words for no time.
func parseTime(s string) (*time.Time, error) {
	switch s {
	case "", "N/A", "None", "Unknown", "NONE", "INVALID":
		return nil, nil
	}
	sec, err := strconv.ParseInt(s, 10, 64)
	if err != nil || sec < 0 {
		return nil, fmt.Errorf("no time")
	}
	t := time.Unix(sec, 0).UTC()
	return &t, nil
}
