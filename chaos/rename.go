package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"slurmgate/run"
)

// Some cases are on a site that renames jobs: its job_submit plugin gives each of them another name while it is submitted, or a person
// does so later (scontrol update). Slurm shows such a job all the time, so the run waits for it, and no second one is sent.

// renaming is how the jobs of a case get other names.
type renaming string

const (
	byPlugin renaming = "at submission"
	byHand   renaming = "later"
)

// outlives is a scenario whose job runs for longer than a run waits for a job that Slurm does not show.
const outlives = "outlives_absence"

// withRenames renames the jobs of one case in six, and among the first fifty, and each hundred after, of one whose job
// runs for more than a minute. Nothing else of a case changes.
func withRenames(seed uint64, list []testCase) []testCase {
	for i := range list {
		c := &list[i]
		r := newSource(seed+2, c.n)
		if r.IntN(6) == 0 {
			c.rename = []renaming{byPlugin, byHand}[r.IntN(2)]
		}
		if c.n%100 == 49 && c.k < 2 {
			c.rename, c.scenario, c.flags, c.starts, c.block = byPlugin, scenarioNamed(outlives), nil, nil, -1
			c.killSbatch, c.may, c.takeover = -1, nil, false
		}
	}
	return list
}

// newName returns the new name of the case's jobs.
func (t *trial) newName() string { return "chaos: case " + t.token + ", renamed" }

// renameJobs has the case's jobs renamed. undo ends it.
func (t *trial) renameJobs(ctx context.Context) (undo func(), err error) {
	rule := t.s.path(t.s.shared + "/.job_submit")
	switch t.rename {
	case byPlugin:
		return func() { os.Remove(rule) }, os.WriteFile(rule, []byte("rename "+t.newName()+"\n"), 0o644)
	case byHand:
		t.begin()
		go func() {
			defer t.end()
			t.renameByHand(ctx)
		}()
	}
	return func() {}, nil
}

// renameByHand renames jobs of the case as they come, for a while.
func (t *trial) renameByHand(ctx context.Context) {
	const script = `for i in {1..40}; do
  squeue -h -a -t PENDING,RUNNING -o '%A %Z' | while read -r job dir; do
    [[ " $2 " == *" ${dir%/ctl} "* && $(squeue -h -j "$job" -o %j) != "$1" ]] && scontrol update jobid="$job" jobname="$1"
  done
  sleep 0.2
done; exit 0`
	var dirs []string
	for _, x := range append(t.others(), t) {
		dirs = append(dirs, t.s.dir(x.runID)+"/a1")
	}
	r, err := t.s.run(ctx, "root", nil, "bash", "-c", script, "bash", t.newName(), strings.Join(dirs, " "))
	fmt.Fprintf(t.log, "=== %s renamed by hand: %s%s%v\n", time.Now().Format("15:04:05.000"), r.stdout, r.stderr, err)
}

// sentFrom returns the ids of a user's jobs that Slurm's accounting has with a working folder and another name than
// this one.
func (s *site) sentFrom(ctx context.Context, owner, dir, name string) (ids []string, err error) {
	out, err := s.output(ctx, "root", nil, "env", "SLURM_BITSTR_LEN=0", "sacct", "-X", "-P", "-n", "--user="+owner, "-S", "now-1days",
		"--delimiter=\x1f", "-o", "JobID,WorkDir,JobName")
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\x1f", 3)
		if len(f) == 3 && f[1] == dir && f[2] != name {
			ids = append(ids, f[0])
		}
	}
	return ids, err
}

// jobsOf returns the ids of the jobs that accounting has of a send: those of its name, and those from its folder that
// were renamed.
func (t *trial) jobsOf(ctx context.Context, name, dir string) ([]string, error) {
	ids, err := t.s.accounted(ctx, t.who(), name)
	if err != nil || t.rename == "" {
		return ids, err
	}
	renamed, err := t.s.sentFrom(ctx, t.who(), dir, name)
	t.renamed += len(renamed)
	return append(ids, renamed...), err
}

// judgeJobs checks that the run of a case whose jobs were renamed has one job, where the case has no other fault.
func (t *trial) judgeJobs(jobs int, v run.View) {
	calm := t.rename != "" && !t.isTwin && t.block < 0 && len(t.flags) == 0 && t.killSbatch < 0 && t.far.String() == "" && !t.again
	switch t.scenario.name {
	case "plain", "tool_fails", "double", "cancel_soon", "cancel_running", "cancel_pending", "sbatch_loses", outlives:
	default:
		calm = false
	}
	if calm && jobs > 1 {
		t.find("duplicate", "Slurm has had %d jobs of the run, which is in attempt %d, although it showed the first one all the time", jobs,
			v.Run.AttemptN)
	}
}
