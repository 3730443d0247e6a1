package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"slurmgate/run"
)

// Time in which Slurm has stopped all processes of a job does not count against the program's limit, and a limit that
// was raised in Slurm after the job was sent replaces the program's own. After a pause Apptainer exits with 146 when it
// lost the program's status.
func TestProgramLimit(t *testing.T) {
	limitOf := func(job run.JobSpec, token string) {
		text := fmt.Sprintf("slurmgate-limit 1 token=%s seconds=60\n", token)
		must(t, os.WriteFile(job.ControlPath(run.LimitFile), []byte(text), 0o600))
	}
	for name, c := range map[string]struct {
		before  func(job run.JobSpec)
		suspend time.Duration
		status  int
		reason  string
	}{
		"over it":            {reason: "time_limit"},
		"suspended":          {suspend: 14 * time.Second, reason: "ok"},
		"status lost":        {suspend: time.Second, status: 146, reason: "status_lost"},
		"failed after it":    {suspend: time.Second, status: 3, reason: "tool_failed"},
		"raised":             {before: func(job run.JobSpec) { limitOf(job, job.Token) }, reason: "ok"},
		"raised for another": {before: func(job run.JobSpec) { limitOf(job, strings.Repeat("0", 32)) }, reason: "time_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := "sleep 14; echo end"
			if c.reason == "time_limit" {
				program = "sleep 600"
			} else if c.suspend > 0 {
				program = fmt.Sprintf("echo begun >&2; sleep 2; echo end; exit %d", c.status)
			}
			job, cmd := pipeRun(t, 12, "", program) // time enough for a busy machine to start the program and to suspend it
			if c.before != nil {
				c.before(job)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			must(t, cmd.Start())
			if c.suspend > 0 {
				whenBegun(t, job)
				session(t, cmd.Process.Pid, syscall.SIGSTOP)
				time.AfterFunc(c.suspend, func() { session(t, cmd.Process.Pid, syscall.SIGCONT) })
			}
			_ = cmd.Wait()
			if x := exitOf(t, job); x.Reason != c.reason || c.reason == "time_limit" && x.Code != 124 {
				log, _ := os.ReadFile(job.ControlPath(run.StderrFile))
				t.Errorf("a program with a limit of 12 s, %s: %s, code %d after %.1f s, want %s\n%s", name, x.Reason, x.Code, x.Elapsed, c.reason, log)
			}
		})
	}
}

// A busy node may deliver TERM to the program first, and to the script only after it has ended the program.
func TestTermEndsTheProgramFirst(t *testing.T) {
	for name, program := range map[string]string{"signal": "kill -TERM $$", "status": "exit 3; true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, cmd := pipeRun(t, 60, "", program)
			bin := t.TempDir() // the script sleeps after the program's end, here until the signal was sent
			mustWrite(t, bin+"/sleep", "#!/bin/bash\n: >"+bin+"/begun; while [[ ! -e "+bin+"/sent ]]; do /bin/sleep 0.01; done\n", 0o755)
			script := strings.Replace(left(job, run.ScriptFile), "PATH=/usr/bin:/bin", "PATH="+bin+":/usr/bin:/bin", 1)
			mustWrite(t, job.ControlPath(run.ScriptFile), script, 0o755)
			must(t, cmd.Start())
			awaitFile(t, bin+"/begun")
			must(t, cmd.Process.Signal(syscall.SIGTERM))
			mustWrite(t, bin+"/sent", "", 0o600)
			_ = cmd.Wait()
			if x := exitOf(t, job); x.Reason != "terminated" || x.Code == 0 {
				t.Errorf("exit file after TERM that came after the program's end: %s, code %d, want terminated", x.Reason, x.Code)
			}
		})
	}
}

// Slurm sends CONT and immediately TERM to every process of a cancelled job. bash loses a TERM that comes while a trap
// of CONT runs.
func TestTermRightAfterCont(t *testing.T) {
	for i := range 30 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			job, cmd := pipeRun(t, 60, "", "echo begun >&2; exec sleep 60")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			must(t, cmd.Start())
			whenBegun(t, job)
			session(t, cmd.Process.Pid, syscall.SIGCONT, syscall.SIGTERM)
			_ = cmd.Wait()
			if x := exitOf(t, job); x.Reason != "terminated" {
				t.Errorf("exit file after CONT and TERM to all processes: %s, code %d, want terminated", x.Reason, x.Code)
			}
		})
	}
}

// whenBegun waits until the program of the job has printed something.
func whenBegun(t *testing.T, job run.JobSpec) {
	t.Helper()
	until(t, time.Minute, "output of the program", func() bool {
		said, err := os.Stat(job.ControlPath(run.StderrFile))
		return err == nil && said.Size() > 0
	})
}

// until waits, at most for limit, until ok returns true.
func until(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s after %v", what, limit)
		}
	}
}

// session signals all processes of a session, as Slurm does for a job.
func session(t *testing.T, id int, signals ...syscall.Signal) {
	out, err := exec.Command("ps", "-o", "pid=", "-s", strconv.Itoa(id)).Output()
	must(t, err)
	for _, sig := range signals {
		for pid := range strings.FieldsSeq(string(out)) {
			n, err := strconv.Atoi(pid)
			must(t, err)
			_ = syscall.Kill(n, sig) // one may have ended
		}
	}
}
