//go:build cluster

package slurm

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// show gives what slurmctld recorded of a job. No value in these tests holds a blank, but that of SubmitLine, which 26.05 shows.
func show(t *testing.T, id string) map[string]string {
	t.Helper()
	out, err := exec.Command("scontrol", "show", "job", "-o", id).Output()
	must(t, err)
	v := map[string]string{}
	for _, f := range strings.Fields(submitLine.ReplaceAllString(string(out), " WorkDir=")) {
		key, value, ok := strings.Cut(f, "=")
		if _, dup := v[key]; !ok || dup {
			t.Fatalf("scontrol show job: %q in %s", f, out)
		}
		v[key] = value
	}
	return v
}

var submitLine = regexp.MustCompile(` SubmitLine=.* WorkDir=`)

// The oracle of the command line: what slurmctld recorded equals the plan and the fixed options, and every other attribute
// equals that of a job submitted with nothing but partition and account.
func TestClusterScriptOracle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	pick := func(of ...string) *string {
		if s := of[rnd.IntN(len(of))]; s != "" {
			return &s
		}
		return nil
	}
	for n := range 40 {
		res := plan.Resources{TimeLimitSeconds: 1 + rnd.IntN(3000), CPUs: 1 + rnd.IntN(8), MemMB: 1 + rnd.IntN(4000)}
		place := plan.Placement{Partition: "main", Account: *pick("research", "teaching"), QOS: pick("", "normal"),
			Constraint: pick("", "intel", "intel&avx2", "intel|avx512")}
		switch n % 4 {
		case 0:
			place.Partition, res.TimeLimitSeconds = "short", 1+rnd.IntN(300)
		case 1:
			place.Partition, res.CPUs, res.MemMB, res.TimeLimitSeconds = "big", 1+rnd.IntN(256), 1+rnd.IntN(plan.MaxMemMB),
				1+rnd.IntN(plan.MaxTimeLimitSeconds)
			res.GPUs, res.GPUType, place.Constraint = ptr(1+rnd.IntN(16)), pick("", "a100"), pick("", "amd", "amd&avx512", "intel|avx2")
		case 2:
			place.QOS, res.TimeLimitSeconds = pick("quick", "normal"), 1+rnd.IntN(240)
		}
		t.Run(fmt.Sprintf("%02d %s", n, place.Partition), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "true", func(c *Config, j *run.JobSpec) {
				j.Spec.Resources, j.Spec.Placement, c.Script.VerifyAllowanceSeconds = res, place, 60
			})
			argv, err := b.Argv(b.job)
			must(t, err)
			id := sbatch(t, append([]string{"--hold"}, argv...)...)
			defer exec.Command("scancel", id).Run()
			plain := filepath.Join(b.job.RunDir, "plain")
			must(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o700))
			ref := exec.Command("sbatch", "--parsable", "--hold", "--partition="+place.Partition, "--account="+place.Account, plain)
			ref.Env, ref.Dir = []string{"PATH=/usr/bin:/bin", "HOME=/"}, b.job.RunDir
			out, err := ref.Output()
			must(t, err)
			refID := strings.TrimSpace(string(out))
			defer exec.Command("scancel", refID).Run()

			got, want := show(t, id), show(t, refID)
			memory, cpus := fmt.Sprintf("%dM", res.MemMB), strconv.Itoa(res.CPUs)
			delete(want, "MinMemoryCPU") // the site's default is by CPU, ours by node
			gres := ""
			if res.GPUs != nil {
				typed := strconv.Itoa(*res.GPUs)
				if res.GPUType != nil {
					typed = *res.GPUType + ":" + typed
				}
				want["TresPerNode"] = "gres/gpu:" + typed
				gres = fmt.Sprintf(",gres/gpu=%d", *res.GPUs)
			}
			maps.Copy(want, map[string]string{
				"JobName": b.job.JobName, "Comment": note(b.job), "Partition": place.Partition, "Account": place.Account, "Requeue": "0",
				"TimeLimit": slurmMinutes((res.TimeLimitSeconds + 60 + 59) / 60),
				"NumNodes":  "1-1", "NumTasks": "1", "CPUs/Task": cpus, "NumCPUs": cpus, "MinCPUsNode": cpus, "MinMemoryNode": memory,
				"TresPerTask": "cpu=" + cpus,
				"ReqTRES":     "cpu=" + cpus + ",mem=" + memory + ",node=1,billing=" + cpus + gres,
				"Command":     b.ctl(run.ScriptFile), "WorkDir": b.job.AttemptDir(), "StdOut": b.ctl(run.JobLogFile), "StdErr": b.ctl(run.JobLogFile),
			})
			if place.QOS != nil {
				want["QOS"] = *place.QOS
			}
			if place.Constraint != nil {
				want["Features"] = *place.Constraint
			}
			if _, older := want["TRES"]; older { // what 22.05 calls ReqTRES; it does not show TresPerTask
				if gpus, ok := strings.CutPrefix(want["TresPerNode"], "gres/"); ok {
					want["TresPerNode"] = "gres:" + gpus
				}
				want["TRES"] = want["ReqTRES"]
				delete(want, "ReqTRES")
				delete(want, "TresPerTask")
			}
			for _, k := range []string{"ReqTRES", "TRES"} {
				if _, shown := want[k]; shown {
					got[k], want[k] = canonicalTRES(got[k]), canonicalTRES(want[k])
				}
			}
			for _, k := range []string{"JobId", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval", "Scheduler", "AllocNode:Sid"} {
				delete(got, k)
				delete(want, k)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%q\n%s", argv, d)
			}
		})
	}
}

