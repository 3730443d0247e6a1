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

// A job array is one submission for several attempts. Each has its own token, folder, script and claim, as if it were sent alone; what is
// common is the sbatch. Slurm's job is then a task, and a task is a job like any other to all of this package: its id is ARRAY_TASK, as
// Slurm's commands write it, and its name that of the attempt, which [taskNames] puts in place of the array's. So the claim, the resolver
// and the watcher know nothing of arrays.

// Arrays says when runs leave together. The zero value: never.
type Arrays struct {
	Min    int           // so many that are ready leave at once; below 2: each run is sent alone
	Linger time.Duration // the longest time for which one that is ready waits for others
}

func (a Arrays) on() bool { return a.Min > 1 }

// maxArray is how many tasks one array has at most: as Slurm's default for MaxArraySize allows.
const maxArray = 1000

// Array is what a [JobSpec] of an array has besides what its tasks have in common. The spec itself is that of one of them, the leader, in
// whose folder the array's script lies and the send leaves its files.
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

// ArrayRow is an array as the ledger has it. What is left of its send is found by its leader.
type ArrayRow struct {
	Name       string
	RunID      string // of the leader
	ExecutedAs string // as its run, see [Run]
	N          int
	Token      string
	K          int // the leader's send
	Size       int
	Jobs       []string // names of the attempts by task; "" where the attempt was sent again since, because Slurm refused the array
}

const (
	arrayPrefix     = "sg-array-"
	arrayNameDigits = 24 // behind it
)

func newArrayName() string {
	var b [arrayNameDigits / 2]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return arrayPrefix + hex.EncodeToString(b[:])
}

// IsArrayName reports whether a job's name is that of a gateway's array.
func IsArrayName(name string) bool { return arrayName.MatchString(name) }

var arrayName = regexp.MustCompile(`^` + arrayPrefix + `[0-9a-f]{24}$`)

// TaskID is the id of a task as Slurm's commands write it.
func TaskID(job string, task int) string { return job + "_" + strconv.Itoa(task) }

// TaskIDs is the id of several tasks of one array, as [Canceller] takes it: 4711_[0,3,12].
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

// JobIDs are the jobs that an id names: those of [TaskIDs], or one.
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

// arrayOf is the array's own id in the id of a task; ok is false for a job alone.
func arrayOf(jobID string) (id string, task int, ok bool) {
	id, number, ok := strings.Cut(jobID, "_")
	task, err := strconv.Atoi(number)
	return id, task, ok && err == nil
}

// ArrayFile is the control file of the leader with the script of an array: a name for each send.
func ArrayFile(k int) string { return fmt.Sprintf("array.%d", k) }

// ofTask is what the send of an array proved about one of its tasks. A refusal is of the whole array, and no verdict on the runs in it:
// they are sent again in smaller ones.
func (r SendResult) ofTask(task int) SendResult {
	switch r.Outcome {
	case SendAccepted:
		r.JobID = TaskID(r.JobID, task)
	case SendRejected, SendDeferred:
		r.Outcome, r.Scope = SendDeferred, ScopeRun
	}
	return r
}
