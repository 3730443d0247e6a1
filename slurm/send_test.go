package slurm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/shell"
)

// These tests are about processes and files, so their sbatch is a shell script; what the real one prints is tested elsewhere.

// sender creates a workspace and a transport whose sbatch runs the given lines. The work folder is $W.
func sender(t *testing.T, lines string) (c *CLI, job run.JobSpec, work string) {
	t.Helper()
	work = t.TempDir()
	bin := filepath.Join(work, "bin")
	job = flagstat(filepath.Join(work, testRun))
	for _, d := range []string{bin, job.ControlPath("")} {
		must(t, os.MkdirAll(d, 0o700))
	}
	mustWrite(t, filepath.Join(bin, "sbatch"), "#!/bin/bash\nW="+shell.Quote(work)+"\necho started >>$W/starts\n"+lines+"\n", 0o700)
	c, err := NewCLI(Config{BinDir: bin, LocksDir: filepath.Join(work, "locks"), User: "lab", Conf: "/etc/slurm/x.conf", Script: runtimePath,
		RPCPerMinute: 1e6})
	must(t, err)
	return c, job, work
}

func starts(work string) int {
	data, _ := os.ReadFile(filepath.Join(work, "starts"))
	return strings.Count(string(data), "started")
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	until(t, 2*time.Minute, path, func() bool { _, err := os.Stat(path); return err == nil })
}

// surroundings is an sbatch that records how it was started, and accepts with a warning.
const surroundings = `tr '\0' '\n' </proc/$$/environ >$W/env; cat >$W/stdin; ps -o sid= -p $$ >$W/sid; echo $$ >$W/pid; ls /proc/$$/fd >$W/fds
printf '%s\n' "$@" >$W/argv; pwd >$W/cwd; echo banner; echo 77; echo "sbatch: warning" >&2; exit 3`

// sendsOnce sends a job to the sbatch of surroundings and checks that it starts once, in exactly the allowed
// environment, with an empty standard input. It returns a reader of what sbatch recorded.
func sendsOnce(t *testing.T, c *CLI, job run.JobSpec, work, env string) (read func(name string) string) {
	t.Helper()
	res := c.Send(t.Context(), job, 1)
	runtest.WantSend(t, res, run.SendAccepted, "77")
	if res.ExitCode == nil || *res.ExitCode != 3 || !strings.Contains(res.Text, "warning") {
		t.Fatalf("the send is %s, want sbatch's exit status and words", sendText(res))
	}
	for range 2 {
		runtest.WantSend(t, c.Send(t.Context(), job, 1), run.SendAccepted, "77")
		runtest.WantCount(t, "sbatch", starts(work), 1)
	}
	if got, held := c.Receipt(t.Context(), job, 1); held || got.JobID != "77" {
		t.Errorf("the receipt is %s, held %v; want job 77", sendText(got), held)
	}
	if got, held := c.Receipt(t.Context(), job, 2); held || got.Outcome != run.SendDoubt {
		t.Errorf("the receipt of a send that left nothing is %s, held %v; want doubt", sendText(got), held)
	}
	read = func(name string) string {
		data, err := os.ReadFile(filepath.Join(work, name))
		must(t, err)
		return strings.TrimSpace(string(data))
	}
	home, _ := os.UserHomeDir()
	want := strings.ReplaceAll(env, "$HOME", home) + "\nLANG=C\nLC_ALL=C\nSLURM_CONF=/etc/slurm/x.conf"
	if got := read("env"); got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
	argv, _ := c.Argv(job)
	if read("argv") != strings.Join(argv, "\n") || read("stdin") != "" || read("cwd") != "/" {
		t.Errorf("argv %q, stdin %q, in %s; want %q, none, in /", read("argv"), read("stdin"), read("cwd"), argv)
	}
	return read
}

// sbatch has a separate session and inherits the lock.
func TestSendOnce(t *testing.T) {
	for _, v := range []string{"SBATCH_TIMELIMIT", "SLURM_JOB_ID", "SLURM_CONF", "APPTAINER_BIND", "LD_PRELOAD_X", "BASH_ENV"} {
		t.Setenv(v, "/dev/null")
	}
	c, job, work := sender(t, surroundings)
	read := sendsOnce(t, c, job, work, "PATH=/usr/bin:/bin\nHOME=$HOME")
	if read("sid") != read("pid") || !slices.Contains(strings.Fields(read("fds")), "3") {
		t.Errorf("session %s of process %s with the descriptors %s, want its own and the lock's",
			read("sid"), read("pid"), read("fds"))
	}
	runtest.WantSend(t, c.Send(t.Context(), job, 2), run.SendAccepted, "")
	runtest.WantCount(t, "sbatch", starts(work), 2)
}

