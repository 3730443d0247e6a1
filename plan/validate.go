package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/fault"
	"slurmgate/filetype"
)

// Limits of a plan.
const (
	MaxTimeLimitSeconds = 604800  // 7 days
	MaxCPUs             = 256     //
	MaxMemMB            = 2097152 // 2 TiB
	MaxGPUs             = 16
	maxGPUType          = 64
	maxArgv             = 1024
	maxArgvBytes        = 128 << 10 // all elements together
	maxEnv              = 128
	maxEnvValue         = 16 << 10
	maxFiles            = 1024 // inputs, and outputs
	MaxPipe             = 16   // programs of a pipe
)

// Rules are the rules that a gateway adds to the fixed rules of a plan.
type Rules struct {
	Types []string // artifact types allowed for outputs; [Types] when nil
	// Docker: the plan runs on the gateway's own host, so it has no placement.
	Docker bool

	// Image reports why a name is not that of the image with a digest (sha256:<64 hex>), "" if it is; nil: names are
	// not checked.
	Image func(name, digest string) string
	// Pulled returns the digest (sha256:<64 hex>) of the SIF file made from an image of a registry, which is named by
	// REPO@sha256:<64 hex>, or the reason why it cannot be named; nil: a plan cannot name such an image.
	Pulled func(ref string) (digest, msg string)
	// Stored: the plan was read back from canonical params, where a toolpack's inputs have no artifact_id. Types that
	// were valid then are accepted.
	Stored bool
	Asked  bool // the placement is a request: partition and account may be left to the site
}

// DecodeSpec reads, fills, validates and orders a plan: the only way to get a Spec from outside. It reports all
// broken rules in one Validation fault.
func DecodeSpec(data []byte, rules Rules) (Spec, error) {
	var s Spec
	if err := Decode(data, &s); err != nil {
		return Spec{}, err
	}
	var pulled []fault.Problem
	if ref, ok := RegistryImage(s.Execution.Container.Image); ok && rules.Pulled != nil {
		digest, msg := rules.Pulled(ref)
		if msg != "" {
			pulled = append(pulled, fault.Problem{Code: "PLAN-IMAGE", Field: "execution.container.image",
				Rule: "the source of an image in images.lock.yaml", Msg: msg,
				Next: []fault.Step{fault.Do("image add", "name", "NAME", "file", "FILE", "source", "docker://"+ref)}})
			digest = "sha256:" + strings.Repeat("0", 64) // reported already
		}
		s.Execution.Container.Image = digest
	}
	name, digest, named := strings.Cut(s.Execution.Container.Image, "@")
	s.Fill()
	err := s.Validate(rules)
	if len(pulled) > 0 {
		err = invalid(append(pulled, fault.ProblemsOf(err)...))
	}
	if named && rules.Image != nil && imageRef.MatchString(name+"@"+digest) {
		if msg := rules.Image(name, digest); msg != "" {
			p := fault.Problem{Code: "PLAN-IMAGE", Field: "execution.container.image", Rule: "the name that images.lock.yaml has for this digest",
				Msg:  msg,
				Hint: "correct the name, or leave it out: the digest alone decides"}
			err = invalid(append(fault.ProblemsOf(err), p))
		}
	}
	if err != nil {
		return Spec{}, err
	}
	return s, nil
}

// Fill sets omitted fields (workdir, env, inputs) and converts the lists and the image to their canonical form. It
// never changes the meaning of a valid plan.
func (s *Spec) Fill() {
	c := &s.Execution.Command
	if c.Workdir == "" {
		c.Workdir = Workdir
	}
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	if len(c.Pipe) == 0 {
		c.Pipe = nil
	}
	if s.IO.Inputs == nil {
		s.IO.Inputs = []Input{}
	}
	if s.IO.Outputs == nil {
		s.IO.Outputs = []Output{}
	}
	// Only the digest is part of the identity; a name before it is for readers.
	if img := s.Execution.Container.Image; imageRef.MatchString(img) {
		s.Execution.Container.Image = img[strings.Index(img, "sha256:"):]
	}
	for i := range s.IO.Inputs { // a checksum may be written with its algorithm
		if in := &s.IO.Inputs[i]; IsSHA256(strings.TrimPrefix(in.ChecksumSHA256, "sha256:")) {
			in.ChecksumSHA256 = strings.TrimPrefix(in.ChecksumSHA256, "sha256:")
		}
	}
	slices.SortFunc(s.IO.Inputs, func(a, b Input) int {
		return strings.Compare(a.Role+"\x00"+a.DestRelpath, b.Role+"\x00"+b.DestRelpath)
	})
	slices.SortFunc(s.IO.Outputs, func(a, b Output) int {
		return strings.Compare(a.Role+"\x00"+a.SrcRelpath, b.Role+"\x00"+b.SrcRelpath)
	})
}

