package toolpack

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/programs"
)

// check applies the rules that relate fields to each other. It checks what could be read; a field that already has a
// problem is not checked again.
func (d *draft) check() {
	if d.unread {
		return // another ABI version, or not YAML
	}
	if d.def.Execution.runs() {
		d.checkRunner()
	}
	d.checkResult()
	d.checkPlan()
	if ms := int64(d.def.Resources.largestTime()) * 1000; d.def.TimeoutMs > 0 && d.def.TimeoutMs < ms {
		d.Add("TIMEOUT", "timeoutMs", fmt.Sprintf("at least resources.timeLimitSeconds (its max, where it has one), %d ms", ms),
			fmt.Sprintf("%d ms is less than resources.timeLimitSeconds", d.def.TimeoutMs), "raise it, or lower the time limit")
	}
	params, roles := map[string]bool{}, map[string]string{}
	for i, f := range d.def.Inputs {
		at := fmt.Sprintf("inputs[%d].", i)
		for j, t := range f.Types {
			if !slices.Contains(d.types, t) {
				d.Add("TYPE", fmt.Sprintf("%stypes[%d]", at, j), "one of "+strings.Join(d.types, " "), `there is no artifact type "`+clip(t)+`"`,
					"correct it, or add the type to artifact_types in the domain's manifest")
			}
		}
		if params[f.Param] && f.Param != "" {
			d.Add("INPUT-PARAM", at+"param", "each argument once", `the argument "`+clip(f.Param)+`" belongs to another input already`, "")
		}
		switch was, twin := roles[plan.FoldRole(f.Role)]; {
		case f.Role == "" || !twin:
		case was == f.Role:
			d.Add("ROLE-DUPLICATE", at+"role", "each input role once", `the role "`+clip(f.Role)+`" appears twice`, "rename one of them")
		default:
			d.Add("ROLE-DUPLICATE", at+"role", "input roles that differ in more than case",
				`"`+clip(f.Role)+`" and "`+clip(was)+`" differ only in case`, "rename one of them")
		}
		params[f.Param], roles[plan.FoldRole(f.Role)] = true, f.Role
		if d.in.schema != nil && f.Param != "" {
			d.checkInput(at+"param", f)
		}
		d.checkShape(i)
	}
	for i, o := range d.def.Outputs {
		d.checkDownloadNames(fmt.Sprintf("declaredOutputs[%d].downloadName", i), o)
	}
	for _, p := range d.programs {
		if len(p.words) > 0 {
			d.checkCommand(p, params)
		}
	}
	d.checkEnv(params)
	d.checkRequired()
	d.checkRendering()
}

// checkRequired refuses schemas that no call, or no finished run, can satisfy: a closed top level that requires a property it
// does not declare, and an output schema that requires an undeclared role or does not allow a declared one.
func (d *draft) checkRequired() {
	if d.in.schema != nil && d.in.closed {
		for _, name := range d.in.needs {
			if _, ok := d.in.props[name]; !ok {
				d.Add("SCHEMA", "inputSchema.required", "properties that inputSchema declares",
					`inputSchema has no property "`+clip(name)+`"`, plan.DidYouMean(name, slices.Sorted(maps.Keys(d.in.props))))
			}
		}
	}
	if d.out.schema == nil || d.def.OutputSchemaOf == ofResult {
		return
	}
	var roles []string
	for _, o := range d.def.Outputs {
		roles = append(roles, o.Role)
	}
	for _, name := range d.out.needs {
		if !slices.Contains(roles, name) {
			d.Add("SCHEMA", "outputSchema.required", "roles of declaredOutputs, the only members of a finished run",
				`there is no output "`+clip(name)+`"`, plan.DidYouMean(name, roles))
		}
	}
	for i, role := range roles {
		if _, ok := d.out.props[role]; d.out.closed && !ok {
			d.Add("SCHEMA", fmt.Sprintf("declaredOutputs[%d].role", i), "a property that outputSchema allows",
				`outputSchema does not allow "`+clip(role)+`"`, "declare it there, or remove additionalProperties: false")
		}
	}
}

func (d *draft) checkInput(field string, in input) {
	p, ok := d.in.props[in.Param]
	name, want, carries, hint := `"`+clip(in.Param)+`"`, "string", "it carries an artifact_id", ""
	if in.List != nil {
		want, carries, hint = "array", "it carries a list of artifact_ids", "write type: array there, or remove list here"
	} else if slices.Equal(p.types, []string{"array"}) {
		hint = "write list: {min: 1, max: 64} here, or type: string there"
	}
	switch {
	case !ok:
		d.Add("INPUT-PARAM", field, "a property at the top level of inputSchema", "inputSchema has no property "+name, "")
	case !slices.Equal(p.types, []string{want}):
		d.Add("INPUT-PARAM", field, "a property of type "+want+": "+carries, "the type of "+name+" is not "+want, hint)
	case in.List != nil && p.items != nil && !slices.Equal(p.items.types, []string{"string"}):
		d.Add("INPUT-PARAM", field, "an array whose items have type string: each is an artifact_id",
			"the type of the items of "+name+" is not string", "")
	case in.Optional && (p.required || p.hasDefault):
		d.Add("INPUT-PARAM", field, "a property that is not required and has no default", "the input is optional, but "+name+" is always there",
			"remove it from required in inputSchema, or optional here")
	case !in.Optional && !p.required:
		d.Add("INPUT-PARAM", field, "a required property", "the input must be given, but "+name+" may be left out",
			"add it to required in inputSchema")
	}
}

