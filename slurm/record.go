package slurm

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"slurmgate/run"
	"slurmgate/visible"
)

// column identifies a field of a record.
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
	colPartition
	colAccount
	colLimit
	colUser
	colDir
	colName
)

// seen is a time with its text.
type seen struct {
	text string
	at   *time.Time
}

// job builds a job from the fields of the record.
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
			if j.ID, j.Task, err = parseID(both[:len(f)]); j.Task != nil {
				j.ID = both[:len(f)]
			}
		case colState, colAccounted:
			// Accounting names who cancelled a job ("CANCELLED by 1001"). A controller that starts without its jobs
			// ends them in accounting too, and then names no user.
			word := a.word(f)
			if _, by, said := strings.Cut(word, " by "); c == colAccounted && said {
				j.By = strings.TrimSpace(by)
			}
			j.Closed = c == colAccounted && strings.TrimSpace(word) == "CANCELLED"
			if j.State, j.Class = stateOf(word); j.State == "" {
				err = errors.New("no state")
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
			if exit, signal, err = parseExit(a.word(f)); j.Class != run.ClassEnded {
				err = nil // see below
			}
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
		case colPartition:
			j.Partition = a.word(f)
		case colAccount:
			if string(f) != "(null)" {
				j.Account = a.word(f)
			}
		case colLimit:
			j.Limit = limitOf(a.word(f))
		case colUser:
			j.User = a.word(f)
		case colDir: // see renamed
		case colName: // see colID
		}
		if err != nil {
			return run.Job{ID: j.ID, Task: j.Task}, err
		}
	}
	// Slurm shows some values before they hold: expected start and end, and the exit status of a job that has not
	// ended.
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

// manyWords bounds the number of interned texts. It exceeds the number of states, reasons and clusters; there may be
// more nodes.
const manyWords = 10_000

// maxWord bounds a state, a reason or a list of nodes, in bytes.
const maxWord = 2 << 10

// word returns a field as valid text, interned because many records have the same value.
func (a *answer) word(f []byte) string {
	if w, ok := a.words[string(f)]; ok {
		return w
	}
	w := strings.ToValidUTF8(visible.Clip(string(f), maxWord), "\uFFFD")
	if len(a.words) < manyWords {
		a.words[string(f)] = w
	}
	return w
}

// time parses a time, or reuses the last one of the column if the text is the same.
func (a *answer) time(c column, f []byte) (*time.Time, error) {
	if last := a.times[c]; last.text != "" && last.text == string(f) {
		return last.at, nil
	}
	at, err := parseTime(string(f))
	a.times[c] = seen{string(f), at}
	return at, err
}

// limitOf parses a time limit and returns it in seconds, 0 for a text that is no limit.
func limitOf(s string) int64 {
	if s == "UNLIMITED" {
		return run.Unlimited
	}
	return timeLimit(s)
}

// parseID parses 1234 and 1234_5.
func parseID(s string) (id string, task *int, err error) {
	id, sub, array := strings.Cut(s, "_")
	if !allDigits(id) {
		return "", nil, errors.New("no job id")
	}
	if array {
		n, err := strconv.Atoi(sub)
		if err != nil || !allDigits(sub) {
			return "", nil, errors.New("no array task")
		}
		task = &n
	}
	return id, task, nil
}

func allDigits(s string) bool {
	return s != "" && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// parseExit parses code:signal, or the status of wait(2) as one number, as squeue prints it in 22.05 (768 is 3:0).
func parseExit(s string) (code, signal int, err error) {
	a, b, pair := strings.Cut(s, ":")
	if !pair {
		status, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return 0, 0, errors.New("no exit status")
		}
		return int(status >> 8), int(status & 0x7f), nil // 0x80 means that there is a core file
	}
	code, err1 := strconv.Atoi(a)
	signal, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil {
		return 0, 0, errors.New("no exit status")
	}
	return code, signal, nil
}

// parseTime parses seconds since 1970. One of Slurm's words for no time gives nil.
func parseTime(s string) (*time.Time, error) {
	switch s {
	case "", "N/A", "None", "Unknown", "NONE", "INVALID":
		return nil, nil
	}
	sec, err := strconv.ParseInt(s, 10, 64)
	if err != nil || sec < 0 {
		return nil, errors.New("no time")
	}
	t := time.Unix(sec, 0).UTC()
	return &t, nil
}
