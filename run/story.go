package run

import (
	"context"
	"math"
	"time"
)

// The log has a line for each change of a run, with the run's id, so that one grep finds all of them.

// about returns the attributes of every log line about a run.
func about(v View) []any {
	who := v.Run.Principal.Name
	if who == "" {
		who = "unknown"
	}
	line := []any{"run_id", v.Run.ID, "attempt", v.Run.AttemptN, "job_id", v.Submission.JobID, "node", v.Attempt.Node, "tool", v.Run.ToolID,
		"principal", who, "project_id", v.Run.ProjectID}
	if v.Run.ExecutedAs != "" {
		line = append(line, "executed_as", v.Run.ExecutedAs)
	}
	return line
}

// aboutJob returns the same attributes for the run of a job, by the job's name.
func (e *Engine) aboutJob(ctx context.Context, jobName string) []any {
	if v, err := e.Store.View(ctx, RunOf(jobName)); err == nil {
		return about(v)
	}
	return []any{"run_id", RunOf(jobName)}
}

// logChange logs a change of a run with the time since the change before, and at the run's end its total time. A zero
// before: unknown.
func (e *Engine) logChange(event string, v View, before time.Time) {
	line := append(about(v), "phase", v.Run.Phase, "reason", v.Run.Reason)
	if !before.IsZero() {
		line = append(line, "after_seconds", seconds(v.Run.UpdatedAt.Sub(before)))
	}
	if v.Run.FinishedAt != nil {
		line = append(line, "total_seconds", seconds(v.Run.FinishedAt.Sub(v.Run.CreatedAt)))
	}
	e.Log.Info(event, line...)
}

// seconds returns a duration in seconds, to milliseconds.
func seconds(d time.Duration) float64 { return math.Round(max(0, d.Seconds())*1000) / 1000 }
