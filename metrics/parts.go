package metrics

import (
	"context"
	"io"
	"os"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// Wrap puts counters around the parts that reach Slurm and copy bytes.
func (m *Metrics) Wrap(p run.Parts) run.Parts {
	p.Sender = sender{p.Sender, m}
	p.Observer = observer{p.Observer, m}
	p.Stager = stager{p.Stager, m}
	p.Control = control{p.Control, m}
	return p
}

func (m *Metrics) ask(command string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.asked.WithLabelValues(command, outcome).Inc()
}

type sender struct {
	run.Sender
	m *Metrics
}

// Send implements run.Sender.
func (s sender) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	r := s.Sender.Send(ctx, job, k)
	s.m.asked.WithLabelValues("sbatch", string(r.Outcome)).Inc()
	return r
}

type observer struct {
	run.Observer
	m *Metrics
}

// Queue implements run.Observer.
func (o observer) Queue(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	jobs, err := o.Observer.Queue(ctx, sought)
	o.m.ask("squeue", err)
	return jobs, err
}

// Accounting implements run.Observer.
func (o observer) Accounting(ctx context.Context, since time.Time) ([]run.Job, error) {
	jobs, err := o.Observer.Accounting(ctx, since)
	o.m.ask("sacct", err)
	return jobs, err
}

// Cancel implements run.Observer.
func (o observer) Cancel(ctx context.Context, jobID, name string) error {
	err := o.Observer.Cancel(ctx, jobID, name)
	o.m.ask("scancel", err)
	return err
}

type stager struct {
	run.Stager
	m *Metrics
}

// StageInputs implements run.Stager. An input counts with its full size when it is opened for copying, even if it is then
// reflinked, which copies no bytes.
func (s stager) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open func(sha256 string) (*os.File, error)) error {
	return s.Stager.StageInputs(ctx, runID, inputs, func(sum string) (*os.File, error) {
		f, err := open(sum)
		if err == nil {
			if st, err := f.Stat(); err == nil {
				s.m.bytes.WithLabelValues("stage").Add(float64(st.Size()))
			}
		}
		return f, err
	})
}

type control struct {
	run.Control
	m *Metrics
}

// OpenOutput implements run.Control.
func (c control) OpenOutput(ctx context.Context, runID string, n int, srcRelpath string) (io.ReadCloser, int64, error) {
	r, size, err := c.Control.OpenOutput(ctx, runID, n, srcRelpath)
	if err != nil {
		return r, size, err
	}
	return counted{r, c.m}, size, nil
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
