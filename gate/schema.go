package gate

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"slurmgate/fault"
	"slurmgate/plan"
)

// htcV1 is the only definition of the envelope (HTC-01).
//
//go:embed schema/htc_v1.json
var htcV1 []byte

// EnvelopeSchema returns the JSON Schema of requests, responses and events.
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
func violations(s *jsonschema.Schema, doc any, code, at, rule string) ([]fault.Problem, error) {
	err := s.Validate(doc)
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
		out = append(out, fault.Problem{Code: code, Field: strings.Join(path, "."), Rule: rule, Msg: violation(v, s, p)})
	}
	walk(ve)
	// the library goes through maps
	slices.SortStableFunc(out, func(a, b fault.Problem) int { return strings.Compare(a.Field+"\x00"+a.Msg, b.Field+"\x00"+b.Msg) })
	return out, nil
}

// violation says what is wrong without repeating the value: the caller knows it, and the record must not.
func violation(v *jsonschema.ValidationError, s *jsonschema.Schema, p *message.Printer) string {
	switch k := v.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		msg := k.LocalizedString(p)
		if known := slices.Sorted(maps.Keys(s.Properties)); len(v.InstanceLocation) == 0 && len(known) > 0 {
			if ask := plan.DidYouMean(k.Properties[0], known); ask != "" {
				return msg + "; " + ask
			}
			return msg + "; there are: " + strings.Join(known, ", ")
		}
		return msg
	case *kind.Pattern:
		return fmt.Sprintf("it does not match the pattern %s", k.Want)
	case *kind.Format:
		return "it is not a valid " + k.Want
	}
	return v.ErrorKind.LocalizedString(p)
}

// checkRequest holds a request against the schema.
func (e envelopes) checkRequest(doc any) error {
	found, err := violations(e.request, doc, badEnvelope, "", "the envelope, gate/schema/htc_v1.json")
	if err != nil || len(found) == 0 {
		return err
	}
	return fault.Invalid("gate.Call", "the request is not a valid envelope", found...)
}

// CheckResponse holds the bytes of a response against the schema; for tests of faces.
func CheckResponse(raw []byte) error {
	return check(raw, func(e envelopes) *jsonschema.Schema { return e.response })
}

// CheckEvent holds the bytes of a ToolCallEvent against the schema.
func CheckEvent(raw []byte) error {
	return check(raw, func(e envelopes) *jsonschema.Schema { return e.event })
}

func check(raw []byte, which func(envelopes) *jsonschema.Schema) error {
	e, err := compileEnvelopes()
	if err != nil {
		return err
	}
	doc, err := plan.Read(raw)
	if err != nil {
		return err
	}
	found, err := violations(which(e), doc.Value, badEnvelope, "", "gate/schema/htc_v1.json")
	if err == nil && len(found) > 0 {
		err = fault.Invalid("gate.Check", "", found...)
	}
	return err
}
