package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

// Pace waits until the budget has the RPCs of a send left, and spends them; run.Parts has the contract.
func (c *CLI) Pace(ctx context.Context, first bool) error { return c.budget.Pace(ctx, first) }

// Send starts sbatch for the k-th send of the job and waits for it; run.Submitter has the contract.
//
// The gateway may die at any point. The lock is taken first and passed to sbatch as an open descriptor, so that it is
// free only when no sbatch of this send is left. The two files are created exclusively, so that a second Send with the
// same number, from any gateway, starts nothing. And sbatch writes the receipt itself.
func (c *CLI) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	argv, err := c.Argv(job)
	if err != nil {
		return notRun("job_spec", run.ScopeRun, err)
	}
	if err := ctx.Err(); err != nil {
		return notRun(outOfBudget, run.ScopeRun, err) // the caller no longer waits, so nothing is started
	}
	if c.cfg.Over != nil {
		return c.sendFar(ctx, job, k, argv)
	}
	if err := c.CheckCluster(ctx); err != nil {
		return unchecked(err)
	}
	lock, held, err := c.lock(job, k)
	switch {
	case err != nil:
		return notRun("locks_dir", run.ScopeSite, err)
	case held:
		return run.SendResult{Outcome: run.SendDoubt, Code: run.SendHeld, Text: "an sbatch of this send has not ended"}
	}
	started, result := c.start(job, k, argv, lock)
	lock.Close() // sbatch has its own
	if started == nil {
		return result
	}
	ended := make(chan run.SendResult, 1)
	go func() {
		_ = started.Wait() // its state has the same result
		ended <- c.read(job, k, exitStatus(started))
	}()
	select {
	case res := <-ended:
		if res.Outcome != run.SendAccepted && res.Outcome != run.SendRejected {
			c.distrust()
		}
		return res
	case <-ctx.Done():
		return run.SendResult{Outcome: run.SendDoubt, Code: run.SendHeld, Text: "the gateway stopped waiting; sbatch continues"}
	}
}

// unchecked is the result of a send whose cluster could not be checked.
func unchecked(err error) run.SendResult {
	scope := run.ScopeSite
	if fault.CodeOf(err) == outOfBudget {
		scope = run.ScopeRun
	}
	return run.SendResult{Outcome: run.SendNotRun, Code: fault.CodeOf(err), Scope: scope, Text: fault.Prose(err)}
}

// start creates the send's files and starts sbatch. If it returns nil, nothing was started and the result is valid.
func (c *CLI) start(job run.JobSpec, k int, argv []string, lock *os.File) (*exec.Cmd, run.SendResult) {
	var files [2]*os.File
	for i, stream := range []string{"out", "err"} {
		f, err := os.OpenFile(job.ControlPath(run.SendFile(k, stream)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return nil, c.read(job, k, nil) // sent before
		}
		if err != nil {
			return nil, notRun("control_unwritable", run.ScopeRun, err)
		}
		defer f.Close()
		files[i] = f
	}
	cmd := exec.Command(filepath.Join(c.cfg.BinDir, "sbatch"), argv...)
	cmd.Env = c.environ()
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = files[0], files[1] // standard input is /dev/null
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal that a terminal or a service manager sends to the process group
	if err := cmd.Start(); err != nil {
		return nil, notRun("sbatch_not_started", run.ScopeSite, err)
	}
	return cmd, run.SendResult{}
}

// Receipt reads the output that an earlier send left; run.Submitter has the contract. A send may appear held for a
// moment after its sbatch ended: a child that this process forked meanwhile has the descriptor until its exec.
func (c *CLI) Receipt(ctx context.Context, job run.JobSpec, k int) (res run.SendResult, held bool) {
	if c.cfg.Over != nil {
		return c.receiptFar(ctx, job, k)
	}
	lock, held, err := c.lock(job, k)
	switch {
	case err != nil:
		return run.SendResult{Outcome: run.SendDoubt, Code: "locks_dir", Text: err.Error()}, true
	case held:
		return run.SendResult{Outcome: run.SendDoubt, Code: run.SendHeld, Text: "sbatch has not ended" + processOf(job)}, true
	}
	defer lock.Close()
	return c.read(job, k, nil), false
}

// processOf returns the process of the job's sbatch on this host, for a message, or "".
func processOf(job run.JobSpec) string {
	name := job.JobName
	if job.Array != nil {
		name = job.Array.Name
	}
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return ""
	}
	for _, path := range list {
		if argv, err := os.ReadFile(path); err == nil && bytes.Contains(argv, []byte("\x00--job-name="+name+"\x00")) {
			return " (process " + filepath.Base(filepath.Dir(path)) + " of the gateway's host)"
		}
	}
	return ""
}

