// Package seams puts two named places around each side effect of the lifecycle, where the crash campaign makes a gateway die:
// <port>.<method>[.<event type or file name>].before and .after. Three environment variables control them:
//
//	SLURMGATE_CHAOS_KILL=SEAM[#N]    the process kills itself with SIGKILL the N-th time it passes there
//	SLURMGATE_CHAOS_FAIL=PLACE[#N]   a place without .before and .after: the N-th call has its effect, and its caller gets a Transport fault
//	SLURMGATE_CHAOS_LIST=FILE        each seam passed is appended to the file, one a line
//
// Only the build with the tag chaos has this package.
package seams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// FromEnvironment reads from the environment what the seams of this process do. The function puts them around all parts
// that have side effects; several engines pass the same seams.
func FromEnvironment() func(run.Parts) run.Parts {
	s := &seams{kill: parseTrigger("SLURMGATE_CHAOS_KILL"), fail: parseTrigger("SLURMGATE_CHAOS_FAIL")}
	if name := os.Getenv("SLURMGATE_CHAOS_LIST"); name != "" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			panic(err)
		}
		s.list = f
	}
	return func(p run.Parts) run.Parts {
		p.Store = store{p.Store, s}
		p.Submitter = submitter{p.Submitter, s}
		p.Queue = queue{p.Queue, s}
		p.Accounting = accounting{p.Accounting, s}
		p.Canceller = canceller{p.Canceller, s}
		p.Workspace = workspace{p.Workspace, s}
		p.Images = images{p.Images, s}
		p.Objects = objects{p.Objects, s}
		return p
	}
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

func (t *trigger) pull(name string) (fires bool) {
	if t.name != name {
		return false
	}
	t.left--
	return t.left == 0
}

// seams is the state that all wrapped ports share.
type seams struct {
	mu         sync.Mutex
	kill, fail trigger
	list       *os.File
}

func (s *seams) pass(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list != nil {
		fmt.Fprintln(s.list, name)
	}
	if s.kill.pull(name) {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for the signal
	}
}

// around carries out an effect between its two seams, and hides its outcome if this call was chosen.
func (s *seams) around(name string, effect func() error) error {
	s.pass(name + ".before")
	err := effect()
	s.pass(name + ".after")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail.pull(name) {
		return fault.New(fault.Transport, "chaos_apply_and_fail", "injected after the effect of "+name)
	}
	return err
}

// result calls around for an effect that returns a value.
func result[T any](s *seams, name string, effect func() (T, error)) (v T, err error) {
	err = s.around(name, func() (err error) { v, err = effect(); return err })
	return v, err
}

type store struct {
	run.Store
	s *seams
}

func (p store) Insert(ctx context.Context, n run.New) (v run.View, created bool, err error) {
	err = p.s.around("Store.Insert", func() (err error) { v, created, err = p.Store.Insert(ctx, n); return err })
	return v, created, err
}

func (p store) Apply(ctx context.Context, w run.Write) (run.View, error) {
	return result(p.s, "Store.Apply."+w.Event.Type, func() (run.View, error) { return p.Store.Apply(ctx, w) })
}

func (p store) ApplyAll(ctx context.Context, list []run.Write) ([]run.View, error) {
	return result(p.s, "Store.ApplyAll."+list[0].Event.Type, func() ([]run.View, error) { return p.Store.ApplyAll(ctx, list) })
}

func (p store) Withdraw(ctx context.Context, w run.Write, by run.Withdrawal) (v run.View, held []run.Asker, err error) {
	err = p.s.around("Store.Apply."+w.Event.Type, func() (err error) { v, held, err = p.Store.Withdraw(ctx, w, by); return err })
	return v, held, err
}

type submitter struct {
	run.Submitter
	s *seams
}

