package toolpack

import (
	"encoding/json"
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
	return d.templateOf(s, field, jinja.Names{Objects: objects, Values: slices.Sorted(maps.Keys(d.context))})
}

func (d *draft) templateOf(s, field string, names jinja.Names) *jinja.Template {
	t, err := jinja.Parse(s, names)
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
		d.Add("TEMPLATE", field, "templates only in execution.cmd and env.set", "it contains template syntax", "")
	}
}

// checkTemplate checks that everything a template uses exists. takesCode is the rule for places where free text would
// become code, "" elsewhere; guards are the names that the condition of a fragment checks.
func (d *draft) checkTemplate(at string, t *jinja.Template, inputs map[string]bool, takesCode string, guards []jinja.Use) {
	if t == nil {
		return
	}
	uses := t.Uses()
	handled := func(object, name string) bool {
		return slices.ContainsFunc(slices.Concat(uses, guards), func(o jinja.Use) bool {
			return o.Object == object && o.Name == name && o.Guarded
		})
	}
	for _, u := range uses {
		switch u.Object {
		case objInputs:
			i := slices.IndexFunc(d.def.Inputs, func(i input) bool { return i.Role == u.Name })
			if i < 0 {
				d.Add("TEMPLATE", at, "inputs.ROLE, where ROLE is one of the inputs", `there is no input "`+clip(u.Name)+`"`, "")
				continue
			}
			in := d.def.Inputs[i]
			switch {
			case in.Optional && !handled(objInputs, u.Name) && !handled(objParams, in.Param):
				d.Add("TEMPLATE", at, "an input that is always there",
					`the input "`+clip(u.Name)+`" may be absent, and then has no path`,
					`write {when: "inputs.`+u.Name+` is defined", args: […]}`)
			case in.List != nil && u.Bare:
				d.Add("TEMPLATE", at, "one path", `the input "`+clip(u.Name)+`" is a list, which has no single path`,
					"write {each: inputs."+u.Name+`, args: ["{{ item }}"]}`)
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
			if d.in.schema != nil && !(inputs[u.Name] && slices.Contains(guards, u)) {
				d.checkParam(at, u, inputs, takesCode, handled(objParams, u.Name))
			}
		}
	}
}

// guardsOf returns the names whose absence a condition handles.
func guardsOf(when *jinja.Template) (guards []jinja.Use) {
	if when == nil {
		return nil
	}
	for _, u := range when.Uses() {
		if u.Guarded {
			guards = append(guards, u)
		}
	}
	return guards
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
		d.Add("TEMPLATE", at, "an argument with one type: string, integer or number",
			name+" is of another type, or of several",
			"for a switch, write {{ 'this' if params."+u.Name+" else 'that' }} or use an enum of strings")
	case !p.required && !p.hasDefault && !guarded:
		d.Add("TEMPLATE", at, "an argument that is required or has a default", name+" may be absent, and then has no value",
			"make it required, give it a default, or write {{ params."+u.Name+" | default('x') }}")
	case takesCode != "" && p.free():
		d.Add("TEMPLATE", at, takesCode, name+" is free text, which an interpreter would execute", "")
	}
}

// free reports whether a caller may put any text into the value.
func (p property) free() bool {
	if p.listed {
		return false
	}
	for _, t := range p.types {
		switch {
		case slices.Contains([]string{"integer", "number", "boolean", "null"}, t):
		case t == "array" && p.items != nil && !p.items.free():
		default:
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
		d.checkTemplate("env.set."+name, d.envs[name], inputs, takesCode, nil)
	}
}

// scope returns the variables of a call's templates; inputs are the paths by role.
func (p *Pack) scope(values, inputs map[string]any) map[string]any {
	vars := map[string]any{}
	for k, v := range p.context {
		vars[k] = v
	}
	params, outs := map[string]any{}, map[string]any{}
	for k, v := range values {
		params[k] = plainValue(v)
	}
	for _, o := range p.def.Outputs {
		outs[o.Role] = plan.Workdir + "/" + o.SrcRelpath
	}
	r := p.def.Resources
	vars[objParams], vars[objInputs], vars[objOutputs] = params, inputs, outs
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

// render returns the programs and the environment. A value given by the caller never becomes an option of a program,
// unless the author listed it.
func (p *Pack) render(values, inputs map[string]any) (argvs [][]string, env map[string]string, err error) {
	var found []fault.Problem
	vars := p.scope(values, inputs)
	problem := func(field, msg string) {
		found = append(found, fault.Problem{Code: "ARGS-TEMPLATE", Field: field, Rule: "arguments that the tool's template can use",
			Msg: "the template cannot be rendered with these arguments: " + clip(msg)})
	}
	for _, one := range p.programs {
		argv := []string{}
		for _, e := range one.words {
			argv = append(argv, e.expand(vars, problem, func(t *jinja.Template, text string) {
				if param := p.optionLike(e, t, text, values); param != "" {
					found = append(found, fault.Problem{Code: "ARGS-OPTION-LIKE", Field: param, Rule: "text that the program cannot mistake for an option",
						Msg: `the program would take "` + clip(text) + `" for an option`, Hint: "give a value that does not begin with -"})
				}
			})...)
		}
		argvs = append(argvs, argv)
	}
	env = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.envs)) {
		s, err := p.envs[name].Render(vars)
		if err != nil {
			problem("env.set."+name, err.Error())
		}
		env[name] = s
	}
	if len(found) > 0 {
		return nil, nil, p.refused(found)
	}
	return argvs, env, nil
}

// optionLike returns the name of the argument whose free text may have turned an argument of an element into an option; "" if there is
// none.
func (p *Pack) optionLike(e element, t *jinja.Template, rendered string, values map[string]any) string {
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
	return p.callersItem(e)
}
