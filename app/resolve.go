package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/toolpack"
)

const (
	artifactPattern  = `^art_[0-9A-HJKMNP-TV-Z]{26}$`
	referencePattern = `^(art_[0-9A-HJKMNP-TV-Z]{26}|ref:[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@sha256:[0-9a-f]{64})?)$`
)

// allowReferences makes a schema that requires the id of an artifact accept the name of a reference too.
func allowReferences(schema any) { repattern(schema, artifactPattern, referencePattern) }

// repattern replaces one pattern by another everywhere in a schema.
func repattern(schema any, was, now string) {
	switch s := schema.(type) {
	case map[string]any:
		if s["pattern"] == was {
			s["pattern"] = now
		}
		for _, v := range s {
			repattern(v, was, now)
		}
	case []any:
		for _, v := range s {
			repattern(v, was, now)
		}
	}
}

// servesReferences returns the schema of a service's arguments that accepts the names of references, and the
// arguments that may have one.
func servesReferences(s toolpack.Service) (schema json.RawMessage, params []string) {
	var doc map[string]any
	if json.Unmarshal(s.Input, &doc) != nil {
		return s.Input, nil
	}
	properties, _ := doc["properties"].(map[string]any)
	for name, p := range properties {
		before, err := json.Marshal(p)
		allowReferences(p)
		after, err2 := json.Marshal(p)
		if err != nil || err2 != nil {
			return s.Input, nil
		}
		if !bytes.Equal(before, after) && !slices.Contains(s.Sensitive, name) {
			params = append(params, name)
		}
	}
	if len(params) == 0 {
		return s.Input, nil
	}
	schema, err := json.Marshal(doc)
	if err != nil {
		return s.Input, nil
	}
	slices.Sort(params)
	return schema, params
}

// paramsOf returns the arguments of a pack that are inputs.
func paramsOf(p *toolpack.Pack) (params []string) {
	for _, in := range p.Inputs() {
		params = append(params, in.Param)
	}
	return params
}

// resolver replaces the names of references by the ids of the artifacts that stand for them in a project. It stores
// nothing.
type resolver struct {
	*Gateway
	ctx     context.Context
	project string
	bound   map[string]string // what names stand for in this call, set by the gate; other names have their current meaning
	found   []fault.Problem
	err     error

	artifacts map[string]run.Artifact // those that stand for references, by id
	names     map[string]string       // what names without a digest stand for: ref:NAME → sha256:<hex>
	pins      bool                    // add the digest to the names instead of replacing them
}

func (g *Gateway) resolver(ctx context.Context, project string, bound map[string]string) *resolver {
	return &resolver{Gateway: g, ctx: ctx, project: project, bound: bound, artifacts: map[string]run.Artifact{}, names: map[string]string{}}
}

// artifact returns what a reference stands for. If that does not exist it records a problem and ok is false.
func (r *resolver) artifact(field, value string) (a run.Artifact, ok bool) {
	if r.err != nil {
		return a, false
	}
	asked := value
	if digest, fixed := r.bound[value]; fixed {
		asked = value + "@" + digest
	}
	a, err := r.standsFor(r.ctx, asked, r.project)
	switch {
	case fault.Is(err, fault.NotFound):
		r.found = append(r.found, fault.Problem{Code: "ARGS-REFERENCE", Field: field, Rule: "ref: and the name of a reference of this site",
			Msg: fault.Prose(err), Next: []fault.Step{fault.Do("reference.list")}})
		return a, false
	case err != nil:
		r.err = err
		return a, false
	}
	r.artifacts[a.ID] = a
	if !strings.Contains(value, "@") {
		r.names[value] = "sha256:" + a.SHA256
	}
	return a, true
}

// id returns the id of the artifact that a value names.
func (r *resolver) id(field, value string) string {
	if strings.HasPrefix(value, "ref:") {
		a, ok := r.artifact(field, value)
		switch {
		case ok && r.pins:
			return strings.SplitN(value, "@", 2)[0] + "@sha256:" + a.SHA256
		case ok:
			return a.ID
		}
	}
	return value
}

