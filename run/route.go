package run

import (
	"context"
	"io"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// The subject of a call decides which engine carries it out.

// at returns the engine of a site by its name.
func (s *Sites) at(name string) (*member, error) {
	if m := s.named[name]; m != nil {
		return m, nil
	}
	return nil, siteRemoved(name)
}

// of returns the engine of a run. A run that waits for inputs, or ended while it did, has none: [NotStarted].
func (s *Sites) of(ctx context.Context, runID string) (*member, error) {
	v, err := s.store.View(ctx, runID)
	switch {
	case err != nil:
		return nil, err
	case v.Waiting != nil:
		return nil, NotStarted(v)
	}
	return s.at(v.Run.Site)
}

// reader returns an engine that can read a run from the ledger: that of its site, or any if the site file no longer has
// the site.
func (s *Sites) reader(site string) *member {
	if m := s.named[site]; m != nil {
		return m
	}
	return s.order[0]
}

// Submit calls [Engine.Submit] on the site of the run, if there is a run, and else on Order.Site.
func (s *Sites) Submit(ctx context.Context, o Order) (SubmitAnswer, error) {
	m, f, err := s.find(ctx, &o)
	if err != nil {
		return SubmitAnswer{}, err
	}
	return m.submit(ctx, o, f)
}

// Answer returns the answer to a submit whose run is stored; replayed: the run existed before.
func (s *Sites) Answer(ctx context.Context, runID string, replayed bool) (SubmitAnswer, error) {
	v, err := s.store.View(ctx, runID)
	if err != nil {
		return SubmitAnswer{}, err
	}
	return s.reader(v.Run.Site).submitAnswer(v, replayed, nil), nil
}

// Preview returns what [Sites.Submit] would do with the order, without any effect: no row, no file, no query of Slurm.
func (s *Sites) Preview(ctx context.Context, o Order) (Preview, error) {
	m, f, err := s.find(ctx, &o)
	if err != nil {
		return Preview{}, err
	}
	return m.preview(ctx, o, f)
}

// Known returns the id of an order's run, and whether the run exists; nothing is done for it.
func (s *Sites) Known(ctx context.Context, o Order) (id string, exists bool, err error) {
	m := s.order[0]
	if o.Site != "" {
		if m, err = s.at(o.Site); err != nil {
			return "", false, err
		}
	}
	f, err := m.find(ctx, o)
	if err != nil || f.view == nil {
		return f.sought.RunID, false, err
	}
	return f.view.Run.ID, true, nil
}

// find looks for the order's run. If none is found, the order gets its site.
func (s *Sites) find(ctx context.Context, o *Order) (*member, lookup, error) {
	m := s.order[0]
	if o.Site != "" {
		var err error
		if m, err = s.at(o.Site); err != nil {
			return nil, lookup{}, err
		}
	}
	f, err := m.find(ctx, *o)
	switch {
	case err != nil:
		return nil, f, err
	case f.view != nil:
		return s.reader(f.view.Run.Site), f, nil
	case o.Pick == nil:
		return m, f, nil
	}
	if v, err := m.reusable(ctx, *o, f); v != nil || err != nil {
		return m, f, err
	}
	picked, err := o.Pick(ctx)
	if err != nil {
		return nil, f, err
	}
	o.Site, o.SiteWhy, o.Placement, o.considered = picked.Site, picked.Why, picked.Placement, picked.Sites
	m, err = s.at(o.Site)
	return m, f, err
}

// Get reads a run from the ledger, after it has waited up to wait for the run's end. If the run starts meanwhile, Get
// reads the run that it became.
func (s *Sites) Get(ctx context.Context, runID string, wait time.Duration) (GetAnswer, error) {
	v, wait, err := s.started(ctx, runID, wait)
	if err != nil {
		return GetAnswer{}, err
	}
	return s.reader(v.Run.Site).get(ctx, v, wait)
}

// Moving returns the progress of a run's files that are staged or collected now; nil: none are.
func (s *Sites) Moving(ctx context.Context, runID string) *Moving {
	v, err := s.store.View(ctx, runID)
	if err != nil {
		return nil
	}
	e := s.reader(v.Run.Site)
	return e.moves.of(runID, e.Now())
}

// Collect returns whether a run is finished, after it has waited up to wait for its end, and its artifacts. It changes
// nothing. If the run starts meanwhile, the answer is about the run that it became.
func (s *Sites) Collect(ctx context.Context, runID string, wait time.Duration) (CollectAnswer, error) {
	v, wait, err := s.started(ctx, runID, wait)
	if err != nil {
		return CollectAnswer{}, err
	}
	return s.reader(v.Run.Site).collected(ctx, v, wait)
}

// on calls a verb on the run's site.
func on[T any](ctx context.Context, s *Sites, runID string, verb func(*Engine) (T, error)) (T, error) {
	m, err := s.of(ctx, runID)
	if err != nil {
		var none T
		return none, err
	}
	return verb(m.Engine)
}

// Started is the code of a call that was decided for a waiting run that has started since: the caller decides again for
// the run that it became.
const Started = "run_started"

// changes calls verb on the run's site, or waiting for a run that has no attempt; the fault is [Started] if that starts
// meanwhile.
func changes[T any](ctx context.Context, s *Sites, runID string, verb func(*Engine) (T, error),
	waiting func(*Engine, View) (T, error)) (T, error) {
	return unlessStale(func() (none T, err error) {
		v, err := s.store.View(ctx, runID)
		switch {
		case err != nil:
			return none, err
		case v.Run.ID != runID:
			return none, fault.New(fault.Conflict, Started, runID+" has started, as "+v.Run.ID)
		case v.Waiting != nil:
			return waiting(s.order[0].Engine, v)
		}
		m, err := s.at(v.Run.Site)
		if err != nil {
			return none, err
		}
		return verb(m.Engine)
	})
}

// Cancel calls [Engine.Cancel] on the run's site. A run that waits for inputs ends immediately.
func (s *Sites) Cancel(ctx context.Context, runID, why string, by Withdrawal) (CancelAnswer, error) {
	return changes(ctx, s, runID, func(e *Engine) (CancelAnswer, error) { return e.Cancel(ctx, runID, why, by) },
		func(e *Engine, v View) (CancelAnswer, error) { return e.cancelWaiting(ctx, v, why, by) })
}

// CarryOutCancel calls [Engine.CarryOutCancel] on the run's site.
func (s *Sites) CarryOutCancel(ctx context.Context, runID string) error {
	_, err := on(ctx, s, runID, func(e *Engine) (View, error) { return e.CarryOutCancel(ctx, runID) })
	return err
}

// Retry calls [Engine.Retry] on the run's site: a run stays on its site. A run that ended while it waited for inputs
// waits again.
func (s *Sites) Retry(ctx context.Context, runID string, o RetryOrder) (SubmitAnswer, error) {
	return changes(ctx, s, runID, func(e *Engine) (SubmitAnswer, error) { return e.Retry(ctx, runID, o) },
		func(e *Engine, v View) (SubmitAnswer, error) { return e.waitAgain(ctx, v, o) })
}

// NextResources calls [Engine.NextResources] on the run's site.
func (s *Sites) NextResources(ctx context.Context, runID string, more plan.MoreResources) (plan.Resources, error) {
	return on(ctx, s, runID, func(e *Engine) (plan.Resources, error) { return e.NextResources(ctx, runID, more) })
}

// Logs calls [Engine.Logs] on the run's site.
func (s *Sites) Logs(ctx context.Context, runID, stream string, part LogPart) (LogsAnswer, error) {
	return on(ctx, s, runID, func(e *Engine) (LogsAnswer, error) { return e.Logs(ctx, runID, stream, part) })
}

// Recollect calls [Engine.Recollect] on the run's site.
func (s *Sites) Recollect(ctx context.Context, runID, why string) (RecollectAnswer, error) {
	return on(ctx, s, runID, func(e *Engine) (RecollectAnswer, error) { return e.Recollect(ctx, runID, why) })
}

// DeclareAbsent calls [Engine.DeclareAbsent] on the run's site.
func (s *Sites) DeclareAbsent(ctx context.Context, runID, why string) (GetState, error) {
	return on(ctx, s, runID, func(e *Engine) (GetState, error) { return e.DeclareAbsent(ctx, runID, why) })
}

// Adopt calls [Engine.Adopt] on the run's site.
func (s *Sites) Adopt(ctx context.Context, runID, jobID string) (GetState, error) {
	return on(ctx, s, runID, func(e *Engine) (GetState, error) { return e.Adopt(ctx, runID, jobID) })
}

// Ended calls [Engine.Ended] on the run's site.
func (s *Sites) Ended(ctx context.Context, runID string) {
	if m, err := s.of(ctx, runID); err == nil {
		m.Engine.Ended(ctx, runID)
	}
}

// RemoveRun calls [Workspace.RemoveRun] on the run's site. With several sites, one whose files are unavailable does not
// prevent removals on the others.
func (s *Sites) RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (freed int64, err error) {
	freed, err = on(ctx, s, runID, func(e *Engine) (int64, error) { return e.Workspace.RemoveRun(ctx, runID, attempts, still) })
	return freed, s.alone(err)
}

// RunSize calls [Workspace.RunSize] on the run's site.
func (s *Sites) RunSize(ctx context.Context, runID string) (int64, error) {
	n, err := on(ctx, s, runID, func(e *Engine) (int64, error) { return e.Workspace.RunSize(ctx, runID) })
	return n, s.alone(err)
}

// EachFile calls [Workspace.EachFile] on the run's site.
func (s *Sites) EachFile(ctx context.Context, runID string, f func(func() (io.ReadCloser, error)) (bool, error)) error {
	m, err := s.of(ctx, runID)
	if err == nil {
		err = m.Workspace.EachFile(ctx, runID, f)
	}
	return s.alone(err)
}

func (s *Sites) alone(err error) error {
	if fault.CodeOf(err) == "runs_dir_unavailable" && len(s.order) > 2 {
		return fault.Wrap(fault.Transport, SiteAway, "the files of the run's site are away", err)
	}
	return err
}

// RunDir calls [Workspace.RunDir] on the run's site; empty while the site is away.
func (s *Sites) RunDir(site, runID string) string {
	if m := s.named[site]; m != nil {
		return m.Workspace.RunDir(runID)
	}
	return ""
}