// When its context ends, Send leaves sbatch alone. The lock shows that it runs, its process is named, and its receipt
// is found.
func TestSendLeavesSbatchAlone(t *testing.T) {
	c, job, work := sender(t, "echo $$ >$W/pid; mv $W/pid $W/up; while [[ ! -e $W/go ]]; do sleep 0.01; done; echo 78")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan run.SendResult)
	go func() { done <- c.Send(ctx, job, 1) }()
	awaitFile(t, filepath.Join(work, "up"))
	cancel()
	runtest.WantSend(t, <-done, run.SendDoubt, "")
	pid, err := os.ReadFile(filepath.Join(work, "up"))
	must(t, err)
	if res, held := c.Receipt(t.Context(), job, 1); !held || res.Code != run.SendHeld ||
		!strings.Contains(res.Text, "(process "+strings.TrimSpace(string(pid))+" ") {
		t.Errorf("while sbatch (process %s) runs, its receipt is %s, held %v; want it held, with the process", pid, sendText(res), held)
	}
	runtest.WantSend(t, c.Send(t.Context(), job, 1), run.SendDoubt, "")
	runtest.WantCount(t, "sbatch", starts(work), 1)
	// Another gateway, with another lock folder and the same files, starts nothing either.
	other, err := NewCLI(Config{BinDir: c.cfg.BinDir, LocksDir: filepath.Join(work, "other"), User: "lab", Script: runtimePath,
		RPCPerMinute: 60})
	must(t, err)
	runtest.WantSend(t, other.Send(t.Context(), job, 1), run.SendDoubt, "")
	runtest.WantCount(t, "sbatch", starts(work), 1)
	must(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o600))
	runtest.WantSend(t, untilFree(t, c, job, 1), run.SendAccepted, "78")
}

// TestSendOutlivesTheGateway kills a process that waits in Send, as in a crash, and reads the receipt afterwards.
func TestSendOutlivesTheGateway(t *testing.T) {
	if w := os.Getenv("SLURMGATE_SEND_FROM"); w != "" { // the gateway to be killed
		c, err := NewCLI(Config{BinDir: filepath.Join(w, "bin"), LocksDir: filepath.Join(w, "locks"), User: "lab", Script: runtimePath,
			RPCPerMinute: 60})
		must(t, err)
		c.Send(t.Context(), flagstat(filepath.Join(w, testRun)), 1)
		return
	}
	c, job, work := sender(t, "touch $W/up; while [[ ! -e $W/go ]]; do sleep 0.01; done; echo 79")
	self := exec.Command(os.Args[0], "-test.run=^TestSendOutlivesTheGateway$")
	self.Env = append(os.Environ(), "SLURMGATE_SEND_FROM="+work)
	must(t, self.Start())
	awaitFile(t, filepath.Join(work, "up"))
	self.Process.Kill()
	self.Wait()
	if res, held := c.Receipt(t.Context(), job, 1); !held {
		t.Errorf("after the gateway was killed the receipt is %s, not held; want sbatch alive, with its lock", sendText(res))
	}
	os.WriteFile(filepath.Join(work, "go"), nil, 0o600)
	runtest.WantSend(t, untilFree(t, c, job, 1), run.SendAccepted, "79")
	runtest.WantCount(t, "sbatch", starts(work), 1)
}

func TestSendKilledSbatch(t *testing.T) {
	c, job, _ := sender(t, "printf 12; kill -KILL $$")
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || res.ExitCode != nil {
		t.Errorf("the send whose sbatch was killed ended as %s, want doubt and no status", sendText(res))
	}
}

