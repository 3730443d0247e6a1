package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// onCluster returns a transport for the cluster alpha whose commands talk to the named one. Its slurm.conf is a
// temporary file.
func onCluster(t *testing.T, name string) (*CLI, *fakeRunner) {
	t.Helper()
	c, r := fakeCLI(t)
	c.cfg.Cluster, c.cfg.Conf = "alpha", filepath.Join(t.TempDir(), "slurm.conf")
	writeConf(t, c, "ClusterName=alpha")
	r.answer("scontrol show config", config(name))
	r.answer("scancel --version", Output{Stdout: []byte("slurm 24.11.5\n")})
	r.answer("sacct --helpformat", Output{Stdout: []byte("JobID State NodeList ExitCode Submit Start End Cluster JobName")})
	r.answer("sbatch", Output{Stdout: []byte("17\n")})
	return c, r
}

func config(name string) Output {
	return Output{Stdout: []byte("Configuration data as of 2026\nClusterName             = " + name + "\nMessageTimeout          = 10 sec\n")}
}

func writeConf(t *testing.T, c *CLI, text string) {
	t.Helper()
	must(t, os.WriteFile(c.cfg.Conf, []byte(text+"\n"), 0o600))
}

// askAll makes every query once and returns the errors.
func askAll(t *testing.T, c *CLI) (errs []error) {
	t.Helper()
	ctx := t.Context()
	_, err := c.Jobs(ctx, nil)
	errs = append(errs, err)
	_, err = c.Records(ctx, time.Now())
	errs = append(errs, err)
	_, err = c.Usage(ctx, time.Now())
	errs = append(errs, err)
	errs = append(errs, c.Cancel(ctx, "28", "sg-run_x-a1-aabb", ""))
	_, err = c.SubmitProbe(ctx, NodeProbe{Name: "sg-doctor", Script: "/tmp/x", Partitions: []string{"main"}, Account: "research"})
	errs = append(errs, err)
	_, err = c.JobName(ctx, "28")
	errs = append(errs, err)
	_, err = c.MessageTimeout(ctx)
	return append(errs, err)
}

// The cluster is asked for its name once, for all later queries.
func TestClusterIsAskedOnce(t *testing.T) {
	c, r := onCluster(t, "Alpha")
	for range 3 {
		must(t, errors.Join(askAll(t, c)...))
	}
	if n := r.count("scontrol"); n != 1 {
		t.Errorf("scontrol was called %d times", n)
	}
	c, r = fakeCLI(t)
	if _, err := c.Jobs(t.Context(), nil); err != nil || r.count("scontrol") != 0 {
		t.Error("a site file without slurm.cluster:", err, r.count("scontrol"))
	}
}

// No command reaches a cluster other than the site file's, or one that does not show its name.
func TestWrongCluster(t *testing.T) {
	for name, answer := range map[string]Output{"another": config("beta"), "none": {Stdout: []byte("Welcome\n")},
		"down": {Stderr: "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n", Exit: 1}} {
		c, r := onCluster(t, "alpha")
		r.answer("scontrol show config", answer)
		want := map[string]string{"another": run.WrongCluster, "none": "config_unreadable", "down": run.Unreachable}[name]
		for i, err := range askAll(t, c) {
			if !fault.Is(err, fault.Transport) || fault.CodeOf(err) != want {
				t.Errorf("%s, query %d: %v", name, i, err)
			}
			if name == "another" && !strings.Contains(err.Error(), "talk to the cluster beta, but slurm.cluster is alpha; nothing is sent to "+
				"it. Next: correct slurm.bin_dir, slurm.conf (now "+c.cfg.Conf+") or slurm.cluster in the site file: doctor") {
				t.Error(err)
			}
		}
		for _, call := range r.calls {
			if program := filepath.Base(call.Path); program != "scontrol" && !slices.Contains(call.Args, "--version") &&
				!slices.Contains(call.Args, "--helpformat") {
				t.Errorf("%s: %s %s was started", name, program, call.Args)
			}
		}
		r.answer("scontrol show config", config("alpha")) // the cluster is right again
		must(t, errors.Join(askAll(t, c)...))
	}
}

