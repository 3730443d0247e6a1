package run

import "context"

// A run whose job exited 0 but left no manifest is blocked as outputs_late. Two things end that: the manifest appears, which the workers
// look for while the watcher runs, and the verb Recollect, which waits for the outputs once more as long as the site allows.

// RecollectAnswer is the state of a run after Recollect.
type RecollectAnswer struct {
	GetState
	Recollected bool `json:"recollected"` // false: the outputs of the run were not late, and nothing was done
}

// Unchanged reports to the gate whether the call had no effect.
func (a RecollectAnswer) Unchanged() bool { return !a.Recollected }

// Recollect collects the outputs of a run again after they were late. A run in any other phase is left unchanged.
func (e *Engine) Recollect(ctx context.Context, runID, why string) (a RecollectAnswer, err error) {
	err = unlessStale(func() error {
		v, err := e.Store.View(ctx, runID)
		if err != nil || v.Run.Phase != OutputsLate {
			return err
		}
		a.Recollected = true
		return e.collectAgain(ctx, v, orElse(why, "requested"))
	})
	if err != nil {
		return RecollectAnswer{}, err
	}
	v, err := e.Store.View(ctx, runID)
	if a.Recollected && err == nil {
		v, err = e.waitFor(ctx, runID, e.cfg.SubmitWait, func(v View) bool { return v.Run.Phase != Collecting })
	}
	a.GetState = Outline(v)
	return a, err
}

func (e *Engine) collectAgain(ctx context.Context, v View, why string) error {
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail = Running, Collecting, "", ""
	if _, err := e.apply(ctx, Write{Run: v.Run, Event: Event{Type: "run.collecting", Data: map[string]any{"witness": why}}}); err != nil {
		return err
	}
	e.forgetDelay(v.Run.ID)
	e.work.add(v.Run.ID)
	return nil
}

// lookForLate collects again once the manifest can be read. That costs one small read per run, at most once per ceiling of the watcher.
func (e *Engine) lookForLate(ctx context.Context, v View) error {
	if _, err := e.Workspace.ReadControl(ctx, v.Run.ID, v.Attempt.N, ManifestFile, maxControlBytes, false); err != nil {
		e.holdBack(v.Run.ID, e.cfg.Ceiling) // not there yet, or the filesystem is still unavailable: the run already says so
		return nil
	}
	return e.collectAgain(ctx, v, "the manifest appeared")
}
