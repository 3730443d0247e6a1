package app

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	diff "github.com/google/go-cmp/cmp"

	"slurmgate/gate"
	"slurmgate/plan"
)

var update = flag.Bool("update", false, "write the golden files")

// chatOf describes how a chat has an operation.
func chatOf(c gate.Chat) string {
	switch {
	case c.First:
		return "first"
	case c.Has:
		return "has"
	}
	return "-"
}

// The operations, their effects, their callers and their arguments are compared with a file, so that each change is
// noticed: callers rely on them.
//
// proves HTC-05
func TestOperations(t *testing.T) {
	list := new(Gateway).Operations()
	slices.SortFunc(list, func(a, b Operation) int { return strings.Compare(a.ID, b.ID) })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "operation\teffect\tthe same call again\tits answer\t"+
		"capability\tneeds\tfaces\tlimit\tdry run\tdestructive\tacts as or on\tchat\tverb")
	for _, o := range list {
		var faces []string
		for _, f := range o.Faces {
			faces = append(faces, string(f))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%t\t%t\t%s\t%s\t%s\n", o.ID, o.Effect, o.Repeat, o.Tool().Determinism,
			o.Capability, o.Needs, strings.Join(faces, " "), o.Limit, o.DryRun.handle != nil, o.Destructive, cmp.Or(o.Acts, "gateway"),
			chatOf(o.Chat), cmp.Or(o.Verb, "-"))
	}
	w.Flush()
	for _, o := range list {
		writeArguments(t, &b, o)
	}
	const file = "testdata/operations.golden"
	if *update {
		must(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if d := diff.Diff(string(want), b.String()); d != "" {
		t.Errorf("%s differs; if that is wanted, run the test with -update:\n%s", file, d)
	}
}

// writeArguments writes the schema of each argument of an operation.
func writeArguments(t *testing.T, w io.Writer, o Operation) {
	t.Helper()
	var in struct {
		Type                 string
		AdditionalProperties bool
		Required             []string
		Properties           map[string]any
	}
	must(t, json.Unmarshal(o.Tool().Input, &in))
	if in.Type != "object" || in.AdditionalProperties {
		t.Errorf("the arguments of %s are a %s with other properties %t, want an object without", o.ID, in.Type, in.AdditionalProperties)
	}
	fmt.Fprintf(w, "\n%s\n", o.ID)
	for _, name := range slices.Sorted(maps.Keys(in.Properties)) {
		schema, err := plan.Marshal(in.Properties[name])
		must(t, err)
		mark := ""
		if slices.Contains(in.Required, name) {
			mark = " required"
		}
		fmt.Fprintf(w, "  %s%s %s\n", name, mark, schema)
	}
}
