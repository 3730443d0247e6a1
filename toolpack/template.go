package toolpack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/programs"
	"slurmgate/toolpack/jinja"
)

// The objects whose members a template may use. The only other names are those of the pack's templating.context.
const (
	objParams    = "params"    // arguments of the call: {{ params.count }}
	objInputs    = "inputs"    // role → path in the container: {{ inputs.reads }}
	objOutputs   = "outputs"   // role → path in the container: {{ outputs.report }}
	objResources = "resources" // cpus, memMb, timeLimitSeconds
)

var (
	objects   = []string{objParams, objInputs, objOutputs, objResources}
	allocated = []string{"cpus", "memMb", "timeLimitSeconds"}
)

// template reads a field that may be a template. Text without template syntax is used as it is.
func (d *draft) template(s, field string) *jinja.Template {
	t, err := jinja.Parse(s, jinja.Names{Objects: objects, Values: slices.Sorted(maps.Keys(d.context))})
	if err != nil {
		d.Add("TEMPLATE", field, "a template with if, for, and expressions of "+strings.Join(objects, ", ")+" and templating.context",
			clip(err.Error()), "")
		return nil
	}
	return t
}

// noTemplate refuses template syntax in fields that are not rendered, where it would have no effect.
func (d *draft) noTemplate(s, field string) {
	if jinja.HasSyntax(s) {
		d.Add("TEMPLATE", field, "templates are only allowed in execution.cmd and env.set", "it contains template syntax", "")
	}
}

// checkTemplate checks that everything a template uses exists. takesCode is the rule for places where free text would become
// code, "" elsewhere.
func (d *draft) checkTemplate(at string, t *jinja.Template, inputs map[string]bool, takesCode string) {
	if t == nil {
		return
	}
	uses := t.Uses()
	for _, u := range uses {
		switch u.Object {
		case objInputs:
			if !slices.ContainsFunc(d.def.Inputs, func(i input) bool { return i.Role == u.Name }) {
				d.Add("TEMPLATE", at, "inputs.ROLE, where ROLE is one of the inputs", `there is no input "`+clip(u.Name)+`"`, "")
			}
		case objOutputs:
			if !slices.ContainsFunc(d.def.Outputs, func(o output) bool { return o.Role == u.Name }) {
				d.Add("TEMPLATE", at, "outputs.ROLE, where ROLE is one of the declaredOutputs", `there is no output "`+clip(u.Name)+`"`, "")
			}
		case objResources:
			if !slices.Contains(allocated, u.Name) {
				d.Add("TEMPLATE", at, "one of resources."+strings.Join(allocated, ", resources."), `there is no "resources.`+clip(u.Name)+`"`, "")
			}
		case objParams:
			if d.in.schema != nil {
				guarded := slices.ContainsFunc(uses, func(o jinja.Use) bool { return o.Object == objParams && o.Name == u.Name && o.Guarded })
				d.checkParam(at, u, inputs, takesCode, guarded)
			}
		}
	}
}

func (d *draft) checkParam(at string, u jinja.Use, inputs map[string]bool, takesCode string, guarded bool) {
	p, ok := d.in.props[u.Name]
	name := `"` + clip(u.Name) + `"`
	switch {
	case !ok:
		d.Add("TEMPLATE", at, "an argument in the properties at the top level of inputSchema", "inputSchema has no property "+name, "")
	case inputs[u.Name]:
		d.Add("TEMPLATE", at, "an argument that is not an artifact", name+" is an input, whose value is an artifact_id",
			"write {{ inputs.ROLE }} for the path of its file")
	case u.Bare && (len(p.types) != 1 || !slices.Contains([]string{"string", "integer", "number"}, p.types[0])):
		d.Add("TEMPLATE", at, "an argument with one type: string, integer or number", name+" has another type",
			"for a switch, write {{ 'this' if params."+u.Name+" else 'that' }} or use an enum of strings")
	case !p.required && !p.hasDefault && !guarded:
		d.Add("TEMPLATE", at, "an argument that is required or has a default", name+" may be absent",
			"make it required, give it a default, or write {{ params."+u.Name+" | default('x') }}")
	case takesCode != "" && p.free():
		d.Add("TEMPLATE", at, takesCode, name+" is free text", "")
	}
}

