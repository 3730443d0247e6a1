// Package gate is the one function that every call passes: [Gate.Call].
//
// Nouns: a tool is a named, versioned contract in the registry; a request names a tool and carries its
// arguments; a response is its answer or an error, always in one envelope. The faces (command line, socket,
// HTTP and MCP) build requests and render responses; none of them reaches a tool in another way.
package gate

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"slurmgate/fault"
)

// SchemaVersion is the version of the envelope.
const SchemaVersion = "htc-1.0"

// Request is one tool call (HTC-02).
type Request struct {
	SchemaVersion  string          `json:"schema_version"`
	ToolCallID     string          `json:"tool_call_id"` // UUID
	TraceID        string          `json:"trace_id"`     // UUID
	SessionID      *string         `json:"session_id,omitempty"`
	Actor          Actor           `json:"actor"`
	ToolID         string          `json:"tool_id"`
	ToolVersion    string          `json:"tool_version"`
	Args           json.RawMessage `json:"args"`
	ArgsRef        *string         `json:"args_ref,omitempty"`
	IdempotencyKey *string         `json:"idempotency_key,omitempty"`
	DryRun         bool            `json:"dry_run"`

	// ParentSpanID is the caller's span that contains the call, "" for none. The envelope has no member for it: it
	// comes in MCP's _meta.handshake and in the header traceparent or Slurmgate-Parent-Span.
	ParentSpanID string `json:"-"`
}

// document returns the request in the form that the schema checks.
func (r Request) document(args any) map[string]any {
	actor := map[string]any{"kind": r.Actor.Kind}
	doc := map[string]any{"schema_version": r.SchemaVersion, "tool_call_id": r.ToolCallID, "trace_id": r.TraceID, "actor": actor,
		"tool_id": r.ToolID, "tool_version": r.ToolVersion, "args": args, "dry_run": r.DryRun}
	addTexts(doc, map[string]*string{"session_id": r.SessionID, "args_ref": r.ArgsRef, "idempotency_key": r.IdempotencyKey})
	addTexts(actor, map[string]*string{"agent_id": r.Actor.AgentID, "model_id": r.Actor.ModelID})
	return doc
}

// addTexts adds the members that are there.
func addTexts(doc map[string]any, members map[string]*string) {
	for name, text := range members {
		if text != nil {
			doc[name] = *text
		}
	}
}

