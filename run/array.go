package run

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A job array is one submission for several attempts. Each attempt has its own token, folder, script and claim, as if
// it were sent alone; they share the sbatch. A task of the array is a job like any other in this package: its id is
// ARRAY_TASK, as Slurm's commands write it, and its name is the attempt's, which [taskNames] puts in place of the
// array's. So the claim, the resolver and the watcher need no code for arrays.

// Arrays sets when runs leave together as an array. The zero value: never.
type Arrays struct {
	Min    int           // an array leaves at once when so many runs are ready; below 2: each run is sent alone
	Linger time.Duration // how long a ready run waits for others, at most
}

func (a Arrays) on() bool { return a.Min > 1 }

// maxArray is the most tasks of one array; Slurm's default for MaxArraySize allows it.
const maxArray = 1000

// Array is the part of an array's [JobSpec] that its tasks do not share. The spec itself is that of one task, the
// leader, whose folder holds the array's script and the files of the send.
type Array struct {
	Name  string // the job's name in Slurm
	K     int    // the leader's send
	Tasks []Task // by their numbers, from 0
}

// Task is one attempt in an array.
type Task struct {
	JobName    string // of the attempt, see [JobName]
	AttemptDir string // absolute
	ScriptSHA  string // hex SHA-256 of the attempt's own script
}

// ArrayRow is an array as the ledger has it. The files of its send are found by its leader.
type ArrayRow struct {
	Name       string
	RunID      string // of the leader
	ExecutedAs string // as its run, see [Run]
	N          int
	Token      string
	K          int // the leader's send
	Size       int
	Jobs       []string // job names of the attempts by task; "" where the attempt was sent again later, because Slurm refused the array
}

const (
	arrayPrefix     = "sg-array-"
	arrayNameDigits = 24 // after the prefix
)

func newArrayName() string {
	var b [arrayNameDigits / 2]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return arrayPrefix + hex.EncodeToString(b[:])
}

// IsArrayName reports whether a job's name is that of a gateway's array.
func IsArrayName(name string) bool { return arrayName.MatchString(name) }

var arrayName = regexp.MustCompile(`^` + arrayPrefix + `[0-9a-f]{24}$`)

// TaskID returns the id of a task as Slurm's commands write it.
func TaskID(job string, task int) string { return job + "_" + strconv.Itoa(task) }

// TaskIDs returns one id for several tasks of one array, as [Canceller] takes it: 4711_[0,3,12].
func TaskIDs(tasks []string) string {
	if len(tasks) == 1 {
		return tasks[0]
	}
	numbers, array := make([]string, 0, len(tasks)), ""
	for _, id := range tasks {
		of, task, _ := strings.Cut(id, "_")
		array, numbers = of, append(numbers, task)
	}
	return array + "_[" + strings.Join(numbers, ",") + "]"
}

// JobIDs returns the jobs that an id names: those of [TaskIDs], or one.
func JobIDs(id string) (ids []string) {
	array, list, several := strings.Cut(id, "_[")
	list, closed := strings.CutSuffix(list, "]")
	if !several || !closed {
		return []string{id}
	}
	for task := range strings.SplitSeq(list, ",") {
		ids = append(ids, array+"_"+task)
	}
	return ids
}

// arrayOf returns the array's id and the task's number from the id of a task; ok is false for a job that is no task.
func arrayOf(jobID string) (id string, task int, ok bool) {
	id, number, ok := strings.Cut(jobID, "_")
	task, err := strconv.Atoi(number)
	return id, task, ok && err == nil
}

// ArrayFile returns the name of the control file with the array's script, in the leader's folder; it differs for each
// send.
func ArrayFile(k int) string { return fmt.Sprintf("array.%d", k) }

// ofTask returns what the send of an array proved about one of its tasks. A refusal of the whole array is no verdict on
// its runs: they are sent again in smaller arrays.
func (r SendResult) ofTask(task int) SendResult {
	switch r.Outcome {
	case SendAccepted:
		r.JobID = TaskID(r.JobID, task)
	case SendRejected, SendDeferred:
		r.Outcome, r.Scope = SendDeferred, ScopeRun
	}
	return r
}
