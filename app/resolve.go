package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/toolpack"
)

const (
	artifactPattern  = `^art_[0-9A-HJKMNP-TV-Z]{26}$`
	referencePattern = `^(art_[0-9A-HJKMNP-TV-Z]{26}|ref:[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@sha256:[0-9a-f]{64})?)$`
)

// allowReferences lets a schema that wants the id of an artifact take the name of a reference too.
func allowReferences(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if s["pattern"] == artifactPattern {
			s["pattern"] = referencePattern
		}
		for _, v := range s {
			allowReferences(v)
		}
	case []any:
		for _, v := range s {
			allowReferences(v)
		}
	}
}

// resolveReferences replaces the names of references among the inputs of a call by the ids of the artifacts that stand for them in the
// project. Nothing is stored; the artifacts are in first.
func (g *Gateway) resolveReferences(ctx context.Context, args json.RawMessage, p *toolpack.Pack, project string) (out json.RawMessage,
	first before, err error) {
	var doc map[string]json.RawMessage
	if json.Unmarshal(args, &doc) != nil {
		return args, first, nil // the pack says what is wrong with them
	}
	first.references = map[string]run.Artifact{}
	var found []fault.Problem
	id := func(field, value string) string {
		if !strings.HasPrefix(value, "ref:") || err != nil {
			return value
		}
		a, ferr := g.standsFor(ctx, value, project)
		switch {
		case fault.Is(ferr, fault.NotFound):
			found = append(found, fault.Problem{Code: "ARGS-REFERENCE", Field: field, Rule: "ref: and the name of a reference of this site",
				Msg: fault.Prose(ferr), Next: []fault.Step{fault.Do("reference.list")}})
		case ferr != nil:
			err = ferr
		default:
			first.references[a.ID] = a
			return a.ID
		}
		return value
	}
	for _, in := range p.Inputs() {
		var value any
		if json.Unmarshal(doc[in.Param], &value) != nil {
			continue
		}
		switch v := value.(type) {
		case string:
			value = id(in.Param, v)
		case []any:
			for i := range v {
				if s, ok := v[i].(string); ok {
					v[i] = id(fmt.Sprintf("%s[%d]", in.Param, i), s)
				}
			}
		default:
			continue
		}
		raw, jerr := json.Marshal(value)
		if jerr != nil {
			return args, first, jerr
		}
		doc[in.Param] = raw
	}
	if len(found) > 0 && err == nil {
		err = &fault.Error{Kind: fault.Validation, Code: found[0].Code, Msg: "the arguments of " + p.ID() + " are not accepted", Problems: found,
			Steps: []fault.Step{fault.Do("reference.list")}}
	}
	if err != nil || len(first.references) == 0 {
		return args, first, err
	}
	out, err = json.Marshal(doc)
	return out, first, err
}
