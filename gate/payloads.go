package gate

import (
	"encoding/json"
	"strings"

	"slurmgate/plan"
)

// maxRefusedArgs bounds the arguments in the record of a refused call, in bytes: of larger ones it has the hash.
const maxRefusedArgs = 4 << 10

// keep adds a payload, redacted, and gives its hash and the handle it is read by. What is too large for an envelope is in an artifact
// already: then there is no handle.
func (g *Gate) keep(r *Record, kind string, d document) (hash, ref string, err error) {
	if d, _, err = g.redact(d, true); err != nil {
		return "", "", err
	}
	hash = d.hash()
	if len(d.Bytes) <= MaxInline && (r.Chain != Refused || len(d.Bytes) <= maxRefusedArgs) {
		r.Payloads = append(r.Payloads, Payload{kind, d.Bytes, hash})
		ref = PayloadRef(r.ToolCallID, kind)
	}
	return hash, ref, nil
}

// payloadPrefix begins the handle of a payload.
const payloadPrefix = refPrefix + "tool_payloads/"

// PayloadRef is the handle of the redacted arguments (kind args) or the redacted result (kind result) of a call. Whoever may read the
// records of calls can read it.
func PayloadRef(toolCallID, kind string) string { return payloadPrefix + toolCallID + "/" + kind }

// ParsePayloadRef is the call and the kind that a handle names; ok is false for any other text.
func ParsePayloadRef(ref string) (toolCallID, kind string, ok bool) {
	rest, is := strings.CutPrefix(ref, payloadPrefix)
	toolCallID, kind, _ = strings.Cut(rest, "/")
	return toolCallID, kind, is && isUUID(toolCallID) && (kind == "args" || kind == "result")
}

// WithoutPayloads is an event whose payloads are not stored: their hashes stay, and the handles go.
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

// firstRef is the handle of a payload, or else another.
func firstRef(kept string, other *string) *string {
	if kept != "" {
		return &kept
	}
	return other
}

// argsRef is the reference where it names an artifact of this gateway; any other text is not repeated.
func argsRef(s *string) *string {
	if s == nil || artifactOf(*s) == "" {
		return nil
	}
	ref := refPrefix + artifactOf(*s)
	return &ref
}
