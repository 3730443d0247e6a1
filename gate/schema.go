package gate

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/visible"
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
type envelopes struct{ request, response, event *compiled }

// compileEnvelopes makes them once: they are the same for every gate.
var compileEnvelopes = sync.OnceValues(func() (e envelopes, err error) {
	s, err := compileAll(htcV1, "#/$defs/request", "#/$defs/response", "#/$defs/tool_call_event")
	if err != nil {
		return e, err
	}
	return envelopes{s[0], s[1], s[2]}, nil
})

// compileAll makes schemas of the named parts of a document; nothing is loaded from elsewhere.
func compileAll(raw []byte, parts ...string) (out []*compiled, err error) {
	const url = "urn:slurmgate:schema"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	for _, part := range parts {
		s, err := c.Compile(url + part)
		if err != nil {
			return nil, err
		}
		out = append(out, &compiled{s, isQuick(s)})
	}
	return out, nil
}

// Bounds of what is said of a document that breaks a schema: it may do so in a hundred thousand places.
const (
	maxViolations = 20
	maxNamed      = 5   // keys that a schema does not know
	maxField      = 256 // bytes of the name of a place
)

// violations lists what in a document breaks the schema, nil for nothing. at is the prefix of each field.
func violations(s *compiled, doc any, code, at, rule string) (out []fault.Problem) {
	if s.obeyed(doc) {
		return nil
	}
	err := s.Validate(doc)
	if err == nil {
		return nil
	}
	ve, ok := err.(*jsonschema.ValidationError)
	if !ok {
		return []fault.Problem{{Code: code, Field: at, Rule: rule, Msg: err.Error()}}
	}
	p := message.NewPrinter(language.English)
	var walk func(*jsonschema.ValidationError)
	more := 0
	walk = func(v *jsonschema.ValidationError) {
		for _, c := range v.Causes {
			walk(c)
		}
		if len(v.Causes) > 0 {
			return
		}
		if len(out) == 10*maxViolations {
			more++
			return
		}
		path := v.InstanceLocation
		if at != "" {
			path = append([]string{at}, path...)
		}
		field := visible.Clip(strings.Join(path, "."), maxField)
		out = append(out, fault.Problem{Code: code, Field: field, Rule: rule, Msg: violation(v, s.Schema, p)})
	}
	walk(ve)
	// the library goes through maps
	slices.SortStableFunc(out, func(a, b fault.Problem) int { return strings.Compare(a.Field+"\x00"+a.Msg, b.Field+"\x00"+b.Msg) })
	if len(out) > maxViolations {
		more += len(out) - maxViolations
		out = append(out[:maxViolations], fault.Problem{Code: code, Field: at, Rule: rule, Msg: fmt.Sprintf("and %d more problems", more)})
	}
	return out
}

// violation describes one violation without repeating the value: the caller has it, and the record must not.
func violation(v *jsonschema.ValidationError, s *jsonschema.Schema, p *message.Printer) string {
	switch k := v.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		named := make([]string, min(len(k.Properties), maxNamed))
		for i := range named {
			named[i] = "'" + fault.Clip(k.Properties[i]) + "'"
		}
		msg := "additional properties " + strings.Join(named, ", ")
		if more := len(k.Properties) - len(named); more > 0 {
			msg += fmt.Sprintf(" and %d more", more)
		}
		msg += " not allowed"
		if known := slices.Sorted(maps.Keys(s.Properties)); len(v.InstanceLocation) == 0 && len(known) > 0 {
			if ask := plan.DidYouMean(k.Properties[0], known); ask != "" {
				return msg + "; " + ask
			}
			return msg + "; there are: " + strings.Join(known, ", ")
		}
		return msg
	case *kind.Pattern:
		switch {
		case strings.HasPrefix(k.Want, "^art_"):
			return "it is not an artifact id (art_…)"
		case strings.HasPrefix(k.Want, "^(art_"):
			return "it is neither an artifact id (art_…) nor ref: and the name of a reference"
		}
		return fmt.Sprintf("it does not match the pattern %s", k.Want)
	case *kind.Format:
		return "it is not a valid " + k.Want
	}
	return v.ErrorKind.LocalizedString(p)
}

// misfit returns a fault for a document that breaks a schema of the envelope.
func misfit(s *compiled, doc any, what string) error {
	if found := violations(s, doc, badEnvelope, "", "the envelope, gate/schema/htc_v1.json"); len(found) > 0 {
		return fault.Invalid(what+" violates its schema", found...)
	}
	return nil
}

// CheckResponse holds the bytes of a response against the schema; for tests of faces.
func CheckResponse(raw []byte) error {
	return check(raw, func(e envelopes) *compiled { return e.response }, "the response")
}

// CheckEvent holds the bytes of a ToolCallEvent against the schema.
func CheckEvent(raw []byte) error {
	return check(raw, func(e envelopes) *compiled { return e.event }, "the event")
}

func check(raw []byte, which func(envelopes) *compiled, what string) error {
	e, err := compileEnvelopes()
	if err != nil {
		return err
	}
	doc, err := plan.Read(raw)
	if err != nil {
		return err
	}
	return misfit(which(e), doc.Value, what)
}
