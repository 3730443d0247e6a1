package slurm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// pipeRun creates a run folder with a script of programs in a pipe, and a fake Apptainer that starts each program
// directly.
func pipeRun(t *testing.T, limit int, stdin string, programs ...string) (job run.JobSpec, cmd *exec.Cmd) {
	t.Helper()
	return pipeRunOf(t, limit, stdin, func(*run.JobSpec) {}, programs...)
}

// pipeRunOf is pipeRun for a job after change.
func pipeRunOf(t *testing.T, limit int, stdin string, change func(*run.JobSpec), programs ...string) (job run.JobSpec, cmd *exec.Cmd) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), testRun)
	job = flagstat(dir)
	for _, sub := range []string{"in", "a1/ctl"} {
		must(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	write := func(path, text string, mode os.FileMode) { mustWrite(t, path, text, mode) }
	job.ImagePath = filepath.Join(dir, "image.sif")
	fake := filepath.Join(dir, "apptainer")
	write(fake, "#!/bin/bash\nshift\nls /proc/self/fd >>"+dir+"/descriptors\nexec \"$@\"\n", 0o755)
	write(job.ImagePath, "the image", 0o644)
	write(filepath.Join(dir, "in/input.bam"), "b\na\nb\n", 0o644)
	c := &job.Spec.Execution.Command
	c.Stdout, c.Pipe = ptr("out/flagstat.json"), nil
	if stdin != "" {
		c.Stdin = &stdin
	}
	job.Spec.Resources.TimeLimitSeconds = limit
	job.Spec.Execution.Container.Image = plan.Hash([]byte("the image"))
	job.Spec.IO.Inputs[0].ChecksumSHA256 = plan.Hash([]byte("b\na\nb\n"))[7:]
	for i, text := range programs {
		argv := []string{"bash", "-c", text}
		if !strings.Contains(text, " ") {
			argv = []string{text}
		}
		if i == 0 {
			c.Argv = argv
		} else {
			c.Pipe = append(c.Pipe, argv)
		}
	}
	job.ExecArgs = append([]string{job.ImagePath}, c.Argv...)
	change(&job)
	cfg := runtimePath
	cfg.Runtime.Path, cfg.GraceSeconds = fake, 1
	script, pinned, err := renderer(t, cfg).Render(job)
	must(t, err)
	write(job.ControlPath("script"), string(script), 0o755)
	write(job.ControlPath(run.PinnedFile), string(pinned), 0o644)
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(stop)
	cmd = exec.CommandContext(ctx, "bash", job.ControlPath("script"))
	cmd.Env = []string{"SLURM_JOB_ID=7", "PATH=/usr/bin:/bin"}
	return job, cmd
}

func exitOf(t *testing.T, job run.JobSpec) run.Exit {
	t.Helper()
	data, err := os.ReadFile(job.ControlPath(run.ExitFile))
	must(t, err)
	x, err := run.ParseExit(data)
	must(t, err)
	return x
}

// A pipe succeeds only if all of its programs do, and the one that failed first is the cause, wherever it is. proves DATA-03
func TestPipe(t *testing.T) {
	const forever = "while echo y; do : ; done 2>/dev/null; exit 33" // as a program does after EPIPE
	ls, err := exec.Command("ls", "/proc/self/fd").Output()          // 3 is the folder that ls reads; a test may inherit more
	must(t, err)
	mine := append(strings.Fields(string(ls)), "255") // bash's own
	for _, c := range []struct {
		name     string
		programs []string
		code     int
		reason   string
		program  int
		stdout   string
	}{
		{"all well", []string{"sort", "uniq", "cat && echo end"}, 0, "ok", 0, "a\nb\nend\n"},
		{"the first fails", []string{"echo a; exit 3", "cat >&2; exit 4", "cat >&2"}, 3, "tool_failed", 1, ""},
		{"the middle fails", []string{forever, "read -r x; exit 4", "cat >&2; exit 5"}, 4, "tool_failed", 2, ""},
		{"the last fails", []string{forever, forever, "read -r x; exit 5"}, 5, "tool_failed", 3, ""},
		{"the first is told by SIGPIPE", []string{"exec yes", "cat ", "read -r x; exit 6"}, 6, "tool_failed", 3, ""},
		{"the last reads only the beginning", []string{"exec yes", "head -n 1"}, 141, "tool_failed", 1, "y\n"},
		{"one is not there", []string{"exec yes", "slurmgate-absent", "cat >&2"}, 127, "tool_failed", 2, ""},
		{"one is killed", []string{"exec yes", "kill -9 $$", "cat >&2"}, 137, "killed", 2, ""},
		{"a full disk", []string{"echo a b", "cat > /dev/full"}, 1, "tool_failed", 2, ""},
		{"two of them", []string{"sort", "tr b c"}, 0, "ok", 0, "a\nb\nb\n"},
		{"the time is up", []string{"sleep 600 ", "cat "}, 124, "time_limit", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limit := 600
			if c.reason == "time_limit" {
				limit = 1
			}
			if c.name == "two of them" {
				c.programs[1] = "tr b b"
			}
			job, cmd := pipeRun(t, limit, "in/input.bam", c.programs...)
			out, err := cmd.CombinedOutput()
			x := exitOf(t, job)
			if x.Code != c.code || x.Reason != c.reason || x.Program != c.program && c.reason != "time_limit" {
				stderr, _ := os.ReadFile(job.ControlPath(run.StderrFile))
				t.Errorf("the exit record says %s, code %d, program %d (%v), want %s, code %d, program %d\n%s%s",
					x.Reason, x.Code, x.Program, err, c.reason, c.code, c.program, out, stderr)
			}
			got, err := os.ReadFile(filepath.Join(job.AttemptDir(), "out/flagstat.json"))
			if err != nil || string(got) != c.stdout {
				t.Errorf("the pipe's output is %q %v, want %q", got, err, c.stdout)
			}
			_, err = os.Stat(job.ControlPath(run.ManifestFile))
			if (err == nil) != (c.reason == "ok") {
				t.Error("manifest", err)
			}
			// No program has another program's end of the pipe, or a descriptor of the script.
			seen, _ := os.ReadFile(filepath.Join(job.RunDir, "descriptors"))
			for n := range strings.FieldsSeq(string(seen)) {
				if !slices.Contains(mine, n) {
					t.Errorf("descriptor %s: %q", n, seen)
				}
			}
		})
	}
}

