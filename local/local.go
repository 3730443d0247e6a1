// Package local runs short plans immediately on the gateway's own host, with Apptainer and without Slurm: it starts the
// job script that Slurm would start, in a separate session, under limits.
//
// It gives the guarantees that the lifecycle relies on. A send creates a record exclusively, and syncs it before
// anything starts, so that it happens once. The process holds a lock on that record, so that any gateway, also a new
// one, can see whether it still runs. Claim, exit file and manifest are written by the script. A process outlives the
// gateway.
//
// Nouns: record (one send: its job id, and its process once it has started), place (one of the processes that may run
// at a time).
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

// Cluster is the name of the cluster in the submission of a local run.
const Cluster = "local"

const (
	keepRecords = 24 * time.Hour // of ended processes; the ledger knows the runs
	maxRecord   = 4096           // bytes
	dataFloor   = 256            // MiB in addition to the plan's memory, for the script and Apptainer
)

// Config holds the settings of a backend.
type Config struct {
	Dir    string             // of the records, on a local disk, mode 0700
	Places int                // greatest number of concurrent processes
	Ended  func(runID string) // called when a process of this gateway has ended; may be nil
	Log    *slog.Logger
}

// Backend starts local runs. It is safe for concurrent use.
type Backend struct {
	cfg Config
	mu  sync.Mutex // held while places are counted and one is taken
}

// record is the content of the file of a send.
type record struct {
	RunID     string    `json:"run_id"`
	Token     string    `json:"token"`
	JobID     string    `json:"job_id"`
	StartedAt time.Time `json:"started_at"`
	PID       int       `json:"pid"` // of the session's leader; 0: not started yet
}

// New returns a backend, and removes old records of ended processes.
func New(c Config) (*Backend, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Transport, "local_dir", "the folder of local runs cannot be created", err)
	}
	b := &Backend{cfg: c}
	b.each(func(name string, r record, alive bool) {
		if !alive && time.Since(r.StartedAt) > keepRecords {
			os.Remove(filepath.Join(c.Dir, name))
		}
	})
	return b, nil
}

// Send starts the script for the k-th send of a job, unless all places are taken. It does not wait for its end.
func (b *Backend) Send(_ context.Context, job run.JobSpec, k int) run.SendResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	running := 0
	b.each(func(_ string, _ record, alive bool) {
		if alive {
			running++
		}
	})
	if running >= b.cfg.Places {
		return run.SendResult{Outcome: run.SendDeferred, Code: "local_places", Scope: run.ScopePartition,
			Text: fmt.Sprintf("%d local runs are in progress; policy local.max_running allows %d", running, b.cfg.Places)}
	}
	f, err := os.OpenFile(b.file(job, k), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		res, _ := b.Receipt(context.Background(), job, k) // sent before
		return res
	}
	if err != nil {
		return notRun(err)
	}
	defer f.Close() // the process has its own descriptor
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return notRun(err)
	}
	// Unique on this host, and larger than the job ids of any Slurm.
	r := record{RunID: job.RunID, Token: job.Token, JobID: strconv.FormatInt(time.Now().UnixMicro(), 10), StartedAt: time.Now().UTC()}
	if err := write(f, r); err != nil {
		return notRun(errors.Join(err, os.Remove(f.Name())))
	}
	cmd, err := b.start(job, r, f)
	if err != nil {
		return notRun(errors.Join(err, os.Remove(f.Name())))
	}
	r.PID = cmd.Process.Pid
	if err := write(f, r); err != nil {
		b.cfg.Log.Warn("a local run's process could not be recorded; it cannot be cancelled", "run_id", job.RunID, "tool", job.ToolID,
			"principal", job.Principal.Name, "err", err)
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			b.cfg.Log.Debug("a local run ended", "run_id", job.RunID, "tool", job.ToolID, "principal", job.Principal.Name, "err", err)
		}
		if b.cfg.Ended != nil {
			b.cfg.Ended(job.RunID)
		}
	}()
	return run.SendResult{Outcome: run.SendAccepted, JobID: r.JobID, Cluster: Cluster}
}

