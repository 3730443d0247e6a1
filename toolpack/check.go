package toolpack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/programs"
)

// check applies the rules that tie fields to each other. It runs on what could be read; a field that is broken
// already is not judged again.
func (d *draft) check(in, out contract, types []string) {
	if d.unread {
		return // another ABI, or no YAML
	}
	if d.def.Execution.runs() {
		d.checkRunner()
	}
	d.checkPlan(types)
	if ms := int64(d.def.Resources.TimeLimitSeconds) * 1000; d.def.TimeoutMs > 0 && d.def.TimeoutMs < ms {
		d.Add("TIMEOUT", "timeoutMs", fmt.Sprintf("at least resources.timeLimitSeconds, %d ms", ms), fmt.Sprintf("got %d", d.def.TimeoutMs), "")
	}
	params, roles := map[string]bool{}, map[string]string{}
	for i, f := range d.def.Inputs {
		at := fmt.Sprintf("inputs[%d].", i)
		for j, t := range f.Types {
			if !slices.Contains(types, t) {
				d.Add("TYPE", fmt.Sprintf("%stypes[%d]", at, j), "one of "+strings.Join(types, " "), `got "`+clip(t)+`"`, "the domain's manifest may add types (artifact_types)")
			}
		}
		if params[f.Param] && f.Param != "" {
			d.Add("INPUT-PARAM", at+"param", "each argument once", `"`+clip(f.Param)+`" again`, "")
		}
		switch was, twin := roles[plan.FoldRole(f.Role)]; {
		case f.Role == "" || !twin:
		case was == f.Role:
			d.Add("ROLE-DUPLICATE", at+"role", "each input role once", `"`+clip(f.Role)+`" again`, "")
		default:
			d.Add("ROLE-DUPLICATE", at+"role", "input roles differ in more than case", `"`+clip(f.Role)+`" and "`+clip(was)+`" differ only in case`, "rename one of them")
		}
		params[f.Param], roles[plan.FoldRole(f.Role)] = true, f.Role
		if in.schema != nil && f.Param != "" {
			d.checkInput(at+"param", f.Param, in)
		}
	}
	if len(d.cmd) > 0 {
		d.checkCommand(in, params)
	}
	d.checkEnv(in, params)
	d.checkRequired(in, out)
	d.checkRendering(in)
}

// checkRequired refuses schemas that no call, or no finished run, can satisfy: a closed top level that requires what it does not declare, and an output
// schema that requires, or has no place for, other roles than the declared ones.
func (d *draft) checkRequired(in, out contract) {
	if in.schema != nil && in.closed {
		for _, name := range in.needs {
			if _, ok := in.props[name]; !ok {
				d.Add("SCHEMA", "inputSchema.required", "properties that inputSchema declares", `there is no property "`+clip(name)+`"`, plan.DidYouMean(name, sortedKeys(in.props)))
			}
		}
	}
	if out.schema == nil {
		return
	}
	var roles []string
	for _, o := range d.def.Outputs {
		roles = append(roles, o.Role)
	}
	for _, name := range out.needs {
		if !slices.Contains(roles, name) {
			d.Add("SCHEMA", "outputSchema.required", "roles of declaredOutputs: other members a finished run does not have", `there is no output "`+clip(name)+`"`, plan.DidYouMean(name, roles))
		}
	}
	for i, role := range roles {
		if _, ok := out.props[role]; out.closed && !ok {
			d.Add("SCHEMA", fmt.Sprintf("declaredOutputs[%d].role", i), "a property of outputSchema, which allows no other", `"`+clip(role)+`" is not one`, "declare it there, or remove additionalProperties: false")
		}
	}
}

func (d *draft) checkInput(field, param string, in contract) {
	p, ok := in.props[param]
	switch {
	case !ok:
		d.Add("INPUT-PARAM", field, "a property at the top level of inputSchema", `there is no property "`+clip(param)+`"`, "")
	case !slices.Equal(p.types, []string{"string"}):
		d.Add("INPUT-PARAM", field, "a property of type string: it carries an artifact_id", `"`+clip(param)+`" is not one`, "")
	case !p.required:
		d.Add("INPUT-PARAM", field, "a required property", `"`+clip(param)+`" may be left out`, "add it to required in inputSchema")
	}
}

