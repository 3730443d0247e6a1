package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
)

// named holds values given one by one as NAME=VALUE, in the order given. A name that takes a list may be given again
// for each element.
type named []namedValue

type namedValue struct{ name, value string }

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
	*n = append(*n, namedValue{name, value})
	return nil
}

// grouped returns the values of each name, in the order in which the names were first given.
func (n named) grouped() (names []string, values map[string][]string) {
	values = map[string][]string{}
	for _, v := range n {
		if !slices.Contains(names, v.name) {
			names = append(names, v.name)
		}
		values[v.name] = append(values[v.name], v.value)
	}
	return names, values
}

// arguments holds the arguments of a tool while they are read from the command line.
type arguments struct {
	tool   app.ToolDoc
	schema app.ArgSchema
	values map[string]any
	files  []fileArgument // to be imported once everything else is right
}

// fileArgument is a file or folder given for an artifact, the option that named it, and a function that puts the
// artifact's id in its place.
type fileArgument struct {
	path, option string
	set          func(id string)
}

// args builds the tool's arguments: artifacts for its inputs, typed values for its parameters. No file is read before all that can be
// wrong without reading one has been checked.
func (c Run) args(ctx context.Context, a *Shell, s *Session, tool app.ToolDoc) (map[string]any, error) {
	g := arguments{tool: tool, schema: app.SchemaOfArgs(tool.InputSchema), values: map[string]any{}}
	names, values := c.Input.grouped()
	for _, name := range names {
		in, ok := findInput(tool, name)
		if !ok {
			return nil, g.noInput(name)
		}
		if err := g.set(ctx, a, s, "--input "+name, []string{in.Param}, values[name]); err != nil {
			return nil, err
		}
	}
	names, values = c.Param.grouped()
	for _, name := range names {
		path, err := g.path(name)
		if err != nil {
			return nil, err
		}
		if err := g.set(ctx, a, s, "--param "+name, path, values[name]); err != nil {
			return nil, err
		}
	}
	if err := g.fit(); err != nil {
		return nil, err
	}
	if c.Project != "" {
		if len(g.files) == 0 {
			return nil, fault.Invalid("", fault.Problem{Code: "RUN-PROJECT", Field: "--project", Rule: "with an input that is a file",
				Msg:  "no input is a file, so nothing is imported into " + c.Project,
				Hint: "leave --project out: a run belongs to the project of its first input"})
		}
		s.project = c.Project
	}
	for _, f := range g.files {
		got, err := a.importFile(ctx, s, f.path)
		if err != nil {
			return nil, err
		}
		f.set(got.ArtifactID)
	}
	return g.values, nil
}

// path returns where a parameter belongs: a property of the schema, or with dots one of an object in it.
func (g *arguments) path(name string) ([]string, error) {
	if _, ok := g.schema.Property(name); ok || !strings.Contains(name, ".") {
		if !ok && g.schema.Closed() {
			return nil, g.noParam(name, g.schema)
		}
		return []string{name}, nil
	}
	at, path := g.schema, strings.Split(name, ".")
	for i, part := range path {
		next, ok := at.Property(part)
		if !ok && at.Closed() {
			return nil, g.noParam(strings.Join(path[:i+1], "."), at)
		}
		at = next
	}
	return path, nil
}

func (g *arguments) noParam(name string, at app.ArgSchema) error {
	before, last := "", name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		before, last = name[:i+1], name[i+1:]
	}
	known := at.Names()
	return fault.Invalid("", unknownName("RUN-PARAM", "--param "+name, g.tool.ToolID, "parameter", name, before+plan.Nearest(last, known),
		known, before))
}

func (g *arguments) noInput(name string) error {
	var known []string
	for _, in := range g.tool.Inputs {
		known = append(known, in.Param)
		if in.Role != in.Param {
			known = append(known, in.Role)
		}
	}
	return fault.Invalid("", unknownName("RUN-INPUT", "--input "+name, g.tool.ToolID, "input", name, plan.Nearest(name, known), known, ""))
}

// unknownName returns the problem of a name that a tool does not know.
func unknownName(code, field, toolID, what, name, near string, known []string, before string) fault.Problem {
	msg := fmt.Sprintf("%s has no %s %q", toolID, what, name)
	if near != before {
		msg += plan.Suggestion(near)
	}
	rule := "none"
	if len(known) > 0 {
		rule = strings.Join(known, ", ")
	}
	return fault.Problem{Code: code, Field: field, Rule: "one of the tool's " + what + "s: " + rule, Msg: msg}
}

// set gives an argument its value, or a list its elements.
func (g *arguments) set(ctx context.Context, a *Shell, s *Session, field string, path, values []string) error {
	at, schema := g.values, g.schema
	for i, part := range path {
		next, known := schema.Property(part)
		if !known {
			next = app.ArgSchema{}
		}
		if schema = next; i == len(path)-1 {
			break
		}
		inner, ok := at[part].(map[string]any)
		if _, given := at[part]; given && !ok {
			return g.twice(field, strings.Join(path[:i+1], "."))
		}
		if !ok {
			inner = map[string]any{}
			at[part] = inner
		}
		at = inner
	}
	last := path[len(path)-1]
	wanted := len(path) == 1 && slices.ContainsFunc(g.tool.Inputs, func(in app.PackInput) bool { return in.Param == last })
	if _, given := at[last]; given {
		return g.twice(field, strings.Join(path, "."))
	}
	types := schema.Types()
	isList := slices.Contains(types, "array") && !slices.Contains(types, "string")
	if !isList && len(values) > 1 {
		return g.twice(field, strings.Join(path, "."))
	}
	element, known := schema.Items()
	if !isList || len(values) == 1 && (!known || strings.HasPrefix(strings.TrimSpace(values[0]), "[")) {
		return g.one(ctx, a, s, field, schema, wanted && !isList, values[0], func(v any) { at[last] = v })
	}
	list := make([]any, len(values))
	at[last] = list
	for i, value := range values {
		if err := g.one(ctx, a, s, field, element, wanted, value, func(v any) { list[i] = v }); err != nil {
			return err
		}
	}
	return nil
}