// texts returns a list of strings in the form that the schema checks.
func texts(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// Actor is the caller as it describes itself.
type Actor struct {
	Kind    string  `json:"kind"` // human, agent or system
	AgentID *string `json:"agent_id,omitempty"`
	ModelID *string `json:"model_id,omitempty"`
}

// Response is the answer to one tool call (HTC-03).
type Response struct {
	SchemaVersion string          `json:"schema_version"`
	ToolCallID    string          `json:"tool_call_id"`
	TraceID       string          `json:"trace_id"`
	OK            bool            `json:"ok"`
	Result        json.RawMessage `json:"result"`
	ResultRef     *string         `json:"result_ref"`
	Error         *ErrorBody      `json:"error"`
	Timing        Timing          `json:"timing"`
	Resources     Resources       `json:"resources"`

	RunID string `json:"-"` // the run that a call of a service worker is; else empty

	resultHash string // of a result that is in an artifact, in the outcome of an idempotency key
}

// document returns the response in the form that the schema checks. It shows only whether there is a result: the
// tool's schema checks what is in it.
func (r Response) document() map[string]any {
	doc := map[string]any{"schema_version": r.SchemaVersion, "tool_call_id": r.ToolCallID, "trace_id": r.TraceID, "ok": r.OK,
		"result": nil, "result_ref": nil, "error": nil, "timing": r.Timing.document(), "resources": r.Resources.document()}
	if len(r.Result) > 0 && string(r.Result) != "null" {
		doc["result"] = true
	}
	if e := r.Error; e != nil {
		doc["error"] = map[string]any{"code": e.Code, "kind": e.Kind, "message": e.Message, "retryable": e.Retryable,
			"details": map[string]any{}}
	}
	addTexts(doc, map[string]*string{"result_ref": r.ResultRef})
	return doc
}

// ErrorBody is the error of an envelope, null for a call without one.
type ErrorBody struct {
	Code      string         `json:"code"`
	Kind      string         `json:"kind"` // validation auth capability timeout tool transport canceled policy
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details"`
}

// Timing says when the call started and ended.
type Timing struct {
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at"`
	DurationMS int64     `json:"duration_ms"`
}

func (t Timing) document() map[string]any {
	return map[string]any{"started_at": t.StartedAt.Format(time.RFC3339Nano), "ended_at": t.EndedAt.Format(time.RFC3339Nano),
		"duration_ms": float64(t.DurationMS)}
}

// Resources are the runs and artifacts that a call touched.
type Resources struct {
	WorkspaceIDs []string `json:"workspace_ids"`
	Artifacts    []string `json:"artifacts"` // artifact://art_…
	Files        []string `json:"files"`
	URLs         []string `json:"urls"`
}

func (r Resources) document() map[string]any {
	return map[string]any{"workspace_ids": texts(r.WorkspaceIDs), "artifacts": texts(r.Artifacts), "files": texts(r.Files),
		"urls": texts(r.URLs)}
}

// envelopeKind maps our kinds to the eight of the envelope; the precise kind stays in details.kind.
func envelopeKind(k fault.Kind) string {
	switch k {
	case fault.NotFound, fault.Conflict:
		return string(fault.Validation)
	case fault.Internal:
		return string(fault.Tool)
	case fault.Unknown:
		return string(fault.Transport)
	}
	return string(k)
}

// Words has, by the transport of a call, the function that writes next steps for that face. A missing face gets verbs
// and arguments.
type Words map[Transport]func([]fault.Step) string

// Of returns how a face writes steps.
func (w Words) Of(by Transport) func([]fault.Step) string {
	if words := w[by]; words != nil {
		return words
	}
	return fault.Words(fault.Step.String)
}

// BodyOf returns the envelope's form of an error, whose steps words writes. details.next is what to do next, as data.
func BodyOf(words func([]fault.Step) string, err error) *ErrorBody {
	kind := fault.KindOf(err)
	details := map[string]any{"kind": string(kind)}
	if d := decision(kind, fault.CodeOf(err)); d != "" {
		details["decision"] = d
	}
	if p := problemsFor(words, err); len(p) > 0 {
		details["problems"] = p
	}
	if steps := fault.StepsOf(err); len(steps) > 0 {
		details["next"] = steps
	}
	if s := fault.RetryOf(err); s > 0 {
		details["retry_after_seconds"] = s
	}
	b := &ErrorBody{Code: fault.CodeOf(err), Kind: envelopeKind(kind), Message: fault.Text(err, words), Retryable: kind.Retryable(),
		Details: details}
	if said, ok := errors.AsType[*Reported](err); ok {
		if b.Retryable = said.Retryable; len(said.Details) > 0 {
			details["worker"] = said.Details
		}
	}
	return b
}

// decision returns the gate's decision about a rejected call, in the terms of Handshake's gate: deny, or escalate for
// a call that waits for a person's approval. "" for every other error.
func decision(kind fault.Kind, code string) string {
	switch {
	case code == ConsentRequired:
		return "escalate"
	case kind == fault.Policy, kind == fault.Capability, kind == fault.Auth:
		return "deny"
	}
	return ""
}

// problemsFor returns an error's problems, whose hints have their steps as words writes them.
func problemsFor(words func([]fault.Step) string, err error) []fault.Problem {
	problems := slices.Clone(fault.ProblemsOf(err))
	for i := range problems {
		p := &problems[i]
		p.Hint = fault.Advice(p.Hint, p.Next, words)
	}
	return problems
}

// Fault turns an error body back into an error, for a face on the other side of a socket.
func (e *ErrorBody) Fault() *fault.Error {
	kind, _ := e.Details["kind"].(string)
	if kind == "" {
		kind = e.Kind
	}
	out := fault.New(fault.Kind(kind), e.Code, e.Message)
	return out
}
