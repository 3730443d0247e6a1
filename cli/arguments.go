package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
)

// named are values given one by one as NAME=VALUE. Each name may be given only once: of two values it would be unclear which counts.
type named map[string]string

// Decode reads the next one.
func (n *named) Decode(ctx *kong.DecodeContext) error {
	var word string
	if err := ctx.Scan.PopValueInto("NAME=VALUE", &word); err != nil {
		return err
	}
	name, value, ok := strings.Cut(word, "=")
	if !ok {
		return fmt.Errorf("expected \"<key>=<value>\" but got %q", word)
	}
	if _, twice := (*n)[name]; twice {
		return fmt.Errorf("%s is given twice", name)
	}
	if *n == nil {
		*n = named{}
	}
	(*n)[name] = value
	return nil
}

// args builds the tool's arguments: artifacts for its inputs, typed values for its parameters.
func (c Run) args(ctx context.Context, a *Shell, s *Session, tool app.ToolDoc) (map[string]any, error) {
	args := map[string]any{}
	for name, value := range c.Input {
		in, ok := findInput(tool, name)
		if !ok {
			return nil, fault.Invalid("", fault.Problem{Code: "RUN-INPUT", Field: "--input " + name,
				Rule: "an input of the tool: " + inputNames(tool), Msg: tool.ToolID + " has no such input"})
		}
		if err := once(args, "--input "+name, in.Param); err != nil {
			return nil, err
		}
		id := value
		if !plan.IsArtifactID(value) {
			got, err := a.importFile(ctx, s, value)
			if err != nil {
				return nil, err
			}
			id = got.ArtifactID
		}
		args[in.Param] = id
	}
	for name, value := range c.Param {
		v, err := typed(tool.InputSchema, name, value)
		if err != nil {
			return nil, err
		}
		if err := once(args, "--param "+name, name); err != nil {
			return nil, err
		}
		args[name] = v
	}
	return args, nil
}

// once refuses a second value of an argument, for example of an input that is named both by its role and by its parameter.
func once(args map[string]any, field, param string) error {
	if _, twice := args[param]; twice {
		return fault.Invalid("", fault.Problem{Code: "RUN-TWICE", Field: field, Rule: "one value for each argument",
			Msg: param + " already has a value"})
	}
	return nil
}

func findInput(t app.ToolDoc, name string) (app.PackInput, bool) {
	for _, in := range t.Inputs {
		if in.Param == name || in.Role == name {
			return in, true
		}
	}
	return app.PackInput{}, false
}

func inputNames(t app.ToolDoc) string {
	var names []string
	for _, in := range t.Inputs {
		names = append(names, in.Param)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
