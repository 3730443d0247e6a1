package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// SubmitAnswer is the answer to a submit. Every key is always present.
type SubmitAnswer struct {
	RunID                 string       `json:"run_id"`
	ProvenanceRunID       string       `json:"provenance_run_id"`
	Site                  string       `json:"site"`
	ExecutedAs            string       `json:"executed_as,omitempty"` // the cluster's Unix user whose job it is; absent: the gateway's own
	SlurmJobID            *string      `json:"slurm_job_id"`
	State                 State        `json:"state"`
	Phase                 Phase        `json:"phase"`
	Attempt               int          `json:"attempt" help:"the number of the latest attempt; a retry names it"`
	Reason                *string      `json:"reason"`
	Replayed              bool         `json:"replayed"`
	Removed               string       `json:"removed,omitempty"`  // the removal that took what the run made; absent: none did
	PollAfterSeconds      *int         `json:"poll_after_seconds"` // null when nothing more will happen
	SlurmScriptArtifactID *string      `json:"slurm_script_artifact_id"`
	LogArtifactID         *string      `json:"log_artifact_id"`
	EquivalentRuns        []string     `json:"equivalent_runs"`
	WaitsFor              []WaitsFor   `json:"waits_for,omitempty"` // outputs of other runs; absent: none
	Warnings              []string     `json:"warnings"`
	NextSteps             []fault.Step `json:"next_steps"`
}

// WaitsFor is an output of another run that a run in the phase [WaitingForInputs] needs, or needed until it failed.
type WaitsFor struct {
	RunID string `json:"run_id"`
	Role  string `json:"role"`
	State State  `json:"state"` // of that run
	Phase Phase  `json:"phase"`
}

// RunAnswer has the fields that every answer about one run shares.
type RunAnswer struct {
	CallRunID
	TargetRunID      string            `json:"target_run_id"`
	State            State             `json:"state"`
	Alias            string            `json:"alias,omitempty" help:"the id that was asked for: the run waited for its inputs under it"`
	Removed          string            `json:"removed,omitempty"` // the removal that took what the run made; absent: none did
	Attempt          int               `json:"attempt" help:"the number of the latest attempt; a retry names it"`
	WaitsFor         []WaitsFor        `json:"waits_for,omitempty" help:"outputs of other runs that it waits for; absent: none"`
	ExitCode         *int              `json:"exit_code"`
	ArtifactsByRole  map[string]string `json:"artifacts_by_role"`
	PollAfterSeconds *int              `json:"poll_after_seconds"`
	Warnings         []string          `json:"warnings"`
	NextSteps        []fault.Step      `json:"next_steps"`
}

// GetAnswer is the answer to a get.
type GetAnswer struct {
	RunAnswer
	Site       string     `json:"site"`                  // where it goes
	ExecutedAs string     `json:"executed_as,omitempty"` // the cluster's Unix user whose job it is; absent: the gateway's own
	SlurmJobID *string    `json:"slurm_job_id"`
	Phase      Phase      `json:"phase"`
	Reason     *string    `json:"reason"`
	Waits      *Wait      `json:"waits"` // the queue of the gateway that the run waits in; null: it waits in none
	ObservedAt *time.Time `json:"observed_at"`
	Moving     *Moving    `json:"moving,omitempty"` // its files, while they are staged or collected
}

// CollectAnswer is the answer to a collect; ready means that the run is finished.
type CollectAnswer struct {
	RunAnswer
	Ready         bool    `json:"ready"`
	LogArtifactID *string `json:"log_artifact_id"`
	Reason        *string `json:"reason,omitempty" help:"why the run waits or ended; absent where nothing is known, or it succeeded"`
	// what a service worker answered; a larger answer is the artifact of the role output. Absent for a job
	Output json.RawMessage `json:"output,omitempty"`
	// file names of the outputs by role, where the tool takes them from the labels of the caller's inputs; absent: it does not
	DownloadNames map[string]string `json:"download_names,omitempty"`
}

