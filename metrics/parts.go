package metrics

import (
	"context"
	"io"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// Wrap puts counters around the parts that reach Slurm and copy bytes.
func (m *Metrics) Wrap(p run.Parts) run.Parts {
	p.Submitter = submitter{p.Submitter, m}
	p.Queue = queue{p.Queue, m}
	p.Accounting = accounting{p.Accounting, m}
	p.Canceller = canceller{p.Canceller, m}
	p.Workspace = workspace{p.Workspace, m}
	return p
}

func (m *Metrics) ask(command string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.asked.WithLabelValues(command, outcome).Inc()
}

type submitter struct {
	run.Submitter
	m *Metrics
}

func (s submitter) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	r := s.Submitter.Send(ctx, job, k)
	s.m.asked.WithLabelValues("sbatch", string(r.Outcome)).Inc()
	return r
}

type queue struct {
	run.Queue
	m *Metrics
}

func (q queue) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	jobs, err := q.Queue.Jobs(ctx, sought)
	q.m.ask("squeue", err)
	return jobs, err
}

type accounting struct {
	run.Accounting
	m *Metrics
}

func (a accounting) Records(ctx context.Context, since time.Time) ([]run.Job, error) {
	jobs, err := a.Accounting.Records(ctx, since)
	a.m.ask("sacct", err)
	return jobs, err
}

type canceller struct {
	run.Canceller
	m *Metrics
}

func (c canceller) Cancel(ctx context.Context, jobID, name string) error {
	err := c.Canceller.Cancel(ctx, jobID, name)
	c.m.ask("scancel", err)
	return err
}

type workspace struct {
	run.Workspace
	m *Metrics
}

// StageInputs counts an input with its full size when it is opened for copying, even if it is then reflinked, which copies no bytes.
func (w workspace) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	return w.Workspace.StageInputs(ctx, runID, inputs, func(ctx context.Context, sum string) (io.ReadCloser, int64, error) {
		r, size, err := open(ctx, sum)
		if err == nil {
			w.m.bytes.WithLabelValues("stage").Add(float64(size))
		}
		return r, size, err
	})
}

func (w workspace) OpenOutput(ctx context.Context, runID string, n int, srcRelpath string) (io.ReadCloser, int64, error) {
	r, size, err := w.Workspace.OpenOutput(ctx, runID, n, srcRelpath)
	if err != nil {
		return r, size, err
	}
	return counted{r, w.m}, size, nil
}

type counted struct {
	io.ReadCloser
	m *Metrics
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.m.bytes.WithLabelValues("collect").Add(float64(n))
	return n, err
}
