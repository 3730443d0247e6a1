package toolpack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack/jinja"
)

// A command is a list of words, or several of them in a pipe. A word is a text, which is one argument, or a fragment: arguments that are
// there under a condition (when), or once for each value of a list (each), and leave nothing where they are not.

// word is one element of a command as the toolpack has it.
type word struct {
	Text     string
	Fragment *fragment // nil: Text
}

type fragment struct {
	When string   `json:"when,omitzero"` // an expression
	Each string   `json:"each,omitzero"` // an expression whose value is a list
	Args []string `json:"args"`
}

// MarshalJSON writes a text as a string, as it was written before there were fragments.
func (w word) MarshalJSON() ([]byte, error) {
	if w.Fragment != nil {
		return json.Marshal(w.Fragment)
	}
	return json.Marshal(w.Text)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (w *word) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &w.Text)
	}
	return json.Unmarshal(b, &w.Fragment)
}

// program is one command, ready to render.
type program struct {
	field string // execution.cmd, execution.pipe[1]
	words []element
}

// element is a word, ready to render. One of a word that is text has that as its only argument, and no condition.
type element struct {
	field    string
	fragment bool
	when     *jinja.Template // nil: always
	each     *jinja.Template // nil: once
	args     []*jinja.Template
	texts    []string // the args as they are written
}

// at returns the field of an argument.
func (e element) at(i int) string {
	if e.fragment {
		return fmt.Sprintf("%s.args[%d]", e.field, i)
	}
	return e.field
}

// name returns the program, as it is written; "" for a fragment in its place.
func (p program) name() string {
	if len(p.words) == 0 || p.words[0].fragment {
		return ""
	}
	return p.words[0].texts[0]
}

// sample returns the program with every argument as it is written, and the field of each.
func (p program) sample() (argv, fields []string) {
	for _, e := range p.words {
		for i, s := range e.texts {
			argv, fields = append(argv, s), append(fields, e.at(i))
		}
	}
	return argv, fields
}

func (d *draft) cli(o yamldoc.Object) {
	x := &d.def.Execution
	if pipe := o.Opt("pipe"); pipe.Exists() {
		list := pipe.List()
		if n := len(list); list != nil && (n < 2 || n > plan.MaxPipe) {
			pipe.Fail("EXECUTION", fmt.Sprintf("2 to %d programs, each a list as in cmd", plan.MaxPipe),
				fmt.Sprintf("the pipe has %d programs", n),
				"write a single program as cmd")
		}
		if o.Opt("cmd").Exists() {
			pipe.Fail("EXECUTION", "only one of cmd, pipe", "cmd is already given", "remove one of the two")
		}
		for _, v := range list {
			words, p := d.command(v)
			x.Pipe, d.programs = append(x.Pipe, words), append(d.programs, p)
		}
	} else {
		cmd := o.NeedOr("cmd", "write cmd for one program, pipe for several")
		words, p := d.command(cmd)
		if x.Cmd = words; len(words) > 0 {
			d.programs = []program{p}
		}
	}
	for name, to := range map[string]**string{"stdout": &x.Stdout, "stdin": &x.Stdin} {
		if v := o.Opt(name); v.Exists() {
			s := v.Text()
			*to = &s
			d.noTemplate(s, v.Path())
		}
	}
}

// command reads one program with its arguments.
func (d *draft) command(v yamldoc.Value) (words []word, p program) {
	list := v.List()
	if list != nil && len(list) == 0 {
		v.Fail("EXECUTION", "a list of strings: the program and its arguments", "the list is empty", "")
	}
	p.field = v.Path()
	for _, e := range list {
		w, parsed := d.element(e)
		words, p.words = append(words, w), append(p.words, parsed)
	}
	return words, p
}