// start starts the script in a separate session, with an empty environment, the lock as an open descriptor, lower
// priority, and limits on CPU time and memory. The script itself has the time limit.
func (b *Backend) start(job run.JobSpec, r record, lock *os.File) (*exec.Cmd, error) {
	log, err := os.OpenFile(job.ControlPath(run.JobLogFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	res := job.Spec.Resources
	cmd := exec.Command("/usr/bin/nice", "-n", "10", "/usr/bin/prlimit", "--core=0", fmt.Sprintf("--cpu=%d",
		(res.TimeLimitSeconds+60)*res.CPUs),
		fmt.Sprintf("--data=%d", int64(res.MemMB+dataFloor)<<20), "--", "/bin/bash", job.ControlPath(run.ScriptFile))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "SLURM_JOB_ID=" + r.JobID, "SLURMD_NODENAME=" + host, "SLURM_RESTART_COUNT=0"}
	cmd.Dir = job.AttemptDir()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

// Receipt reads the record of an earlier send. Without a record nothing was started, because the record is written
// first.
func (b *Backend) Receipt(_ context.Context, job run.JobSpec, k int) (res run.SendResult, held bool) {
	r, _, err := read(b.file(job, k))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return notRun(errors.New("no process was started")), false
	case err != nil:
		// Created and not written: the gateway died in between, before it started a process.
		return run.SendResult{Outcome: run.SendDoubt, Code: "no_receipt", Text: err.Error()}, false
	}
	return run.SendResult{Outcome: run.SendAccepted, JobID: r.JobID, Cluster: Cluster}, false
}

var (
	_ run.Submitter = (*Backend)(nil)
	_ run.Queue     = (*Backend)(nil)
	_ run.Canceller = (*Backend)(nil)
)

// Harmless does nothing: there are no programs that print lines.
func (b *Backend) Harmless(string) {}

// Unusable returns nil: this host is the only node.
func (b *Backend) Unusable(context.Context) (map[string]run.Unusable, error) { return nil, nil }

// SeesAll returns nil: all records are here.
func (b *Backend) SeesAll(context.Context) error { return nil }

// MessageTimeout returns 0: no daemon has to answer.
func (b *Backend) MessageTimeout(context.Context) (time.Duration, error) { return 0, nil }

// Jobs returns the running processes.
func (b *Backend) Jobs(context.Context, map[string]bool) ([]run.Job, error) {
	var out []run.Job
	host, _ := os.Hostname() // for people
	b.each(func(name string, r record, alive bool) {
		if alive {
			out = append(out, run.Job{Cluster: Cluster, ID: r.JobID, Name: jobName(name), State: "RUNNING", Class: run.ClassRunning, Node: host,
				Submitted: &r.StartedAt, Started: &r.StartedAt})
		}
	})
	return out, nil
}

// Cancel sends TERM to the process of the job; an ended one is no error. The lock proves that the session is still that
// of the record. If the script has ended and a process that it started has the lock, the session is killed.
func (b *Backend) Cancel(_ context.Context, jobID, name, _ string) error {
	var err error
	b.each(func(file string, r record, alive bool) {
		if !alive || r.JobID != jobID || jobName(file) != name || r.PID <= 1 {
			return
		}
		kerr := syscall.Kill(-r.PID, syscall.SIGTERM)
		if kerr == syscall.ESRCH {
			killSession(r.PID)
		} else if kerr != nil {
			err = fault.Wrap(fault.Transport, "local_cancel", "the process of "+name+" cannot be stopped", kerr)
		}
	})
	return err
}

// killSession kills all processes of a session whose leader has ended (proc_pid_stat(5)). The id of a session is not
// reused while one of its processes exists.
func killSession(id int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if of, err := unix.Getsid(pid); err == nil && of == id {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (b *Backend) file(job run.JobSpec, k int) string {
	return filepath.Join(b.cfg.Dir, job.JobName+"."+strconv.Itoa(k))
}

func jobName(file string) string { return file[:strings.LastIndexByte(file, '.')] }

// each calls f with every record that can be read.
func (b *Backend) each(f func(name string, r record, alive bool)) {
	entries, err := os.ReadDir(b.cfg.Dir)
	if err != nil {
		b.cfg.Log.Error("the records of local runs cannot be read", "err", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "sg-") {
			continue
		}
		if r, alive, err := read(filepath.Join(b.cfg.Dir, e.Name())); err == nil {
			f(e.Name(), r, alive)
		}
	}
}

// read reads a record, and reports whether its process runs, that is, whether the lock is held.
func read(file string) (r record, alive bool, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return r, false, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, false, err
	}
	return r, unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK, nil
}

func write(f *os.File, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// The length is constant, so that the earlier content is overwritten completely.
	if _, err := f.WriteAt(fmt.Appendf(nil, "%-512s\n", data), 0); err != nil {
		return err
	}
	return f.Sync()
}

func notRun(err error) run.SendResult {
	return run.SendResult{Outcome: run.SendNotRun, Code: "local_not_started", Text: "nothing was started: " + err.Error()}
}
