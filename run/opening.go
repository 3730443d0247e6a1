package run

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// SiteAway is the code of a site that could not be opened: its folders or its Slurm commands are not there.
const SiteAway = "site_away"

// unreached reports whether a code means that a site, or a host of it, could not be reached: nothing is known about the
// files or jobs there.
func unreached(code string) bool {
	return code == SiteAway || strings.HasPrefix(code, "ssh_") || strings.HasPrefix(code, "rest_")
}

// opening implements the ports of a site before and after it was opened. Before, every call is a Transport fault with
// code [SiteAway] and has no effect, so runs of the site wait as they do while its filesystem or its Slurm is
// unavailable.
//
// parts is set once; from then on why is ignored.
type opening struct {
	parts atomic.Pointer[Parts]
	why   atomic.Pointer[fault.Error] // of the last try; nil before the first has failed
	since atomic.Pointer[time.Time]   // of the first failed try
	site  string
}

// opened returns the site's ports.
func (o *opening) opened() (*Parts, error) {
	if p := o.parts.Load(); p != nil {
		return p, nil
	}
	e := fault.New(fault.Transport, SiteAway, "the site "+o.site+" is away: it has not been opened yet")
	if why := o.why.Load(); why != nil {
		e.Msg = "the site " + o.site + " is away: " + why.Msg
		if next := fault.Advised(why); next != nil {
			e.Next, e.Steps = next.Next, next.Steps
		}
		if why.Err != nil {
			e.Msg += ": " + why.Err.Error()
		}
	}
	if e.Next == "" {
		e.Next = "the gateway tries again by itself"
	}
	return nil, e
}

// via calls a port of the site.
func via[T any](o *opening, call func(*Parts) (T, error)) (T, error) {
	p, err := o.opened()
	if err != nil {
		var none T
		return none, err
	}
	return call(p)
}

// away returns why the site could not be opened, nil once it is open.
func (o *opening) away() error {
	_, err := o.opened()
	return err
}

// failed records that a try to open the site has failed.
func (o *opening) failed(now time.Time, why *fault.Error) {
	o.since.CompareAndSwap(nil, &now)
	o.why.Store(why)
}

// failing returns since when the site could not be opened; zero if no try has failed.
func (o *opening) failing() time.Time {
	if t := o.since.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

func (o *opening) Render(j JobSpec) (script, pinned []byte, err error) {
	p, err := o.opened()
	if err != nil {
		return nil, nil, err
	}
	return p.Renderer.Render(j)
}

// RenderArray is called only before a send.
func (o *opening) RenderArray(j JobSpec) ([]byte, error) {
	return via(o, func(p *Parts) ([]byte, error) { return p.Renderer.RenderArray(j) })
}

func (o *opening) Send(ctx context.Context, j JobSpec, k int) SendResult {
	p, err := o.opened()
	if err != nil {
		return SendResult{Outcome: SendNotRun, Code: SiteAway, Scope: ScopeSite, Text: fault.Prose(err)}
	}
	return p.Submitter.Send(ctx, j, k)
}

// pace does not delay a send of a site that is away: the send is not carried out.
func (o *opening) pace(ctx context.Context, first bool) error {
	if p := o.parts.Load(); p != nil && p.Pace != nil {
		return p.Pace(ctx, first)
	}
	return nil
}

// Receipt of a site that is away returns held: the receipt may be written at any time.
func (o *opening) Receipt(ctx context.Context, j JobSpec, k int) (res SendResult, held bool) {
	p, err := o.opened()
	if err != nil {
		return SendResult{Outcome: SendDoubt, Code: SiteAway, Text: fault.Prose(err)}, true
	}
	return p.Submitter.Receipt(ctx, j, k)
}

func (o *opening) Jobs(ctx context.Context, sought map[string]bool) ([]Job, error) {
	return via(o, func(p *Parts) ([]Job, error) { return p.Queue.Jobs(ctx, sought) })
}

func (o *opening) MessageTimeout(ctx context.Context) (time.Duration, error) {
	return via(o, func(p *Parts) (time.Duration, error) { return p.Queue.MessageTimeout(ctx) })
}

func (o *opening) Harmless(why string) {
	if p := o.parts.Load(); p != nil {
		p.Queue.Harmless(why)
	}
}

func (o *opening) Unusable(ctx context.Context) (map[string]Unusable, error) {
	return via(o, func(p *Parts) (map[string]Unusable, error) { return p.Queue.Unusable(ctx) })
}

func (o *opening) SeesAll(ctx context.Context) error {
	_, err := via(o, func(p *Parts) (struct{}, error) { return struct{}{}, p.Queue.SeesAll(ctx) })
	return err
}

func (o *opening) Records(ctx context.Context, since time.Time, of ...JobKey) ([]Job, error) {
	return via(o, func(p *Parts) ([]Job, error) { return p.Accounting.Records(ctx, since, of...) })
}

func (o *opening) Usage(ctx context.Context, since time.Time, of ...JobKey) ([]Usage, error) {
	return via(o, func(p *Parts) ([]Usage, error) { return p.Accounting.Usage(ctx, since, of...) })
}

func (o *opening) Cancel(ctx context.Context, jobID, name, shown string) error {
	p, err := o.opened()
	if err != nil {
		return err
	}
	return p.Canceller.Cancel(ctx, jobID, name, shown)
}

func (o *opening) Verify(ctx context.Context, digest string) (string, error) {
	return via(o, func(p *Parts) (string, error) { return p.Images.Verify(ctx, digest) })
}

// ExecArgs is called only after Verify.
func (o *opening) ExecArgs(spec plan.Spec, binds []plan.Bind, inputs []Placed, image, runDir, attemptDir string) []string {
	if p := o.parts.Load(); p != nil {
		return p.Images.ExecArgs(spec, binds, inputs, image, runDir, attemptDir)
	}
	return nil
}

func (o *opening) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open Opener) error {
	p, err := o.opened()
	if err != nil {
		return err
	}
	return p.Workspace.StageInputs(ctx, runID, inputs, open)
}

