//go:build cluster

package runtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// The properties that differ between any two jobs, as scontrol shows them.
var itsOwn = regexp.MustCompile(`^(JobId|SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|LastSchedEval|Scheduler|Priority|AllocNode:Sid|` +
	`SchedNodeList|RunTime|SLUID|AllocTRES|NodeList|BatchHost|Reason)=`)

// TestClusterSameJob sends the same job with sbatch and over slurmrestd. Slurm shows of both what the plan asked for, and the same.
//
// proves SITE-01
// slurmrestd: it posts jobs
func TestClusterSameJob(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/apptainer", []byte(runtimeScript), 0o700))
	over, sbatch := openREST(t, dir), sbatchOf(t)
	gpus, kind := 2, "a100"
	qos, constraint := "normal", "amd|avx512"
	for name, c := range map[string]struct {
		change func(*run.JobSpec)
		want   string // properties among those that Slurm shows
	}{
		"plain": {func(*run.JobSpec) {}, "Partition=big Account=research Requeue=0 TimeLimit=00:06:00 NumNodes=1-1 NumTasks=1 CPUs/Task=1 " +
			"NumCPUs=1 MinCPUsNode=1 MinMemoryNode=50M"},
		"for whom": {func(j *run.JobSpec) {
			j.ToolID, j.Principal = "samtools.flagstat", run.Principal{ID: "prn_1", Name: "user:al ice=ü"}
		}, "Comment=slurmgate,tool=samtools.flagstat,by=user:al%20ice%3D%C3%BC,id=prn_1"},
		"qos":        {func(j *run.JobSpec) { j.Spec.Placement.QOS = &qos }, "QOS=normal"},
		"constraint": {func(j *run.JobSpec) { j.Spec.Placement.Constraint = &constraint }, "Features=amd|avx512"},
		"exclude":    {func(j *run.JobSpec) { j.Exclude = []string{"n1", "n2"} }, ""},
		"larger": {func(j *run.JobSpec) {
			j.Spec.Resources.CPUs, j.Spec.Resources.MemMB, j.Spec.Resources.TimeLimitSeconds = 2, 77, 601
		}, "TimeLimit=00:16:00 CPUs/Task=2 NumCPUs=2 MinCPUsNode=2 MinMemoryNode=77M"},
		"GPUs": {func(j *run.JobSpec) { j.Spec.Resources.GPUs, j.Spec.Resources.GPUType = &gpus, &kind },
			"TresPerNode=gres/gpu:a100:2"},
	} {
		t.Run(name, func(t *testing.T) {
			job := over.Job(t, runtest.Waits)
			c.change(&job)
			shown := [2][]string{show(t, sbatch(t, job), job), show(t, posted(t, over, job), job)}
			for property := range strings.FieldsSeq(c.want) {
				if !slices.Contains(shown[0], property) {
					t.Errorf("scontrol shows %q of a job that was sent with sbatch, want %s among it", shown[0], property)
				}
			}
			alike(t, "scontrol show job", shown[0], shown[1])
			if len(shown[0]) < 30 {
				t.Errorf("scontrol shows %d properties only: %q", len(shown[0]), shown[0])
			}
		})
	}
	t.Run("on the node", func(t *testing.T) {
		job := over.Job(t, runtest.Runs)
		text := "#!/bin/bash\n{ umask; ulimit -aS; ulimit -aH; pwd; ps -o ni= -p $$; readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2; " +
			"tr '\\0' '\\n' </proc/$$/environ; } >part\nmv part said.$SLURM_JOB_ID\n"
		must(t, os.WriteFile(job.ControlPath(run.ScriptFile), []byte(text), 0o600))
		var said [2][]string
		byREST := func(t *testing.T, j run.JobSpec) string { return posted(t, over, j) }
		for i, send := range []func(*testing.T, run.JobSpec) string{sbatch, byREST} {
			id := send(t, job)
			over.Until(t, "what the job says", func() bool {
				data, err := os.ReadFile(filepath.Join(job.AttemptDir(), "said."+id))
				said[i] = strings.Split(string(data), "\n")
				return err == nil
			})
			said[i] = slices.DeleteFunc(said[i], ofOneJob.MatchString)
			slices.Sort(said[i][slices.IndexFunc(said[i], func(s string) bool { return strings.Contains(s, "=") }):])
		}
		alike(t, "the job's umask, limits, folder, streams and environment", said[0], said[1])
		if !slices.Contains(said[0], "0077") {
			t.Errorf("the umask is not in %q", said[0])
		}
	})
}

