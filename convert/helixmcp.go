package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack"
)

// HelixMCP has its tools in TypeScript. A program can read the schema of a tool's arguments
// (contracts/tools/NAME.vN.schema.json), an example of its plan (NAME.plan.json, a SlurmJobSpec or the arguments of
// slurm_submit), and the policy file. images.lock.yaml, of a domain here, records which files were made from which
// images.

// helix is a conversion from HelixMCP.
type helix struct {
	*conversion
	schemas map[string]helixSchema // by tool name: of arguments, the newest contract
	outs    map[string]bool        // tools with a schema of answers
	plans   map[string]helixPlan
	lock    toolpack.Lock
	locked  bool
	policy  *File
	made    []string // tool names of the toolpacks
	entry   map[string][]string
	bounds  helixBounds // of the policy
}

type helixSchema struct {
	file     string
	contract string // v1
	tree     map[string]any
}

type helixPlan struct {
	file string
	spec plan.Spec
}

// helixBounds are the policy's bounds of sizes and threads, for the toolpacks; 0: none.
type helixBounds struct {
	input, output int64
	most          int64            // threads of every tool
	threads       map[string]int64 // by tool
}

// helixOperations returns the tools of HelixMCP that are operations of the gateway here.
func helixOperations() []string {
	return strings.Fields("artifact_get artifact_import artifact_list artifact_preview_image artifact_preview_text slurm_job_collect " +
		"slurm_job_get " +
		"slurm_submit")
}

var helixID = regexp.MustCompile(`^helixmcp:tool:([a-z][a-z0-9_]*):(out:)?(v[0-9]{1,9})$`)

func fromHelixMCP(c *conversion) {
	h := &helix{conversion: c, schemas: map[string]helixSchema{}, outs: map[string]bool{}, plans: map[string]helixPlan{},
		entry: map[string][]string{}, bounds: helixBounds{threads: map[string]int64{}}}
	if f, ok := c.file(toolpack.LockFile); ok {
		l, err := toolpack.ParseLock(f.Path, f.Data)
		c.refuse(fault.ProblemsOf(err)...)
		h.lock, h.locked = l, true
	}
	for _, f := range c.in {
		h.sort(f)
	}
	if h.policy != nil {
		h.readBounds(*h.policy)
	}
	for _, name := range slices.Sorted(maps.Keys(h.plans)) {
		h.tool(name)
	}
	for _, name := range slices.Sorted(maps.Keys(h.schemas)) {
		if _, ok := h.plans[name]; !ok {
			h.noPlan(name)
		}
	}
	if h.policy != nil {
		h.writePolicy(*h.policy)
	}
	h.writeDomain()
}

// sort decides what a file is.
func (h *helix) sort(f File) {
	base := path.Base(f.Path)
	switch path.Ext(base) {
	case ".yaml", ".yml":
		r := &yamldoc.Reader{File: f.Path, Prefix: "HELIXMCP"}
		doc := r.Parse(f.Data)
		switch {
		case base == toolpack.LockFile:
		case len(r.Problems()) > 0:
			h.refuse(r.Problems()...)
		case doc.Has("tool_allowlist") && h.policy == nil:
			h.policy = &f
		case doc.Has("tool_allowlist"):
			h.refuse(fault.Problem{Code: "CONVERT-TWICE", File: f.Path, Rule: "one policy", Msg: h.policy.Path + " is a policy, too",
				Hint: "convert one of them"})
		default:
			h.unknown(f)
		}
		return
	}
	if err := plan.Check(f.Data); err != nil {
		h.refuse(fault.ProblemsOf(plan.InFile(err, f.Path, f.Data))...)
		return
	}
	var doc struct {
		ID      string          `json:"$id"`
		JobSpec json.RawMessage `json:"job_spec"`
		Exec    json.RawMessage `json:"execution"`
	}
	var tree map[string]any
	if json.Unmarshal(f.Data, &tree) != nil || json.Unmarshal(f.Data, &doc) != nil {
		h.unknown(f)
		return
	}
	switch m := helixID.FindStringSubmatch(doc.ID); {
	case m != nil && m[2] != "":
		h.outs[m[1]] = true
		h.change(f.Path, "", "a call answers with its run; the toolpack's outputSchema is made of the plan's outputs")
	case m != nil:
		if known, ok := h.schemas[m[1]]; ok && newer(known.contract, m[3]) {
			h.change(f.Path, "", "left out: "+known.file+" is a newer contract")
			return
		} else if ok {
			h.change(known.file, "", "left out: "+f.Path+" is a newer contract")
		}
		h.schemas[m[1]] = helixSchema{f.Path, m[3], tree}
	case strings.HasPrefix(doc.ID, "helixmcp:"):
		h.keep(f.Path, "", "the gateway has this schema itself")
	case doc.JobSpec != nil:
		h.plan(f, doc.JobSpec)
	case doc.Exec != nil:
		h.plan(f, f.Data)
	default:
		h.unknown(f)
	}
}

