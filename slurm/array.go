package slurm

import (
	"bytes"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"text/template"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/shell"
)

//go:embed array.tmpl.sh
var arrayText string

var arrayTemplate = template.Must(template.New("array").Option("missingkey=error").Parse(arrayText))

// RenderArray renders the script of an array; run.Renderer has the contract. Slurm stores the script once for all
// tasks, so the checksums in it cannot be changed afterwards.
func (r *Renderer) RenderArray(job run.JobSpec) ([]byte, error) {
	if err := r.checkJob(job); err != nil {
		return nil, err
	}
	type line struct{ SHA256, Attempt string }
	var table []line
	for _, t := range job.Array.Tasks {
		table = append(table, line{t.ScriptSHA, shell.Quote(t.AttemptDir)})
	}
	var b bytes.Buffer
	err := arrayTemplate.Execute(&b, map[string]any{"Name": job.Array.Name, "Tasks": len(table), "Table": table, "Script": run.ScriptFile,
		"Log": run.JobLogFile})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "template", "the array's script cannot be rendered", err)
	}
	return b.Bytes(), nil
}

// checkArray returns what is wrong with the array of a job, or "" if it is valid or nil.
func checkArray(a *run.Array) string {
	switch {
	case a == nil:
		return ""
	case !run.IsArrayName(a.Name) || a.K < 1 || len(a.Tasks) < 2:
		return "name or size of the array"
	}
	for i, t := range a.Tasks {
		if !plan.IsSHA256(t.ScriptSHA) || plainPath(t.AttemptDir) != "" || !jobName.MatchString(t.JobName) {
			return "task " + strconv.Itoa(i) + " of the array"
		}
	}
	return ""
}

// scriptFile returns the name of the control file that sbatch reads.
func scriptFile(job run.JobSpec) string {
	if job.Array != nil {
		return run.ArrayFile(job.Array.K)
	}
	return run.ScriptFile
}

// own returns the options of sbatch that differ between jobs that may share an array. Each job has a unique working
// folder, by which it is found after its name was changed. The output of the array's script is discarded: it executes
// the attempt's script at once, which writes to the attempt's folder.
func own(job run.JobSpec) []string {
	if job.Array != nil {
		tasks := "--array=0-" + strconv.Itoa(len(job.Array.Tasks)-1)
		return []string{tasks, "--chdir=" + job.WorkDir(), "--output=/dev/null", "--error=/dev/null"}
	}
	log := job.ControlPath(run.JobLogFile)
	return []string{"--chdir=" + job.WorkDir(), "--output=" + log, "--error=" + log}
}

// maxTasks bounds the tasks in one record.
const maxTasks = 10_000

// TasksOf parses a list of array tasks that share one record: 1-3,7,20-40:5%2. Slurm ends a list that is too long with
// "..."; then ok is false.
func TasksOf(list string) (tasks []int, ok bool) {
	list, _, _ = strings.Cut(list, "%")
	for part := range strings.SplitSeq(list, ",") {
		span, by, stepped := strings.Cut(part, ":")
		first, last, ranged := strings.Cut(span, "-")
		if !ranged {
			last = first
		}
		if !stepped {
			by = "1"
		}
		from, err1 := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		step, err3 := strconv.ParseUint(by, 10, 31)
		if errors.Join(err1, err2, err3) != nil || step == 0 || to < from || (to-from)/step+uint64(len(tasks)) >= maxTasks {
			return nil, false
		}
		for n := from; n <= to; n += step {
			tasks = append(tasks, int(n))
		}
	}
	return tasks, true
}

// unfold parses an id such as 4711_[1-3,7], which Slurm writes for the tasks of an array that still share one record.
// Any other id is returned unchanged with the single task alone. cut reports that the list cannot be read.
func unfold(id []byte) (job []byte, tasks []int, cut bool) {
	i := bytes.Index(id, []byte("_["))
	if i < 0 {
		return id, []int{alone}, false
	}
	list, closed := strings.CutSuffix(string(id[i+2:]), "]")
	if tasks, ok := TasksOf(list); ok && closed {
		return id[:i], tasks, false
	}
	return id[:i], []int{alone}, true
}

// alone is the task number of a job that is not an array task.
const alone = -1

// split returns one job for each task of a record that has their array's id.
func split(j run.Job, tasks []int) (jobs []run.Job) {
	for _, n := range tasks {
		one := j
		if n != alone {
			one.ID, one.Task = run.TaskID(j.ID, n), new(n)
		}
		jobs = append(jobs, one)
	}
	return jobs
}

const noTasks = "the tasks of the array cannot be told"

// someTasks returns the record to use for an array whose task list cannot be read. A record of ended tasks is returned
// as it is: it hides no open task.
func someTasks(j run.Job) run.Job {
	if j.Class == run.ClassEnded {
		return j
	}
	return run.Job{ID: j.ID, Name: j.Name, WorkDir: j.WorkDir, User: j.User, Class: run.ClassUnread, Why: noTasks}
}
