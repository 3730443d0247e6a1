package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
)

const (
	testRun   = "run_0X8Z4D1X467KV94K4TXG0D9BXT"
	testToken = "0123456789abcdef0123456789abcdef"
	testImage = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // of no bytes
)

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustWrite writes a file. It may be executed at once: no process that a parallel test forks meanwhile has it open for writing (ETXTBSY).
func mustWrite(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	must(t, os.WriteFile(path, []byte(text), mode))
}

func ptr[T any](v T) *T { return &v }

// flagstat returns a job as the lifecycle creates it.
func flagstat(runDir string) run.JobSpec {
	attempt := filepath.Join(runDir, "a1")
	return run.JobSpec{
		RunID: testRun, N: 1, Token: testToken, JobName: run.JobName(testRun, 1, testToken), RunDir: runDir,
		ToolID: "samtools.flagstat", Principal: run.Principal{Name: "user:lab", ID: "prn_0D6C7B2A49E1F35880A2C6D41B"},
		ImagePath: "/shared/images/" + testImage + ".sif", MaxOutputBytes: 5 << 40,
		ExecArgs: []string{"--quiet", "exec", "--containall", "--workdir", attempt + "/tmp", "--bind", attempt + "/out:/work/out",
			"/shared/images/" + testImage + ".sif", "samtools", "flagstat", "-O", "json", "/work/in/input.bam"},
		Spec: plan.Spec{
			Version:   1,
			Resources: plan.Resources{TimeLimitSeconds: 900, CPUs: 2, MemMB: 2048},
			Placement: plan.Placement{Partition: "main", Account: "research"},
			Execution: plan.Execution{Kind: "container",
				Container: plan.Container{Engine: "apptainer", Image: "sha256:" + testImage, NetworkMode: "none", ReadonlyRootfs: true},
				Command: plan.Command{Argv: []string{"samtools", "flagstat", "-O", "json", "/work/in/input.bam"}, Workdir: plan.Workdir,
					Env: map[string]string{}, Stdout: ptr("out/flagstat.json")}},
			IO: plan.IO{
				Inputs: []plan.Input{{Role: "bam", ArtifactID: "art_183BZJHEYXMKZBB4A0X74BNFSS", ChecksumSHA256: strings.Repeat("5", 64),
					DestRelpath: "in/input.bam"}},
				Outputs: []plan.Output{{Role: "report", SrcRelpath: "out/flagstat.json", Type: "JSON", Label: "flagstat"}},
			},
		},
	}
}

// piped returns a job of three programs, of which the first reads an input from standard input.
func piped(runDir string) run.JobSpec {
	j := flagstat(runDir)
	j.Spec.Execution.Command.Pipe = [][]string{{"sort", "-k", "it's\n$(id)"}, {"/usr/bin/uniq", "-c"}}
	j.Spec.Execution.Command.Stdin = ptr("in/input.bam")
	return j
}

// awkward returns a job full of text that a plan allows and that a shell or Slurm could misread.
func awkward(runDir string) run.JobSpec {
	j := flagstat(runDir)
	j.ToolID, j.Principal = "t.x", run.Principal{Name: "a --x=,é\n"}
	j.Spec.Resources.GPUs, j.Spec.Resources.GPUType = ptr(2), ptr("a100")
	j.Spec.Placement.QOS, j.Spec.Placement.Constraint = ptr("quick"), ptr("intel&avx2")
	j.Spec.Execution.Command.Stdout = nil
	j.Spec.Execution.Command.Env = map[string]string{"B": "x,y z", "A": "$(touch /tmp/pwned)\n'`id`\"\\ \u202e é"}
	j.ExecArgs = append(j.ExecArgs, "--", "a b", "$HOME", "`id`", "it's", "\n#SBATCH --time=99:00:00\n", "\u202e", "%j", "*", "", "-x")
	j.Spec.IO.Inputs = append(j.Spec.IO.Inputs, plan.Input{Role: "two", ArtifactID: "art_183BZJHEYXMKZBB4A0X74BNFSS",
		ChecksumSHA256: strings.Repeat("6", 64), DestRelpath: "in/a b'$(id).fq"})
	j.Spec.IO.Outputs = append(j.Spec.IO.Outputs, plan.Output{Role: "odd", SrcRelpath: "out/sub dir/it's $(id) é.txt", Type: "TEXT",
		Label: "odd"})
	return j
}

// inPlaced returns a job that reads a file and a folder in place.
func inPlaced(runDir string) run.JobSpec {
	j := flagstat(runDir)
	index := plan.Input{Role: "index", ChecksumSHA256: strings.Repeat("7", 64), DestRelpath: "in/index", Directory: true}
	part := plan.Input{ChecksumSHA256: strings.Repeat("8", 64), DestRelpath: "in/index/part 1"}
	j.Spec.IO.Inputs = append(j.Spec.IO.Inputs, index)
	j.Placed = []run.Placed{
		{Input: j.Spec.IO.Inputs[0], Strength: run.InPlace, Path: "/data/it's.bam", State: "12 3 4.000000000 5.000000000", Recheck: true},
		{Input: index, Strength: run.InPlace, Path: "/data/index", State: "tree " + strings.Repeat("9", 64), Files: []plan.Input{part}}}
	return j
}

// foldered returns a job with two folders among its outputs.
func foldered(runDir string) run.JobSpec {
	j := flagstat(runDir)
	j.Spec.IO.Outputs = append(j.Spec.IO.Outputs, plan.Output{Role: "index", SrcRelpath: "out/index", Type: plan.Directory, Label: "index"},
		plan.Output{Role: "odd", SrcRelpath: "out/sub dir/it's $(id) é", Type: plan.Directory, Label: "odd"})
	return j
}

func renderer(t *testing.T, c ScriptConfig) *Renderer {
	t.Helper()
	return NewRenderer(c)
}

// hashing returns a job that executes the gateway's own script.
func hashing(runDir string) run.JobSpec {
	j := flagstat(runDir)
	j.ToolID, j.ImagePath = "reference.add", j.ControlPath(run.ProgramFile)
	j.Spec.Execution.Kind = plan.Scripted
	j.Spec.Execution.Container = plan.Container{Engine: "bash", Image: "sha256:" + testImage, NetworkMode: "host"}
	j.Spec.Execution.Command.Argv = []string{"job", "tree " + strings.Repeat("0", 64), "tree", "/data/refs", "/data/refs/it's", "200000", "32"}
	j.Spec.Execution.Command.Stdout = ptr("out/list")
	j.Spec.IO = plan.IO{Inputs: []plan.Input{},
		Outputs: []plan.Output{{Role: "list", SrcRelpath: "out/list", Type: "UNKNOWN", Label: "checksums"}}}
	j.ExecArgs = append([]string{j.ImagePath}, j.Spec.Execution.Command.Argv...)
	return j
}

// sendText formats the result of a send for a failure text.
func sendText(r run.SendResult) string {
	exit := "unknown"
	if r.ExitCode != nil {
		exit = fmt.Sprint(*r.ExitCode)
	}
	return fmt.Sprintf("{%s, code %q, scope %q, job %q, cluster %q, exit %s: %q}",
		r.Outcome, r.Code, r.Scope, r.JobID, r.Cluster, exit, r.Text)
}

// jobsText formats jobs for a failure text.
func jobsText(jobs ...run.Job) string {
	var list []string
	for _, j := range jobs {
		list = append(list, fmt.Sprintf("{%s %q of %q: %s %s %q}", j.ID, j.Name, j.User, j.State, j.Class, j.Why))
	}
	return strings.Join(list, ", ")
}
