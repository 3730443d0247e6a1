package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"slurmgate/plan"
)

// event is the ToolCallEvent (HTC-08). Who the principal was, and the chain, stand beside it.
type event struct {
	Type           string      `json:"type"`
	TraceID        string      `json:"trace_id"`
	ToolCallID     string      `json:"tool_call_id"`
	ToolID         string      `json:"tool_id"`
	ToolVersion    string      `json:"tool_version"`
	Transport      Transport   `json:"transport"`
	SideEffect     SideEffect  `json:"side_effect"`
	Idempotency    string      `json:"idempotency"`
	Actor          eventActor  `json:"actor"`
	OK             bool        `json:"ok"`
	Timing         Timing      `json:"timing"`
	IdempotencyKey *string     `json:"idempotency_key,omitempty"`
	ArgsRef        *string     `json:"args_ref,omitempty"`
	ArgsHash       string      `json:"args_hash,omitempty"`
	ResultRef      *string     `json:"result_ref,omitempty"`
	ResultHash     string      `json:"result_hash,omitempty"`
	Error          *eventError `json:"error,omitempty"`
	Resources      *Resources  `json:"resources_touched,omitempty"`
	CapabilityIDs  []string    `json:"capability_ids,omitempty"`
	SessionID      *string     `json:"session_id,omitempty"`
	EventID        string      `json:"event_id"`
	Timestamp      time.Time   `json:"timestamp"`
}

// unknownTool is the tool id in the record of a call that names none, or none that may be repeated. No tool has it: an id has a dot.
const unknownTool = "unknown"

// eventActor writes null for what is not known.
type eventActor struct {
	Kind    string  `json:"kind"`
	AgentID *string `json:"agent_id"`
	ModelID *string `json:"model_id"`
}

