package slurm

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/remote/sshtest"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// overSSH is sender over SSH: sbatch runs the given lines. A proxy, if given, returns the address to connect to instead
// of the server's.
func overSSH(t *testing.T, lines string, proxy func(address string) string) (c *CLI, job run.JobSpec, work string, s *sshtest.Server) {
	t.Helper()
	c, job, work = sender(t, lines)
	s = sshtest.Serve(t, "")
	at := remote.Config{Address: s.Address, User: "lab", KnownHosts: []string{s.Known}, Key: s.Key}
	if proxy != nil {
		at.Address = proxy(s.Address)
		s.Know(strings.ReplaceAll(string(value(os.ReadFile(s.Known))), port(s.Address), port(at.Address)))
	}
	host, err := remote.New(at, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(host.Close)
	cfg := c.cfg
	cfg.Over = host
	c, err = NewCLI(cfg)
	must(t, err)
	return c, job, work, s
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func value[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// untilFree waits for the end of a send. A send whose session ended after its files were created and before its process
// started counts as running for as long as sbatch may run; a cut rarely hits that moment.
func untilFree(t *testing.T, c *CLI, job run.JobSpec, k int) run.SendResult {
	t.Helper()
	for end := time.Now().Add(c.sendTime(t.Context()) + time.Minute); ; time.Sleep(5 * time.Millisecond) {
		res, held := c.Receipt(t.Context(), job, k)
		if !held {
			return res
		}
		if time.Now().After(end) {
			t.Fatalf("the send is still held, with %s, want it free", sendText(res))
		}
	}
}

// proves SITE-02
func TestFarSend(t *testing.T) {
	c, job, work, _ := overSSH(t, surroundings, nil)
	read := sendsOnce(t, c, job, work, "HOME=$HOME\nPATH=/usr/bin:/bin")
	self := strings.TrimSpace(string(value(exec.Command("ps", "-o", "sid=", "-p", fmt.Sprint(os.Getpid())).Output())))
	if sid := read("sid"); sid == "" || sid == self {
		t.Errorf("session %s, ours is %s", sid, self)
	}
}

// Neither the end of the caller's context nor a lost connection ends sbatch: the send is held, and its receipt is
// found.
//
// proves SITE-04
func TestFarSendLeavesSbatchAlone(t *testing.T) {
	for name, leave := range map[string]func(stop func(), s *sshtest.Server){
		"caller":     func(stop func(), _ *sshtest.Server) { stop() },
		"connection": func(_ func(), s *sshtest.Server) { s.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			c, job, work, s := overSSH(t, "touch $W/up; while [[ ! -e $W/go ]]; do sleep 0.01; done; echo 78", nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan run.SendResult)
			go func() { done <- c.Send(ctx, job, 1) }()
			awaitFile(t, filepath.Join(work, "up"))
			leave(cancel, s)
			if res := <-done; res.Outcome != run.SendDoubt || res.Code != run.SendHeld && res.Code != remote.Cut {
				t.Errorf("the send that was left ended as %s, want doubt", sendText(res))
			}
			if res, held := c.Receipt(t.Context(), job, 1); !held || res.Outcome != run.SendDoubt || !strings.Contains(res.Text, "process group ") {
				t.Errorf("while sbatch runs, its receipt is %s, held %v; want it held, with the process group", sendText(res), held)
			}
			runtest.WantSend(t, c.Send(t.Context(), job, 1), run.SendDoubt, run.SendHeld)
			runtest.WantCount(t, "sbatch", starts(work), 1)
			must(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o600))
			runtest.WantSend(t, untilFree(t, c, job, 1), run.SendAccepted, "78")
			runtest.WantCount(t, "sbatch", starts(work), 1)
		})
	}
}

// An unknown outcome is doubt, and no send is held for ever.
func TestFarReceipt(t *testing.T) {
	c, job, work, s := overSSH(t, "printf 12; kill -KILL $PPID; kill -KILL $$", nil)
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || res.ExitCode != nil {
		t.Errorf("a send whose sbatch was killed gives %s, want doubt without an exit code", sendText(res))
	}
	at := strings.TrimSuffix(job.ControlPath(run.SendFile(1, "out")), "out")
	if res, held := c.Receipt(t.Context(), job, 1); held || res.Outcome != run.SendDoubt {
		t.Errorf("the receipt of a killed send is %s, held %v; want doubt, not held", sendText(res), held)
	}
	by := value(os.ReadFile(at + "by"))
	for _, text := range []string{"otherhost" + string(by), "", "half"} {
		must(t, os.WriteFile(at+"by", []byte(text), 0o600))
		c.config.keep(run.Asked[run.ClusterConfig]{At: time.Now(), Value: clusterConfig("MessageTimeout = 10 sec\n")})
		if res, held := c.Receipt(t.Context(), job, 1); !held || res.Outcome != run.SendDoubt {
			t.Errorf("begun by %q the receipt is %s, held %v; want doubt, held", text, sendText(res), held)
		}
		for _, age := range []time.Duration{time.Hour, -time.Hour} {
			when := time.Now().Add(-age)
			must(t, os.Chtimes(at+"out", when, when))
			if res, held := c.Receipt(t.Context(), job, 1); held || res.Outcome != run.SendDoubt {
				t.Errorf("begun %s ago on another login node the receipt is %s, held %v; want doubt, not held", age, sendText(res), held)
			}
		}
		os.Chtimes(at+"out", time.Now(), time.Now())
	}
	for _, plant := range []func(string) error{ // in place of a control file
		func(path string) error { return exec.Command("mkfifo", path).Run() },
		func(path string) error { return os.Symlink("/etc/passwd", path) },
		func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, name := range []string{"end", "by", "out", "err"} {
			os.RemoveAll(at + name)
			must(t, plant(at+name))
			if name == "out" || name == "err" {
				os.RemoveAll(at + "end")
				os.WriteFile(at+"end", []byte("0\n"), 0o600)
			}
			if res, _ := c.Receipt(t.Context(), job, 1); res.Outcome != run.SendDoubt {
				t.Errorf("with something planted at %s Receipt gives %s, want %s", name, sendText(res), run.SendDoubt)
			}
			os.RemoveAll(at + name)
			os.WriteFile(at+name, nil, 0o600)
			os.RemoveAll(at + "end")
		}
	}
	if n := starts(work); n != 1 {
		t.Errorf("%d starts", n)
	}
	s.Deaf.Store(true)
	s.Cut()
	if res, held := c.Receipt(t.Context(), job, 1); !held || res.Outcome != run.SendDoubt {
		t.Errorf("while the login node is away the receipt is %s, held %v; want doubt, held", sendText(res), held)
	}
	if res := c.Send(t.Context(), job, 7); res.Outcome != run.SendNotRun || res.Code != remote.Unreachable || res.Scope != run.ScopeSite {
		t.Errorf("while the login node is away a send gives %s, want not run, for the whole site", sendText(res))
	}
}

func TestFarSendNotRun(t *testing.T) {
	c, job, work, _ := overSSH(t, "head -c 300000 /dev/zero | tr '\\0' x; echo; echo 80", nil)
	if res := c.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || len(res.Text) > 5000 {
		t.Errorf("too much text: %s, %d bytes", res.Outcome, len(res.Text))
	}
	os.Remove(filepath.Join(work, "bin/sbatch"))
	if res := c.Send(t.Context(), job, 2); res.Outcome == run.SendAccepted || res.Outcome == run.SendRejected {
		t.Errorf("without sbatch the send ended as %s, want neither accepted nor rejected", sendText(res))
	}
	os.RemoveAll(job.ControlPath(""))
	if res := c.Send(t.Context(), job, 3); res.Outcome != run.SendNotRun || res.Code != "control_unwritable" || res.Text == "" {
		t.Errorf("without its folder the send ended as %s, want not run", sendText(res))
	}
	cfg := c.cfg
	cfg.BinDir = "/opt/a=b"
	if _, err := NewCLI(cfg); !fault.Is(err, fault.Validation) {
		t.Errorf("env would take the program for a variable: %v", err)
	}
}

// Commands for the login node have paths as the login node sees them; sbatch gets paths as jobs see them.
func TestFarPaths(t *testing.T) {
	c, job, work, _ := overSSH(t, `printf '%s\n' "$@" >$W/argv; echo 5`, nil)
	job.RunDir = "/jobs/see/" + testRun
	c.cfg.RunsDir, c.cfg.LoginRunsDir = "/jobs/see", work
	runtest.WantSend(t, c.Send(t.Context(), job, 1), run.SendAccepted, "")
	argv := string(value(os.ReadFile(work + "/argv")))
	if !strings.HasSuffix(argv, "\n"+work+"/"+testRun+"/a1/ctl/"+run.ScriptFile+"\n") ||
		!strings.Contains(argv, "--output=/jobs/see/"+testRun+"/a1/ctl/") {
		t.Errorf("sbatch's arguments are %q, want the script below LoginRunsDir and the log below RunsDir", argv)
	}
}

// After the Slurm of the login node has changed, nothing is sent before the cluster's name was checked again.
func TestFarClusterIsChecked(t *testing.T) {
	c, job, work, _ := overSSH(t, "echo 5", nil)
	control := func(cluster string) {
		path := filepath.Join(work, "bin/scontrol")
		text := "#!/bin/bash\necho asked >>" + work + "/asked\necho 'ClusterName = " + cluster + "'\necho 'MessageTimeout = 10 sec'\n"
		os.Remove(path)
		must(t, os.WriteFile(path+".new", []byte(text), 0o700))
		must(t, os.Rename(path+".new", path))
	}
	asked := func() int { return strings.Count(string(value(os.ReadFile(work+"/asked"))), "asked") }
	c.cfg.Cluster = "ours"
	control("ours")
	for k := range 3 {
		runtest.WantSend(t, c.Send(t.Context(), job, k+1), run.SendAccepted, "")
		runtest.WantCount(t, "scontrol", asked(), 1)
	}
	control("Ours")
	runtest.WantSend(t, c.Send(t.Context(), job, 4), run.SendAccepted, "")
	runtest.WantCount(t, "scontrol", asked(), 2)
	control("theirs")
	runtest.WantSend(t, c.Send(t.Context(), job, 5), run.SendNotRun, run.WrongCluster)
	runtest.WantCount(t, "sbatch", starts(work), 4)
	control("ours")
	if _, err := c.ask(t.Context(), 1, answered, "scontrol", "ping"); err != nil {
		t.Error(err)
	}
	control("theirs")
	if _, err := c.ask(t.Context(), 1, answered, "scontrol", "ping"); fault.CodeOf(err) != run.WrongCluster {
		t.Error(err)
	}
}

func TestFarRunner(t *testing.T) {
	c, _, _, s := overSSH(t, "", nil)
	r := c.runner
	out, err := r.Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", `echo "out $1"; env >&2; exit 4`, "sh", "a b'"}, Limit: 100,
		Env: []string{"X=1"}})
	if err != nil || string(out.Stdout) != "out a b'\n" || !strings.Contains(out.Stderr, "X=1\n") || strings.Contains(out.Stderr, "LANG") ||
		out.Exit != 4 {
		t.Errorf("the command over SSH gave %q, %q, status %d, %v; want its output, status 4 and only the variable X",
			out.Stdout, out.Stderr, out.Exit, err)
	}
	if out, err := r.Run(t.Context(), Command{Path: "/bin/cat", Stdin: strings.NewReader("in"), Limit: 10}); err != nil ||
		string(out.Stdout) != "in" {
		t.Errorf("cat over SSH gave %q, %v, want its input", out.Stdout, err)
	}
	for _, lines := range []string{"kill -TERM $$", "yes"} {
		if _, err := r.Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", lines}, Limit: 100}); err == nil {
			t.Errorf("%s is an answer", lines)
		}
	}
	if out, err := r.Run(t.Context(), Command{Path: "/nonexistent", Limit: 1}); err == nil && out.Exit == 0 {
		t.Error("nothing was started")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Run(ctx, Command{Path: "/bin/sleep", Args: []string{"60"}, Limit: 1}); err == nil || ctx.Err() == nil {
		t.Error(err)
	}
	s.Deaf.Store(true)
	s.Cut()
	_, err = c.ask(t.Context(), 0, answered, "squeue")
	if !fault.Is(err, fault.Transport) || fault.CodeOf(err) != remote.Unreachable && fault.CodeOf(err) != remote.Cut {
		t.Error(err)
	}
}