// element reads one element of a command.
func (d *draft) element(v yamldoc.Value) (word, element) {
	e := element{field: v.Path(), fragment: v.IsMap()}
	if !e.fragment {
		s := v.Text()
		e.texts, e.args = []string{s}, []*jinja.Template{d.template(s, e.field)}
		return word{Text: s}, e
	}
	o := v.Object("when", "each", "args")
	f := fragment{When: o.Opt("when").Text(), Each: o.Opt("each").Text(), Args: []string{}}
	names := jinja.Names{Objects: objects, Values: slices.Sorted(maps.Keys(d.context))}
	expression := func(field, source, is string, parse func(string, jinja.Names) (*jinja.Template, error)) *jinja.Template {
		if !o.Opt(field).Exists() {
			return nil
		}
		t, err := parse(source, names)
		if err != nil {
			o.Opt(field).Fail("TEMPLATE", is, clip(err.Error()), "")
		}
		return t
	}
	e.when = expression("when", f.When, "an expression, such as params.region is defined", jinja.ParseCondition)
	e.each = expression("each", f.Each, "an expression whose value is a list, such as inputs.ROLE", jinja.ParseList)
	if !o.Opt("when").Exists() && !o.Opt("each").Exists() {
		o.Fail("EXECUTION", "when, each, or both", "the fragment has neither when nor each",
			"write its args as elements of the command")
	}
	if o.Opt("each").Exists() {
		if slices.Contains(names.Values, jinja.Item) {
			o.Opt("each").Fail("TEMPLATING", "not a name of templating.context", `the name "`+jinja.Item+`" already has a meaning here`,
				"rename it in templating.context")
		}
		names.Values = append(names.Values, jinja.Item)
	}
	args := o.Need("args")
	list := args.List()
	if list != nil && len(list) == 0 {
		args.Fail("EXECUTION", "a list of strings: the arguments", "the list is empty", "")
	}
	for _, a := range list {
		s := a.Text()
		if a.Exists() && a.IsText() && s == "" {
			a.Fail("EXECUTION", "a word that is not empty", "the word is empty", "remove it")
		}
		f.Args, e.texts = append(f.Args, s), append(e.texts, s)
		e.args = append(e.args, d.templateOf(s, a.Path(), names))
	}
	return word{Fragment: &f}, e
}

// expand renders an element into its arguments. An absent fragment gives none, and never an empty one.
func (e element) expand(vars map[string]any, problem func(field, msg string), likeOption func(*jinja.Template, string)) (argv []string) {
	if e.when != nil {
		holds, err := e.when.Holds(vars)
		if err != nil {
			problem(e.field+".when", err.Error())
		}
		if !holds {
			return nil
		}
	}
	scopes := []map[string]any{vars}
	if e.each != nil {
		items, err := e.each.Items(vars)
		if err != nil {
			problem(e.field+".each", err.Error())
		}
		scopes = nil
		for _, item := range items[:min(len(items), maxWords)] {
			scope := maps.Clone(vars)
			scope[jinja.Item] = item
			scopes = append(scopes, scope)
		}
	}
	for _, scope := range scopes {
		for i, t := range e.args {
			s, err := t.Render(scope)
			switch {
			case err != nil:
				problem(e.at(i), err.Error())
				return argv
			case e.fragment && s == "":
				problem(e.at(i), "it renders to nothing, and a word of a fragment cannot be empty")
				return argv
			}
			likeOption(t, s)
			argv = append(argv, s)
		}
	}
	return argv
}

// maxWords is more than a plan takes.
const maxWords = 2048

// callersItem returns the argument whose free text an item of the element may be; "" without one.
func (p *Pack) callersItem(e element) string {
	if e.each == nil {
		return ""
	}
	for _, u := range e.each.Uses() {
		if u.Object == objParams && p.in.props[u.Name].free() {
			return u.Name
		}
	}
	return ""
}

// commandOf returns the plan's command of rendered programs.
func commandOf(argvs [][]string) plan.Command {
	if len(argvs) == 0 {
		return plan.Command{}
	}
	return plan.Command{Argv: argvs[0], Pipe: argvs[1:]}
}