// one reads one value. Where the tool or its schema takes the id of an artifact, the value may be a file.
func (g *arguments) one(ctx context.Context, a *Shell, s *Session, field string, schema app.ArgSchema, wanted bool,
	value string, set func(v any)) error {
	if !schema.IsArtifact() && !wanted {
		types := schema.Types()
		if schema.Unsaid() {
			types = nil
		}
		v, err := app.TypedAs(types, field, value)
		set(v)
		return err
	}
	switch {
	case plan.IsArtifactID(value), strings.HasPrefix(value, "ref:"):
		set(value)
		return nil
	case strings.HasPrefix(value, "run_") && strings.Contains(value, ":"):
		x, err := s.promise(ctx, value)
		set(x)
		return err
	case value == "null" && slices.Contains(schema.Types(), "null"):
		set(nil)
		return nil
	case isShort(artifactIDs, value) && strings.HasPrefix(value, "art_"):
		id, err := s.whole(ctx, artifactIDs, value)
		set(id)
		return err
	}
	set("")
	g.files = append(g.files, fileArgument{value, field, func(id string) { set(id) }})
	return nil
}

// twice refuses a second value of an argument, for example of an input that is named both by its role and by its parameter.
func (g *arguments) twice(field, param string) error {
	return fault.Invalid("", fault.Problem{Code: "RUN-TWICE", Field: field, Rule: "one value for each argument that takes no list",
		Msg: param + " already has a value"})
}

// fit refuses files that are not there, or that are too large for the tool, before any of them is read.
func (g *arguments) fit() error {
	var total int64
	for _, f := range g.files {
		info, err := os.Stat(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return noFile(f.path)
		case err == nil && info.Mode().IsRegular():
			total += info.Size()
		}
		if err != nil {
			continue // opening it reports why
		}
		if err := g.folderOrFile(f, info.IsDir()); err != nil {
			return err
		}
	}
	if most := g.tool.MaxInputBytes; most > 0 && total > most {
		return fault.Invalid("", fault.Problem{Code: "ARGS-INPUT-BYTES", Field: "inputs", Rule: "limits.maxInputBytes of the toolpack",
			Msg: fmt.Sprintf("the input files have %d bytes in total; %s accepts at most %d bytes. Nothing was read", total, g.tool.ToolID, most)})
	}
	return nil
}

// folderOrFile refuses a folder where the tool takes a file, and a file where it takes a folder.
func (g *arguments) folderOrFile(f fileArgument, folder bool) error {
	_, name, _ := strings.Cut(f.option, " ")
	in, ok := findInput(g.tool, name)
	if !ok || len(in.Types) == 0 {
		return nil
	}
	p := fault.Problem{Code: "RUN-FOLDER", Field: f.option, Rule: "one of " + strings.Join(in.Types, ", ")}
	switch takes := slices.Contains(in.Types, plan.Directory); {
	case folder && !takes:
		p.Msg = fmt.Sprintf("%q is a folder, but %s takes a file here", f.path, g.tool.ToolID)
	case !folder && takes && len(in.Types) == 1:
		p.Msg = fmt.Sprintf("%q is a file, but %s takes a folder here", f.path, g.tool.ToolID)
	default:
		return nil
	}
	return fault.Invalid("", p)
}

// noFile returns the error for a missing file, with a similar name in the same folder.
func noFile(path string) error {
	e := fault.New(fault.NotFound, "file_not_found", fmt.Sprintf("there is no file %q", path))
	var names []string
	if entries, err := os.ReadDir(filepath.Dir(path)); err == nil && len(entries) <= 10_000 {
		for _, x := range entries {
			names = append(names, x.Name())
		}
	}
	if near := plan.Nearest(filepath.Base(path), names); near != "" {
		return e.WithNext(fmt.Sprintf("check the spelling of the path; did you mean %q?", filepath.Join(filepath.Dir(path), near)))
	}
	return e.WithNext("check the spelling of the path")
}

func findInput(t app.ToolDoc, name string) (app.PackInput, bool) {
	for _, in := range t.Inputs {
		if in.Param == name || in.Role == name {
			return in, true
		}
	}
	return app.PackInput{}, false
}

// promise returns an output of a run as an input, run_…:role; the run's id may be typed short.
func (s *Session) promise(ctx context.Context, value string) (string, error) {
	id, role, _ := strings.Cut(value, ":")
	if isShort(runIDs, id) {
		whole, err := s.whole(ctx, runIDs, id)
		if err != nil {
			return value, err
		}
		id = whole
	}
	return id + ":" + role, nil
}
