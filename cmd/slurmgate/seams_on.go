//go:build chaos

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// The build for the crash campaign (chaos/) puts two named places around each side effect of the lifecycle:
// <port>.<method>[.<event type or file name>].before and .after. Three environment variables control them:
//
//	SLURMGATE_CHAOS_KILL=<seam>[#n]    the process kills itself with SIGKILL the n-th time it passes there
//	SLURMGATE_CHAOS_FAIL=<place>[#n]   a place without .before and .after: the n-th call has its effect, and its caller gets a Transport
//
// fault
//
//	SLURMGATE_CHAOS_LIST=FILE          each seam passed is appended to the file, one a line
//
// No other build has this file.
func seams(p run.Parts) run.Parts {
	c := &chaos{kill: parseTrigger("SLURMGATE_CHAOS_KILL"), fail: parseTrigger("SLURMGATE_CHAOS_FAIL")}
	if name := os.Getenv("SLURMGATE_CHAOS_LIST"); name != "" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			panic(err)
		}
		c.list = f
	}
	p.Store, p.Workspace = seamStore{p.Store, c}, seamWorkspace{p.Workspace, c}
	p.Images, p.Objects = seamImages{p.Images, c}, seamObjects{p.Objects, c}
	p.Submitter, p.Queue, p.Accounting, p.Canceller = seamSubmitter{p.Submitter, c}, seamQueue{p.Queue, c}, seamAccounting{p.Accounting, c},
		seamCanceller{p.Canceller, c}
	return p
}

// trigger fires once, at the n-th pass.
type trigger struct {
	name string
	left int
}

func parseTrigger(variable string) trigger {
	name, n, ok := strings.Cut(os.Getenv(variable), "#")
	t := trigger{name, 1}
	if ok {
		var err error
		if t.left, err = strconv.Atoi(n); err != nil {
			panic(fmt.Sprintf("%s: %v", variable, err))
		}
	}
	return t
}

func (t *trigger) fires(name string) bool {
	if t.name != name {
		return false
	}
	t.left--
	return t.left == 0
}

// chaos is what all decorated ports share.
type chaos struct {
	mu         sync.Mutex
	kill, fail trigger
	list       *os.File
}

func (c *chaos) pass(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list != nil {
		fmt.Fprintln(c.list, name)
	}
	if c.kill.fires(name) {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for the signal
	}
}

// around carries out an effect between its two seams, and hides its outcome if this call was chosen.
func (c *chaos) around(name string, effect func() error) error {
	c.pass(name + ".before")
	err := effect()
	c.pass(name + ".after")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail.fires(name) {
		return fault.New(fault.Transport, "chaos", "chaos_apply_and_fail", "injected after the effect of "+name)
	}
	return err
}

type seamStore struct {
	run.Store
	c *chaos
}

func (s seamStore) Insert(ctx context.Context, n run.New) (v run.View, created bool, err error) {
	err = s.c.around("Store.Insert", func() (err error) {
		v, created, err = s.Store.Insert(ctx, n)
		return err
	})
	return v, created, err
}

func (s seamStore) Apply(ctx context.Context, w run.Write) (v run.View, err error) {
	err = s.c.around("Store.Apply."+w.Event.Type, func() (err error) {
		v, err = s.Store.Apply(ctx, w)
		return err
	})
	return v, err
}

type seamWorkspace struct {
	run.Workspace
	c *chaos
}

func (s seamWorkspace) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	return s.c.around("Workspace.StageInputs", func() error { return s.Workspace.StageInputs(ctx, runID, inputs, open) })
}

func (s seamWorkspace) OpenAttempt(ctx context.Context, runID string, n int, token string, files ...run.ControlFile) error {
	return s.c.around("Workspace.OpenAttempt", func() error { return s.Workspace.OpenAttempt(ctx, runID, n, token, files...) })
}

func (s seamWorkspace) ReadControl(ctx context.Context, runID string, n int, name string, limit int64, tail bool) (data []byte, err error) {
	err = s.c.around("Workspace.ReadControl."+name, func() (err error) {
		data, err = s.Workspace.ReadControl(ctx, runID, n, name, limit, tail)
		return err
	})
	return data, err
}

func (s seamWorkspace) TakeClaim(ctx context.Context, runID string, n int, content []byte) (got []byte, err error) {
	err = s.c.around("Workspace.TakeClaim", func() (err error) {
		got, err = s.Workspace.TakeClaim(ctx, runID, n, content)
		return err
	})
	return got, err
}

func (s seamWorkspace) OpenOutput(ctx context.Context, runID string, n int, rel string) (f io.ReadCloser, size int64, err error) {
	err = s.c.around("Workspace.OpenOutput", func() (err error) {
		f, size, err = s.Workspace.OpenOutput(ctx, runID, n, rel)
		return err
	})
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, size, err
}

type seamImages struct {
	run.Images
	c *chaos
}

func (s seamImages) Verify(ctx context.Context, digest string) (path string, err error) {
	err = s.c.around("Images.Verify", func() (err error) {
		path, err = s.Images.Verify(ctx, digest)
		return err
	})
	return path, err
}

type seamObjects struct {
	run.Objects
	c *chaos
}

func (s seamObjects) Put(ctx context.Context, r io.Reader, limit int64) (sum string, size int64, err error) {
	err = s.c.around("Objects.Put", func() (err error) {
		sum, size, err = s.Objects.Put(ctx, r, limit)
		return err
	})
	return sum, size, err
}

type seamSubmitter struct {
	run.Submitter
	c *chaos
}

// Send has no error to return: its result is dropped instead.
func (s seamSubmitter) Send(ctx context.Context, job run.JobSpec, k int) (res run.SendResult) {
	err := s.c.around("Submitter.Send", func() error { res = s.Submitter.Send(ctx, job, k); return nil })
	if err != nil {
		return run.SendResult{Outcome: run.SendDoubt, Text: err.Error()}
	}
	return res
}

// Receipt, when it fails, reports that it does not know whether an sbatch is still running.
func (s seamSubmitter) Receipt(ctx context.Context, job run.JobSpec, k int) (res run.SendResult, held bool) {
	err := s.c.around("Submitter.Receipt", func() error { res, held = s.Submitter.Receipt(ctx, job, k); return nil })
	if err != nil {
		return run.SendResult{Outcome: run.SendDoubt, Text: err.Error()}, true
	}
	return res, held
}

type seamQueue struct {
	run.Queue
	c *chaos
}

func (s seamQueue) Jobs(ctx context.Context, sought map[string]bool) (jobs []run.Job, err error) {
	err = s.c.around("Queue.Jobs", func() (err error) {
		jobs, err = s.Queue.Jobs(ctx, sought)
		return err
	})
	return jobs, err
}

type seamAccounting struct {
	run.Accounting
	c *chaos
}

func (s seamAccounting) Records(ctx context.Context, since time.Time) (jobs []run.Job, err error) {
	err = s.c.around("Accounting.Records", func() (err error) {
		jobs, err = s.Accounting.Records(ctx, since)
		return err
	})
	return jobs, err
}

type seamCanceller struct {
	run.Canceller
	c *chaos
}

func (s seamCanceller) Cancel(ctx context.Context, jobID, name string) error {
	return s.c.around("Canceller.Cancel", func() error { return s.Canceller.Cancel(ctx, jobID, name) })
}
