package run

import (
	"fmt"
	"path"

	"slurmgate/plan"
)

// JobSpec is the input of the job script: everything that it depends on.
type JobSpec struct {
	RunID     string
	N         int
	Token     string
	JobName   string
	ToolID    string    // with Principal, for people who read the queue
	Principal Principal // zero: unknown
	Spec      plan.Spec
	RunDir    string   // absolute
	ImagePath string   // absolute
	ExecArgs  []string // the arguments after the apptainer program
	Placed    []Placed // the inputs, of a directory its files, and how the job gets each; nil: all are copied

	MaxOutputBytes int64 // all outputs together; what exceeds it is not hashed

	Exclude []string // names of nodes that the job does not use

	Array *Array // nil: the job executes one attempt; in an array the rest of the spec is its leader's
}

// Inputs returns the job's inputs; without Placed all are copied.
func (j JobSpec) Inputs() []Placed {
	if j.Placed == nil {
		return copies(j.Spec.IO.Inputs)
	}
	return j.Placed
}

// AttemptDir returns the absolute path of the attempt's folder.
func (j JobSpec) AttemptDir() string { return path.Join(j.RunDir, fmt.Sprintf("a%d", j.N)) }

// ControlPath returns the absolute path of one of the attempt's control files.
func (j JobSpec) ControlPath(name string) string { return path.Join(j.AttemptDir(), "ctl", name) }
