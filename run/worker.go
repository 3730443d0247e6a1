package run

import (
	"context"
	"encoding/json"
	"time"

	"slurmgate/fault"
)

// A call of a service worker is a run without a job: one row, stored as running before the first byte goes to the
// worker, and ended with the worker's answer. It belongs to no cluster, so no cluster's queue, drain, limit or watcher
// affects it. A call whose outcome is unknown – the gateway died, no answer came – is failed, outcome_unknown; it is
// sent a second time only if a caller calls again.

// WorkerSite is the site of these runs. No cluster can have this name.
const WorkerSite = "(worker)"

// OutcomeUnknown is the reason of a call that was sent and has no answer.
const OutcomeUnknown = "outcome_unknown"

// OutputRole is the role of an answer that is stored as an artifact.
const OutputRole = "output"

// WorkerCall is a request for a call of a service worker.
type WorkerCall struct {
	Order              // canonicalised and allowed; Params.Worker is set
	Deadline time.Time // when the gateway stops waiting for the answer
	// Interrupted: an earlier call with the same idempotency key has no recorded outcome. If there is a run it may have
	// been sent, and it is sent again only if it never reached the worker.
	Interrupted bool
	// Send sends the call to the worker. It is called at most once, after the run is stored. ctx ends at the deadline,
	// when the run is cancelled, and when the gateway stops.
	Send func(ctx context.Context, v View) CallEnd
}

// CallEnd is the result of a call: an output, or a reference to it, or an error.
type CallEnd struct {
	Output    json.RawMessage `json:"output"` // null with an error, and with OutputRef
	OutputRef string          `json:"output_ref,omitempty"`
	Error     *CallError      `json:"error,omitempty"`
	Artifact  *Artifact       `json:"-"` // the artifact of OutputRef; stored with the run's end
}

// CallError is the failure of a call, as it is stored and repeated.
type CallError struct {
	Kind      fault.Kind     `json:"kind"`
	Code      string         `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Sent      bool           `json:"sent"` // the worker may have it; false: the worker was not reached
	Next      string         `json:"next,omitempty"`
	Details   map[string]any `json:"details,omitempty"`
}

// callResult is the permanent result of such a run.
type callResult struct {
	SubmitAnswer
	NextSteps *struct{} `json:"next_steps,omitempty"` // not recorded: they follow from the state
	ExitCode  *int      `json:"exit_code"`
	CallEnd
	FinishedAt time.Time `json:"finished_at"`
}

// EndOf returns how a call ended, from its run; an error if the run is not a finished call.
func EndOf(v View) (CallEnd, error) {
	var r struct{ CallEnd }
	if v.Run.Site != WorkerSite || !v.Run.State.Terminal() {
		return r.CallEnd, fault.New(fault.Conflict, "not_ended", v.Run.ID+" is not a call of a service worker that is over")
	}
	err := json.Unmarshal(v.Run.ResultJSON, &r)
	return r.CallEnd, err
}
