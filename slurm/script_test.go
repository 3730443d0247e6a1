package slurm

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

var update = flag.Bool("update", false, "write the golden files anew")

var runtimePath = ScriptConfig{Runtime: Runtime{Path: "/usr/bin/apptainer"}, Verify: VerifyAll, GraceSeconds: 10,
	VerifyAllowanceSeconds: 300}

var scripts = map[string]struct {
	cfg ScriptConfig
	job run.JobSpec
}{
	"flagstat": {runtimePath, flagstat("/shared/runs/" + testRun)},
	"awkward":  {runtimePath, awkward("/shared/runs dir/it's/" + testRun)},
	"hashing":  {runtimePath, hashing("/shared/runs/" + testRun)},
	"pipe":     {runtimePath, piped("/shared/runs/" + testRun)},
	"inplace":  {runtimePath, inPlaced("/shared/runs/" + testRun)},
	"folders":  {runtimePath, foldered("/shared/runs dir/it's/" + testRun)},
	"scratch": {ScriptConfig{Runtime: Runtime{Path: "/usr/bin/apptainer"}, Verify: VerifyAll, GraceSeconds: 10, VerifyAllowanceSeconds: 300,
		Scratch: "/scratch/it's"}, flagstat("/shared/runs/" + testRun)},
	"modules": {ScriptConfig{Runtime: Runtime{ModuleInit: "/etc/profile.d/modules.sh", Modules: []string{"gcc/12.2", "apptainer"}},
		Verify: VerifyImageOnly, GraceSeconds: 5, VerifyAllowanceSeconds: 300},
		flagstat("/shared/runs/" + testRun)},
}