func TestSendNotRun(t *testing.T) {
	c, job, work := sender(t, "echo 1")
	os.Remove(filepath.Join(work, "bin/sbatch"))
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendNotRun || res.Code != "sbatch_not_started" || !strings.Contains(res.Text,
		"no such file") {
		t.Errorf("without sbatch the send ended as %s, want not started", sendText(res))
	}
	bad := job
	bad.Spec.Placement.Partition = "a b"
	runtest.WantSend(t, c.Send(t.Context(), bad, 2), run.SendNotRun, "")
	os.RemoveAll(job.ControlPath(""))
	runtest.WantSend(t, c.Send(t.Context(), job, 3), run.SendNotRun, "control_unwritable")
	os.RemoveAll(filepath.Join(work, "locks"))
	runtest.WantSend(t, c.Send(t.Context(), job, 4), run.SendNotRun, "locks_dir")
	if res, held := c.Receipt(t.Context(), job, 1); !held || res.Outcome != run.SendDoubt {
		t.Errorf("without its lock the receipt is %s, held %v; want doubt, held", sendText(res), held)
	}
}

func TestSendTooMuchText(t *testing.T) {
	c, job, _ := sender(t, "head -c 300000 /dev/zero | tr '\\0' x; echo; echo 80")
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || len(res.Text) > 5000 {
		t.Errorf("%s, %d bytes", res.Outcome, len(res.Text))
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(60, Shared{})
		start, n := time.Now(), 0
		for time.Since(start) < 10*time.Minute {
			must(t, b.Spend(t.Context(), rpcQueue))
			n += rpcQueue
		}
		if n < 600 || n > 600+22 {
			t.Errorf("%d RPCs in ten minutes", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := b.Spend(ctx, rpcQueue); !fault.Is(err, fault.Transport) {
			t.Errorf("an RPC beyond the budget: %v", err)
		}
		if s := b.State(); s.PerMinute != 60 || s.Burst != 20 || s.Left > 1 || s.LastMinute < 58 || s.LastMinute > 62 || s.Total != int64(n) {
			t.Errorf("after %d RPCs the rate is %d, the burst %d, %d are left, %d in the last minute, %d in all; want a minute's rate, none left",
				n, s.PerMinute, s.Burst, s.Left, s.LastMinute, s.Total)
		}
		time.Sleep(2 * time.Minute)
		if s := b.State(); s.Left != 20 || s.LastMinute != 0 || s.Total != int64(n) {
			t.Errorf("after two minutes of rest %d are left, %d were made in a minute, %d in all; want 20, 0 and %d",
				s.Left, s.LastMinute, s.Total, n)
		}
		small := NewBudget(1, Shared{})
		if err := small.Spend(t.Context(), rpcCancel); err != nil {
			t.Errorf("Spend for the most expensive command gives %v, want no error", err)
		}
	})
}

func TestRunnerBounds(t *testing.T) {
	out, err := processes{}.Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", "echo out; echo err >&2; exit 4"}, Limit: 100})
	if err != nil || string(out.Stdout) != "out\n" || out.Stderr != "err\n" || out.Exit != 4 {
		t.Errorf("the command gave %q, %q, status %d, %v; want out, err and status 4", out.Stdout, out.Stderr, out.Exit, err)
	}
	if out, err := (processes{}).Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", "yes"}, Limit: 1000,
		Env: []string{"PATH=/usr/bin:/bin"}}); err == nil || len(out.Stdout) != 1000 {
		t.Errorf("%d bytes, %v", len(out.Stdout), err)
	}
	if _, err := (processes{}).Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", "kill -TERM $$"}, Limit: 1}); err == nil {
		t.Error("the runner returned no error for a killed program")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (processes{}).Run(ctx, Command{Path: "/bin/sleep", Args: []string{"60"}, Limit: 1}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := (processes{}).Run(t.Context(), Command{Path: "/nonexistent", Limit: 1}); err == nil {
		t.Error("nothing was started")
	}
}

// The refusal of an account names the user whose association is missing: the owner of the jobs, not the caller.
func TestRefusedAccountIsExplained(t *testing.T) {
	c, job, _ := sender(t, "echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' "+
		">&2; exit 1")
	job.Spec.Placement.Account, job.Spec.Placement.Partition = "teaching", "main"
	res := c.Send(t.Context(), job, 1)
	const want = "Jobs belong to the user lab, who must have an association with the account teaching that is valid in the partition main: " +
		"sacctmgr add user lab account=teaching"
	if res.Outcome != run.SendRejected || !strings.Contains(res.Text, want) || !strings.Contains(res.Text, "Invalid account") {
		t.Errorf("the send ended as %s, want rejected with what to do", sendText(res))
	}
}