// free reports whether a caller may put any text into the value.
func (p property) free() bool {
	if p.listed {
		return false
	}
	for _, t := range p.types {
		if !slices.Contains([]string{"integer", "number", "boolean", "null"}, t) {
			return true
		}
	}
	return len(p.types) == 0
}

// checkEnv applies the rules of templates in env.set.
func (d *draft) checkEnv(inputs map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(d.envs)) {
		takesCode := ""
		if programs.FindsCode(name) {
			takesCode = "a variable that decides which code a program loads may only contain numbers and values listed by enum"
		}
		d.checkTemplate("env.set."+name, d.envs[name], inputs, takesCode)
	}
}

// scope is what the templates of a call see.
func (p *Pack) scope(values map[string]any) map[string]any {
	vars := map[string]any{}
	for k, v := range p.context {
		vars[k] = v
	}
	params, ins, outs := map[string]any{}, map[string]any{}, map[string]any{}
	for k, v := range values {
		params[k] = plainValue(v)
	}
	for _, in := range p.def.Inputs {
		ins[in.Role] = plan.Workdir + "/" + in.DestRelpath
	}
	for _, o := range p.def.Outputs {
		outs[o.Role] = plan.Workdir + "/" + o.SrcRelpath
	}
	r := p.def.Resources
	vars[objParams], vars[objInputs], vars[objOutputs] = params, ins, outs
	vars[objResources] = map[string]any{"cpus": r.CPUs, "memMb": r.MemMB, "timeLimitSeconds": r.TimeLimitSeconds}
	return vars
}

// plainValue turns decoded JSON into the values that templates work with; integers stay integers.
func plainValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return int(i)
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plainValue(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plainValue(e)
		}
		return out
	}
	return v
}

// render returns the command and the environment. A value given by the caller never becomes an option of the program,
// unless the author listed it.
func (p *Pack) render(values map[string]any) (argv []string, env map[string]string, err error) {
	var found []fault.Problem
	vars := p.scope(values)
	one := func(field string, t *jinja.Template) string {
		s, err := t.Render(vars)
		if err != nil {
			found = append(found, fault.Problem{Code: "ARGS-TEMPLATE", Field: field, Rule: "arguments that the tool's template can use",
				Msg: "the template cannot be rendered with these arguments: " + clip(err.Error())})
		}
		return s
	}
	argv = make([]string, len(p.cmd))
	for i, t := range p.cmd {
		argv[i] = one(fmt.Sprintf("execution.cmd[%d]", i), t)
		if param := p.optionLike(t, argv[i], values); param != "" {
			found = append(found, fault.Problem{Code: "ARGS-OPTION-LIKE", Field: param, Rule: "text that the program cannot mistake for an option",
				Msg: `the program would take "` + clip(argv[i]) + `" for an option`, Hint: "give a value that does not begin with -"})
		}
	}
	env = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.envs)) {
		env[name] = one("env.set."+name, p.envs[name])
	}
	if len(found) > 0 {
		return nil, nil, p.refused(found)
	}
	return argv, env, nil
}

// optionLike returns the name of the argument whose free text may have turned an element into an option; "" if there is
// none.
func (p *Pack) optionLike(t *jinja.Template, rendered string, values map[string]any) string {
	if !strings.HasPrefix(rendered, "-") || t.Begins() {
		return ""
	}
	if u := t.First(); u != nil && u.Object == objParams && !p.in.props[u.Name].free() && values[u.Name] != "" {
		return ""
	}
	for _, u := range t.Uses() {
		if u.Object == objParams && p.in.props[u.Name].free() {
			return u.Name
		}
	}
	return ""
}