// The cluster is asked for its name again when it may have changed: another slurm.conf, a failed command, an answer
// about another cluster. Answers of sacct do not count, because they come from slurmdbd.
func TestClusterIsAskedAgain(t *testing.T) {
	for name, x := range map[string]struct {
		happens func(c *CLI, r *fakeRunner)
		asked   int
	}{
		"nothing":            {func(*CLI, *fakeRunner) {}, 1},
		"slurm.conf changed": {func(c *CLI, _ *fakeRunner) { writeConf(t, c, "ClusterName=beta") }, 2},
		"slurm.conf is gone": {func(c *CLI, _ *fakeRunner) { os.Remove(c.cfg.Conf) }, 2},
		"squeue failed": {func(c *CLI, r *fakeRunner) {
			r.answer("squeue", Output{Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", Exit: 1})
			c.Jobs(t.Context(), nil)
		}, 2},
		"squeue shows another cluster's jobs": {func(c *CLI, r *fakeRunner) {
			r.answer("squeue", Output{Stdout: []byte(rowOf(1, "c", "beta"))})
			if jobs, err := c.Jobs(t.Context(), nil); jobs != nil || fault.CodeOf(err) != run.WrongCluster {
				t.Errorf("Jobs of another cluster gives %v %v, want no jobs and the code %s", jobs, err, run.WrongCluster)
			}
		}, 2},
		"sacct failed": {func(c *CLI, r *fakeRunner) {
			r.answer("sacct --dup", Output{Stderr: "sacct: error: Problem talking to the database: Connection refused\n", Exit: 1})
			c.Records(t.Context(), time.Now())
		}, 1},
	} {
		c, r := onCluster(t, "alpha")
		if _, err := c.Jobs(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		x.happens(c, r)
		r.answer("squeue", Output{Stdout: []byte(rowOf(1, "c", "alpha"))})
		if _, err := c.Jobs(t.Context(), nil); err != nil || r.count("scontrol show config") != x.asked {
			t.Errorf("%s: asked %d times, %v", name, r.count("scontrol show config"), err)
		}
	}
}

// A send checks the cluster first. Variables that choose a cluster do not reach sbatch.
func TestSendToTheRightCluster(t *testing.T) {
	for _, name := range []string{"SLURM_CLUSTERS", "SBATCH_CLUSTERS", "SLURM_CONF", "SLURM_CLUSTER_NAME"} {
		t.Setenv(name, "beta")
	}
	for name, want := range map[string]run.SendResult{
		"alpha": {Outcome: run.SendAccepted, JobID: "5"},
		"beta":  {Outcome: run.SendNotRun, Code: run.WrongCluster, Scope: run.ScopeSite},
		"down":  {Outcome: run.SendNotRun, Code: run.Unreachable, Scope: run.ScopeSite},
	} {
		c, job, work := sender(t, "env >$W/env; echo 5")
		c.cfg.Cluster = "alpha"
		script := "printf 'ClusterName = " + name + "\\n'"
		if name == "down" {
			script = "echo 'slurm_load_ctl_conf error: connect failure' >&2; exit 1"
		}
		must(t, os.WriteFile(filepath.Join(work, "bin/scontrol"), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
		res := c.Send(t.Context(), job, 1)
		if res.Outcome != want.Outcome || res.JobID != want.JobID || res.Code != want.Code || res.Scope != want.Scope ||
			(starts(work) == 1) != (want.JobID != "") || want.JobID == "" && res.Text == "" {
			t.Errorf("%s: the send gives %s with %d starts of sbatch, want %s, started only where it has a job",
				name, sendText(res), starts(work), sendText(want))
		}
		if env, _ := os.ReadFile(filepath.Join(work, "env")); strings.Contains(string(env), "beta") {
			t.Errorf("with %s sbatch has the environment %s, want no beta in it", name, env)
		}
	}
}

// A job that another cluster accepted is not the run's: the result is doubt, which the claim resolves, also when the
// receipt is read later.
func TestReceiptOfAnotherCluster(t *testing.T) {
	for receipt, want := range map[string]run.SendOutcome{"5;beta": run.SendDoubt, "5;alpha": run.SendAccepted, "5": run.SendAccepted} {
		c, job, work := sender(t, "echo '"+receipt+"'")
		c.cfg.Cluster = "alpha"
		must(t, os.WriteFile(filepath.Join(work, "bin/scontrol"), []byte("#!/bin/sh\necho 'ClusterName = alpha'\n"), 0o700))
		res := c.Send(t.Context(), job, 1)
		again, held := c.Receipt(t.Context(), job, 1)
		if res.Outcome != want || again.Outcome != want || held || (want == run.SendDoubt) != (res.Code == run.WrongCluster && res.JobID == "") {
			t.Errorf("with the receipt %s the send gives %s, later %s; want %s twice, not held", receipt, sendText(res), sendText(again), want)
		}
	}
}

// slow is a Slurm that does not answer.
type slow struct {
	mu    sync.Mutex
	calls int
	hang  chan struct{}
}

func (s *slow) Run(ctx context.Context, _ Command) (Output, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	select {
	case <-s.hang:
		return Output{Exit: 1, Stderr: "timed out"}, nil
	case <-ctx.Done():
		return Output{}, ctx.Err()
	}
}

// While the cluster does not answer, concurrent callers share one check of its name; a caller that gives up does not
// fail the others.
func TestClusterDoesNotAnswer(t *testing.T) {
	c, _ := onCluster(t, "alpha")
	s := &slow{hang: make(chan struct{})}
	c.runner = s
	impatient, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 20 {
		ctx := t.Context()
		if i == 0 {
			ctx = impatient
		}
		all.Go(func() {
			if err := c.CheckCluster(ctx); !fault.Is(err, fault.Transport) {
				t.Error(err)
			}
		})
	}
	stop()
	close(s.hang)
	all.Wait()
	s.mu.Lock() // the check of the caller that gave up may run now
	defer s.mu.Unlock()
	if s.calls > 20 {
		t.Errorf("%d tries", s.calls)
	}
}

// MessageTimeout may be the first query: the answer that shows the cluster's name shows it too.
func TestMessageTimeoutIsTheFirstQuestion(t *testing.T) {
	c, r := onCluster(t, "alpha")
	if d, err := c.MessageTimeout(t.Context()); d != 10*time.Second || err != nil || r.count("scontrol") != 1 {
		t.Errorf("MessageTimeout as the first question gives %s, %v after %d calls of scontrol, want 10s after one", d, err,
			r.count("scontrol"))
	}
}
