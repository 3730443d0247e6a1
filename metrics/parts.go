package metrics

import (
	"context"
	"io"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// Wrap adds counters to the parts of a site that reach Slurm and copy bytes.
func (m *Metrics) Wrap(name string, p run.Parts) run.Parts {
	s := counters{m, name}
	p.Submitter = submitter{p.Submitter, s}
	p.Queue = queue{p.Queue, s}
	p.Accounting = accounting{p.Accounting, s}
	p.Canceller = canceller{p.Canceller, s}
	p.Workspace = workspace{p.Workspace, s}
	p.Store = store{p.Store, s}
	return p
}

// counters holds the counters of a site.
type counters struct {
	*Metrics
	site string
}

func (m counters) ask(command string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.asked.WithLabelValues(m.site, command, outcome).Inc()
}

type store struct {
	run.Store
	m counters
}

// Apply counts an attempt that ended because of a node. The node's name is Slurm's.
func (s store) Apply(ctx context.Context, w run.Write) (run.View, error) {
	v, err := s.Store.Apply(ctx, w)
	for _, a := range w.Attempts {
		if err == nil && a.Ending.NodeFault() && a.Node != "" {
			s.m.faults.WithLabelValues(s.m.site, a.Node, string(a.Ending)).Inc()
		}
	}
	return v, err
}

type submitter struct {
	run.Submitter
	m counters
}

func (s submitter) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	r := s.Submitter.Send(ctx, job, k)
	s.m.asked.WithLabelValues(s.m.site, "sbatch", string(r.Outcome)).Inc()
	return r
}

type queue struct {
	run.Queue
	m counters
}

func (q queue) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	jobs, err := q.Queue.Jobs(ctx, sought)
	q.m.ask("squeue", err)
	return jobs, err
}

type accounting struct {
	run.Accounting
	m counters
}

func (a accounting) Records(ctx context.Context, since time.Time, of ...run.JobKey) ([]run.Job, error) {
	jobs, err := a.Accounting.Records(ctx, since, of...)
	a.m.ask("sacct", err)
	return jobs, err
}

type canceller struct {
	run.Canceller
	m counters
}

func (c canceller) Cancel(ctx context.Context, jobID, name, shown string) error {
	err := c.Canceller.Cancel(ctx, jobID, name, shown)
	c.m.ask("scancel", err)
	return err
}

type workspace struct {
	run.Workspace
	m counters
}

// StageInputs counts an input with its full size when it is opened for copying, even if it is then reflinked, which copies no bytes.
func (w workspace) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	return w.Workspace.StageInputs(ctx, runID, inputs, func(ctx context.Context, sum string) (io.ReadCloser, int64, error) {
		r, size, err := open(ctx, sum)
		if err == nil {
			w.m.bytes.WithLabelValues(w.m.site, "stage").Add(float64(size))
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
	m counters
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.m.bytes.WithLabelValues(c.m.site, "collect").Add(float64(n))
	return n, err
}