// TERM ends every program of a pipe, and the run as terminated. proves DATA-03
func TestPipeTerminated(t *testing.T) {
	job, cmd := pipeRun(t, 600, "", "echo a; exec sleep 600", "cat && exec sleep 600",
		"trap 'echo got it >&2; exit 0' TERM; cat; sleep 600 & wait")
	must(t, cmd.Start())
	out := filepath.Join(job.AttemptDir(), "out/flagstat.json")
	until(t, time.Minute, "output of the pipe", func() bool { b, _ := os.ReadFile(out); return len(b) > 0 })
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	err := cmd.Wait()
	if x := exitOf(t, job); x.Code != 143 || x.Reason != "terminated" || x.Program != 0 {
		t.Errorf("after TERM the exit record says %s, code %d, program %d (%v), want terminated, code 143, program 0",
			x.Reason, x.Code, x.Program, err)
	}
}

// An input in place is opened in place as standard input: the workspace has only an empty placeholder. proves DATA-03
func TestStdinWhereTheFileLies(t *testing.T) {
	job := piped("/shared/runs/" + testRun)
	for path, want := range map[string]string{"": "exec {from}</shared/runs/" + testRun + "/in/input.bam ",
		"/lab/it's.bam": `exec {from}<'/lab/it'\''s.bam' `} {
		job.Placed = []run.Placed{{Input: job.Spec.IO.Inputs[0], Path: path}}
		script, _, err := renderer(t, runtimePath).Render(job)
		if err != nil || !strings.Contains(string(script), want) {
			t.Errorf("no %q: %v", want, err)
		}
	}
}