// lock takes the lock of a send, or reports that it is held. The file is on a disk of this machine: network filesystems
// keep locks of dead clients. All sends share one file, and each locks a different byte, so that sends leave no files
// behind. An open file description holds the lock (F_OFD_SETLK): as with flock, inherited descriptors share it, and it
// is free when the last of them is closed.
func (c *CLI) lock(job run.JobSpec, k int) (f *os.File, held bool, err error) {
	at, err := lockByte(job.Token, k)
	if err != nil {
		return nil, false, err
	}
	f, err = os.OpenFile(filepath.Join(c.cfg.LocksDir, "sends"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	for {
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: 1})
		if err != unix.EINTR {
			break
		}
	}
	if err == nil {
		return f, false, nil
	}
	f.Close()
	if err == unix.EAGAIN || err == unix.EACCES {
		return nil, true, nil
	}
	return nil, false, os.NewSyscallError("fcntl", err)
}

// lockByte returns the offset of a send's lock: 56 bits of the token, and the send's number. Two sends with the same
// offset would only wait for each other.
func lockByte(token string, k int) (int64, error) {
	n, err := strconv.ParseUint(token[:min(14, len(token))], 16, 56)
	return int64(n)<<6 | int64(k&63), err
}

// maxSendText bounds what an sbatch may print, in bytes for each of its streams.
const maxSendText = 256 << 10

// read classifies the output of a send's sbatch. Call it only after that sbatch has ended.
func (c *CLI) read(job run.JobSpec, k int, exit *int) run.SendResult {
	var text [2]string
	for i, stream := range []string{"out", "err"} {
		data, err := readUpTo(job.ControlPath(run.SendFile(k, stream)), maxSendText)
		if err != nil {
			return run.SendResult{Outcome: run.SendDoubt, Code: "no_receipt", ExitCode: exit,
				Text: "what sbatch printed cannot be read: " + err.Error()}
		}
		text[i] = string(data)
	}
	return c.judge(job, text[0], text[1], exit)
}

// judge classifies the output of a send's sbatch, and refuses a receipt from another cluster.
func (c *CLI) judge(job run.JobSpec, stdout, stderr string, exit *int) run.SendResult {
	res := Classify(stdout, stderr, exit)
	if res.Cluster != "" && c.cfg.Cluster != "" && !SameCluster(res.Cluster, c.cfg.Cluster) {
		// No job of ours can run there: resolving the doubt takes the claim.
		return run.SendResult{Outcome: run.SendDoubt, Code: run.WrongCluster, ExitCode: exit,
			Text: "job " + res.JobID + " was accepted by the cluster " + res.Cluster + ", but slurm.cluster is " + c.cfg.Cluster}
	}
	return Explained(res, job, c.cfg.User)
}

// readUpTo reads a file of at most limit bytes. A larger file is an error, because its end may be needed.
func readUpTo(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, err
}

// exitStatus returns the exit status of sbatch, or nil if sbatch was killed or its status is unknown.
func exitStatus(cmd *exec.Cmd) *int {
	if cmd.ProcessState == nil || !cmd.ProcessState.Exited() {
		return nil
	}
	code := cmd.ProcessState.ExitCode()
	return &code
}

// notRun returns the result of a send whose sbatch was never started.
func notRun(code string, scope run.Scope, err error) run.SendResult {
	return run.SendResult{Outcome: run.SendNotRun, Code: code, Scope: scope, Text: "sbatch was not started: " + err.Error()}
}
