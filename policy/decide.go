package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/programs"
)

// AllowTool decides whether a tool may be called at all. The name is the tool name (id with _ for .). A
// denial is a Policy fault.
func (p *Policy) AllowTool(name string) error {
	if p.ToolAllowlist == nil || slices.Contains(*p.ToolAllowlist, name) {
		return nil
	}
	return denied(`policy does not allow the tool "`+clip(name)+`"`, []fault.Problem{{Code: "POLICY-TOOL", Field: "tool",
		Rule: "policy tool_allowlist: " + shown(*p.ToolAllowlist), Msg: `"` + clip(name) + `" is not in tool_allowlist`}})
}

// The ways in which data from outside becomes an artifact.
const (
	ImportPath   = "path"   // a file of the gateway's host
	ImportHanded = "handed" // a file opened with its caller's own rights, or one that stays in place: kind path, but without a root
	ImportText   = "text"   // text in the call
	ImportUpload = "upload" // a stream
)

// ImportKinds lists the ways of importing.
func ImportKinds() []string { return []string{ImportPath, ImportText, ImportUpload} }

// AllowImport decides whether an artifact of a type and size may be imported in a way. An empty type or a negative
// size is not known yet. A denial is a Policy fault.
func (p *Policy) AllowImport(kind, typ string, size int64) error {
	var d decision
	handed := kind == ImportHanded
	if handed {
		kind = ImportPath
	}
	if l := p.Import.Kinds; l != nil && !slices.Contains(*l, kind) {
		d.add("POLICY-IMPORT-KIND", "import", "policy import.kinds: "+shown(*l), kind)
	}
	if kind == ImportPath && !handed && len(p.Import.Roots) == 0 {
		d = append(d, fault.Problem{Code: "POLICY-IMPORT-ROOT", Field: "path", Rule: "import.roots in the site file: none",
			Msg: "this site does not allow imports by path", Hint: "give text, or upload the file"})
	}
	if l := p.Import.Types; l != nil && typ != "" && !slices.Contains(*l, typ) {
		d.add("POLICY-IMPORT-TYPE", "type", "policy import.types_allowlist: "+shown(*l), typ)
	}
	if size > p.Import.MaxBytes {
		d = append(d, fault.Problem{Code: "POLICY-IMPORT-BYTES", Field: "size_bytes",
			Rule: fmt.Sprintf("policy import.max_bytes: at most %d", p.Import.MaxBytes),
			Msg:  fmt.Sprintf("%d bytes are more than is allowed", size)})
	}
	if len(d) == 0 {
		return nil
	}
	return denied("policy forbids this import", d)
}

// AllowPlan decides whether a valid plan may run. raw is set for a plan that was submitted directly, not made by a toolpack;
// imageName is the name of its image in images.lock.yaml, empty if the lock does not list it. A denial is a Policy fault with
// a problem for every rule that forbids the plan, each naming the allowed values.
func (p *Policy) AllowPlan(spec plan.Spec, raw bool, imageName string) error {
	var d decision
	d.placement(p.Slurm, spec.Placement)
	d.resources(p.Slurm, spec.Resources)
	if spec.Execution.Kind != plan.Scripted { // a scripted run has the gateway's own program
		d.container(p, spec.Execution.Container, imageName)
		if raw {
			d.raw(p.Slurm.RawPlans, spec.Execution, imageName)
		}
	}
	if len(d) == 0 {
		return nil
	}
	return denied("policy forbids this plan", d)
}