func (o *opening) OpenAttempt(ctx context.Context, runID string, n int, token string, files ...ControlFile) error {
	p, err := o.opened()
	if err != nil {
		return err
	}
	return p.Workspace.OpenAttempt(ctx, runID, n, token, files...)
}

func (o *opening) OpenTogether(ctx context.Context, list []Opening) []error {
	p, err := o.opened()
	if err != nil {
		return slices.Repeat([]error{err}, len(list))
	}
	return p.Workspace.OpenTogether(ctx, list)
}

func (o *opening) ReadControlFrom(ctx context.Context, runID string, n int, name string, from, limit int64) (Part, error) {
	return via(o, func(p *Parts) (Part, error) { return p.Workspace.ReadControlFrom(ctx, runID, n, name, from, limit) })
}

func (o *opening) TakeClaim(ctx context.Context, runID string, n int, content []byte) ([]byte, error) {
	return via(o, func(p *Parts) ([]byte, error) { return p.Workspace.TakeClaim(ctx, runID, n, content) })
}

func (o *opening) OpenOutput(ctx context.Context, runID string, n int, srcRelpath string) (io.ReadCloser, int64, error) {
	p, err := o.opened()
	if err != nil {
		return nil, 0, err
	}
	return p.Workspace.OpenOutput(ctx, runID, n, srcRelpath)
}

func (o *opening) Undeclared(ctx context.Context, runID string, n int, declared []string, limit int) ([]string, error) {
	return via(o, func(p *Parts) ([]string, error) { return p.Workspace.Undeclared(ctx, runID, n, declared, limit) })
}

func (o *opening) RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (int64, error) {
	return via(o, func(p *Parts) (int64, error) { return p.Workspace.RemoveRun(ctx, runID, attempts, still) })
}

func (o *opening) RunSize(ctx context.Context, runID string) (int64, error) {
	return via(o, func(p *Parts) (int64, error) { return p.Workspace.RunSize(ctx, runID) })
}

func (o *opening) EachFile(ctx context.Context, runID string, f func(func() (io.ReadCloser, error)) (bool, error)) error {
	p, err := o.opened()
	if err != nil {
		return err
	}
	return p.Workspace.EachFile(ctx, runID, f)
}

// RunDir returns "" while the site is away: no call that names the folder is made then.
func (o *opening) RunDir(runID string) string {
	if p := o.parts.Load(); p != nil {
		return p.Workspace.RunDir(runID)
	}
	return ""
}
