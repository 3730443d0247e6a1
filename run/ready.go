package run

import (
	"sync"
	"time"

	"slurmgate/fault"
)

// Ready returns why new runs wait although they are accepted: a Transport fault with the code of the reason, nil if
// nothing known delays them. The information comes from the last query and the last sends; nothing is queried.
func (e *Engine) Ready() error {
	if d := e.pressure.draining(); d != nil {
		return fault.New(fault.Transport, Drained, d.String()).WithNext("wait until the site is resumed")
	}
	if p := e.pressure.sendPause(); p != nil {
		return p.fault()
	}
	if _, err := e.watcher.answered(); err != nil {
		return e.unanswered(err)
	}
	return e.unstaged()
}

// unanswered returns a failed query of Slurm as a reason why runs wait.
func (e *Engine) unanswered(err error) error {
	if fault.CodeOf(err) == WrongCluster {
		return err
	}
	return fault.Wrap(fault.Transport, Unreachable, "Slurm could not be queried", err).
		WithNext("the gateway retries; check Slurm").WithSteps(fault.Do("doctor"))
}

// unstaged returns a failed staging as a reason why runs wait; nil if it does not concern the next run.
func (e *Engine) unstaged() error {
	if err := e.disk.failure(); err != nil {
		return fault.Wrap(fault.Transport, fault.CodeOf(err), "the last new run could not be staged", err)
	}
	return nil
}

// diskHealth holds the last staging that failed because the filesystem was unavailable or full, which delays every run.
// A run that waits for it is staged again before twice the watcher's ceiling has passed; later, without such a run, the
// failure no longer counts.
type diskHealth struct {
	now   func() time.Time
	fresh time.Duration // how long a failure counts

	mu  sync.Mutex
	err error
	at  time.Time
}

// staged records the result of a staging.
func (d *diskHealth) staged(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if code := fault.CodeOf(err); err == nil || code == "runs_dir_unavailable" || code == "disk_full" {
		d.err, d.at = err, d.now()
	}
}

// failure returns the error of the last staging, nil if it does not concern the next one.
func (d *diskHealth) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now().Sub(d.at) >= d.fresh {
		return nil
	}
	return d.err
}