// AllowLocal decides whether a valid docker plan of a tool may run on the gateway's own host. inputBytes is the size of all
// its inputs, negative if that was checked before. A denial is a Policy fault.
func (p *Policy) AllowLocal(spec plan.Spec, tool, imageName string, inputBytes int64) error {
	l := p.Local
	if !l.Allowed {
		return denied("policy does not allow runs on the gateway's own host", []fault.Problem{{Code: "POLICY-LOCAL", Field: "planKind",
			Rule: "policy local: absent", Msg: "a docker plan runs on the gateway's own host",
			Hint: "set the tool's planKind to slurm or hybrid to run it as a job"}})
	}
	var d decision
	if l.Tools != nil && !slices.Contains(*l.Tools, tool) {
		d.add("POLICY-LOCAL-TOOL", "tool", "policy local.tools_allowlist: "+shown(*l.Tools), tool)
	}
	d.most("POLICY-CPUS", "resources.cpus", "policy local.max_cpus", l.MaxCPUs, spec.Resources.CPUs)
	d.most("POLICY-MEM", "resources.mem_mb", "policy local.max_mem_mb", l.MaxMemMB, spec.Resources.MemMB)
	d.most("POLICY-TIME-LIMIT", "resources.time_limit_seconds", "policy local.max_time_limit_seconds", l.MaxTimeLimitSeconds,
		spec.Resources.TimeLimitSeconds)
	d.most("POLICY-INPUT-BYTES", "inputs", "policy local.max_input_bytes", int(l.MaxInputBytes), int(inputBytes))
	if spec.Resources.GPUs != nil {
		d.add("POLICY-GPUS", "resources.gpus", "policy local: no GPU", strconv.Itoa(*spec.Resources.GPUs))
	}
	d.container(p, spec.Execution.Container, imageName)
	if len(d) == 0 {
		return nil
	}
	return denied("policy forbids this plan on the gateway's own host", d)
}

func denied(msg string, problems []fault.Problem) error {
	return &fault.Error{Kind: fault.Policy, Code: problems[0].Code, Msg: msg, Problems: problems,
		Next: "use an allowed value, or ask the administrator to change policies.yaml"}
}

type decision []fault.Problem

func (d *decision) add(code, field, rule, got string) {
	*d = append(*d, fault.Problem{Code: code, Field: field, Rule: rule, Msg: `"` + clip(got) + `" is not allowed`})
}

func (d *decision) most(code, field, rule string, limit, got int) {
	if got > limit {
		*d = append(*d, fault.Problem{Code: code, Field: field, Rule: fmt.Sprintf("%s: at most %d", rule, limit),
			Msg: fmt.Sprintf("%d is more than is allowed", got)})
	}
}

func (d *decision) listed(code, field, key string, list *[]string, got string) {
	if list != nil && !slices.Contains(*list, got) {
		d.add(code, field, "policy slurm."+key+": "+shown(*list), got)
	}
}

func (d *decision) placement(s Slurm, p plan.Placement) {
	d.listed("POLICY-PARTITION", "placement.partition", "partitions_allowlist", s.Partitions, p.Partition)
	d.listed("POLICY-ACCOUNT", "placement.account", "accounts_allowlist", s.Accounts, p.Account)
	if p.QOS != nil {
		d.listed("POLICY-QOS", "placement.qos", "qos_allowlist", s.QOS, *p.QOS)
	}
	if p.Constraint != nil && (s.Constraints == nil || !slices.Contains(*s.Constraints, *p.Constraint)) {
		for _, f := range plan.Features(*p.Constraint) {
			d.listed("POLICY-CONSTRAINT", "placement.constraint", "constraints_allowlist", s.Constraints, f)
		}
	}
}

func (d *decision) resources(s Slurm, r plan.Resources) {
	d.most("POLICY-CPUS", "resources.cpus", "policy slurm.max_cpus", s.MaxCPUs, r.CPUs)
	d.most("POLICY-MEM", "resources.mem_mb", "policy slurm.max_mem_mb", s.MaxMemMB, r.MemMB)
	d.most("POLICY-TIME-LIMIT", "resources.time_limit_seconds", "policy slurm.max_time_limit_seconds", s.MaxTimeLimitSeconds,
		r.TimeLimitSeconds)
	if r.GPUs != nil {
		d.most("POLICY-GPUS", "resources.gpus", "policy slurm.max_gpus", s.MaxGPUs, *r.GPUs)
		kind := ""
		if r.GPUType != nil {
			kind = *r.GPUType
		}
		d.listed("POLICY-GPU-TYPE", "resources.gpu_type", "gpu_types_allowlist", s.GPUTypes, kind)
	}
}

