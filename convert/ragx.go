package convert

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"slurmgate/fault"
	"slurmgate/toolpack"
)

// ragx: *.tool.yaml with the fields of its loader, and the schema files they refer to. The toolpacks become bare
// ones: the new manifest has what they leave out.

const ragxSuffix = ".tool.yaml"

// ragxFields are the fields that its loader reads, and those that its own toolpacks have in addition. It ignores
// others.
var ragxFields = []string{"id", "name", "version", "description", "deterministic", "timeoutMs", "limits", "inputSchema", "outputSchema",
	"execution", "caps", "env", "templating", "metadata"}

// ragxExecution are the fields of each kind of execution. Of several programs the first is the one that ragx would run.
var ragxExecution = map[string]struct{ programs, others []string }{
	"python": {[]string{"module", "script"}, nil},
	"node":   {[]string{"script", "node", "module"}, []string{"args"}},
	"php":    {[]string{"php", "script"}, []string{"phpBinary"}},
	"cli":    {nil, []string{"cmd"}},
	"http":   {nil, []string{"url", "method", "headers", "timeoutMs"}},
}

// ragxLegacy are the names that its loader takes for those of today.
var ragxLegacy = map[string]string{"timeout_ms": "timeoutMs", "input_schema": "inputSchema", "output_schema": "outputSchema",
	"max_input_bytes": "maxInputBytes", "max_output_bytes": "maxOutputBytes"}

type ragx struct {
	*conversion
	prefix string            // of the paths in the result
	queue  []string          // schema files that are referred to
	tools  map[string]string // ids → their entries in the manifest
	kinds  map[string]bool   // of execution
}

func fromRagx(c *conversion) {
	x := &ragx{conversion: c, prefix: toolpack.PacksDir + "/", tools: map[string]string{}, kinds: map[string]bool{}}
	var packs []File
	for _, f := range c.in {
		if strings.HasSuffix(f.Path, ragxSuffix) {
			packs = append(packs, f)
		}
	}
	if !slices.ContainsFunc(packs, func(f File) bool { return !strings.HasPrefix(f.Path, toolpack.PacksDir+"/") }) {
		x.prefix = "" // they lie where they are to be
	}
	for _, f := range packs {
		x.pack(f)
	}
	for i := 0; i < len(x.queue); i++ {
		x.schema(x.queue[i])
	}
	if len(packs) == 0 || len(c.Refused) > 0 {
		return
	}
	x.domain()
	x.judge(func(file string) string { return strings.TrimPrefix(file, x.prefix) })
}

// pack converts one toolpack.
func (x *ragx) pack(f File) {
	top, err := readYAML(f.Data)
	if err != nil {
		x.refuse(fault.Problem{Code: "CONVERT-YAML", File: f.Path, Rule: "one YAML mapping", Msg: fault.Clip(err.Error())})
		return
	}
	m := fields{x.conversion, f.Path, "", top}
	m.renamed(ragxLegacy)
	m.only(ragxFields, "ragx ignores it, too")
	if id := m.get("id"); id != nil && strings.Contains(id.Value, ":") {
		was := id.Value
		id.Value = strings.ReplaceAll(was, ":", ".")
		m.changed("id", was+" is "+id.Value+": an id has no colon")
	}
	if m.get("metadata") != nil {
		m.kept("metadata", "has no effect")
	}
	if limits := m.under("limits"); limits != nil {
		limits.renamed(ragxLegacy)
		limits.only([]string{"maxInputBytes", "maxOutputBytes"}, "ragx ignores it, too")
	}
	if t := m.under("templating"); t != nil && t.get("cacheKey") != nil {
		t.kept("cacheKey", "has no effect: a run's identity covers all it depends on")
	}
	if caps := m.under("caps"); caps != nil && caps.get("filesystem") != nil {
		caps.kept("filesystem", "gives no access: a job sees its image, its inputs and /work/out; put the files the tool reads into the image")
	}
	tool := x.execution(m)
	for _, field := range []string{"inputSchema", "outputSchema"} {
		x.references(f.Path, field, m.get(field))
	}
	if in := m.under("inputSchema"); in != nil && in.get("$ref") == nil && in.get("type") == nil {
		in.set("type", "object")
		in.changed("type", "object: the arguments of a call are one")
	}
	id := ""
	if n := m.get("id"); n != nil {
		id = n.Value
	}
	if _, twice := x.tools[id]; twice {
		x.refuse(fault.Problem{Code: "CONVERT-TWICE", File: f.Path, Field: "id", Rule: "each id once", Msg: `another toolpack has the id "` +
			fault.Clip(id) + `"`, Hint: "rename one of the two"})
		return
	}
	x.tools[id] = tool
	x.keep(f.Path, "", id+": all other fields as they are")
	x.write(f.Path, x.prefix+f.Path, writeYAML(top))
}

