package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/plan"
)

// tool writes the toolpack of a plan.
func (h *helix) tool(name string) {
	p := h.plans[name]
	h.entryOf(p.spec)
	if slices.Contains(helixOperations(), name) {
		h.keep(p.file, "", "a plan for "+name+" itself: submit it as it is")
		return
	}
	s, ok := h.schemas[name]
	if !ok {
		h.refuse(fault.Problem{Code: "HELIXMCP-CONTRACT", File: p.file,
			Rule: "a schema of the arguments, whose file and the plan's are named after the tool",
			Msg:  "there is no schema of the arguments of " + name,
			Hint: "give contracts/tools/" + name + ".v1.schema.json, too"})
		return
	}
	before := len(h.Refused)
	schema := h.inputSchema(s)
	inputs := h.inputs(p, s)
	cmd, stdout := h.command(p)
	if limit := cmp.Or(h.bounds.threads[name], h.bounds.most); limit > 0 && int64(p.spec.Resources.CPUs) > limit {
		h.refuse(fault.Problem{Code: "HELIXMCP-THREADS", File: p.file, Field: "resources.cpus",
			Rule: fmt.Sprintf("the policy's max_threads of the tool: %d", limit),
			Msg:  fmt.Sprintf("the plan has %d CPUs, which is more than the policy's max_threads", p.spec.Resources.CPUs)})
	}
	if len(h.Refused) > before {
		return
	}
	id, follows := helixToolID(name)
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s: %s\n", key, flow(value)) }
	fmt.Fprintf(&b, "# Converted from HelixMCP: %s and %s.\n", s.file, p.file)
	line("id", id)
	if follows {
		h.keep(s.file, "toolName", name+": the id is "+id)
	} else {
		line("toolName", name)
		h.keep(s.file, "toolName", name+" for the id "+id)
	}
	line("version", "1.0.0")
	line("abiVersion", "v1")
	line("contractVersion", s.contract)
	line("planKind", "slurm")
	line("deterministic", true)
	r := p.spec.Resources
	line("timeoutMs", r.TimeLimitSeconds*1000)
	in, out := h.bounds.input, h.bounds.output
	if in == 0 {
		in = 10 << 30
		h.change(s.file, "limits.maxInputBytes", "10 GiB; the policy given says nothing")
	}
	if out == 0 {
		out = 1 << 30
		h.change(s.file, "limits.maxOutputBytes", "1 GiB; the policy given says nothing")
	}
	line("limits", json.RawMessage(fmt.Sprintf(`{"maxInputBytes":%d,"maxOutputBytes":%d}`, in, out)))
	line("inputSchema", schema)
	h.outputs(&b, p)
	b.WriteString("inputs:\n" + inputs)
	line("container", map[string]any{"image": h.imageName(p)})
	res := map[string]any{"cpus": r.CPUs, "memMb": r.MemMB, "timeLimitSeconds": r.TimeLimitSeconds}
	if r.GPUs != nil {
		res["gpus"] = *r.GPUs
	}
	if r.GPUType != nil {
		res["gpuType"] = *r.GPUType
	}
	line("resources", res)
	at := map[string]any{"partition": p.spec.Placement.Partition, "account": p.spec.Placement.Account}
	if q := p.spec.Placement.QOS; q != nil {
		at["qos"] = *q
	}
	if c := p.spec.Placement.Constraint; c != nil {
		at["constraint"] = *c
	}
	line("placement", at)
	exec := map[string]any{"kind": "cli", "cmd": cmd}
	if stdout != "" {
		exec["stdout"] = stdout
	}
	line("execution", exec)
	if env := p.spec.Execution.Command.Env; len(env) > 0 {
		line("env", map[string]any{"set": env})
	}
	h.write(p.file, "toolpacks/"+id+".tool.yaml", []byte(b.String()))
	h.made = append(h.made, name)
	h.keep(p.file, "", "resources, placement, inputs and outputs, as they are")
}

// flow writes a value as JSON, which is YAML too.
func flow(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "null"
	}
	return strings.TrimSpace(b.String())
}

// entryOf remembers the program of a plan, for raw plans.
func (h *helix) entryOf(s plan.Spec) {
	image, _ := h.nameOf(s)
	if argv := s.Execution.Command.Argv; image != "" && !slices.Contains(h.entry[image], argv[0]) && path.Base(argv[0]) != "sh" &&
		path.Base(argv[0]) != "bash" {
		h.entry[image] = append(h.entry[image], path.Base(argv[0]))
	}
}

