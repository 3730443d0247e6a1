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
)

// These tests are about processes and files, so their sbatch is a shell script; what the real one prints is tested elsewhere.

// sender is a workspace and a transport whose sbatch runs the given lines. The work folder is $W.
func sender(t *testing.T, lines string) (c *CLI, job run.JobSpec, work string) {
	t.Helper()
	work = t.TempDir()
	bin := filepath.Join(work, "bin")
	job = flagstat(filepath.Join(work, testRun))
	for _, d := range []string{bin, job.ControlPath("")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "sbatch"), []byte("#!/bin/bash\nW="+Quote(work)+"\necho started >>$W/starts\n"+lines+"\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	c, err := NewCLI(Config{BinDir: bin, LocksDir: filepath.Join(work, "locks"), User: "lab", Conf: "/etc/slurm/x.conf", Script: runtimePath,
		RPCPerMinute: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	return c, job, work
}

func starts(work string) int {
	data, _ := os.ReadFile(filepath.Join(work, "starts"))
	return strings.Count(string(data), "started")
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s never came", path)
		}
	}
}

func TestSendOnce(t *testing.T) {
	c, job, work := sender(t, "echo banner; echo 77; echo warning >&2; exit 3")
	res := c.Send(t.Context(), job, 1)
	if res.Outcome != run.SendAccepted || res.JobID != "77" || res.ExitCode == nil || *res.ExitCode != 3 || !strings.Contains(res.Text,
		"warning") {
		t.Fatalf("%+v", res)
	}
	if again := c.Send(t.Context(), job, 1); again.Outcome != run.SendAccepted || again.JobID != "77" || again.ExitCode != nil ||
		starts(work) != 1 {
		t.Errorf("%+v, %d starts", again, starts(work))
	}
	if got, held := c.Receipt(t.Context(), job, 1); held || got.JobID != "77" {
		t.Errorf("%+v %v", got, held)
	}
	if got, held := c.Receipt(t.Context(), job, 2); held || got.Outcome != run.SendDoubt {
		t.Errorf("a send that left nothing: %+v %v", got, held)
	}
	if res := c.Send(t.Context(), job, 2); res.Outcome != run.SendAccepted || starts(work) != 2 {
		t.Errorf("%+v, %d starts", res, starts(work))
	}
}

// The environment is the allow-list and nothing else; standard input is empty, the session is its own, and the
// lock is passed on.
func TestSendSurroundings(t *testing.T) {
	for _, v := range []string{"SBATCH_TIMELIMIT", "SLURM_JOB_ID", "SLURM_CONF", "APPTAINER_BIND", "LD_PRELOAD_X", "BASH_ENV"} {
		t.Setenv(v, "/dev/null")
	}
	c, job, work := sender(t, `tr '\0' '\n' </proc/$$/environ >$W/env; cat >$W/stdin; ps -o sid= -p $$ >$W/sid; echo $$ >$W/pid; ls /proc/$$/fd >$W/fds; printf '%s\n' "$@" >$W/argv; pwd >$W/cwd; echo 5`)
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendAccepted {
		t.Fatalf("%+v", res)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	home, _ := os.UserHomeDir()
	if got, want := read("env"), "PATH=/usr/bin:/bin\nHOME="+home+"\nLANG=C\nLC_ALL=C\nSLURM_CONF=/etc/slurm/x.conf"; got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
	argv, _ := c.Argv(job)
	if got := read("argv"); got != strings.Join(argv, "\n") {
		t.Errorf("argv %q", got)
	}
	if read("stdin") != "" || read("sid") != read("pid") || read("cwd") != "/" {
		t.Errorf("stdin %q, session %s of %s, in %s", read("stdin"), read("sid"), read("pid"), read("cwd"))
	}
	if fds := strings.Fields(read("fds")); !slices.Contains(fds, "3") {
		t.Errorf("descriptors %s", fds)
	}
}

// When its context ends, Send leaves sbatch alone. The lock tells that it is there, and its receipt is found.
func TestSendLeavesSbatchAlone(t *testing.T) {
	c, job, work := sender(t, "touch $W/up; while [[ ! -e $W/go ]]; do sleep 0.01; done; echo 78")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan run.SendResult)
	go func() { done <- c.Send(ctx, job, 1) }()
	awaitFile(t, filepath.Join(work, "up"))
	cancel()
	if res := <-done; res.Outcome != run.SendDoubt {
		t.Errorf("%+v", res)
	}
	if res, held := c.Receipt(t.Context(), job, 1); !held || res.Outcome != run.SendDoubt {
		t.Errorf("%+v %v", res, held)
	}
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || starts(work) != 1 {
		t.Errorf("%+v, %d starts", res, starts(work))
	}
	// Another gateway, with another lock folder's view of the same files, starts nothing either.
	other, err := NewCLI(Config{BinDir: c.cfg.BinDir, LocksDir: filepath.Join(work, "other"), User: "lab", Script: runtimePath,
		RPCPerMinute: 60})
	if err != nil {
		t.Fatal(err)
	}
	if res := other.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || starts(work) != 1 {
		t.Errorf("%+v, %d starts", res, starts(work))
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		res, held := c.Receipt(t.Context(), job, 1)
		if !held {
			if res.Outcome != run.SendAccepted || res.JobID != "78" {
				t.Errorf("%+v", res)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("the lock is never free")
		}
	}
}

// TestSendOutlivesTheGateway kills a process that waits in Send, as a crash would, and reads the receipt afterwards.
func TestSendOutlivesTheGateway(t *testing.T) {
	if w := os.Getenv("SLURMGATE_SEND_FROM"); w != "" { // the gateway to be killed
		c, err := NewCLI(Config{BinDir: filepath.Join(w, "bin"), LocksDir: filepath.Join(w, "locks"), User: "lab", Script: runtimePath,
			RPCPerMinute: 60})
		if err != nil {
			t.Fatal(err)
		}
		c.Send(t.Context(), flagstat(filepath.Join(w, testRun)), 1)
		return
	}
	c, job, work := sender(t, "touch $W/up; while [[ ! -e $W/go ]]; do sleep 0.01; done; echo 79")
	self := exec.Command(os.Args[0], "-test.run=^TestSendOutlivesTheGateway$")
	self.Env = append(os.Environ(), "SLURMGATE_SEND_FROM="+work)
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, filepath.Join(work, "up"))
	self.Process.Kill()
	self.Wait()
	if res, held := c.Receipt(t.Context(), job, 1); !held {
		t.Errorf("sbatch died with its gateway, or lost the lock: %+v", res)
	}
	os.WriteFile(filepath.Join(work, "go"), nil, 0o600)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if res, held := c.Receipt(t.Context(), job, 1); !held {
			if res.Outcome != run.SendAccepted || res.JobID != "79" || starts(work) != 1 {
				t.Errorf("%+v", res)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("the lock is never free")
		}
	}
}