// execution converts the program of a toolpack, and returns the manifest's entry for it, without the id.
func (x *ragx) execution(m fields) string {
	const job = "kind: job_worker"
	e := m.under("execution")
	if e == nil {
		return job
	}
	kind := e.text("kind")
	of, known := ragxExecution[kind]
	if !known {
		return job // the check reports it
	}
	x.kinds[kind] = true
	first := ""
	for _, p := range of.programs {
		switch {
		case e.get(p) == nil:
		case first == "":
			first = p
		default:
			e.remove(p, "ragx runs "+first)
		}
	}
	e.only(slices.Concat([]string{"kind"}, of.programs, of.others), "ragx ignores it, too")
	if s := e.get(first); s != nil && first != "module" {
		interpreter := map[string]string{"python": "python", "node": "node", "php": "php"}[kind]
		if w := strings.Fields(s.Value); len(w) == 2 && strings.HasPrefix(w[0], interpreter) {
			e.changed(first, s.Value+" is "+w[1]+": the gateway starts the interpreter")
			s.Value = w[1]
		}
	}
	if first != "" {
		e.kept(first, "put the code into /opt/tool of the image "+kind+toolRunner[kind])
	}
	if kind != "http" {
		return job
	}
	if method := e.get("method"); method != nil && method.Value != strings.ToUpper(method.Value) {
		e.changed("method", strings.ToUpper(method.Value))
		method.Value = strings.ToUpper(method.Value)
	}
	u, err := url.Parse(e.text("url"))
	if err != nil || u.Host == "" {
		return "kind: service_worker" // the check reports it
	}
	e.changed("url", "the worker there must speak the worker contract; put one in front of a plain HTTP API")
	return fmt.Sprintf("kind: service_worker, transport: {type: http, base_url: %q}", u.Scheme+"://"+u.Host)
}

var toolRunner = map[string]string{
	"python": ", and what `slurmgate tool runner python` prints into /opt/slurmgate/run.py; the function gets the arguments alone",
	"node":   "; for a module also what `slurmgate tool runner node` prints into /opt/slurmgate/run.mjs",
	"php":    "; it gets the paths of two files: the arguments alone, and the result it writes"}

// references corrects the references of a schema and notes the files they lead to.
func (x *ragx) references(file, field string, n *yaml.Node) (changed bool) {
	walk(n, func(m *yaml.Node) {
		ref := value(m, "$ref")
		if ref == nil || ref.Kind != yaml.ScalarNode {
			return
		}
		to, frag, pointer := strings.Cut(ref.Value, "#")
		if was := ref.Value; pointer && frag == "/" || frag != "" && frag[0] != '/' {
			frag = strings.TrimSuffix("/"+strings.TrimPrefix(frag, "/"), "/")
			ref.Value = to + "#" + frag
			x.change(file, field, was+" is "+ref.Value+": the part behind # is a JSON pointer")
			changed = true
		}
		if to == "" {
			return
		}
		rel := path.Join(path.Dir(file), to)
		switch _, given := x.file(rel); {
		case !given:
			x.refuse(fault.Problem{Code: "CONVERT-REF", File: file, Field: field + ".$ref", Rule: "a file among those given",
				Msg: fault.Clip(to) + " is not among the files given", Hint: "give the folder that has both, or correct the reference"})
		case !slices.Contains(x.queue, rel):
			x.queue = append(x.queue, rel)
		}
	})
	return changed
}

// schema takes a schema file along: as it is, but for references that need a correction and YAML that the loader would refuse.
func (x *ragx) schema(rel string) {
	f, _ := x.file(rel)
	tree, err := readYAML(f.Data) // JSON is YAML
	if err != nil {
		x.refuse(fault.Problem{Code: "CONVERT-YAML", File: rel, Rule: "a schema: one mapping", Msg: fault.Clip(err.Error())})
		return
	}
	data := f.Data
	switch changed := x.references(rel, "", tree); {
	case path.Ext(rel) != ".json":
		data = writeYAML(tree)
	case changed:
		data = writeJSON(tree)
	}
	x.keep(rel, "", "is "+x.prefix+rel)
	x.write(rel, x.prefix+rel, data)
}

// domain writes the files next to the toolpacks.
func (x *ragx) domain() {
	var b strings.Builder
	b.WriteString("# Written by slurmgate tool convert --from ragx.\ndomain_id: ragx\nversion: 1.0.0\ntools:\n")
	for _, id := range slices.Sorted(maps.Keys(x.tools)) {
		fmt.Fprintf(&b, "  - {tool_id: %s, %s}\n", id, x.tools[id])
	}
	b.WriteString("\n# What toolpacks without abiVersion leave out. A tool's longer timeoutMs gives its jobs more time.\ndefaults:\n")
	var images []string
	for _, kind := range slices.Sorted(maps.Keys(x.kinds)) {
		if kind != "http" {
			images = append(images, kind+": "+kind)
		}
	}
	fmt.Fprintf(&b, "  images: {%s} # names of images.lock.yaml\n", strings.Join(images, ", "))
	b.WriteString("  resources: {cpus: 1, mem_mb: 512, time_limit_seconds: 60}\n")
	x.write("", toolpack.ManifestFile, []byte(b.String()))
	x.starter(toolpack.PolicyFileName, starterPolicy)
	x.starter(toolpack.LockFile, starterLock)
	for _, image := range images {
		_, name, _ := strings.Cut(image, ": ")
		x.change(toolpack.ManifestFile, "defaults.images", "kind "+name+" needs an image; add it under the name "+name)
	}
}