var notName = regexp.MustCompile(`[^a-z0-9._-]+`)

// nameOf returns the name of a plan's image in the lock, or else one made of its repository.
func (h *helix) nameOf(s plan.Spec) (name string, locked bool) {
	image := s.Execution.Container.Image
	ref, _ := plan.RegistryImage(image)
	if digest, msg := h.lock.Pulled(ref); msg == "" && ref != "" {
		return h.lock.NameOf(digest), true
	}
	if ref == "" && h.lock.NameOf(image) != "" {
		return h.lock.NameOf(image), true
	}
	repo, _, _ := strings.Cut(ref, "@")
	repo, _, _ = strings.Cut(path.Base(repo), ":")
	return strings.Trim(notName.ReplaceAllString(strings.ToLower(repo), "-"), ".-"), false
}

func (h *helix) imageName(p helixPlan) string {
	name, locked := h.nameOf(p.spec)
	switch {
	case name == "":
		name = "image"
		h.change(p.file, "execution.container.image", "named image: no images.lock.yaml with its digest was given")
	case !locked:
		ref, _ := plan.RegistryImage(p.spec.Execution.Container.Image)
		h.change(p.file, "execution.container.image", "named "+name+"; add the file made from it under this name, with --source "+
			"docker://"+ref)
	default:
		h.keep(p.file, "execution.container.image", "found in images.lock.yaml as "+name)
	}
	return name
}

// outputs writes declaredOutputs, and a schema that requires them all.
func (h *helix) outputs(b *strings.Builder, p helixPlan) {
	roles := []string{}
	var decl strings.Builder
	for _, o := range p.spec.IO.Outputs {
		roles = append(roles, o.Role)
		fmt.Fprintf(&decl, "  - %s\n", flow(map[string]any{"role": o.Role, "type": o.Type, "label": o.Label, "srcRelpath": o.SrcRelpath}))
	}
	fmt.Fprintf(b, "outputSchema: %s\n", flow(map[string]any{"type": "object", "required": roles}))
	b.WriteString("declaredOutputs:\n" + decl.String())
}

// inputs writes the inputs: each role with the argument that has its artifact, and the types that the file's name
// means.
func (h *helix) inputs(p helixPlan, s helixSchema) string {
	params := []string{}
	props, _ := s.tree["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		is, _ := props[name].(map[string]any)
		if is["$ref"] == "helixmcp:common#/$defs/ArtifactId" {
			params = append(params, name)
		}
		if items, ok := is["items"].(map[string]any); ok && items["$ref"] == "helixmcp:common#/$defs/ArtifactId" {
			h.refuse(fault.Problem{Code: "HELIXMCP-LIST", File: s.file, Field: "properties." + name, Rule: "one artifact",
				Msg:  "the argument is a list of artifacts",
				Hint: "declare an argument and an input for each, or import them as one archive"})
		}
	}
	var b strings.Builder
	for _, in := range p.spec.IO.Inputs {
		param := ""
		for _, want := range []string{in.Role, in.Role + "_artifact_id"} {
			if slices.Contains(params, want) {
				param = want
			}
		}
		if param == "" && len(params) == 1 && len(p.spec.IO.Inputs) == 1 {
			param = params[0]
		}
		if param == "" {
			h.refuse(fault.Problem{Code: "HELIXMCP-INPUT", File: p.file, Field: "io.inputs",
				Rule: "an argument for each role: ROLE or ROLE_artifact_id",
				Msg:  "no argument of " + s.file + " is the role " + fault.Clip(in.Role), Hint: "rename the role in the plan"})
			continue
		}
		types := helixTypes(in.DestRelpath)
		if len(types) > 1 {
			h.change(p.file, "io.inputs."+in.Role, "the file's name stands for no type, so every type is taken; shorten types in the "+
				"toolpack")
		}
		fmt.Fprintf(&b, "  - %s\n", flow(map[string]any{"role": in.Role, "param": param, "types": types, "destRelpath": in.DestRelpath}))
	}
	if b.Len() == 0 {
		return "  []\n"
	}
	return b.String()
}

// helixTypes returns the artifact types that a file's name means; all of them where it means none.
func helixTypes(name string) []string {
	if t := filetype.ByEnding(name); t.Name != "" {
		return []string{t.Name}
	}
	return filetype.Names()
}

var (
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)
	redirect  = regexp.MustCompile(`^(?:set -[a-z]+(?: -?o? ?pipefail)?; *)?([^;&|<>]+?) *> */work/(out/[A-Za-z0-9_./-]+)$`)
)