// checkCommand checks the program and what callers may put into its arguments (ABI-20).
func (d *draft) checkCommand(p program, inputs map[string]bool) {
	field, first := p.field+"[0]", p.words[0]
	program := p.name()
	name := programs.Base(program)
	switch {
	case first.fragment, first.args[0] != nil && !first.args[0].Literal():
		d.Add("PROGRAM", field, "a fixed program", "the program cannot be a template", "")
	case strings.ContainsFunc(program, unicode.IsSpace):
		d.Add("PROGRAM", field, "one word: the program", `"`+clip(program)+`" is more than one word`,
			"write each argument as a separate element: ["+strings.Join(strings.Fields(clip(program)), ", ")+", …]")
	case programs.Starts(name):
		d.Add("PROGRAM", field, "no shell and no program that starts others", `"`+clip(program)+`" can start any program`,
			"name the program itself; stdout: sends its output to a declared output, and pipe: to the next program")
	case strings.Contains(program, "/") &&
		(!strings.HasPrefix(program, "/") || strings.Contains(program, "/../") || strings.HasPrefix(program, plan.Workdir+"/")):
		d.Add("PROGRAM", field, "a bare name, or an absolute path into the image", `"`+clip(program)+`" is not a program of the image`, "")
	}
	takesCode := ""
	if programs.Interprets(name) || programs.Codes(name) {
		takesCode = "for an interpreter only numbers and values listed by enum"
	}
	for _, e := range p.words {
		guards := guardsOf(e.when)
		d.checkTemplate(e.field+".when", e.when, inputs, "", guards) // it decides, and is no part of the text
		d.checkTemplate(e.field+".each", e.each, inputs, takesCode, guards)
		for i, t := range e.args {
			d.checkTemplate(e.at(i), t, inputs, takesCode, guards)
		}
	}
}

// checkPlan applies the plan's own rules to the fields that become a plan: it validates a sample plan made of them, and
// reports violations at their place in the toolpack.
func (d *draft) checkPlan() {
	f := d.def
	fields := map[string]string{} // of a plan's argument → the pack's
	argvs := make([][]string, len(d.programs))
	for i, p := range d.programs {
		var at []string
		argvs[i], at = p.sample()
		for j, field := range at {
			name := "execution.command.argv"
			if i > 0 {
				name = fmt.Sprintf("execution.command.pipe[%d]", i-1)
			}
			fields[fmt.Sprintf("%s[%d]", name, j)], fields[name] = field, p.field
		}
	}
	command := commandOf(argvs)
	command.Workdir, command.Env, command.Stdout = plan.Workdir, f.Env.Set, f.Execution.Stdout
	s := f.spec("sha256:"+strings.Repeat("0", 64), command)
	if len(command.Argv) == 0 {
		s.Execution.Command.Argv = []string{"program"}
	}
	s.IO.Inputs = f.sampled()
	if at := f.Execution.Stdin; at != nil {
		if i := slices.IndexFunc(f.Inputs, func(in input) bool { return in.DestRelpath == *at && in.List == nil }); i >= 0 {
			s.Execution.Command.Stdin = &s.IO.Inputs[i].DestRelpath
		} else {
			s.Execution.Command.Stdin = at
		}
	}
	e, ok := errors.AsType[*fault.Error](s.Validate(plan.Rules{Types: d.types, Asked: true}))
	if !ok {
		return
	}
	reported, badOutputs := map[string]bool{}, false
	for _, p := range d.Problems() {
		reported[p.Field] = true
		badOutputs = badOutputs || strings.HasPrefix(p.Field, "declaredOutputs")
	}
	for _, p := range e.Problems {
		field := cmp.Or(fields[p.Field], fromPlan.Replace(p.Field))
		badOutputs = badOutputs || strings.HasPrefix(field, "declaredOutputs")
		if field == "execution.stdout" && badOutputs {
			continue // it names one of those
		}
		if f.PlanKind == KindDocker {
			field = strings.Replace(field, "destRelpath", "destName", 1)
		}
		if d.Has(field) && !reported[field] {
			d.Add(strings.TrimPrefix(p.Code, "PLAN-"), field, fromPlan.Replace(p.Rule), fromPlan.Replace(p.Msg), p.Hint)
		}
	}
}

// fromPlan turns the names of a plan's fields into those of a toolpack.
var fromPlan = strings.NewReplacer("io.inputs", "inputs", "io.outputs", "declaredOutputs",
	"dest_relpath", "destRelpath", "src_relpath", "srcRelpath",
	"time_limit_seconds", "timeLimitSeconds", "mem_mb", "memMb", "gpu_type", "gpuType",
	"execution.command.argv", "execution.cmd", "execution.command.env.", "env.set.", "execution.command.stdout", "execution.stdout",
	"execution.command.stdin", "execution.stdin", "execution.command.pipe", "execution.pipe")

func (r resources) plan() plan.Resources {
	return plan.Resources{TimeLimitSeconds: r.TimeLimitSeconds, CPUs: r.CPUs, MemMB: r.MemMB, GPUs: clone(r.GPUs), GPUType: clone(r.GPUType)}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