// done returns the error about the problems found in the arguments of a tool.
func (r *resolver) done(tool string) error {
	if r.err == nil && len(r.found) > 0 {
		r.err = &fault.Error{Kind: fault.Validation, Code: r.found[0].Code, Msg: "the arguments of " + tool + " are not accepted",
			Problems: r.found, Steps: []fault.Step{fault.Do("reference.list")}}
	}
	return r.err
}

// arguments replaces the references among the arguments with these names.
func (r *resolver) arguments(args json.RawMessage, tool string, params []string) (json.RawMessage, error) {
	var doc map[string]json.RawMessage
	if json.Unmarshal(args, &doc) != nil {
		return args, nil // the tool reports what is wrong with them
	}
	for _, name := range params {
		var value any
		if json.Unmarshal(doc[name], &value) != nil {
			continue
		}
		switch v := value.(type) {
		case string:
			value = r.id(name, v)
		case []any:
			for i := range v {
				if s, ok := v[i].(string); ok {
					v[i] = r.id(fmt.Sprintf("%s[%d]", name, i), s)
				}
			}
		default:
			continue
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return args, err
		}
		doc[name] = raw
	}
	if err := r.done(tool); err != nil || len(r.artifacts) == 0 {
		return args, err
	}
	return plan.Marshal(doc)
}

// plan replaces the references among the inputs of a user's plan, and adds the checksum where the plan has none.
func (r *resolver) plan(spec json.RawMessage) (json.RawMessage, error) {
	if !bytes.Contains(spec, []byte(`"ref:`)) {
		return spec, nil
	}
	doc, err := plan.Read(spec)
	if err != nil {
		return spec, nil // decoding it reports what is wrong
	}
	top, _ := doc.Value.(map[string]any)
	io, _ := top["io"].(map[string]any)
	inputs, _ := io["inputs"].([]any)
	for i, in := range inputs {
		in, _ := in.(map[string]any)
		value, _ := in["artifact_id"].(string)
		if !strings.HasPrefix(value, "ref:") {
			continue
		}
		a, ok := r.artifact(fmt.Sprintf("job_spec.io.inputs[%d].artifact_id", i), value)
		if !ok {
			continue
		}
		in["artifact_id"] = a.ID
		if _, given := in["checksum_sha256"]; !given {
			in["checksum_sha256"] = a.SHA256
		}
		if _, given := in["directory"]; !given && a.Type == plan.Directory {
			in["directory"] = true
		}
	}
	if err := r.done("slurm.submit"); err != nil || len(r.artifacts) == 0 {
		return spec, err
	}
	return plan.Marshal(top)
}

// pinReferences adds their digests to the names of references in arguments: the rows of a batch are submitted later,
// and all with the same content.
func (g *Gateway) pinReferences(ctx context.Context, project string, p *toolpack.Pack, args json.RawMessage) (json.RawMessage, error) {
	r := g.resolver(ctx, project, nil)
	r.pins = true
	return r.arguments(args, p.ID(), paramsOf(p))
}

// namesIn returns the [gate.Tool.Names] of a tool whose arguments with these names may be references.
func (g *Gateway) namesIn(tool string, params []string, project func(context.Context, gate.Call) (string, error)) func(context.Context,
	gate.Call) (map[string]string, error) {
	if len(params) == 0 {
		return nil
	}
	return func(ctx context.Context, c gate.Call) (map[string]string, error) {
		if !bytes.Contains(c.Args, []byte(`"ref:`)) {
			return nil, nil
		}
		id, err := project(ctx, c)
		if err != nil {
			return nil, err
		}
		r := g.resolver(ctx, id, nil)
		_, err = r.arguments(c.Args, tool, params)
		return r.names, err
	}
}

// namesInPlan is the [gate.Tool.Names] of a user's plan.
func (g *Gateway) namesInPlan(ctx context.Context, c gate.Call) (map[string]string, error) {
	var a SubmitArgs
	if err := c.Into(&a); err != nil || !bytes.Contains(a.JobSpec, []byte(`"ref:`)) {
		return nil, err
	}
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return nil, err
	}
	r := g.resolver(ctx, project, nil)
	_, err = r.plan(a.JobSpec)
	return r.names, err
}