// slurmMinutes writes minutes as scontrol does: [days-]hh:mm:ss.
func slurmMinutes(m int) string {
	s := fmt.Sprintf("%02d:%02d:00", m/60%24, m%60)
	if d := m / 1440; d > 0 {
		s = fmt.Sprintf("%d-%s", d, s)
	}
	return s
}

// canonicalTRES sorts a TRES list and counts memory in MiB: Slurm shows 2048M as 2G.
func canonicalTRES(s string) string {
	parts := strings.Split(s, ",")
	for i, p := range parts {
		if v, ok := strings.CutPrefix(p, "mem="); ok {
			n, _ := strconv.ParseFloat(v[:len(v)-1], 64)
			parts[i] = fmt.Sprintf("mem=%.0f", n*map[byte]float64{'M': 1, 'G': 1024, 'T': 1 << 20}[v[len(v)-1]])
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func TestClusterSendQueueCancel(t *testing.T) {
	b := newBench(t, "sleep 300", func(_ *Config, j *run.JobSpec) { j.Spec.Placement.Partition = "big" }) // never starts
	id := b.send(t, 1)
	b.receipt(t, 1)
	if res := b.Send(t.Context(), b.job, 1); res.Outcome != run.SendAccepted || res.JobID != id {
		t.Errorf("the same send again: %+v", res)
	}
	if res := b.receipt(t, 1); res.Outcome != run.SendAccepted || res.JobID != id {
		t.Errorf("receipt: %+v", res)
	}
	j := b.seen(t, id)
	if j.Cluster == "" || j.Class != run.ClassPending || j.Restarts != 0 || j.Submitted == nil || time.Since(*j.Submitted) > time.Minute ||
		j.ExitCode != nil || j.Started != nil || j.Ended != nil {
		t.Errorf("%+v", j)
	}
	must(t, b.Cancel(t.Context(), id, run.JobName(testRun, 1, testToken)))
	if j := b.seen(t, id); j.Class != run.ClassPending {
		t.Fatalf("cancelled by another's name: %+v", j)
	}
	must(t, b.Cancel(t.Context(), id, b.job.JobName))
	until(t, 10*time.Second, "cancellation", func() bool { return b.seen(t, id).State == "CANCELLED" })
	must(t, b.Cancel(t.Context(), "2147483", b.job.JobName)) // no such job
	if err := b.Cancel(t.Context(), "1 2", b.job.JobName); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}

	var acct []run.Job
	until(t, 20*time.Second, "accounting record", func() bool {
		jobs, err := b.Records(t.Context(), time.Now().Add(-time.Hour))
		must(t, err)
		acct = slices.DeleteFunc(jobs, func(j run.Job) bool { return j.ID != id })
		return len(acct) == 1 && acct[0].Class == run.ClassEnded
	})
	a := acct[0]
	columns, _, err := b.accountingColumns(t.Context())
	must(t, err)
	if a.Name != b.job.JobName || a.State != "CANCELLED" || a.Cluster != j.Cluster || !a.Submitted.Equal(*j.Submitted) || a.Ended == nil ||
		(a.SLUID != "") != slices.Contains(columns, "SLUID") || a.Node != "" {
		t.Errorf("%+v", a)
	}
	if _, err := b.Records(t.Context(), time.Now().Add(time.Hour)); !fault.Is(err, fault.Transport) {
		t.Errorf("sacct refuses to look into the future, the answer is %v", err)
	}
}

// Every refusal that can be had from the dev cluster without being its operator gives the row the table says.
func TestClusterRejections(t *testing.T) {
	set := func(f func(*plan.Spec)) func(*Config, *run.JobSpec) {
		return func(_ *Config, j *run.JobSpec) { f(&j.Spec) }
	}
	for name, c := range map[string]struct {
		change  func(*Config, *run.JobSpec)
		code    string
		outcome run.SendOutcome
	}{
		"partition": {set(func(s *plan.Spec) { s.Placement.Partition = "nowhere" }), "ESLURM_INVALID_PARTITION_NAME", run.SendRejected},
		"account":   {set(func(s *plan.Spec) { s.Placement.Account = "nobody" }), "ESLURM_INVALID_ACCOUNT", run.SendRejected},
		"qos":       {set(func(s *plan.Spec) { s.Placement.QOS = ptr("nothing") }), "ESLURM_INVALID_QOS", run.SendRejected},
		"feature":   {set(func(s *plan.Spec) { s.Placement.Constraint = ptr("quantum") }), "ESLURM_INVALID_FEATURE", run.SendRejected},
		"partition's time": {set(func(s *plan.Spec) { s.Placement.Partition, s.Resources.TimeLimitSeconds = "short", 3600 }),
			"ESLURM_INVALID_TIME_LIMIT", run.SendRejected},
		"qos time": {set(func(s *plan.Spec) { s.Placement.QOS, s.Resources.TimeLimitSeconds = ptr("quick"), 3600 }),
			"QOSMaxWallDurationPerJobLimit", run.SendRejected},
		"cpus":    {set(func(s *plan.Spec) { s.Resources.CPUs = 200 }), "ESLURM_TOO_MANY_REQUESTED_CPUS", run.SendRejected},
		"memory":  {set(func(s *plan.Spec) { s.Resources.MemMB = plan.MaxMemMB }), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", run.SendRejected},
		"no gpus": {set(func(s *plan.Spec) { s.Resources.GPUs = ptr(1) }), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", run.SendRejected},
		"gpu type": {set(func(s *plan.Spec) {
			s.Placement.Partition, s.Resources.GPUs, s.Resources.GPUType = "big", ptr(1), ptr("h100")
		}),
			"ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", run.SendRejected},
		"configuration": {func(c *Config, _ *run.JobSpec) { c.Conf = "/dev/null" }, Unreachable, run.SendDeferred},
		"sbatch gone":   {func(c *Config, _ *run.JobSpec) { c.BinDir = "/nonexistent" }, "sbatch_not_started", run.SendNotRun},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "true", c.change)
			res := b.Send(t.Context(), b.job, 1)
			if res.Outcome != c.outcome || res.Code != c.code || res.Text == "" {
				t.Errorf("%+v", res)
			}
			if c.outcome == run.SendNotRun {
				return
			}
			if again := b.receipt(t, 1); again.Outcome != res.Outcome || again.Code != res.Code {
				t.Errorf("the receipt says otherwise: %+v", again)
			}
		})
	}
	t.Run("script gone", func(t *testing.T) {
		b := newBench(t, "true")
		must(t, os.Remove(b.ctl(run.ScriptFile)))
		if res := b.Send(t.Context(), b.job, 1); res.Outcome != run.SendDeferred || res.Code != "SCRIPT_UNREADABLE" {
			t.Errorf("%+v", res)
		}
	})
	t.Run("too many submitted", func(t *testing.T) {
		b := newBench(t, "true", set(func(s *plan.Spec) { s.Placement.QOS, s.Placement.Partition = ptr("tiny"), "big" }))
		var ids []string
		defer func() { exec.Command("scancel", ids...).Run() }()
		for k := 1; ; k++ {
			res := b.Send(t.Context(), b.job, k)
			if res.Outcome == run.SendAccepted && k < 4 {
				ids = append(ids, res.JobID)
				continue
			}
			if res.Outcome != run.SendDeferred || res.Code != "QOSMaxSubmitJobPerUserLimit" {
				t.Errorf("%+v", res)
			}
			break
		}
	})
}

// A rejected job may leave a record in the queue: it never started and says why.
func TestClusterRejectedJobIsShown(t *testing.T) {
	b := newBench(t, "true", func(_ *Config, j *run.JobSpec) { j.Spec.Resources.MemMB = plan.MaxMemMB })
	if res := b.Send(t.Context(), b.job, 1); res.Outcome != run.SendRejected {
		t.Fatalf("%+v", res)
	}
	jobs, err := b.Jobs(t.Context(), nil)
	must(t, err)
	for _, j := range jobs {
		if j.Name == b.job.JobName && (j.Class != run.ClassEnded || j.Why != "BadConstraints" || j.Node != "") {
			t.Errorf("%+v", j)
		}
	}
}

// The lock goes with sbatch, and sbatch outlives the one who waits for it.
func TestClusterSendOutlivesItsContext(t *testing.T) {
	b := newBench(t, "true", func(_ *Config, j *run.JobSpec) { j.Spec.Placement.Partition = "big" })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := b.Send(ctx, b.job, 1); res.Outcome != run.SendNotRun {
		t.Fatalf("a send that never began: %+v", res)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 3*time.Millisecond)
	defer cancel()
	res := b.Send(ctx, b.job, 2)
	if res.Outcome != run.SendDoubt && res.Outcome != run.SendAccepted { // accepted, when sbatch was faster than that
		t.Fatalf("%+v", res)
	}
	until(t, 20*time.Second, "receipt", func() bool {
		r, held := b.Receipt(t.Context(), b.job, 2)
		if held && r.Outcome != run.SendDoubt {
			t.Fatalf("a held send says %+v", r)
		}
		res = r
		return !held
	})
	if res.Outcome != run.SendAccepted {
		t.Fatalf("%+v", res)
	}
	must(t, b.Cancel(t.Context(), res.JobID, b.job.JobName))
}

// sdiag is the judge: one Queue is at most two RPCs to slurmctld.
func TestClusterQueueRPCs(t *testing.T) {
	b := newBench(t, "true")
	_, err := b.Jobs(t.Context(), nil)
	must(t, err)
	before := rpcs(t)
	const n = 5
	for range n {
		_, err := b.Jobs(t.Context(), nil)
		must(t, err)
	}
	spent := rpcs(t) - before
	t.Logf("name=rpcs_per_queue value=%.1f unit=rpc", float64(spent)/n)
	if spent > 2*n {
		t.Errorf("%d RPCs for %d queries", spent, n)
	}
}

var userRPCs = regexp.MustCompile(`(?m)^\s*(\w+)\s*\(\s*(\d+)\)\s*count:(\d+)`)

// rpcs counts the queries of this user as slurmctld saw them; sdiag's own is another type.
func rpcs(t *testing.T) (n int) {
	t.Helper()
	out, err := exec.Command("sdiag").Output()
	must(t, err)
	_, byUser, ok := strings.Cut(string(out), "by user")
	if !ok {
		t.Fatalf("sdiag: %s", out)
	}
	for _, m := range userRPCs.FindAllStringSubmatch(byUser, -1) {
		if m[2] == strconv.Itoa(os.Getuid()) {
			n, _ = strconv.Atoi(m[3])
		}
	}
	types, _, _ := strings.Cut(string(out), "by user")
	for _, m := range userRPCs.FindAllStringSubmatch(types, -1) {
		if m[1] == "REQUEST_STATS_INFO" {
			own, _ := strconv.Atoi(m[3])
			n -= own
		}
	}
	return n
}

func TestClusterProbe(t *testing.T) {
	b := newBench(t, "true")
	p, err := b.Probe(t.Context())
	must(t, err)
	if !strings.Contains(p.ControllerText, " is UP") || p.ClusterName == "" || !p.ExportNIL || p.AccountingStorage == "" ||
		p.MinJobAge < time.Second ||
		p.KillWait < time.Second ||
		p.MessageTimeout < time.Second || !p.GraceFitsInKillWait || p.Release[0] < 20 {
		t.Errorf("%+v", p)
	}
}

// Foreign jobs of the same user, however named, neither show nor harm.
func TestClusterForeignJobs(t *testing.T) {
	b := newBench(t, "true", func(_ *Config, j *run.JobSpec) { j.Spec.Placement.Partition = "big" })
	id := b.send(t, 1)
	defer exec.Command("scancel", id).Run()
	for _, name := range []string{"a\nb", "x\x1fy|z", "sg", "é", "\n"} {
		other := sbatch(t, "--parsable", "--hold", "--job-name="+name, b.ctl(run.ScriptFile))
		defer exec.Command("scancel", other).Run()
		jobs, err := b.Jobs(t.Context(), nil)
		must(t, err)
		if !slices.ContainsFunc(jobs, func(j run.Job) bool { return j.ID == id }) || slices.ContainsFunc(jobs,
			func(j run.Job) bool { return j.ID == other }) {
			t.Errorf("with a job named %q: %+v", name, jobs)
		}
	}
}
