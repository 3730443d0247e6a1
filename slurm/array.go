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

// RenderArray makes the script of an array; run.Renderer has the contract. It is kept by Slurm, once for all tasks, so what it says of an
// attempt's script nobody changes afterwards.
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

// checkArray is what is wrong with the array of a job; empty: nothing, or it has none.
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

// scriptFile is the control file that sbatch reads.
func scriptFile(job run.JobSpec) string {
	if job.Array != nil {
		return run.ArrayFile(job.Array.K)
	}
	return run.ScriptFile
}

// own are the options of sbatch that differ between jobs that may share an array. By its working folder, which no other job has, a job is
// found whose name was changed. What an array's script itself prints has no place: it hands over to the attempt's script at once, which
// writes to the attempt's folder.
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

// TasksOf reads the tasks of an array that have no record of their own: 1-3,7,20-40:5%2. Slurm ends a list
// that is too long with "..."; that cannot be read.
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

// unfold reads an id like 4711_[1-3,7], as Slurm writes those tasks of an array that have no record of their own yet. Any other id it
// gives back, as that of a job alone. cut: the list cannot be read.
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

// alone is no task.
const alone = -1

// split takes a record of several tasks apart, which has their array's id.
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

// someTasks is the record of tasks of an array that cannot be told. One that has ended says nothing of any of them, and hides none.
func someTasks(j run.Job) run.Job {
	if j.Class == run.ClassEnded {
		return j
	}
	return run.Job{ID: j.ID, Name: j.Name, WorkDir: j.WorkDir, User: j.User, Class: run.ClassUnread, Why: noTasks}
}