// Every refusal that the dev cluster gives to a plain user has the code and the outcome of the table of errors.
func TestClusterRejections(t *testing.T) {
	cli, s := commands(t, "/usr/bin/apptainer"), openSite(t, filepath.Join(os.Getenv("SLURMGATE_TEST_DIR"), t.Name()))
	s.renderer = cli.Renderer
	place := placement(runtest.Runs)
	for name, c := range map[string]struct {
		change  func(*plan.Spec)
		code    string
		outcome run.SendOutcome
	}{
		"partition": {func(s *plan.Spec) { s.Placement.Partition = "nowhere" }, "ESLURM_INVALID_PARTITION_NAME", run.SendRejected},
		"account":   {func(s *plan.Spec) { s.Placement.Account = "nobody" }, "ESLURM_INVALID_ACCOUNT", run.SendRejected},
		"qos":       {func(s *plan.Spec) { s.Placement.QOS = new("nothing") }, "ESLURM_INVALID_QOS", run.SendRejected},
		"feature":   {func(s *plan.Spec) { s.Placement.Constraint = new("quantum") }, "ESLURM_INVALID_FEATURE", run.SendRejected},
		"partition's time": {func(s *plan.Spec) { s.Placement.Partition, s.Resources.TimeLimitSeconds = "short", 3600 },
			"ESLURM_INVALID_TIME_LIMIT", run.SendRejected},
		"qos time": {func(s *plan.Spec) { s.Placement.QOS, s.Resources.TimeLimitSeconds = new("quick"), 3600 },
			"QOSMaxWallDurationPerJobLimit", run.SendRejected},
		"cpus":    {func(s *plan.Spec) { s.Resources.CPUs = 200 }, "ESLURM_TOO_MANY_REQUESTED_CPUS", run.SendRejected},
		"memory":  {func(s *plan.Spec) { s.Resources.MemMB = plan.MaxMemMB }, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", run.SendRejected},
		"no gpus": {func(s *plan.Spec) { s.Resources.GPUs = new(1) }, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", run.SendRejected},
		"gpu type": {func(s *plan.Spec) {
			s.Placement.Partition, s.Resources.GPUs, s.Resources.GPUType = "big", new(1), new("h100")
		}, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", run.SendRejected},
		"script gone": {nil, "SCRIPT_UNREADABLE", run.SendDeferred},
	} {
		t.Run(name, func(t *testing.T) {
			job := s.prepare(t, place, "true")
			if c.change != nil {
				c.change(&job.Spec)
			} else {
				must(t, os.Remove(job.ControlPath(run.ScriptFile)))
			}
			if res := cli.Send(t.Context(), job, 1); res.Outcome != c.outcome || res.Code != c.code || res.Text == "" {
				t.Errorf("Send gave %s with the code %q and the text %q, want %s with %s and a text", res.Outcome, res.Code, res.Text, c.outcome,
					c.code)
			}
		})
	}
}

// ofOneJob matches variables of one job, and those that sbatch sets for MPI, or by itself for the host that it runs on.
var ofOneJob = regexp.MustCompile(`^(SLURM_JOBID|SLURM_JOB_ID|SLURM_JOB_(START|END)_TIME|SLURM_TASK_PID|SLURM_JOB_SLUID|SLURM_SUBMIT_HOST|` +
	`SLURM_NODENAME|SLURMD_NODENAME|SLURM_(JOB_)?NODELIST|SLURM_TOPOLOGY_ADDR|HOSTNAME|` +
	`HYDRA_\w*|I_MPI_\w*|OMPI_\w*|PRTE_\w*)=`)

// sbatchOf returns a function that sends jobs with the arguments of the renderer, as the gateway does.
func sbatchOf(t *testing.T) func(*testing.T, run.JobSpec) string {
	cli := commands(t, "/usr/bin/apptainer")
	return func(t *testing.T, job run.JobSpec) string {
		argv, err := cli.Argv(job)
		must(t, err)
		cmd := exec.Command("/bin/bash", append([]string{"-c", `umask 077; cd /; exec env -i PATH=/usr/bin:/bin sbatch "$@"`, "sbatch"}, argv...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("sbatch ended with %v: %s, want a job", err, out)
		}
		id := strings.TrimSpace(string(out))
		t.Cleanup(func() { exec.Command("scancel", id).Run() })
		return id
	}
}

func posted(t *testing.T, over *runtest.Transport, job run.JobSpec) string {
	t.Helper()
	res := over.Send(t.Context(), job, 1)
	if res.Outcome != run.SendAccepted {
		t.Fatalf("the send ended as %+v, want accepted", res)
	}
	t.Cleanup(func() { exec.Command("scancel", res.JobID).Run() })
	return res.JobID
}

// show returns what scontrol shows of a job, sorted.
func show(t *testing.T, id string, job run.JobSpec) (list []string) {
	t.Helper()
	out, err := exec.Command("scontrol", "show", "job", id).Output()
	must(t, err)
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(strings.TrimSpace(line), "SubmitLine=") { // of 26.05: there was no command
			continue
		}
		for _, word := range strings.Fields(line) {
			if !itsOwn.MatchString(word) {
				list = append(list, word)
			}
		}
	}
	slices.Sort(list)
	return list
}

func alike(t *testing.T, what string, sbatch, rest []string) {
	t.Helper()
	for _, s := range sbatch {
		if !slices.Contains(rest, s) {
			t.Errorf("%s: only of sbatch: %s", what, s)
		}
	}
	for _, s := range rest {
		if !slices.Contains(sbatch, s) {
			t.Errorf("%s: only over slurmrestd: %s", what, s)
		}
	}
}