func TestSendKilledSbatch(t *testing.T) {
	c, job, _ := sender(t, "printf 12; kill -KILL $$")
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || res.ExitCode != nil {
		t.Errorf("%+v", res)
	}
}

func TestSendNotRun(t *testing.T) {
	c, job, work := sender(t, "echo 1")
	os.Remove(filepath.Join(work, "bin/sbatch"))
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendNotRun || res.Code != "sbatch_not_started" || !strings.Contains(res.Text,
		"no such file") {
		t.Errorf("%+v", res)
	}
	bad := job
	bad.Spec.Placement.Partition = "a b"
	if res := c.Send(t.Context(), bad, 2); res.Outcome != run.SendNotRun {
		t.Errorf("%+v", res)
	}
	os.RemoveAll(job.ControlPath(""))
	if res := c.Send(t.Context(), job, 3); res.Outcome != run.SendNotRun || res.Code != "control_unwritable" {
		t.Errorf("%+v", res)
	}
	os.RemoveAll(filepath.Join(work, "locks"))
	if res := c.Send(t.Context(), job, 4); res.Outcome != run.SendNotRun || res.Code != "locks_dir" {
		t.Errorf("%+v", res)
	}
	if res, held := c.Receipt(t.Context(), job, 1); !held || res.Outcome != run.SendDoubt {
		t.Errorf("without its lock nobody knows whether a send is over: %+v %v", res, held)
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
			if err := b.Spend(t.Context(), rpcQueue); err != nil {
				t.Fatal(err)
			}
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
			t.Errorf("%+v after %d RPCs", s, n)
		}
		time.Sleep(2 * time.Minute)
		if s := b.State(); s.Left != 20 || s.LastMinute != 0 || s.Total != int64(n) {
			t.Errorf("%+v", s)
		}
		small := NewBudget(1, Shared{})
		if err := small.Spend(t.Context(), rpcCancel); err != nil {
			t.Errorf("the dearest command never fits: %v", err)
		}
	})
}

func TestRunnerBounds(t *testing.T) {
	out, err := processes{}.Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", "echo out; echo err >&2; exit 4"}, Limit: 100})
	if err != nil || string(out.Stdout) != "out\n" || out.Stderr != "err\n" || out.Exit != 4 {
		t.Errorf("%+v %v", out, err)
	}
	if out, err := (processes{}).Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", "yes"}, Limit: 1000,
		Env: []string{"PATH=/usr/bin:/bin"}}); err == nil || len(out.Stdout) != 1000 {
		t.Errorf("%d bytes, %v", len(out.Stdout), err)
	}
	if _, err := (processes{}).Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", "kill -TERM $$"}, Limit: 1}); err == nil {
		t.Error("a killed program is an answer")
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

// A refused account says whose association is missing: not the caller's, but that of the user to whom jobs belong.
func TestRefusedAccountIsExplained(t *testing.T) {
	c, job, _ := sender(t, "echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' "+
		">&2; exit 1")
	job.Spec.Placement.Account, job.Spec.Placement.Partition = "teaching", "main"
	res := c.Send(t.Context(), job, 1)
	const want = "Jobs belong to the user lab, who must have an association with the account teaching that is valid in the partition main: " +
		"sacctmgr add user lab account=teaching"
	if res.Outcome != run.SendRejected || !strings.Contains(res.Text, want) || !strings.Contains(res.Text, "Invalid account") {
		t.Errorf("%+v", res)
	}
}