// checkCommand looks at what runs and at what callers may put into it (ABI-20).
func (d *draft) checkCommand(in contract, inputs map[string]bool) {
	const field = "execution.cmd[0]"
	program := d.def.Execution.Cmd[0]
	name := programs.Base(program)
	switch {
	case d.cmd[0] != nil && !d.cmd[0].Literal():
		d.Add("PROGRAM", field, "the program is fixed", "it contains a template", "")
	case strings.ContainsFunc(program, unicode.IsSpace):
		d.Add("PROGRAM", field, "one word: the program", `got "`+clip(program)+`"`, "write each argument as an element of its own: ["+strings.Join(strings.Fields(clip(program)), ", ")+", …]")
	case programs.Starts(name):
		d.Add("PROGRAM", field, "no shell and no program that starts others", `got "`+clip(program)+`"`, "name the program itself; stdout: sends its output to a declared output")
	case strings.Contains(program, "/") && (!strings.HasPrefix(program, "/") || strings.Contains(program, "/../") || strings.HasPrefix(program, plan.Workdir+"/")):
		d.Add("PROGRAM", field, "a bare name, or an absolute path into the image", `got "`+clip(program)+`"`, "")
	}
	takesCode := ""
	if programs.Interprets(name) || programs.Codes(name) {
		takesCode = "into an interpreter go only numbers and values listed by enum"
	}
	for i, t := range d.cmd {
		d.checkTemplate(fmt.Sprintf("execution.cmd[%d]", i), t, in, inputs, takesCode)
	}
}

// checkPlan applies the plan's own rules to the fields that become a plan: a stand-in plan is made of them and
// validated, and violations are reported at their place in the toolpack.
func (d *draft) checkPlan(types []string) {
	f := d.def
	s := plan.Spec{Version: plan.SpecVersion, Resources: f.Resources.plan(), Placement: f.Placement.plan()}
	s.Execution = plan.Execution{Kind: "container", Container: plan.Container{Engine: "apptainer", Image: "sha256:" + strings.Repeat("0", 64), NetworkMode: "none", ReadonlyRootfs: true},
		Command: plan.Command{Argv: f.Execution.Cmd, Workdir: plan.Workdir, Env: f.Env.Set, Stdout: f.Execution.Stdout}}
	if len(f.Execution.Cmd) == 0 {
		s.Execution.Command.Argv = []string{"program"}
	}
	for _, in := range f.Inputs {
		dest := in.DestRelpath
		s.IO.Inputs = append(s.IO.Inputs, plan.Input{Role: in.Role, ArtifactID: "art_" + strings.Repeat("0", 26), ChecksumSHA256: strings.Repeat("0", 64), DestRelpath: dest})
	}
	for _, o := range f.Outputs {
		s.IO.Outputs = append(s.IO.Outputs, plan.Output{Role: o.Role, SrcRelpath: o.SrcRelpath, Type: o.Type, Label: o.Label})
	}
	e, ok := errors.AsType[*fault.Error](s.Validate(plan.Rules{Types: types, Asked: true}))
	if !ok {
		return
	}
	said, badOutputs := map[string]bool{}, false
	for _, p := range d.Problems() {
		said[p.Field] = true
		badOutputs = badOutputs || strings.HasPrefix(p.Field, "declaredOutputs")
	}
	for _, p := range e.Problems {
		field := fromPlan.Replace(p.Field)
		badOutputs = badOutputs || strings.HasPrefix(field, "declaredOutputs")
		if field == "execution.stdout" && badOutputs {
			continue // it names one of those
		}
		if f.PlanKind == KindDocker {
			field = strings.Replace(field, "destRelpath", "destName", 1)
		}
		if d.Has(field) && !said[field] {
			d.Add(strings.TrimPrefix(p.Code, "PLAN-"), field, fromPlan.Replace(p.Rule), fromPlan.Replace(p.Msg), p.Hint)
		}
	}
}

// fromPlan gives the toolpack's names of a plan's fields.
var fromPlan = strings.NewReplacer("io.inputs", "inputs", "io.outputs", "declaredOutputs", "dest_relpath", "destRelpath", "src_relpath", "srcRelpath",
	"time_limit_seconds", "timeLimitSeconds", "mem_mb", "memMb", "gpu_type", "gpuType",
	"execution.command.argv", "execution.cmd", "execution.command.env.", "env.set.", "execution.command.stdout", "execution.stdout")

func (r resources) plan() plan.Resources {
	return plan.Resources{TimeLimitSeconds: r.TimeLimitSeconds, CPUs: r.CPUs, MemMB: r.MemMB, GPUs: clone(r.GPUs), GPUType: clone(r.GPUType)}
}

// plan is the placement as the pack asks for it; what it leaves out is the site's to decide.
func (p placement) plan() plan.Placement {
	var out plan.Placement
	if p.Partition != nil {
		out.Partition = *p.Partition
	}
	if p.Account != nil {
		out.Account = *p.Account
	}
	out.QOS, out.Constraint = clone(p.QOS), clone(p.Constraint)
	return out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