// Validate checks every rule of the schema and reports all that are broken.
func (s Spec) Validate(rules Rules) error {
	v := validator{Rules: rules}
	if v.Types == nil {
		v.Types = filetype.Names()
	}
	if s.Version != SpecVersion {
		v.add("PLAN-VERSION", "version", fmt.Sprintf("must be %d", SpecVersion),
			fmt.Sprintf("version %d is not supported", s.Version))
	}
	v.resources(s.Resources)
	v.placement(s.Placement)
	v.execution(s.Execution)
	v.inputs(s.IO.Inputs, s.Execution.Command.Stdin)
	v.outputs(s.IO.Outputs, s.Execution.Command.Stdout)
	if len(v.problems) == 0 {
		return nil
	}
	return invalid(v.problems)
}

func invalid(problems []fault.Problem) error {
	return &fault.Error{Kind: fault.Validation, Code: problems[0].Code, Msg: "the plan violates SlurmJobSpec v1",
		Problems: problems, Next: "correct the named fields and submit again"}
}

type validator struct {
	Rules
	problems []fault.Problem
}

func (v *validator) add(code, field, rule, msg string) {
	v.problems = append(v.problems, fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
}

// form reports a value that does not have the form of its rule.
func (v *validator) form(ok bool, code, field, rule, value string) {
	if !ok {
		v.add(code, field, rule, quoted(value)+" is not allowed here")
	}
}

// sound reports the problem that a check found, if any.
func (v *validator) sound(msg, code, field, rule string) {
	if msg != "" {
		v.add(code, field, rule, msg)
	}
}

func (v *validator) most(code, field string, n, high int, what string) {
	if n > high {
		v.add(code, field, fmt.Sprintf("at most %d %s", high, what), fmt.Sprintf("%d %s are too many", n, what))
	}
}

func (v *validator) bounds(code, field string, n, high int) {
	if n < 1 || n > high {
		v.add(code, field, fmt.Sprintf("1 to %d", high), fmt.Sprintf("%d is out of range", n))
	}
}

func (v *validator) resources(r Resources) {
	v.bounds("PLAN-TIME-LIMIT", "resources.time_limit_seconds", r.TimeLimitSeconds, MaxTimeLimitSeconds)
	v.bounds("PLAN-CPUS", "resources.cpus", r.CPUs, MaxCPUs)
	v.bounds("PLAN-MEM", "resources.mem_mb", r.MemMB, MaxMemMB)
	if r.GPUs != nil {
		v.bounds("PLAN-GPUS", "resources.gpus", *r.GPUs, MaxGPUs)
	}
	if t := r.GPUType; t != nil {
		v.form(len(*t) <= maxGPUType && slurmName.MatchString(*t), "PLAN-GPU-TYPE", "resources.gpu_type",
			"a GRES type: letters, digits, _ . + -, at most 64", *t)
		if r.GPUs == nil {
			v.add("PLAN-GPU-TYPE", "resources.gpu_type", "only together with gpus", "a type is given, but no number of GPUs")
		}
	}
}

func (v *validator) placement(p Placement) {
	if v.Docker {
		if p != (Placement{}) {
			v.add("PLAN-PLACEMENT", "placement", "none in a docker plan", "a docker plan cannot have a placement")
		}
		return
	}
	name := func(code, field, s string) {
		v.form(s == "" && v.Asked || slurmName.MatchString(s), code, field,
			"a Slurm name: starts with a letter or digit, then letters, digits, _ . + -, at most 64", s)
	}
	name("PLAN-PARTITION", "placement.partition", p.Partition)
	name("PLAN-ACCOUNT", "placement.account", p.Account)
	if p.QOS != nil {
		name("PLAN-QOS", "placement.qos", *p.QOS)
	}
	if p.Site != nil {
		v.form(IsSiteName(*p.Site), "PLAN-SITE", "placement.site", SiteNameRule, *p.Site)
	}
	if c := p.Constraint; c != nil {
		v.form(IsConstraint(*c), "PLAN-CONSTRAINT", "placement.constraint", ConstraintRule, *c)
	}
}

func (v *validator) execution(e Execution) {
	kind, engine, network := Contained, "apptainer", "none"
	if e.Kind == Scripted && v.Stored && !v.Docker { // the gateway made the plan, not a caller
		kind, engine, network = Scripted, "bash", "host"
	}
	for _, c := range [][4]string{
		{"PLAN-KIND", "kind", e.Kind, kind},
		{"PLAN-ENGINE", "container.engine", e.Container.Engine, engine},
		{"PLAN-NETWORK", "container.network_mode", e.Container.NetworkMode, network},
		{"PLAN-WORKDIR", "command.workdir", e.Command.Workdir, Workdir},
	} {
		v.form(c[2] == c[3], c[0], "execution."+c[1], `must be "`+c[3]+`"`, c[2])
	}
	if !e.Container.ReadonlyRootfs && kind == Contained {
		v.add("PLAN-ROOTFS", "execution.container.readonly_rootfs", "must be true",
			"a writable root filesystem is not supported")
	}
	v.form(imageRef.MatchString(e.Container.Image), "PLAN-IMAGE", "execution.container.image",
		"sha256:<64 hex digits> of the SIF file, name@sha256:<64 hex digits>, or docker://REPOSITORY@sha256:<64 hex digits> where "+
			"images.lock.yaml has that source; no tag alone, no folder", e.Container.Image)
	v.command(e.Command)
}

// textRule is the rule of [checkText].
const textRule = "UTF-8 text without control characters except tab and newline"

func (v *validator) command(c Command) {
	const is = "execution.command."
	programs, total := c.Programs(), 0
	for i, argv := range programs[:min(len(programs), MaxPipe)] {
		field := is + "argv"
		if i > 0 {
			field = fmt.Sprintf("%spipe[%d]", is, i-1)
		}
		total += v.argv(field, argv)
	}
	v.most("PLAN-PIPE", is+"pipe", len(programs), MaxPipe, "programs with that of argv")
	v.most("PLAN-ARGV", is+"argv", total, maxArgvBytes, "bytes together")
	v.most("PLAN-ENV", is+"env", len(c.Env), maxEnv, "variables")
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		v.env(is+"env."+clip(name), name, c.Env[name])
	}
}

