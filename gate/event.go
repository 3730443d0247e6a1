package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/visible"
)

// The tool ids in records of calls that reached no tool. No tool can have them.
const (
	InvalidCall = "gateway.invalid" // what is no envelope, or not meant for this gateway
	LoginCall   = "gateway.login"   // a caller who could not be identified
	UnknownTool = "gateway.unknown" // an envelope that names a tool in a way that cannot be repeated
)

// ReservedIDs returns the ids that no tool can have.
func ReservedIDs() []string { return []string{InvalidCall, LoginCall, UnknownTool} }

// trail collects what is known about a call in progress, for its record.
type trail struct {
	tool     Tool     // zero while none is found
	given    plan.Doc // the arguments as the caller sent them
	args     document // those of records: the tool gets them too, unless there are sensitive ones
	full     plan.Doc // with the values of sensitive arguments; only the tool gets them
	hidden   *Hidden  // those values; nil: there are none
	body     []byte   // sent with the arguments; it is in no record
	instead  string   // the tool id of the record of what is no call; "" for calls
	reached  bool     // the tool was called
	effect   bool     // a tool that may change something was called
	reported bool     // the error is a service worker's
	key      *Key     // the idempotency key bound to this call
	final    bool     // the outcome is recorded under the key permanently
	counted  bool     // by [records]
	leave    func()   // ends the flight of the key, once the outcome is kept
	encoded  plan.Doc // the result as its tool encoded it; zero: it did not
	result   document // of a tool that answered, also where it went into an artifact

	resultHash string // of a result that is in an artifact; 64 hex

	slot       *slot       // what the call holds while its tool works; nil: nothing
	provenance *Provenance // the run that the call is, where the handler said so
	runID      string      // that the call made or found, where the handler said so: see [Made]
}

// input returns the arguments for the tool.
func (t trail) input() plan.Doc {
	if t.hidden != nil {
		return t.full
	}
	return t.args.Doc
}

// repeatable reports whether the same call may be made again after an error: always while the tool was not reached, then only if a
// repeat does nothing more.
func (t trail) repeatable() bool { return !t.effect || t.tool.Idempotency == Idempotent }

// recordedID returns the tool id for the record of a call.
func (t trail) recordedID(req Request) string {
	switch id := Scrub(req.ToolID); {
	case t.instead != "":
		return t.instead
	case t.tool.ID != "":
		return id
	case !sayable.MatchString(id), !IsToolID(id), slices.Contains(ReservedIDs(), id):
		return UnknownTool
	default:
		return id
	}
}

// chainOf returns the chain of a call's record.
func chainOf(res Response, t trail) string {
	switch {
	case t.effect:
		return Effects
	case res.Error == nil:
		return Looks
	case !t.reached:
		return Refused
	}
	switch fault.Kind(res.Error.Kind) {
	case fault.Auth, fault.Capability, fault.Policy:
		return Refused
	}
	if said, _ := res.Error.Details["kind"].(string); said == string(fault.NotFound) {
		return Refused // another's thing is answered like none
	}
	return Looks
}

const (
	maxTouched = 64 // ids named in resources; a list of more is in the result anyway
	idLength   = len("run_") + 26
)

// touched names the runs and artifacts that canonical documents, what went in and out, have as strings.
func touched(docs ...[]byte) Resources {
	r := Resources{WorkspaceIDs: []string{}, Artifacts: []string{}, Files: []string{}, URLs: []string{}}
	for _, d := range docs {
		for {
			quote := bytes.IndexByte(d, '"')
			if quote < 0 {
				break
			}
			d = d[quote+1:]
			text := bytes.TrimPrefix(d, []byte(refPrefix))
			if len(text) <= idLength || text[idLength] != '"' {
				continue
			}
			switch id := string(text[:idLength]); {
			case plan.IsRunID(id):
				addNew(&r.WorkspaceIDs, id)
			case plan.IsArtifactID(id):
				addNew(&r.Artifacts, refPrefix+id)
			}
		}
	}
	return r
}

// about lists the runs that a call is about: those its arguments name, and those that the answer of a tool names which makes runs. A list
// that names runs is about none of them.
func (t trail) about() []string {
	if t.runID != "" {
		return t.resources().WorkspaceIDs
	}
	docs := [][]byte{t.args.Bytes}
	if t.tool.SideEffect != Read {
		docs = append(docs, t.result.Bytes)
	}
	return touched(docs...).WorkspaceIDs
}

func addNew(ids *[]string, id string) {
	if len(*ids) < maxTouched && !slices.Contains(*ids, id) {
		*ids = append(*ids, id)
	}
}

