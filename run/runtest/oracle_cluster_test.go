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

	"slurmgate/run"
	"slurmgate/run/runtest"
)

// What cannot be the same of two jobs, as scontrol shows it.
var itsOwn = regexp.MustCompile(`^(JobId|SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|LastSchedEval|Scheduler|Priority|AllocNode:Sid|` +
	`SchedNodeList|RunTime|SLUID|AllocTRES|NodeList|BatchHost|Reason)=`)

// TestClusterSameJob sends the same job with sbatch and over slurmrestd, and holds what Slurm shows of both together.
//
// proves SITE-01
func TestClusterSameJob(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/apptainer", []byte(runtimeScript), 0o700))
	over, sbatch := openREST(t, dir), sbatchOf(t)
	gpus, kind := 2, "a100"
	qos, constraint, old := "normal", "amd|avx512", version(t) == "22.05"
	for name, change := range map[string]func(*run.JobSpec){
		"plain": func(*run.JobSpec) {},
		"for whom": func(j *run.JobSpec) {
			j.ToolID, j.Principal = "samtools.flagstat", run.Principal{ID: "prn_1", Name: "user:al ice=ü"}
		},
		"qos":        func(j *run.JobSpec) { j.Spec.Placement.QOS = &qos },
		"constraint": func(j *run.JobSpec) { j.Spec.Placement.Constraint = &constraint },
		"exclude":    func(j *run.JobSpec) { j.Exclude = []string{"n1", "n2"} },
		"larger": func(j *run.JobSpec) {
			j.Spec.Resources.CPUs, j.Spec.Resources.MemMB, j.Spec.Resources.TimeLimitSeconds = 2, 77, 601
		},
		"GPUs": func(j *run.JobSpec) { j.Spec.Resources.GPUs, j.Spec.Resources.GPUType = &gpus, &kind },
	} {
		t.Run(name, func(t *testing.T) {
			job := over.Job(t, runtest.Waits)
			change(&job)
			shown := [2][]string{show(t, sbatch(t, job), job), show(t, posted(t, over, job), job)}
			if old { // which dies of argv
				shown[0] = slices.DeleteFunc(shown[0], func(s string) bool { return strings.HasPrefix(s, "Command=") })
				shown[1] = slices.DeleteFunc(shown[1], func(s string) bool { return strings.HasPrefix(s, "Command=") })
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
			said[i] = slices.DeleteFunc(said[i], func(s string) bool {
				return ofOneJob.MatchString(s) || old && ofLogin.MatchString(s)
			})
			slices.Sort(said[i][slices.IndexFunc(said[i], func(s string) bool { return strings.Contains(s, "=") }):])
		}
		alike(t, "the job's umask, limits, folder, streams and environment", said[0], said[1])
		if !slices.Contains(said[0], "0077") {
			t.Errorf("the umask is not in %q", said[0])
		}
	})
}

// ofOneJob are variables of one job, and those that sbatch sets for MPI, or by itself for the host that it runs on.
var ofOneJob = regexp.MustCompile(`^(SLURM_JOBID|SLURM_JOB_ID|SLURM_JOB_(START|END)_TIME|SLURM_TASK_PID|SLURM_JOB_SLUID|SLURM_SUBMIT_HOST|` +
	`SLURM_NODENAME|SLURMD_NODENAME|SLURM_(JOB_)?NODELIST|SLURM_TOPOLOGY_ADDR|HOSTNAME|` +
	`HYDRA_\w*|I_MPI_\w*|OMPI_\w*|PRTE_\w*)=`)

// ofLogin are variables of the user's login, which sbatch 22.05 has the node add for --export=NIL.
var ofLogin = regexp.MustCompile(`^(HOME|LOGNAME|MAIL|PATH|PWD|SHELL|SHLVL|SLURM_GET_USER_ENV|USER|_)=`)

// sbatchOf sends jobs with the arguments of the renderer, as the gateway does.
func sbatchOf(t *testing.T) func(*testing.T, run.JobSpec) string {
	cli := commands(t, "/usr/bin/apptainer")
	return func(t *testing.T, job run.JobSpec) string {
		argv, err := cli.Argv(job)
		must(t, err)
		cmd := exec.Command("/bin/bash", append([]string{"-c", `umask 077; cd /; exec env -i PATH=/usr/bin:/bin sbatch "$@"`, "sbatch"}, argv...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
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
		t.Fatalf("%+v", res)
	}
	t.Cleanup(func() { exec.Command("scancel", res.JobID).Run() })
	return res.JobID
}

// show is what scontrol shows of a job, sorted.
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

// version is that of the cluster's Slurm, e.g. 24.11.
func version(t *testing.T) string {
	out, err := exec.Command("sbatch", "--version").Output()
	must(t, err)
	return regexp.MustCompile(`\d+\.\d+`).FindString(string(out))
}
