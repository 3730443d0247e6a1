package slurm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"slurmgate/run"
)

// countedRun creates a run whose program counts its starts. starts returns that number; start executes the script as a
// job with these variables and returns its exit code.
func countedRun(t *testing.T) (job run.JobSpec, start func(env ...string) int, starts func() int) {
	t.Helper()
	note := filepath.Join(t.TempDir(), "starts")
	job, _ = pipeRun(t, 60, "", "printf x >>"+note)
	start = func(env ...string) int {
		cmd := exec.Command("bash", job.ControlPath("script"))
		cmd.Env = append(env, "PATH=/usr/bin:/bin")
		out, err := cmd.CombinedOutput()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Fatalf("bash: %v: %s", err, out)
		}
		return cmd.ProcessState.ExitCode()
	}
	starts = func() int {
		data, err := os.ReadFile(note)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return len(data)
	}
	return job, start, starts
}

// Of all jobs that are started for an attempt one executes it. The others end with code 90: another job, the same start
// again, and a later start of a requeued job.
//
// proves ABI-18
func TestScriptExecutesOnce(t *testing.T) {
	_, start, starts := countedRun(t)
	for i, c := range []struct {
		env  []string
		want int
	}{{[]string{"SLURM_JOB_ID=7"}, 0}, {[]string{"SLURM_JOB_ID=8"}, 90}, {[]string{"SLURM_JOB_ID=7"}, 90},
		{[]string{"SLURM_JOB_ID=7", "SLURM_RESTART_COUNT=1"}, 90}} {
		if got := start(c.env...); got != c.want {
			t.Errorf("start %d of the script (%s) ended with %d, want %d", i+1, c.env, got, c.want)
		}
	}
	if n := starts(); n != 1 {
		t.Errorf("four starts of the script executed the program %d times, want once", n)
	}
}

// The program starts only if the list, the image and an input have the pinned bytes (only the image where the site
// verifies images only), and only on a node that has a runtime and a place for its outputs.
//
// proves ARC-07
func TestScriptStartsOnPinnedBytesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		file   string // below the run's folder
		remove bool   // else it gets other bytes
		reason string
		code   int
	}{
		"image changed":       {"image.sif", false, "image_mismatch", run.ExitImageMismatch},
		"image gone":          {"image.sif", true, "image_missing", run.ExitImageMismatch},
		"input changed":       {"in/input.bam", false, "input_mismatch", run.ExitInputMismatch},
		"input gone":          {"in/input.bam", true, "input_missing", run.ExitInputMismatch},
		"list changed":        {"a1/ctl/" + run.PinnedFile, false, "image_mismatch", run.ExitImageMismatch},
		"images only":         {"in/input.bam", true, "ok", 0},
		"no runtime":          {"apptainer", true, "runtime_missing", run.ExitRuntimeMissing},
		"out is not a folder": {"a1/out", false, "control_unwritable", run.ExitControlUnwritable},
	} {
		job, start, starts := countedRun(t)
		if name == "images only" {
			cfg := ScriptConfig{Runtime: Runtime{Path: filepath.Join(job.RunDir, "apptainer")}, Verify: VerifyImageOnly}
			script, _, err := renderer(t, cfg).Render(job)
			must(t, err)
			mustWrite(t, job.ControlPath(run.ScriptFile), string(script), 0o755)
		}
		if path := filepath.Join(job.RunDir, c.file); c.remove {
			os.Remove(path)
		} else {
			mustWrite(t, path, "other bytes", 0o644)
		}
		if got := start("SLURM_JOB_ID=7"); got != c.code || (starts() == 0) != (c.code != 0) {
			t.Errorf("%s: the script ended with %d after %d starts of the program, want %d", name, got, starts(), c.code)
		}
		if x := exitOf(t, job); x.Reason != c.reason {
			t.Errorf("%s: the exit record says %s, want %s", name, x.Reason, c.reason)
		}
	}
}