// command returns the program of a plan. A shell that only sends a program's standard output to a declared output
// becomes that program with stdout; any other shell is refused.
func (h *helix) command(p helixPlan) (cmd []string, stdout string) {
	argv := p.spec.Execution.Command.Argv
	if p.spec.Execution.Command.Stdout != nil {
		stdout = *p.spec.Execution.Command.Stdout
	}
	for i, a := range argv {
		if strings.Contains(a, "{{") || strings.Contains(a, "{%") || strings.Contains(a, "{#") {
			h.refuse(fault.Problem{Code: "HELIXMCP-TEMPLATE", File: p.file, Field: fmt.Sprintf("execution.command.argv[%d]", i),
				Rule: "no {{, {% or {#, which begin a template in a toolpack", Msg: fault.Clip(a) + " contains template syntax",
				Hint: "give the text as an argument, and write a template that shows it"})
			return nil, ""
		}
	}
	if base := path.Base(argv[0]); base != "sh" && base != "bash" {
		return argv, stdout
	}
	if len(argv) == 3 && argv[1] == "-c" {
		if m := redirect.FindStringSubmatch(strings.TrimSpace(argv[2])); m != nil {
			words := strings.Fields(m[1])
			declared := slices.ContainsFunc(p.spec.IO.Outputs, func(o plan.Output) bool { return o.SrcRelpath == m[2] })
			if declared && !slices.ContainsFunc(words, func(w string) bool { return !plainWord.MatchString(w) }) {
				h.change(p.file, "execution.command.argv", "the shell is left out: its program runs itself, with stdout: "+m[2])
				h.entry[h.firstName(p)] = append(h.entry[h.firstName(p)], words[0])
				return words, m[2]
			}
		}
	}
	h.refuse(fault.Problem{Code: "HELIXMCP-SHELL", File: p.file, Field: "execution.command.argv", Rule: "no shell",
		Msg: "a shell runs the program", Hint: "name the program and its arguments, with stdout: for its standard output; put several " +
			"steps into a program of the image"})
	return nil, ""
}

func (h *helix) firstName(p helixPlan) string {
	name, _ := h.nameOf(p.spec)
	return name
}

// helixDefs are HelixMCP's common types that arguments have.
var helixDefs = map[string]map[string]any{
	"ArtifactId": {"type": "string", "pattern": "^art_[0-9A-HJKMNP-TV-Z]{26}$", "description": "artifact_id"},
	"ProjectId":  {"type": "string", "pattern": "^proj_[0-9A-HJKMNP-TV-Z]{26}$"},
	"RunId":      {"type": "string", "pattern": "^run_[0-9A-HJKMNP-TV-Z]{26}$"},
	"Sha256":     {"type": "string", "pattern": "^sha256:[a-f0-9]{64}$"},
}

// inputSchema returns the schema of a tool's arguments without references to HelixMCP's files and without backend.
func (h *helix) inputSchema(s helixSchema) map[string]any {
	out := map[string]any{}
	for k, v := range s.tree {
		if k != "$id" && k != "$schema" && k != "title" {
			out[k] = h.inline(s, v)
		}
	}
	props, _ := out["properties"].(map[string]any)
	if _, ok := props["backend"]; ok {
		delete(props, "backend")
		h.change(s.file, "properties.backend", "left out: a tool runs as a Slurm job; with planKind hybrid, policy picks")
	}
	for name := range props {
		is, _ := s.tree["properties"].(map[string]any)[name].(map[string]any)
		if _, ref := is["$ref"]; !ref && is["items"] == nil {
			h.change(s.file, "properties."+name, "has no effect until a template in execution.cmd shows it: {{ params."+name+" }}")
		}
	}
	return out
}

func (h *helix) inline(s helixSchema, v any) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, h.inline(s, x))
		}
		return out
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok && strings.HasPrefix(ref, "helixmcp:") {
			def, known := helixDefs[strings.TrimPrefix(ref, "helixmcp:common#/$defs/")]
			if !known {
				h.refuse(fault.Problem{Code: "HELIXMCP-REF", File: s.file, Field: "$ref", Rule: "ArtifactId, ProjectId, RunId or " +
					"Sha256 of helixmcp:common",
					Msg: "the reference " + fault.Clip(ref) + " is unknown", Hint: "write the definition in its place"})
			}
			return maps.Clone(def)
		}
		out := map[string]any{}
		for k, x := range v {
			out[k] = h.inline(s, x)
		}
		return out
	}
	return v
}