// argv checks one program with its arguments, and returns how many bytes they have.
func (v *validator) argv(field string, argv []string) (total int) {
	if n := len(argv); n == 0 || n > maxArgv {
		v.add("PLAN-ARGV", field, fmt.Sprintf("1 to %d elements", maxArgv), fmt.Sprintf("the list has %d elements", n))
	} else {
		a := argv[0]
		v.form(a != "" && !strings.HasPrefix(a, "-") && !strings.Contains(a, "://"), "PLAN-ARGV", field+"[0]",
			"the program: not empty, no leading -, no URL", a)
	}
	for i, a := range argv {
		total += len(a)
		if msg := checkText(a); msg != "" {
			v.add("PLAN-ARGV", fmt.Sprintf("%s[%d]", field, i), textRule, msg)
		}
	}
	return total
}

func (v *validator) env(field, name, value string) {
	if !envName.MatchString(name) {
		v.add("PLAN-ENV", field, "a name of letters, digits and _ that does not start with a digit",
			quoted(name)+" is not a valid name of a variable")
		return
	}
	for _, p := range []string{"APPTAINER", "SINGULARITY", "SLURM", "SBATCH", "LD_"} {
		if strings.HasPrefix(name, p) {
			v.add("PLAN-ENV", field, "no variable of the container runtime, of Slurm or of the dynamic loader",
				name+" starts with "+p+", which is reserved")
		}
	}
	// Names that Apptainer 1.4 uses itself: measured, a value given here does not reach the program.
	if slices.Contains([]string{"EUID", "UID", "GID", "HOME", "PREPEND_PATH", "APPEND_PATH", "PROMPT_COMMAND",
		"key", "e", "__exported_env__", "__apptainer_cmd__"}, name) {
		v.add("PLAN-ENV", field, "no name that the container runtime uses itself", "the container runtime sets "+name+" itself")
	}
	v.most("PLAN-ENV", field, len(value), maxEnvValue, "bytes")
	v.sound(checkText(value), "PLAN-ENV", field, textRule)
}

// checkText reports what is wrong with a value that reaches a program; "" if nothing.
func checkText(s string) string {
	if !utf8.ValidString(s) {
		return "it is not valid UTF-8"
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return fmt.Sprintf("it contains the control character %U", r)
		}
	}
	return ""
}

func quoted(s string) string { return `"` + clip(s) + `"` }
