package gate

import (
	"encoding/json"
	"strings"

	"slurmgate/plan"
)

// maxRefusedArgs bounds the arguments in the record of a refused call, in bytes: of larger ones it has the hash.
const maxRefusedArgs = 4 << 10

// keep adds a payload, redacted, and returns its hash and the handle it is read by. There is no handle for a payload
// that must not be stored; one too large for an envelope is in an artifact already.
func (g *Gate) keep(r *Record, kind string, d document, store bool) (hash, ref string, err error) {
	if d, _, err = g.redact(d, true); err != nil {
		return "", "", err
	}
	hash = d.hash()
	if store && len(d.Bytes) <= MaxInline && (r.Chain != Refused || len(d.Bytes) <= maxRefusedArgs) {
		r.Payloads = append(r.Payloads, Payload{kind, d.Bytes, hash})
		ref = PayloadRef(r.ToolCallID, kind, hash)
	}
	return hash, ref, nil
}

// payloadPrefix begins the handle of a payload.
const payloadPrefix = refPrefix + "tool_payloads/"

// PayloadRef returns the handle of the redacted arguments (kind args) or the redacted result (kind result) of a call, by their hash as its
// event has it: callers choose the ids of calls, and may choose one again. Those who may read the records of calls can read it.
func PayloadRef(toolCallID, kind, hash string) string {
	return payloadPrefix + toolCallID + "/" + kind + "/" + hash
}

// ParsePayloadRef returns the call, the kind and the hash that a handle names; ok is false for any other text.
func ParsePayloadRef(ref string) (toolCallID, kind, hash string, ok bool) {
	rest, is := strings.CutPrefix(ref, payloadPrefix)
	toolCallID, rest, _ = strings.Cut(rest, "/")
	kind, hash, _ = strings.Cut(rest, "/")
	return toolCallID, kind, hash, is && isUUID(toolCallID) && (kind == "args" || kind == "result") && plan.IsSHA256(hash)
}

// WithoutPayloads returns an event whose payloads are not stored: it keeps their hashes and loses the handles.
func WithoutPayloads(event json.RawMessage) (json.RawMessage, error) {
	doc, err := plan.Read(event)
	if err != nil {
		return nil, err
	}
	e, _ := doc.Value.(map[string]any)
	for _, key := range []string{"args_ref", "result_ref"} {
		if ref, _ := e[key].(string); strings.HasPrefix(ref, payloadPrefix) {
			delete(e, key)
		}
	}
	return plan.Marshal(e)
}

// firstRef returns the handle of a payload, or other without one.
func firstRef(kept string, other *string) *string {
	if kept != "" {
		return &kept
	}
	return other
}

// argsRef returns the reference where it names an artifact of this gateway; any other text is not repeated.
func argsRef(s *string) *string {
	if s == nil || artifactOf(*s) == "" {
		return nil
	}
	ref := refPrefix + artifactOf(*s)
	return &ref
}