func TestScriptGolden(t *testing.T) {
	for name, c := range scripts {
		t.Run(name, func(t *testing.T) {
			r := renderer(t, c.cfg)
			got, _, err := r.Render(c.job)
			must(t, err)
			file := filepath.Join("testdata", "script."+name+".sh")
			if *update {
				must(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("%s differs from what is rendered (go test -update writes it):\n%s", file, d)
			}
			again, _, _ := r.Render(c.job)
			if !bytes.Equal(got, again) {
				t.Error("two renderings of the same job differ")
			}
		})
	}
}

// Shellcheck finds no fault in a script, for any values in it. Shellcheck is required, not optional.
func TestScriptShellcheck(t *testing.T) {
	for name, c := range scripts {
		script, _, err := renderer(t, c.cfg).Render(c.job)
		must(t, err)
		cmd := exec.Command("shellcheck", "--shell=bash", "--severity=style", "-")
		cmd.Stdin = bytes.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// No line may look like a directive: sbatch would obey it. No value can start a line.
func TestScriptHasNoDirectives(t *testing.T) {
	for name, c := range scripts {
		script, _, _ := renderer(t, c.cfg).Render(c.job)
		for line := range strings.Lines(string(script)) {
			if strings.HasPrefix(line, "#SBATCH") || strings.HasPrefix(line, "#PBS") || strings.HasPrefix(line, "#BSUB") {
				t.Errorf("the script of %s has the line %q, want no directive", name, line)
			}
		}
		if n := bytes.Count(script, []byte("\n")); n > 250 && name != "pipe" && name != "folders" && name != "inplace" || n > 290 {
			t.Errorf("%s: %d lines; an admin is to read it", name, n)
		}
	}
}

func TestPinned(t *testing.T) {
	job := flagstat("/shared/runs/" + testRun)
	want := testImage + "  /shared/images/" + testImage + ".sif\n" + strings.Repeat("5", 64) + "  in/input.bam\n"
	if _, got, err := renderer(t, runtimePath).Render(job); err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestArgv(t *testing.T) {
	dir := "/shared/runs/" + testRun + "/a1"
	for _, c := range []struct {
		name string
		job  run.JobSpec
		want []string
	}{
		{"plain", flagstat("/shared/runs/" + testRun), []string{
			"--parsable", "--export=NIL", "--propagate=NONE", "--no-requeue", "--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--mem=2048M",
			"--time=20",
			"--job-name=sg-" + testRun + "-a1-0123456789ab",
			"--comment=slurmgate,tool=samtools.flagstat,by=user:lab,id=prn_0D6C7B2A49E1F35880A2C6D41B", "--partition=main", "--account=research",
			"--chdir=" + dir, "--output=" + dir + "/ctl/job.log", "--error=" + dir + "/ctl/job.log", "--open-mode=append", dir + "/ctl/script"}},
		{"everything", awkward("/shared/runs/" + testRun), []string{
			"--parsable", "--export=NIL", "--propagate=NONE", "--no-requeue", "--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--mem=2048M",
			"--time=20",
			"--job-name=sg-" + testRun + "-a1-0123456789ab",
			"--comment=slurmgate,tool=t.x,by=a%20--x%3D%2C%C3%A9%0A",
			"--partition=main", "--account=research", "--qos=quick", "--constraint=intel&avx2",
			"--gres=gpu:a100:2",
			"--chdir=" + dir, "--output=" + dir + "/ctl/job.log", "--error=" + dir + "/ctl/job.log", "--open-mode=append", dir + "/ctl/script"}},
		{"without two nodes", avoiding(flagstat("/shared/runs/"+testRun), "n1", "node-02.example"), []string{
			"--parsable", "--export=NIL", "--propagate=NONE", "--no-requeue", "--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--mem=2048M",
			"--time=20",
			"--job-name=sg-" + testRun + "-a1-0123456789ab",
			"--comment=slurmgate,tool=samtools.flagstat,by=user:lab,id=prn_0D6C7B2A49E1F35880A2C6D41B",
			"--partition=main", "--account=research", "--exclude=n1,node-02.example",
			"--chdir=" + dir, "--output=" + dir + "/ctl/job.log", "--error=" + dir + "/ctl/job.log", "--open-mode=append", dir + "/ctl/script"}},
	} {
		got, err := renderer(t, runtimePath).Argv(c.job)
		must(t, err)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("the arguments of %s differ (-want +got):\n%s", c.name, d)
		}
	}
}

func avoiding(j run.JobSpec, nodes ...string) run.JobSpec {
	j.Exclude = nodes
	return j
}

func TestMinutes(t *testing.T) {
	r := renderer(t, ScriptConfig{Runtime: runtimePath.Runtime, Verify: VerifyAll, GraceSeconds: 10, VerifyAllowanceSeconds: 30})
	for limit, want := range map[int]int{1: 1, 30: 1, 31: 2, 90: 2, 91: 3, 604800: 10081} {
		if got := r.minutes(limit); got != want {
			t.Errorf("%d s: %d minutes, want %d", limit, got, want)
		}
	}
}

// The plan of a toolpack is read back from params that do not name artifacts; the script pins their bytes.
func TestRenderWithoutArtifactIDs(t *testing.T) {
	job := flagstat("/shared/runs/" + testRun)
	named, _, err := renderer(t, runtimePath).Render(job)
	must(t, err)
	job.Spec.IO.Inputs = slices.Clone(job.Spec.IO.Inputs)
	for i := range job.Spec.IO.Inputs {
		job.Spec.IO.Inputs[i].ArtifactID = ""
	}
	if got, _, err := renderer(t, runtimePath).Render(job); err != nil || !bytes.Equal(got, named) {
		t.Errorf("without artifact ids the script is (%v)\n%s\nwant the same bytes as with them", err, got)
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, change := range map[string]func(*run.JobSpec){
		"percent in the path":    func(j *run.JobSpec) { j.RunDir = "/shared/%j/" + testRun },
		"backslash in the path":  func(j *run.JobSpec) { j.RunDir = `/shared/a\b` },
		"newline in the path":    func(j *run.JobSpec) { j.RunDir = "/shared/a\nb" },
		"relative path":          func(j *run.JobSpec) { j.RunDir = "runs" },
		"run id":                 func(j *run.JobSpec) { j.RunID = "run_x y" },
		"token":                  func(j *run.JobSpec) { j.Token = "short" },
		"another's name":         func(j *run.JobSpec) { j.JobName = "sg-other" },
		"partition with options": func(j *run.JobSpec) { j.Spec.Placement.Partition = "main --time=0" },
		"left to the site":       func(j *run.JobSpec) { j.Spec.Placement.Partition = "" },
		"list of nodes":          func(j *run.JobSpec) { j.Exclude = []string{"n1,n2"} },
		"no image":               func(j *run.JobSpec) { j.ImagePath = "" },
		"NUL in an argument":     func(j *run.JobSpec) { j.ExecArgs = append(j.ExecArgs, "a\x00b") },
		"unlimited memory":       func(j *run.JobSpec) { j.Spec.Resources.MemMB = 0 },
		"unlimited time":         func(j *run.JobSpec) { j.Spec.Resources.TimeLimitSeconds = 0 },
	} {
		job := flagstat("/shared/runs/" + testRun)
		change(&job)
		if script, _, err := renderer(t, runtimePath).Render(job); err == nil {
			t.Errorf("%s: rendered\n%s", name, script)
		}
	}
}