func (e *Engine) submitAnswer(v View, replayed bool, equivalent []string) SubmitAnswer {
	return SubmitAnswer{
		RunID: v.Run.ID, ProvenanceRunID: v.Run.ID, Site: v.Run.Site, ExecutedAs: v.Run.ExecutedAs, SlurmJobID: plan.OrNil(v.Submission.JobID),
		State: v.Run.State, Phase: v.Run.Phase, Attempt: v.Run.AttemptN, Reason: plan.OrNil(v.Reason()),
		Replayed: replayed, Removed: v.Run.Removed, PollAfterSeconds: e.pollAfter(v), SlurmScriptArtifactID: plan.OrNil(v.Run.ScriptArtifactID),
		LogArtifactID:  plan.OrNil(v.Run.LogArtifactID),
		EquivalentRuns: orEmpty(equivalent), WaitsFor: v.WaitsFor(), Warnings: e.warnings(v), NextSteps: NextSteps(v),
	}
}

// warnings returns the run's warnings, the nodes that its attempt avoids, and, until the run has ended, that its site
// cannot be reached or is drained.
func (e *Engine) warnings(v View) []string {
	list := v.Warnings()
	if v.Waiting != nil {
		return list
	}
	for _, a := range v.Attempt.Avoid {
		list = append(list, fmt.Sprintf("attempt %d does not use node %s, where attempt %d ended as %s", v.Attempt.N, a.Node, a.Attempt, a.Fault))
	}
	if v.Run.Removed != "" {
		list = append(list, "what this run made was removed ("+v.Run.Removed+"); a retry makes it again, and nothing else does")
	}
	if v.Run.State.Terminal() {
		return list
	}
	if e.elsewhere(v.Run) {
		return append(list, fault.Prose(siteRemoved(v.Run.Site)))
	}
	if e.away != nil {
		if err := e.away(); err != nil {
			list = append(list, fault.Prose(err))
		}
	}
	if d := e.pressure.draining(); d != nil {
		list = append(list, d.String())
	}
	return list
}

// get reads a run, after it has waited up to wait for the run's end. It never queries Slurm.
func (e *Engine) get(ctx context.Context, v View, wait time.Duration) (GetAnswer, error) {
	v, a, err := e.runAnswer(ctx, v, wait)
	if err != nil {
		return GetAnswer{}, err
	}
	waits := e.waitsOf(v.Run)
	return GetAnswer{RunAnswer: a, Site: v.Run.Site, ExecutedAs: v.Run.ExecutedAs, SlurmJobID: plan.OrNil(v.Submission.JobID),
		Phase: v.Run.Phase, Reason: reasonOf(v, waits), Waits: waits, ObservedAt: e.observedAt(v), Moving: e.moves.of(v.Run.ID, e.Now())}, nil
}

// collected reports whether a run is finished, after it has waited up to wait for its end, and lists its artifacts. It
// changes nothing: the gateway collects by itself when a job ends, and [Engine.Recollect] is for a run whose outputs
// are late.
func (e *Engine) collected(ctx context.Context, v View, wait time.Duration) (CollectAnswer, error) {
	v, a, err := e.runAnswer(ctx, v, wait)
	if err != nil {
		return CollectAnswer{}, err
	}
	c := CollectAnswer{RunAnswer: a, Ready: v.Run.State.Terminal(), LogArtifactID: plan.OrNil(v.Run.LogArtifactID)}
	if v.Run.State != Succeeded {
		c.Reason = reasonOf(v, e.waitsOf(v.Run))
	}
	if e.calls != nil && v.Run.State == Succeeded {
		end, err := EndOf(v)
		if err != nil {
			return CollectAnswer{}, err
		}
		c.Output = end.Output
	}
	return c, nil
}

// runAnswer reads what all answers about a run share, after it has waited up to wait for the run's end.
func (e *Engine) runAnswer(ctx context.Context, v View, wait time.Duration) (View, RunAnswer, error) {
	v, outputs, err := e.read(ctx, v, wait)
	if err != nil {
		return v, RunAnswer{}, err
	}
	a := RunAnswer{TargetRunID: v.Run.ID, State: v.Run.State, Removed: v.Run.Removed, Attempt: v.Run.AttemptN, WaitsFor: v.WaitsFor(),
		ExitCode: v.Run.ExitCode, ArtifactsByRole: map[string]string{}, PollAfterSeconds: e.pollAfter(v), Warnings: e.warnings(v),
		NextSteps: NextSteps(v)}
	for _, o := range outputs {
		a.ArtifactsByRole[o.Role] = o.ArtifactID
		if o.Artifact.Erased != "" {
			a.Warnings = append(slices.Clip(a.Warnings), fmt.Sprintf("the output %s held a secret and was erased (%s)", o.Role, o.Artifact.Erased))
		}
		if o.Artifact.Removed != "" && v.Run.Removed == "" {
			a.Warnings = append(slices.Clip(a.Warnings), fmt.Sprintf("the bytes of the output %s were removed (%s)", o.Role, o.Artifact.Removed))
		}
	}
	if v.Attempt.Ending == EndedOutOfMemory && v.Run.State.Terminal() {
		used, err := e.Index.Used(ctx, v.Attempt.Token)
		if err != nil {
			return v, RunAnswer{}, err
		}
		if used != nil && used.MaxRSSBytes > 0 {
			v.Run.Detail += fmt.Sprintf("; Slurm's accounting measured %d MiB at most", used.MaxRSSBytes>>20)
		}
	}
	return v, a, nil
}

