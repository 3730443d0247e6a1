package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

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

// namePrefix is what the names of our jobs start with; the user's other jobs are none of our business.
const namePrefix = "sg-"

// parseAnswer reads a whole answer about a user's jobs; cols are the fields before the user. A single record that is not
// as asked for makes the whole answer worthless.
func parseAnswer(text, user string, cols []column) ([]run.Job, error) {
	jobs := []run.Job{}
	if text == "" {
		return jobs, nil
	}
	end := sep + user + sep + "\n"
	body, ok := strings.CutSuffix(text, end)
	if !ok {
		return nil, fmt.Errorf("the answer is cut off")
	}
	for record := range strings.SplitSeq(body, end) {
		fields := strings.SplitN(record, sep, len(cols))
		if len(fields) < len(cols) {
			return nil, fmt.Errorf("a record has %d fields, not %d: %q", len(fields), len(cols), clip(record))
		}
		name := fields[len(fields)-1]
		if !strings.HasPrefix(name, namePrefix) {
			continue
		}
		job, err := parseJob(fields, cols)
		if err != nil {
			return nil, fmt.Errorf("%w in %q", err, clip(strings.Join(fields, "|")))
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

func parseJob(fields []string, cols []column) (run.Job, error) {
	j := run.Job{Restarts: -1}
	var err error
	for i, f := range fields {
		switch cols[i] {
		case colID:
			j.ID, j.Task, err = parseID(f)
		case colState, colAccounted:
			// Whoever cancels a job stands behind the word. A controller that starts without its jobs has accounting end them too, and
			// there is nobody behind it.
			j.Closed = cols[i] == colAccounted && strings.TrimSpace(f) == "CANCELLED"
			if j.State, j.Class = stateOf(f); j.State == "" {
				err = fmt.Errorf("no state")
			}
		case colReason:
			if f != "None" {
				j.Why = f
			}
		case colRestarts:
			j.Restarts, err = strconv.Atoi(f)
		case colNode:
			if f != "None assigned" && f != "(null)" {
				j.Node = f
			}
		case colExit:
			j.ExitCode, j.Signal, err = parseExit(f)
		case colSubmit:
			j.Submitted, err = parseTime(f)
		case colStart:
			j.Started, err = parseTime(f)
		case colEnd:
			j.Ended, err = parseTime(f)
		case colCluster:
			j.Cluster = f
		case colSLUID:
			j.SLUID = f
		case colName:
			j.Name = f
		}
		if err != nil {
			return run.Job{}, err
		}
	}
	settle(&j)
	return j, nil
}

// settle drops what Slurm shows before it is so: expected start and end, and the exit status of a job that has not ended.
func settle(j *run.Job) {
	if j.Class != run.ClassEnded {
		j.Ended, j.ExitCode, j.Signal = nil, nil, 0
	}
	if j.Class == run.ClassPending {
		j.Started = nil
	}
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
func parseExit(s string) (code *int, signal int, err error) {
	a, b, ok := strings.Cut(s, ":")
	n, err1 := strconv.Atoi(a)
	signal, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil {
		return nil, 0, fmt.Errorf("no exit status")
	}
	return &n, signal, nil
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

func clip(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