// newer reports whether contract a (vN) is newer than b.
func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

func (h *helix) unknown(f File) {
	h.refuse(fault.Problem{Code: "CONVERT-UNKNOWN", File: f.Path, Rule: "a contract schema, a plan, a policy or " + toolpack.LockFile,
		Msg: "HelixMCP has no file of this form", Hint: "leave it out"})
}

// plan reads the example plan of a tool: the file's name up to the first dot.
func (h *helix) plan(f File, data []byte) {
	name, _, _ := strings.Cut(path.Base(f.Path), ".")
	pulled := func(ref string) (string, string) { // a tool names its image, and the lock need not have it yet
		digest, msg := h.lock.Pulled(ref)
		if msg != "" {
			_, digest, _ = strings.Cut(ref, "@")
		}
		return digest, ""
	}
	var named struct {
		Execution struct{ Container struct{ Image string } }
	}
	spec, err := plan.DecodeSpec(data, plan.Rules{Pulled: pulled})
	if err != nil || json.Unmarshal(data, &named) != nil {
		for _, p := range fault.ProblemsOf(err) {
			p.File = f.Path
			h.refuse(p)
		}
		return
	}
	spec.Execution.Container.Image = named.Execution.Container.Image
	if first, ok := h.plans[name]; ok {
		h.refuse(fault.Problem{Code: "CONVERT-TWICE", File: f.Path, Rule: "one plan of each tool", Msg: first.file +
			" is a plan of " + name + ", too",
			Hint: "a plan is named after its tool, such as samtools_flagstat.plan.json"})
		return
	}
	h.plans[name] = helixPlan{f.Path, spec}
}

// noPlan notes the conversion of a tool without a plan.
func (h *helix) noPlan(name string) {
	s := h.schemas[name]
	switch {
	case slices.Contains(helixOperations(), name):
		h.keep(s.file, "", "an operation of the gateway itself")
	case name == "docker_job_get":
		h.change(s.file, "", "slurm_job_get answers for every run")
	case name == "export_nextflow":
		h.change(s.file, "", "run_export has a Nextflow module in its archive")
	default:
		h.refuse(fault.Problem{Code: "HELIXMCP-PLAN", File: s.file, Rule: "a plan for each tool: its program is in TypeScript, which " +
			"is not converted",
			Msg: "there is no plan of " + name,
			Hint: "give a plan that it makes as " + name + ".plan.json, or leave the schema out; a service worker can take over what " +
				"is no job"})
	}
}

// writeDomain writes the manifest, and an image lock where none was given.
func (h *helix) writeDomain() {
	if len(h.made) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString("# Converted from HelixMCP. Name the domain, and raise the version with every change.\ndomain_id: " +
		"helixmcp\nversion: 1.0.0\ntools:\n")
	for _, name := range h.made {
		id, _ := helixToolID(name)
		fmt.Fprintf(&b, "  - {tool_id: %s, kind: job_worker}\n", id)
	}
	h.write(h.plans[h.made[0]].file, toolpack.ManifestFile, []byte(b.String()))
	if f, ok := h.file(toolpack.LockFile); ok {
		h.write(f.Path, toolpack.LockFile, f.Data)
	} else {
		h.starter(toolpack.LockFile, starterLock)
	}
	if h.policy == nil {
		h.starter(toolpack.PolicyFileName, starterPolicy)
		h.change("", toolpack.PolicyFileName, "no policy was given: this one allows every tool of the domain")
	}
}

// helixToolID returns the id of a tool with a name, and whether the name follows from it.
func helixToolID(name string) (id string, follows bool) {
	if id = strings.ReplaceAll(name, "_", "."); strings.Contains(id, ".") && helixPackID.MatchString(id) {
		return id, true
	}
	return "helixmcp." + strings.ReplaceAll(name, "_", ""), false
}

var helixPackID = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9]+)+$`)
