package gate

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"slurmgate/fault"
)

// htcV1 is the only definition of the envelope (HTC-01).
//
//go:embed schema/htc_v1.json
var htcV1 []byte

// EnvelopeSchema gives the JSON Schema of requests, responses and events.
func EnvelopeSchema() json.RawMessage { return bytes.Clone(htcV1) }

// badEnvelope is the code of whatever is no envelope.
const badEnvelope = "VAL-HTC-001"

// envelopes checks what goes in and out against the schema.
type envelopes struct{ request, response, event *jsonschema.Schema }

func compileEnvelopes() (envelopes, error) {
	const url = "urn:slurmgate:schema:htc_v1"
	var e envelopes
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(htcV1))
	if err != nil {
		return e, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is loaded from elsewhere
	if err := c.AddResource(url, doc); err != nil {
		return e, err
	}
	for _, p := range []struct {
		name string
		s    **jsonschema.Schema
	}{{"request", &e.request}, {"response", &e.response}, {"tool_call_event", &e.event}} {
		if *p.s, err = c.Compile(url + "#/$defs/" + p.name); err != nil {
			return e, err
		}
	}
	return e, nil
}

// violations lists what a document breaks, nil for nothing. at stands before each field.
func violations(s *jsonschema.Schema, raw []byte, code, at, rule string) ([]fault.Problem, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return []fault.Problem{{Code: code, Field: at, Rule: "JSON", Msg: err.Error()}}, nil
	}
	err = s.Validate(doc)
	if err == nil {
		return nil, nil
	}
	ve, ok := err.(*jsonschema.ValidationError)
	if !ok {
		return nil, err
	}
	var out []fault.Problem
	p := message.NewPrinter(language.English)
	var walk func(*jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		for _, c := range v.Causes {
			walk(c)
		}
		if len(v.Causes) > 0 {
			return
		}
		path := v.InstanceLocation
		if at != "" {
			path = append([]string{at}, path...)
		}
		out = append(out, fault.Problem{Code: code, Field: strings.Join(path, "."), Rule: rule, Msg: v.ErrorKind.LocalizedString(p)})
	}
	walk(ve)
	return out, nil
}

// checkRequest holds the bytes of a request against the schema.
func (e envelopes) checkRequest(raw []byte) error {
	found, err := violations(e.request, raw, badEnvelope, "", "the envelope, gate/schema/htc_v1.json")
	if err != nil || len(found) == 0 {
		return err
	}
	return fault.Invalid("gate.Call", "the request is not an envelope", found...)
}
