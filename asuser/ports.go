package asuser

import (
	"context"
	"io"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

var (
	_ run.Submitter = (*Users)(nil)
	_ run.Canceller = (*Users)(nil)
	_ run.Workspace = (*Users)(nil)
)

// Send implements [run.Submitter]. Without a login nothing was started.
func (u *Users) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	p, leave, err := u.of(ctx, job.RunID)
	if err != nil {
		return run.SendResult{Outcome: run.SendNotRun, Code: fault.CodeOf(err), Scope: run.ScopeRun, Text: "sbatch was not started: " +
			fault.Prose(err)}
	}
	defer leave()
	return p.Send(ctx, job, k)
}

// Receipt implements [run.Submitter]. Without a login sbatch counts as running, because it may be.
func (u *Users) Receipt(ctx context.Context, job run.JobSpec, k int) (res run.SendResult, held bool) {
	p, leave, err := u.of(ctx, job.RunID)
	if err != nil {
		return run.SendResult{Outcome: run.SendDoubt, Code: fault.CodeOf(err), Text: fault.Prose(err)}, true
	}
	defer leave()
	return p.Receipt(ctx, job, k)
}

// Cancel implements [run.Canceller], as the user of the run in the name, or of the run that leads the array of that
// name.
func (u *Users) Cancel(ctx context.Context, jobID, name, shown string) (err error) {
	runID := run.RunOf(name)
	if run.IsArrayName(name) {
		if runID, err = u.cfg.LeaderOf(ctx, name); err != nil {
			return err
		}
	}
	if runID == "" {
		return fault.New(fault.Internal, "job_name", "not the name of a gateway's job: "+name)
	}
	return u.with(ctx, runID, func(p Parts) error { return p.Cancel(ctx, jobID, name, shown) })
}

// with calls f with the parts of a run's user.
func (u *Users) with(ctx context.Context, runID string, f func(Parts) error) error {
	p, leave, err := u.of(ctx, runID)
	if err != nil {
		return err
	}
	defer leave()
	return f(p)
}

// get is with for a call that returns a value.
func get[T any](ctx context.Context, u *Users, runID string, f func(Parts) (T, error)) (v T, err error) {
	err = u.with(ctx, runID, func(p Parts) (err error) {
		v, err = f(p)
		return err
	})
	return v, err
}

// StageInputs implements [run.Workspace], as do all methods below.
func (u *Users) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	return u.with(ctx, runID, func(p Parts) error { return p.StageInputs(ctx, runID, inputs, open) })
}

func (u *Users) OpenAttempt(ctx context.Context, runID string, n int, token string, files ...run.ControlFile) error {
	return u.with(ctx, runID, func(p Parts) error { return p.OpenAttempt(ctx, runID, n, token, files...) })
}

func (u *Users) OpenTogether(ctx context.Context, list []run.Opening) []error {
	return run.OpenEach(ctx, u, list)
}

func (u *Users) ReadControlFrom(ctx context.Context, runID string, n int, name string, from, limit int64) (run.Part, error) {
	return get(ctx, u, runID, func(p Parts) (run.Part, error) { return p.ReadControlFrom(ctx, runID, n, name, from, limit) })
}

func (u *Users) TakeClaim(ctx context.Context, runID string, n int, content []byte) ([]byte, error) {
	return get(ctx, u, runID, func(p Parts) ([]byte, error) { return p.TakeClaim(ctx, runID, n, content) })
}

// OpenOutput keeps the user logged in until the reader is closed.
func (u *Users) OpenOutput(ctx context.Context, runID string, n int, srcRelpath string) (io.ReadCloser, int64, error) {
	p, leave, err := u.of(ctx, runID)
	if err != nil {
		return nil, 0, err
	}
	r, size, err := p.OpenOutput(ctx, runID, n, srcRelpath)
	if err != nil {
		leave()
		return nil, 0, err
	}
	return output{r, leave}, size, nil
}

// output is a user's output; the user stays logged in until Close.
type output struct {
	io.ReadCloser
	leave func()
}

func (o output) Close() error {
	defer o.leave()
	return o.ReadCloser.Close()
}

func (u *Users) Undeclared(ctx context.Context, runID string, n int, declared []string, limit int) ([]string, error) {
	return get(ctx, u, runID, func(p Parts) ([]string, error) { return p.Undeclared(ctx, runID, n, declared, limit) })
}

func (u *Users) RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (int64, error) {
	return get(ctx, u, runID, func(p Parts) (int64, error) { return p.RemoveRun(ctx, runID, attempts, still) })
}

func (u *Users) RunSize(ctx context.Context, runID string) (int64, error) {
	return get(ctx, u, runID, func(p Parts) (int64, error) { return p.RunSize(ctx, runID) })
}

func (u *Users) EachFile(ctx context.Context, runID string, f func(open func() (io.ReadCloser, error)) (more bool, err error)) error {
	return u.with(ctx, runID, func(p Parts) error { return p.EachFile(ctx, runID, f) })
}

// RunDir returns the same path whether or not the user can be logged in.
func (u *Users) RunDir(runID string) string {
	user, err := u.userOf(context.Background(), runID)
	if err != nil {
		user = ""
	}
	return u.cfg.RunDir(user, runID)
}