type eventError struct {
	Code      string `json:"code"`
	Kind      string `json:"kind"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

// trail collects what is known about a call in progress, for its record.
type trail struct {
	tool   Tool // zero while none is found
	args   json.RawMessage
	effect bool            // a tool that may change something was called
	key    *Key            // the idempotency key bound to this call
	final  bool            // the outcome is recorded under the key for ever
	leave  func()          // ends the flight of the key, once the outcome is kept
	result json.RawMessage // of a result that went into an artifact

	provenance *Provenance // the run that the call is, where the handler said so
}

// repeatable reports whether the same call may be made again after an error: always while the tool was not reached, then only if a
// repeat does nothing more.
func (t trail) repeatable() bool { return !t.effect || t.tool.Idempotency == Idempotent }

var anyID = regexp.MustCompile(`"(?:artifact://)?((?:run|art)_[0-9A-HJKMNP-TV-Z]{26})"`)

const maxTouched = 64 // ids named in resources; a list of more is in the result anyway

// touched names the runs and artifacts that stand in what went in and out.
func touched(docs ...json.RawMessage) Resources {
	r := Resources{WorkspaceIDs: []string{}, Artifacts: []string{}, Files: []string{}, URLs: []string{}}
	seen := map[string]bool{}
	for _, d := range docs {
		for _, m := range anyID.FindAllSubmatch(d, maxTouched) {
			id := string(m[1])
			switch {
			case seen[id]:
			case id[:4] == "run_" && len(r.WorkspaceIDs) < maxTouched:
				r.WorkspaceIDs = append(r.WorkspaceIDs, id)
			case id[:4] == "art_" && len(r.Artifacts) < maxTouched:
				r.Artifacts = append(r.Artifacts, id)
			}
			seen[id] = true
		}
	}
	return r
}

// record makes what is kept of a call. Everything a caller wrote is redacted in it.
func (g *Gate) record(who Caller, req Request, res Response, t trail) (Record, error) {
	chain := Looks
	if t.effect {
		chain = Effects
	}
	r := Record{Chain: chain, Principal: who.Name, ToolCallID: res.ToolCallID, ToolID: orText(Scrub(req.ToolID), unknownTool), OK: res.OK,
		At: res.Timing.EndedAt}
	e := event{Type: "tool_call", TraceID: res.TraceID, ToolCallID: res.ToolCallID, ToolID: r.ToolID, ToolVersion: orText(t.tool.Version,
		"0.0.0"),
		Transport: who.Transport, SideEffect: t.tool.SideEffect, Idempotency: t.tool.Idempotency, Actor: eventActor{req.Actor.Kind,
			scrubbed(req.Actor.AgentID), scrubbed(req.Actor.ModelID)},
		OK: res.OK, Timing: res.Timing, IdempotencyKey: scrubbed(req.IdempotencyKey), ArgsRef: argsRef(req.ArgsRef), ResultRef: res.ResultRef,
		CapabilityIDs: t.tool.Capabilities, SessionID: scrubbed(req.SessionID), EventID: uuid.NewString(), Timestamp: res.Timing.EndedAt}
	if who.Transport == "" {
		e.Transport = Other
	}
	if t.tool.ID == "" { // nothing is known of it, and nothing was done
		e.SideEffect, e.Idempotency = Read, Idempotent
	}
	if t.tool.ID == "" && !sayable.MatchString(r.ToolID) {
		e.ToolID, r.ToolID = unknownTool, unknownTool
	}
	if req.Actor.Kind == "" {
		e.Actor = eventActor{Kind: "agent"}
	}
	if len(res.Resources.WorkspaceIDs)+len(res.Resources.Artifacts) > 0 {
		e.Resources = &res.Resources
	}
	if x := res.Error; x != nil {
		e.Error = &eventError{x.Code, x.Kind, x.Message, x.Retryable}
	}
	var err error
	if len(t.args) > 0 {
		if e.ArgsHash, err = r.keep("args", t.args); err != nil {
			return r, err
		}
	}
	if res.OK {
		r.Provenance = t.noted()
	}
	result := res.Result
	if res.ResultRef != nil {
		result = t.result
	}
	if res.OK && len(result) > 0 && string(result) != "null" {
		if e.ResultHash, err = r.keep("result", concealed(result, t.tool.Reveals)); err != nil {
			return r, err
		}
	}
	if r.Event, err = plan.Marshal(e); err != nil {
		return r, err
	}
	if t.key != nil && t.final {
		out := Outcome{Principal: t.key.Principal, KeyHash: t.key.KeyHash}
		first := Response{OK: res.OK, Result: concealed(res.Result, t.tool.Reveals), ResultRef: res.ResultRef, Error: res.Error,
			Resources: res.Resources}
		if out.Response, err = plan.Marshal(first); err != nil {
			return r, err
		}
		r.Outcome = &out
	}
	return r, nil
}

// bareRecord is the record of a call without anything a caller wrote: who, which tool, how it ended.
func (g *Gate) bareRecord(who Caller, res Response, t trail) (Record, error) {
	res.Result, res.ResultRef, res.Resources = nil, nil, touched()
	if res.Error != nil {
		res.Error = &ErrorBody{Code: res.Error.Code, Kind: res.Error.Kind, Retryable: res.Error.Retryable}
	}
	r, err := g.record(who, Request{ToolID: t.tool.ID}, res, trail{tool: t.tool, effect: t.effect})
	if err == nil {
		err = g.checkEvent(r.Event)
	}
	return r, err
}

// keep adds a payload, redacted, and gives its hash. What is too large for an envelope is in an artifact already; of that the hash
// will do.
func (r *Record) keep(kind string, raw json.RawMessage) (hash string, err error) {
	payload, hash, err := clean(raw)
	if err == nil && len(payload) <= MaxInline {
		r.Payloads = append(r.Payloads, Payload{kind, payload, hash})
	}
	return hash, err
}

// clean returns a payload without secrets, and its hash (64 hex).
func clean(raw json.RawMessage) (payload json.RawMessage, hash string, err error) {
	if payload, _, err = redact(raw, true); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(payload)
	return payload, hex.EncodeToString(sum[:]), nil
}

// concealed removes what a tool reveals to its caller only once.
func concealed(result json.RawMessage, keys []string) json.RawMessage {
	var doc map[string]json.RawMessage
	if len(keys) == 0 || json.Unmarshal(result, &doc) != nil {
		return result
	}
	for _, k := range keys {
		if _, there := doc[k]; there {
			doc[k] = json.RawMessage(`"` + Redacted + `"`)
		}
	}
	out, err := plan.Marshal(doc)
	if err != nil {
		return json.RawMessage(`null`)
	}
	return out
}

// shownOnce is the note in the answer to a repeated call of a tool that reveals a secret.
const shownOnce = "This call was made before with the same idempotency key. Its secret was shown in the first answer only and is not " +
	"stored. " +
	"If that answer is lost, revoke what was made and make another with a new key."

// noted adds the note to a result whose secret is concealed.
func noted(result json.RawMessage) json.RawMessage {
	var doc map[string]any
	if json.Unmarshal(result, &doc) != nil || doc == nil {
		return result
	}
	doc["note"] = shownOnce
	out, err := plan.Marshal(doc)
	if err != nil {
		return result
	}
	return out
}

// argsRef is the reference as it was, where it names an artifact; any other text is not repeated.
func argsRef(s *string) *string {
	if s == nil || !plan.IsArtifactID(strings.TrimPrefix(strings.TrimPrefix(*s, "artifact:"), "//")) {
		return nil
	}
	return s
}

// scrubbed gives a caller's text without secrets, no longer than the event's schema allows: what stands for a secret may be longer than it.
func scrubbed(s *string) *string {
	if s == nil || *s == "" {
		return nil
	}
	out := Scrub(*s)
	if r := []rune(out); len(r) > maxTextID {
		out = string(r[:maxTextID])
	}
	return &out
}

// maxTextID is the longest text_id, agent_id and model_id of the schema, in characters.
const maxTextID = 256

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