func (d *decision) container(p *Policy, c plan.Container, name string) {
	dig := bare(c.Image)
	switch {
	case p.ImagesAllowlist != nil && !slices.Contains(*p.ImagesAllowlist, dig):
		d.add("POLICY-IMAGE", "execution.container.image", "policy images_allowlist: "+shown(*p.ImagesAllowlist), dig)
	case p.ImagesAllowlist == nil && name == "":
		d.add("POLICY-IMAGE", "execution.container.image", "policy: the images of images.lock.yaml", dig)
	}
	if c.NetworkMode != p.Network {
		d.add("POLICY-NETWORK", "execution.container.network_mode", "policy network: "+p.Network, c.NetworkMode)
	}
}

func (d *decision) raw(r RawPlans, e plan.Execution, imageName string) {
	if !r.Allowed {
		*d = append(*d, fault.Problem{Code: "POLICY-RAW-PLAN", Field: "job_spec", Rule: "policy slurm.raw_plans.allowed: false",
			Msg: "the policy does not allow raw plans", Hint: "call a tool of the domain instead"})
		return
	}
	d.entry(r, e, imageName)
	for _, name := range slices.Sorted(maps.Keys(e.Command.Env)) {
		if !r.MaySet(name) {
			*d = append(*d, fault.Problem{Code: "POLICY-ENV", Field: "execution.command.env." + clip(name),
				Rule: "policy slurm.raw_plans.env: " + shown(r.variables()), Msg: `a raw plan may not set the variable "` + clip(name) + `"`})
		}
	}
}

// entry decides on the programs. A name is accepted only if the image determines the program: a bare name or an
// absolute path, but never a path below the workspace, whose files come from a caller.
func (d *decision) entry(r RawPlans, e plan.Execution, imageName string) {
	const code = "POLICY-ENTRY-PROGRAM"
	var allowed []string
	for _, key := range []string{bare(e.Container.Image), imageName} {
		allowed = append(allowed, r.EntryPrograms[key]...)
	}
	for i, argv := range e.Command.Programs() {
		field := "execution.command.argv"
		if i > 0 {
			field = fmt.Sprintf("execution.command.pipe[%d]", i-1)
		}
		if len(argv) == 0 {
			*d = append(*d, fault.Problem{Code: code, Field: field, Rule: "a program and its arguments",
				Msg: "the program is missing"})
			continue
		}
		name := programs.Base(argv[0])
		switch {
		case programs.Starts(name) || programs.Codes(name):
			d.add(code, field+"[0]", "no shell and no program that starts others or runs code given in an argument", argv[0])
		case strings.Contains(argv[0], "/") && !inImage(argv[0]):
			d.add(code, field+"[0]", "a bare name, or a plain absolute path into the image", argv[0])
		case !slices.Contains(allowed, name):
			d.add(code, field+"[0]", "policy slurm.raw_plans.entry_programs for this image: "+shown(allowed), argv[0])
		}
		for i, a := range argv[1:] {
			if programs.InlineCode(name, a) || programs.Plugin(name, a) {
				d.add(code, fmt.Sprintf("%s[%d]", field, i+1), "no code, and no library by its path, in an argument of "+clip(name), a)
			}
		}
	}
}

// inImage reports whether a path is clean and absolute, and in a place that only the image fills.
func inImage(s string) bool {
	return strings.HasPrefix(s, "/") && path.Clean(s) == s &&
		!below(s, plan.Workdir) && !below(s, "/tmp") && !below(s, "/var/tmp") && !below(s, "/proc") && !below(s, "/dev")
}

func below(s, dir string) bool { return s == dir || strings.HasPrefix(s, dir+"/") }

// bare returns the digest of an image reference, without the name before it.
func bare(image string) string {
	if i := strings.LastIndexByte(image, '@'); i >= 0 {
		return image[i+1:]
	}
	return image
}

func clip(s string) string { return fault.Clip(s) }