// record builds the record of a call: its ToolCallEvent (HTC-08) and its principal. Everything a caller wrote is
// redacted in it.
func (g *Gate) record(who Caller, req Request, res Response, t trail) (r Record, err error) {
	r = Record{Chain: chainOf(res, t), Principal: who.Name, PrincipalID: who.ID, Face: who.Face, Address: who.Address,
		ToolCallID: res.ToolCallID, ToolID: t.recordedID(req), OK: res.OK, At: res.Timing.EndedAt, Runs: t.about()}
	effect, idempotency := t.tool.SideEffect, t.tool.Idempotency
	if t.tool.ID == "" { // nothing is known of it, and nothing was done
		effect, idempotency = Read, Idempotent
	}
	actor := map[string]any{"kind": orText(req.Actor.Kind, "agent"), "agent_id": nil, "model_id": nil}
	e := map[string]any{"type": "tool_call", "trace_id": res.TraceID, "tool_call_id": res.ToolCallID, "tool_id": r.ToolID,
		"tool_version": orText(t.tool.Version, "0.0.0"), "transport": orText(string(who.Transport), string(Other)),
		"side_effect": string(effect), "idempotency": idempotency, "actor": actor, "ok": res.OK, "timing": res.Timing.document()}
	addTexts(e, map[string]*string{"idempotency_key": g.scrubbed(req.IdempotencyKey), "session_id": req.SessionID})
	if span := g.secrets.Redact(req.ParentSpanID); spanID.MatchString(span) {
		e["parent_span_id"] = span
	}
	if req.Actor.Kind != "" {
		addTexts(actor, map[string]*string{"agent_id": req.Actor.AgentID, "model_id": req.Actor.ModelID})
	}
	if len(t.tool.Capabilities) > 0 {
		e["capability_ids"] = texts(t.tool.Capabilities)
	}
	if len(res.Resources.WorkspaceIDs)+len(res.Resources.Artifacts) > 0 {
		e["resources_touched"] = res.Resources.document()
	}
	if x := res.Error; x != nil {
		e["error"] = map[string]any{"code": x.Code, "kind": x.Kind, "message": x.Message, "retryable": x.Retryable}
	}
	args, known := t.args, true
	if args.Bytes == nil { // refused before they were read
		args.Doc, _ = t.tool.masked(t.given)
		known = t.tool.ID != "" // otherwise it is unknown which of them are sensitive
	}
	if len(args.Bytes) > 0 {
		kept := ""
		if e["args_hash"], kept, err = g.keep(&r, "args", args, known); err != nil {
			return r, err
		}
		addTexts(e, map[string]*string{"args_ref": firstRef(kept, argsRef(req.ArgsRef))})
	}
	if res.OK {
		r.Provenance = g.noted(t)
	}
	result := t.result.concealed(t.tool.Reveals)
	switch {
	case !res.OK:
	case result.Value != nil:
		kept := ""
		if t.resultHash, kept, err = g.keep(&r, "result", result, true); err != nil {
			return r, err
		}
		e["result_hash"] = t.resultHash
		addTexts(e, map[string]*string{"result_ref": firstRef(kept, res.ResultRef)})
	case t.resultHash != "": // it is in an artifact
		e["result_hash"] = t.resultHash
		addTexts(e, map[string]*string{"result_ref": res.ResultRef})
	}
	if err = misfit(g.registry.envelopes.event, e, "the event"); err != nil {
		return r, err
	}
	if r.Event, err = plan.Marshal(e); err != nil {
		return r, err
	}
	if t.key != nil && t.final {
		out := Outcome{Principal: t.key.Principal, KeyHash: t.key.KeyHash}
		first := outcome{Response{OK: res.OK, ResultRef: res.ResultRef, Error: res.Error, Resources: res.Resources}, t.runID, ""}
		if res.OK && res.ResultRef == nil {
			first.Result = result.Bytes
		} else {
			first.ResultHash = t.resultHash
		}
		if out.Response, err = plan.Marshal(first); err != nil {
			return r, err
		}
		r.Outcome = &out
	}
	return r, nil
}

// bareRecord returns the record of a call without anything a caller wrote: the principal, the tool and the outcome.
func (g *Gate) bareRecord(who Caller, res Response, t trail) (Record, error) {
	res.Result, res.ResultRef, res.Resources = nil, nil, touched()
	if res.Error != nil {
		res.Error = &ErrorBody{Code: res.Error.Code, Kind: res.Error.Kind, Retryable: res.Error.Retryable}
	}
	return g.record(who, Request{ToolID: t.tool.ID}, res, trail{tool: t.tool, effect: t.effect, reached: t.reached, instead: t.instead})
}

// hash returns the SHA-256 of the document (64 hex).
func (d document) hash() string {
	sum := sha256.Sum256(d.Bytes)
	return hex.EncodeToString(sum[:])
}

// concealed removes what a tool reveals to its caller only once.
func (d document) concealed(keys []string) document {
	value, ok := d.Value.(map[string]any)
	if len(keys) == 0 || !ok {
		return d
	}
	value = maps.Clone(value)
	for _, k := range keys {
		if _, there := value[k]; there {
			value[k] = Redacted
		}
	}
	doc, _ := plan.Of(value) // it was JSON just now
	return document{Doc: doc}
}

// shownOnce is the note in the answer to a repeated call of a tool that reveals a secret.
const shownOnce = "This call was made before with the same idempotency key. Its secret was shown in the first answer only and is not " +
	"stored. " +
	"If that answer is lost, revoke what was made and make another with a new key."

// noted adds the note to a result whose secret is concealed.
func noted(result plan.Doc) plan.Doc { return result.With("note", shownOnce) }

// scrubbed returns a caller's text without secrets, no longer than the event's schema allows: a marker may be longer
// than the secret that it replaces.
func (g *Gate) scrubbed(s *string) *string {
	if s == nil || *s == "" {
		return nil
	}
	return new(visible.ClipRunes(g.secrets.Redact(*s), maxTextID))
}

// maxTextID is the longest text_id, agent_id and model_id of the schema, in characters.
const maxTextID = 256

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
