package toolpack

import (
	"bytes"
	"encoding/json"

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
