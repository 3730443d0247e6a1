package toolpack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
	"slurmgate/plan"
)

// arguments checks the call's arguments and fills in the schema's defaults, so that leaving a value out and giving its
// default are the same run.
func (p *Pack) arguments(args json.RawMessage) (map[string]any, error) {
	return p.in.arguments(p.def.ID, args)
}

func (c contract) arguments(id string, args json.RawMessage) (map[string]any, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
	}
	canonical, err := plan.Canonical(args)
	if err != nil {
		return nil, fault.Wrap("", fault.CodeOf(err), "the arguments of "+id+" are not accepted", err)
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(canonical))
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "JSON-SYNTAX", "the arguments of "+id+" are not accepted", err)
	}
	values, ok := tree.(map[string]any)
	if ok {
		for name, prop := range c.props {
			if _, given := values[name]; !given && prop.hasDefault {
				values[name] = prop.def
			}
		}
	}
	if err := c.validate(c.schema, tree); err != nil {
		return nil, refused(id, problems("ARGS", err))
	}
	return values, nil
}

func (p *Pack) refused(found []fault.Problem) error { return refused(p.def.ID, found) }

func refused(id string, found []fault.Problem) error {
	return &fault.Error{Kind: fault.Validation, Code: found[0].Code, Msg: "the arguments of " + id + " are not accepted",
		Problems: found, Steps: []fault.Step{fault.Do("tool.show", "tool_id", id)}}
}

// inputs turns artifact handles into pinned inputs.
func (p *Pack) inputs(values map[string]any, env Env) ([]plan.Input, map[string]ArtifactInfo, error) {
	var out []plan.Input
	seen := map[string]ArtifactInfo{}
	var found []fault.Problem
	var total int64
	for _, in := range p.def.Inputs {
		id, _ := values[in.Param].(string)
		if !plan.IsArtifactID(id) {
			found = append(found, fault.Problem{Code: "ARGS-ARTIFACT", Field: in.Param, Rule: "an artifact_id: art_ and 26 characters",
				Msg:  `"` + clip(id) + `" is not an artifact_id`,
				Next: []fault.Step{fault.Do("artifact.import")}})
			continue
		}
		a, err := env.Artifact(id)
		switch {
		case fault.Is(err, fault.NotFound):
			found = append(found, fault.Problem{Code: "ARGS-ARTIFACT", Field: in.Param, Rule: "an artifact of this project",
				Msg: "this project has no artifact " + id, Next: []fault.Step{fault.Do("artifact.list")}})
			continue
		case err != nil:
			return nil, nil, fault.Wrap("", "", "cannot look up "+id, err)
		case !slices.Contains(in.Types, a.Type):
			found = append(found, fault.Problem{Code: "ARGS-ARTIFACT-TYPE", Field: in.Param,
				Rule: "an artifact of type " + strings.Join(in.Types, " or "), Msg: id + " has the type " + a.Type,
				Hint: "if its content is right, import it again with that type"})
		}
		if total += a.SizeBytes; a.SizeBytes < 0 || total < 0 {
			total = math.MaxInt64 / 2
		}
		seen[id] = a
		out = append(out, plan.Input{Role: in.Role, ArtifactID: id, ChecksumSHA256: a.SHA256, DestRelpath: in.DestRelpath,
			Directory: a.Type == plan.Directory})
	}
	if most := p.def.Limits.MaxInputBytes; total > most {
		found = append(found, fault.Problem{Code: "ARGS-INPUT-BYTES", Field: "inputs",
			Rule: "limits.maxInputBytes of the toolpack",
			Msg:  fmt.Sprintf("the inputs have %d bytes in total; the tool accepts at most %d bytes", total, most)})
	}
	if len(found) > 0 {
		return nil, nil, p.refused(found)
	}
	return out, seen, nil
}
