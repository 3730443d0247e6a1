package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
)

// Tool are the verbs on tools and toolpacks.
type Tool struct {
	List  toolListCmd  `cmd:"" default:"withargs" help:"List the tools."`
	Show  toolShowCmd  `cmd:"" help:"Show a tool's contract."`
	Check toolCheckCmd `cmd:"" help:"Check a folder of toolpacks, or a whole domain, and report all problems."`

	Convert toolConvertCmd `cmd:"" help:"Convert the tools of another system into files of a domain."`
	Init    toolInitCmd    `cmd:"" help:"Write a first toolpack that loads without changes."`
	Schema  toolSchemaCmd  `cmd:"" help:"Print the JSON Schema of *.tool.yaml, for editors."`
	Runner  toolRunnerCmd  `cmd:"" help:"Print the program that calls the function of a python or node toolpack in its image."`
}

type toolListCmd struct {
	All bool `help:"Also list the gateway's own operations."`
}

// Run lists tools.
func (c toolListCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "tool.list", app.ToolArgs{All: c.All}, func(w io.Writer, l app.ToolList) {
		list(w, "tool|version|what it does", l.Tools, func(t app.ToolRow) []string {
			return []string{t.ToolID, t.Version, clipLine(t.Description, 90)}
		})
		footer(w, len(l.Tools), exactly(int64(l.Total)), "tools")
		fmt.Fprintf(w, "domain %s %s\n", l.DomainID, l.Version)
		printNext(w, fault.Do("tool.show"))
	})
}

type toolShowCmd struct {
	Tool string `arg:"" help:"Tool id."`
}

// Run shows a tool.
func (c toolShowCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "tool.show", app.ToolArgs{ToolID: c.Tool}, func(w io.Writer, d app.ToolDoc) {
		fmt.Fprintf(w, "%s %s (contract %s)\n%s\n", d.ToolID, d.Version, d.ContractVersion, d.Description)
		example := "slurmgate run " + d.ToolID
		for _, in := range d.Inputs {
			fmt.Fprintf(w, "input   %s: %s%s\n", in.Param, strings.Join(in.Types, " or "), shapeText(in))
			if in.Optional {
				continue
			}
			example += " --input " + in.Param + "=FILE"
		}
		for _, o := range d.Outputs {
			fmt.Fprintf(w, "output  %s: %s, %q\n", o.Role, o.Type, o.Label)
		}
		if d.Image != nil {
			fmt.Fprintf(w, "image   %s\n", *d.Image)
		}
		if schema := pretty(d.InputSchema); schema != "" {
			fmt.Fprintf(w, "arguments (JSON Schema):\n%s\n", schema)
		}
		if len(d.Inputs) > 0 {
			fmt.Fprintf(w, "Next: %s --wait\n", example)
		}
	})
}

// shapeText says how many artifacts an input takes, and what belongs to it.
func shapeText(in app.PackInput) (s string) {
	if in.List != nil {
		s += fmt.Sprintf(", a list of %d to %d", in.List.Min, in.List.Max)
	}
	if in.Optional {
		s += ", optional"
	}
	if in.Group != "" {
		s += ", of the group " + in.Group
	}
	return s
}

// pretty is JSON over several lines, with the keys in order; empty if it is no JSON.
func pretty(doc json.RawMessage) string {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return ""
	}
	out, _ := json.MarshalIndent(v, "", "  ") // it is valid JSON
	return string(out)
}
