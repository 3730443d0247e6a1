package run

import (
	"context"
	"regexp"

	"slurmgate/fault"
)

// apply writes a transition and announces it to those who wait for the run.
func (e *Engine) apply(ctx context.Context, w Write) (View, error) {
	return e.written(w, func(w Write) (v View, applied bool, err error) {
		v, err = e.Store.Apply(ctx, w)
		return v, true, err
	})
}

func (e *Engine) written(w Write, write func(Write) (v View, applied bool, err error)) (View, error) {
	w = e.clean(w)
	wrote := e.limits.writing(w.Run)
	v, applied, err := write(w)
	wrote(v, err)
	if err == nil && applied {
		e.waiters.announce(v)
		e.logChange(w.Event.Type, v, w.Run.UpdatedAt)
	}
	return v, err
}

// temporary matches the name of a temporary file or folder, which differs at each try.
var temporary = regexp.MustCompile(`[a-z2-7]{26}`)

func unnamed(detail string) string { return temporary.ReplaceAllLiteralString(detail, "…") }

// note records what a run waits for, once per reason, and delays the run by the floor.
func (e *Engine) note(ctx context.Context, v View, why, detail string) error {
	e.pressure.delay(v.Run.ID, e.cfg.Floor)
	detail = e.cfg.Secrets.Redact(detail)
	if v.Run.Reason == why && unnamed(v.Run.Detail) == unnamed(detail) || ctx.Err() != nil {
		return nil
	}
	v.Run.Reason, v.Run.Detail = why, detail
	_, err := e.apply(ctx, Write{Run: v.Run, Event: Event{Type: "run.waits", Data: map[string]any{"reason": why, "detail": detail}}})
	return err
}

// block stops a run until a verb resolves it.
func (e *Engine) block(ctx context.Context, v View, phase Phase, detail string) error {
	v.Run.enter(phase, string(phase), detail)
	_, err := e.apply(ctx, Write{Run: v.Run, Event: Event{Type: "run.blocked", Data: map[string]any{"phase": phase, "detail": detail}}})
	return err
}

func stale(err error) bool { return fault.CodeOf(err) == "stale_run" }