// read waits for a run to finish and reads its outputs.
func (e *Engine) read(ctx context.Context, seen View, wait time.Duration) (v View, outputs []Output, err error) {
	settled := func(v View) bool { return v.Run.State.Terminal() || v.Run.State == Blocked }
	if v = seen; !settled(v) && wait > 0 {
		if v, err = e.waitFor(ctx, v.Run.ID, wait, settled); err != nil {
			return v, nil, err
		}
	}
	if v.Run.State.Terminal() { // one transaction stores a run's end and its outputs
		outputs, err = e.Index.Outputs(ctx, v.Run.ID)
	}
	return v, outputs, err
}

// observedAt returns when Slurm last answered about the run.
func (e *Engine) observedAt(v View) *time.Time {
	at := v.Attempt.ObservedAt
	watched := v.Run.Phase == Pending || v.Run.Phase == InJob || v.Run.Phase == Completing
	if last, _ := e.watcher.answered(); watched && !last.IsZero() && (at == nil || last.After(*at)) {
		last = last.UTC()
		at = &last
	}
	return at
}

// pollAfter returns the seconds until the next poll, which grow with the age of the current phase: 2 for a new run, 60
// at most. nil: the run has ended.
func (e *Engine) pollAfter(v View) *int {
	if v.Run.State.Terminal() {
		return nil
	}
	n := min(60, max(2, int(e.Now().Sub(v.Run.UpdatedAt).Seconds()/4)))
	if v.Run.State == Blocked {
		n = 60
	}
	return &n
}

// resultJSON is the permanent result of a finished run.
type resultJSON struct {
	SubmitAnswer
	NextSteps  *struct{}            `json:"next_steps,omitempty"` // not recorded: they follow from the state
	ExitCode   *int                 `json:"exit_code"`
	Output     map[string]outputDoc `json:"output"`
	FinishedAt time.Time            `json:"finished_at"`
}

// outputDoc is one output in result_json.output, as a tool's outputSchema sees it.
type outputDoc struct {
	ArtifactID     string          `json:"artifact_id"`
	Type           string          `json:"type"`
	Label          string          `json:"label"`
	SizeBytes      int64           `json:"size_bytes"`
	ChecksumSHA256 string          `json:"checksum_sha256"`
	Value          json.RawMessage `json:"value,omitempty"`
}

// Reason returns the reason of the run's state with its detail; may be empty.
func (v View) Reason() string {
	detail := v.Detail()
	if v.Run.Reason == "" || detail == "" {
		return v.Run.Reason
	}
	return v.Run.Reason + ": " + detail
}

// Detail returns the detail of the reason, as a sentence.
func (v View) Detail() string {
	if v.Waits() {
		return v.Waiting.text()
	}
	return PlainDetail(v.Run.Detail)
}

// Warnings returns the warnings recorded with the run. Those of a run that waits for inputs apply once it has a plan.
func (v View) Warnings() []string {
	if w := v.Waiting; w != nil && (!v.Waits() || w.Code != "" || w.ApprovalID != "") {
		return []string{}
	}
	return slices.Clip(orEmpty(v.Run.Warnings))
}

// reasonOf returns the reason of a run, or else what it waits for. That its site was removed outranks every other
// reason.
func reasonOf(v View, w *Wait) *string {
	if r := plan.OrNil(v.Reason()); w == nil || r != nil && w.Code != SiteRemoved {
		return r
	}
	return new(w.Code + ": " + w.Text)
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
