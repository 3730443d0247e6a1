package slurm

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/run"
)

// planted runs the script of a job whose runtime executes the program itself, in a simulated cgroup: proc is the
// content of /proc/self/cgroup, and files are below /sys/fs/cgroup. It returns the exit record. (A machine with cgroup
// v1 has no such files.)
func planted(t *testing.T, program, proc string, files map[string]string) run.Exit {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	job := flagstat(filepath.Join(root, testRun))
	job.ImagePath = write("image.sif", "image", 0o600)
	job.ExecArgs = []string{"container", "/bin/bash", "-c", program}
	job.Spec.Execution.Command.Argv, job.Spec.Execution.Command.Stdout = job.ExecArgs[1:], nil
	job.Spec.Execution.Container.Image = "sha256:" + digestOf("image")
	job.Spec.IO.Inputs = nil
	runtime := write("apptainer", "#!/bin/bash\nexec \"${@:2}\"\n", 0o700)
	script, pinned, err := renderer(t, ScriptConfig{Runtime: Runtime{Path: runtime}, Verify: VerifyAll, GraceSeconds: 1}).Render(job)
	must(t, err)
	text := strings.Replace(string(script), "cgroups=/sys/fs/cgroup own_cgroup=/proc/self/cgroup", "cgroups="+root+"/cgroup own_cgroup="+
		write("proc", proc, 0o600), 1)
	for name, text := range files {
		write("cgroup/"+name, text, 0o600)
	}
	ctl := testRun + "/a1/ctl/"
	write(ctl+run.PinnedFile, string(pinned), 0o600)
	cmd := exec.Command("/bin/bash", write(ctl+run.ScriptFile, text, 0o600))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SLURM_JOB_ID=77", "SLURMD_NODENAME=n1"}
	cmd.Dir = job.AttemptDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the script: %v: %s", err, out)
	}
	left, err := os.ReadFile(job.ControlPath(run.ExitFile))
	must(t, err)
	x, err := run.ParseExit(left)
	if err != nil {
		t.Fatalf("ParseExit of %q gives %v, want no error", left, err)
	}
	return x
}

// The exit record has the OOM kills that the job's own cgroup counted, all steps included, and nothing where the job has no cgroup (v2) or
// one that does not count them.
func TestScriptCountsOOMKills(t *testing.T) {
	const at, events = "system.slice/n1_slurmstepd.scope/job_77", "low 0\nhigh 0\nmax 31\noom 3\noom_kill 2\noom_group_kill 0\n"
	v2 := "0::/" + at + "/step_batch/user/task_0\n"
	none := strings.Replace(events, "oom_kill 2", "oom_kill 0", 1)
	for name, c := range map[string]struct {
		proc  string
		files map[string]string
		want  int
	}{
		"none":             {v2, map[string]string{at + "/memory.events": none}, 0},
		"two":              {v2, map[string]string{at + "/memory.events": events, at + "/step_batch/memory.events": none}, 2},
		"v1 and v2":        {"4:memory:/slurm/uid_1001/job_77/step_batch/task_0\n" + v2, map[string]string{at + "/memory.events": none}, 0},
		"v1":               {"4:memory:/" + at + "/step_batch/task_0\n0::/\n", map[string]string{at + "/memory.events": none}, -1},
		"another job's":    {strings.Replace(v2, "job_77", "job_778", 1), map[string]string{at + "8/memory.events": none}, -1},
		"of no job":        {"0::/user.slice/session-1.scope\n", map[string]string{"user.slice/memory.events": none}, -1},
		"no memory.events": {v2, nil, -1},
		"no such line":     {v2, map[string]string{at + "/memory.events": "low 0\nhigh 0\nmax 0\noom 0\n"}, -1},
		"no number":        {v2, map[string]string{at + "/memory.events": "oom_kill many\n"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if x := planted(t, "exit 0", c.proc, c.files); x.OOM != c.want || x.Reason != "ok" {
				t.Errorf("the exit record says %s and %d OOM kills, want ok and %d (-1: not known)", x.Reason, x.OOM, c.want)
			}
		})
	}
}

func digestOf(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}