// Send has no error to return: its result is dropped instead.
func (p submitter) Send(ctx context.Context, job run.JobSpec, k int) (res run.SendResult) {
	err := p.s.around("Submitter.Send", func() error { res = p.Submitter.Send(ctx, job, k); return nil })
	if err != nil {
		return run.SendResult{Outcome: run.SendDoubt, Text: err.Error()}
	}
	return res
}

// Receipt, when it fails, reports that it does not know whether an sbatch is still running.
func (p submitter) Receipt(ctx context.Context, job run.JobSpec, k int) (res run.SendResult, held bool) {
	err := p.s.around("Submitter.Receipt", func() error { res, held = p.Submitter.Receipt(ctx, job, k); return nil })
	if err != nil {
		return run.SendResult{Outcome: run.SendDoubt, Text: err.Error()}, true
	}
	return res, held
}

type queue struct {
	run.Queue
	s *seams
}

func (p queue) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	return result(p.s, "Queue.Jobs", func() ([]run.Job, error) { return p.Queue.Jobs(ctx, sought) })
}

type accounting struct {
	run.Accounting
	s *seams
}

func (p accounting) Records(ctx context.Context, since time.Time, of ...run.JobKey) ([]run.Job, error) {
	return result(p.s, "Accounting.Records", func() ([]run.Job, error) { return p.Accounting.Records(ctx, since, of...) })
}

type canceller struct {
	run.Canceller
	s *seams
}

func (p canceller) Cancel(ctx context.Context, jobID, name, shown string) error {
	return p.s.around("Canceller.Cancel", func() error { return p.Canceller.Cancel(ctx, jobID, name, shown) })
}

type workspace struct {
	run.Workspace
	s *seams
}

func (p workspace) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	return p.s.around("Workspace.StageInputs", func() error { return p.Workspace.StageInputs(ctx, runID, inputs, open) })
}

func (p workspace) OpenAttempt(ctx context.Context, runID string, n int, token string, files ...run.ControlFile) error {
	return p.s.around("Workspace.OpenAttempt", func() error { return p.Workspace.OpenAttempt(ctx, runID, n, token, files...) })
}

func (p workspace) OpenTogether(ctx context.Context, list []run.Opening) (errs []error) {
	err := p.s.around("Workspace.OpenTogether", func() error { errs = p.Workspace.OpenTogether(ctx, list); return errors.Join(errs...) })
	if err != nil && errors.Join(errs...) == nil {
		errs = slices.Repeat([]error{err}, len(list))
	}
	return errs
}

func (p workspace) ReadControlFrom(ctx context.Context, runID string, n int, name string, from, limit int64) (run.Part, error) {
	return result(p.s, "Workspace.ReadControl."+name, func() (run.Part, error) {
		return p.Workspace.ReadControlFrom(ctx, runID, n, name, from, limit)
	})
}

func (p workspace) TakeClaim(ctx context.Context, runID string, n int, content []byte) ([]byte, error) {
	return result(p.s, "Workspace.TakeClaim", func() ([]byte, error) { return p.Workspace.TakeClaim(ctx, runID, n, content) })
}

func (p workspace) OpenOutput(ctx context.Context, runID string, n int, rel string) (r io.ReadCloser, size int64, err error) {
	err = p.s.around("Workspace.OpenOutput", func() (err error) { r, size, err = p.Workspace.OpenOutput(ctx, runID, n, rel); return err })
	if err != nil && r != nil {
		r.Close()
		r = nil
	}
	return r, size, err
}

type images struct {
	run.Images
	s *seams
}

func (p images) Verify(ctx context.Context, digest string) (string, error) {
	return result(p.s, "Images.Verify", func() (string, error) { return p.Images.Verify(ctx, digest) })
}

type objects struct {
	run.Objects
	s *seams
}

func (p objects) Put(ctx context.Context, r io.Reader, limit int64) (sum string, size int64, err error) {
	err = p.s.around("Objects.Put", func() (err error) { sum, size, err = p.Objects.Put(ctx, r, limit); return err })
	return sum, size, err
}
