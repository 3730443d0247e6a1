package toolpack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// ArtifactInfo is the part of an artifact that a plan needs.
type ArtifactInfo struct {
	SHA256    string // 64 hex
	Type      string
	SizeBytes int64
	Label     string
}

// Env is the input of canonicalising from outside the pack: everything in it is immutable or becomes part of the
// plan.
type Env struct {
	// Image returns the digest (sha256:<64 hex>) of an image name; [Lock.Digest] does.
	Image func(name string) (digest string, ok bool)
	// Artifact returns an artifact that the caller may see; NotFound for any other. Other faults end the call.
	Artifact func(artifactID string) (ArtifactInfo, error)
	// Local decides whether a hybrid tool runs on the gateway's own host rather than as a job; nil: never. The choice is part of the
	// plan, so it must depend on nothing but the plan, its inputs and the policy.
	Local func(spec plan.Spec, inputBytes int64) bool
	// Passthrough are the variables a pack may ask for (env.passthrough), with the policy's values.
	Passthrough map[string]string
	// Bind returns the version of a folder that the site offers under a name (binds); nil: it offers none.
	Bind func(name string) (version string, ok bool)
	// Resources are the call's own, in place of those of the pack.
	Resources plan.MoreResources
	// Project returns the project of the run. It is called once, after every artifact was found.
	Project func() string
}

// Canonical is a call turned into a plan.
type Canonical struct {
	Spec       plan.Spec // filled, valid; its placement is the pack's, none of a docker plan. Its inputs are the run's
	Docker     bool      // it runs on the gateway's own host
	Extra      plan.ToolExtra
	Made       []Made // artifacts the plan names, to be stored before it is submitted
	InputBytes int64  // of all inputs together
	// Names are the download names of the call's outputs, by role. They are no part of the plan.
	Names map[string]string
}

// Params returns the canonical params of the run; params_hash covers them.
func (c Canonical) Params(projectID, scriptVersion string) plan.Params {
	return plan.Params{ProjectID: projectID, Script: scriptVersion, Spec: c.Spec, Tool: &c.Extra, Docker: c.Docker}
}

// Canonicalize turns arguments into a plan (ABI-06). Every argument that breaks a rule is reported, in one
// Validation fault; the same arguments in the same environment give the same plan.
func (p *Pack) Canonicalize(args json.RawMessage, env Env) (Canonical, error) {
	if err := p.supported(); err != nil {
		return Canonical{}, err
	}
	values, err := p.arguments(args)
	if err != nil {
		return Canonical{}, err
	}
	given, err := p.inputs(values, env)
	if err != nil {
		return Canonical{}, err
	}
	p = p.sized(given.seen, env.Resources)
	inputs := given.plan()
	argvs, vars, err := p.render(values, p.paths(given))
	if err != nil {
		return Canonical{}, err
	}
	if err := p.passthrough(vars, env.Passthrough); err != nil {
		return Canonical{}, err
	}
	var made []Made
	if p.def.Execution.runs() {
		m, err := p.madeArgs(values, given, env.Project())
		if err != nil {
			return Canonical{}, err
		}
		argvs, made = [][]string{p.def.Execution.argv()}, []Made{m}
		inputs = append(inputs, plan.Input{Role: ArgsRole, ArtifactID: m.ID, ChecksumSHA256: m.SHA256, DestRelpath: argsDest})
	}
	digest, ok := env.Image(p.def.Image)
	if !ok {
		return Canonical{}, fault.New(fault.NotFound, "image_not_locked", `images.lock.yaml has no image "`+p.def.Image+`"`).
			WithSteps(fault.Do("image add", "name", p.def.Image))
	}
	binds, err := p.askedBinds(env.Bind)
	if err != nil {
		return Canonical{}, err
	}
	extra := plan.ToolExtra{Version: p.def.Version, MaxOutputBytes: p.def.Limits.MaxOutputBytes,
		StrictOutputs: p.def.StrictOutputs, Binds: binds}
	c := Canonical{Made: made, InputBytes: total(given.seen, made), Extra: extra, Names: p.names(given)}
	command := commandOf(argvs)
	command.Env, command.Stdout, command.Stdin = vars, clone(p.def.Execution.Stdout), p.stdin(given)
	c.Spec = p.def.spec(digest, command)
	c.Spec.IO.Inputs = inputs
	if p.def.PlanKind == KindDocker || p.def.PlanKind == KindHybrid && env.Local != nil && env.Local(c.Spec, c.InputBytes) {
		c.Docker, c.Spec.Placement = true, plan.Placement{}
	}
	c.Spec.Fill()
	if err := c.Spec.Validate(plan.Rules{Types: p.types, Docker: c.Docker, Asked: true}); err != nil {
		return Canonical{}, err
	}
	return c, nil
}

// total returns the size of all inputs together.
func total(seen map[string]ArtifactInfo, made []Made) (bytes int64) {
	for _, a := range seen {
		bytes += a.SizeBytes
	}
	for _, m := range made {
		bytes += int64(len(m.Bytes))
	}
	return bytes
}

// supported refuses a pack that cannot be turned into a plan.
func (p *Pack) supported() error {
	if p.def.Execution.Kind != "http" {
		return nil
	}
	return fault.New(fault.Validation, "not_a_job", p.def.ID+" has execution.kind http: a service worker carries it out, and no job can").
		WithNext("list it in the manifest as a service_worker with a transport")
}

// passthrough adds the variables the pack needs; those of env.set take precedence.
func (p *Pack) passthrough(vars, given map[string]string) error {
	var found []fault.Problem
	for i, name := range p.def.Env.Passthrough {
		value, ok := given[name]
		if _, set := vars[name]; !ok && !set {
			allowed := strings.Join(slices.Sorted(maps.Keys(given)), ", ")
			if allowed == "" {
				allowed = "none"
			}
			found = append(found, fault.Problem{Code: "POLICY-ENV", Field: fmt.Sprintf("env.passthrough[%d]", i), Rule: "policy env: " + allowed,
				Msg: p.def.ID + " needs " + name + ", and the policy does not set it"})
		} else if !set {
			vars[name] = value
		}
	}
	if len(found) > 0 {
		return &fault.Error{Kind: fault.Policy, Code: found[0].Code, Problems: found,
			Msg:  "the policy does not set a variable that " + p.def.ID + " needs",
			Next: "ask the administrator to add it to env in policies.yaml"}
	}
	return nil
}

// FromSite replaces a partition or account in a [Pack.Outline] that the pack leaves to the site.
const FromSite = "of-the-site"

// Outline returns the part of every plan of the pack that no argument changes. It serves to check the policy in
// advance.
func (p *Pack) Outline(image string) plan.Spec {
	s := p.def.spec(image, plan.Command{})
	s.Placement = s.Placement.Resolve(plan.Placement{Partition: FromSite, Account: FromSite})
	return s
}

// spec returns the common part of all plans of the pack, with the command of one.
func (f definition) spec(image string, command plan.Command) plan.Spec {
	s := plan.Spec{Version: plan.SpecVersion, Resources: f.Resources.plan(), Placement: f.Placement.Placement(),
		Execution: plan.Execution{Kind: "container", Command: command,
			Container: plan.Container{Engine: "apptainer", Image: image, NetworkMode: "none", ReadonlyRootfs: true}}}
	for _, o := range f.Outputs {
		s.IO.Outputs = append(s.IO.Outputs, plan.Output{Role: o.Role, SrcRelpath: o.SrcRelpath, Type: o.Type, Label: o.Label})
	}
	return s
}
