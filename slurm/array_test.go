package slurm

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/run"
)

// A record of several tasks gives one job for each task; a list that was cut gives one unread record.
func TestFoldedTasks(t *testing.T) {
	const rest = "PENDING\x1fNone\x1f0\x1f\x1f0:0\x1f1\x1f2\x1fN/A\x1fc" +
		"\x1fmain\x1fresearch\x1f1:00:00\x1f/\x1fsg-array-000000000000000000000001\x1flab\x1f\n"
	for list, want := range map[string]string{"[27-33:2]": "27 29 31 33", "[0-2,7%4]": "0 1 2 7", "[5]": "5", "[1,3,5...]": "unread",
		"[": "unread", "[9-1]": "unread"} {
		jobs, err := parseAnswer("8_"+list+"\x1f"+rest, "lab", queueColumns)
		var got []string
		for _, j := range jobs {
			switch {
			case j.Class == run.ClassUnread && j.Task == nil && run.IsArrayName(j.Name):
				got = append(got, "unread")
			case j.Class == run.ClassPending && j.ID == run.TaskID("8", *j.Task):
				got = append(got, fmt.Sprint(*j.Task))
			default:
				t.Errorf("a record of the folded array is %s, want a pending task", jobsText(j))
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q %v, want %s", list, got, err, want)
		}
	}
}

// The script of an array executes the script of its task's attempt, in the attempt's folder, and only if it is the one
// that was sent.
func TestArrayScript(t *testing.T) {
	dir := t.TempDir()
	job := flagstat("/shared/runs/" + testRun)
	job.Array = &run.Array{Name: "sg-array-000000000000000000000001", K: 1}
	for i := range 3 {
		at := filepath.Join(dir, fmt.Sprint(i), "a1")
		must(t, os.MkdirAll(filepath.Join(at, "ctl"), 0o700))
		script := []byte(fmt.Sprintf("echo here is %d; pwd >where; exit %d\n", i, 7+i))
		must(t, os.WriteFile(filepath.Join(at, "ctl", "script"), script, 0o600))
		sum := fmt.Sprintf("%x", sha256.Sum256(script))
		if i == 2 {
			sum = strings.Repeat("0", 64)
		}
		job.Array.Tasks = append(job.Array.Tasks, run.Task{JobName: job.JobName, AttemptDir: at, ScriptSHA: sum})
	}
	job.Array.Tasks = append(job.Array.Tasks, run.Task{JobName: job.JobName, AttemptDir: dir + "/none", ScriptSHA: strings.Repeat("0", 64)})
	r := NewRenderer(ScriptConfig{})
	script, err := r.RenderArray(job)
	must(t, err)
	file := filepath.Join(dir, "array")
	must(t, os.WriteFile(file, script, 0o600))
	if out, err := exec.Command("shellcheck", "--severity=style", file).CombinedOutput(); err != nil {
		t.Errorf("shellcheck finds in the script of an array: %v\n%s", err, out)
	}
	for task, want := range map[string]int{"0": 7, "1": 8, "2": 98, "3": 95, "4": 90, "": 90} {
		c := exec.Command("/bin/bash", file)
		c.Env = []string{"SLURM_ARRAY_TASK_ID=" + task}
		_ = c.Run()
		if got := c.ProcessState.ExitCode(); got != want {
			t.Errorf("task %s exits with %d, want %d", task, got, want)
		}
	}
	log, _ := os.ReadFile(filepath.Join(dir, "1/a1/ctl/job.log"))
	where, _ := os.ReadFile(filepath.Join(dir, "1/a1/where"))
	if string(log) != "here is 1\n" || strings.TrimSpace(string(where)) != filepath.Join(dir, "1/a1") {
		t.Errorf("the task logged %q in %q, want \"here is 1\" in %q", log, where, filepath.Join(dir, "1/a1"))
	}
	argv, err := r.Argv(job)
	for _, want := range []string{"--array=0-3", "--job-name=" + job.Array.Name, "--output=/dev/null", job.ControlPath("array.1")} {
		if err != nil || !slices.Contains(argv, want) {
			t.Errorf("no %s in %q %v", want, argv, err)
		}
	}
}
