package toolpack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// A toolpack without abiVersion is a bare one: it has what ragx's loader requires and leaves the rest to the
// manifest's defaults. Without defaults it is refused. Its function gets the arguments alone, and its outputSchema is
// that of the function's return value.

// Defaults are what bare toolpacks of a domain leave out.
//
//	defaults:
//	  images: {python: tools, node: tools-js}                             of images.lock.yaml, by kind of execution
//	  resources: {cpus: 1, mem_mb: 512, time_limit_seconds: 60}           a toolpack's longer timeoutMs gives a job more time
//	  plan_kind: slurm                                                    (optional)
//	  contract_version: v1                                                (optional)
//	  outputs: [{role: result, type: JSON, label: result, src_relpath: out/result.json}]     (optional)
type Defaults struct {
	Images          map[string]string
	Resources       resources
	PlanKind        string
	ContractVersion string
	Outputs         []output
}

// Whom the outputSchema of a toolpack judges, and what its function gets.
const (
	ofOutputs        = "outputs" // the outputs of the run, by role
	ofResult         = "result"  // the JSON of the result alone
	payloadRequest   = "request"
	payloadArguments = "arguments"
)

var resultOutput = output{Role: "result", Type: resultType, Label: "result", SrcRelpath: "out/result.json"}

func readDefaults(v yamldoc.Value) *Defaults {
	if !v.Exists() {
		return nil
	}
	o := v.Object("images", "resources", "plan_kind", "contract_version", "outputs")
	d := &Defaults{Images: map[string]string{}, PlanKind: KindSlurm, ContractVersion: "v1", Outputs: []output{resultOutput}}
	for _, e := range o.Opt("images").Entries() {
		if runners[e.Key].interpreter == nil && e.Key != "cli" {
			e.Fail("DEFAULTS", "cli, python, node or php", `"`+clip(e.Key)+`" is no kind of execution that has an image`, "")
		}
		d.Images[e.Key] = e.Match(imageName, "IMAGE", "a name that images.lock.yaml maps to a digest: no tag, no URL, no path")
	}
	if v := o.Opt("plan_kind"); v.Exists() {
		d.PlanKind = v.OneOf("PLAN-KIND", KindSlurm, KindDocker, KindHybrid)
	}
	if v := o.Opt("contract_version"); v.Exists() {
		d.ContractVersion = v.Match(contractVersion, "CONTRACT-VERSION", "v and a number, e.g. v1")
	}
	r := o.Opt("resources").Object("cpus", "mem_mb", "time_limit_seconds")
	if o.Opt("resources").Exists() {
		const most = 1 << 31
		d.Resources = resources{CPUs: int(r.Need("cpus").Int(1, most)), MemMB: int(r.Need("mem_mb").Int(1, most)),
			TimeLimitSeconds: int(r.Need("time_limit_seconds").Int(1, most))}
	}
	if list := o.Opt("outputs"); list.Exists() {
		d.Outputs = nil
		for _, v := range list.List() {
			f := v.Object("role", "type", "label", "src_relpath")
			d.Outputs = append(d.Outputs, output{Role: f.Need("role").Text(), Type: f.Need("type").Text(), Label: f.Need("label").Text(),
				SrcRelpath: f.Need("src_relpath").Text()})
		}
	}
	return d
}

// check applies a plan's rules to defaults, so that a toolpack's problems are its own.
func (f *Defaults) check(r *yamldoc.Reader, types []string) {
	if f == nil {
		return
	}
	def := definition{Resources: f.Resources, Outputs: f.Outputs}
	if f.Resources == (resources{}) {
		def.Resources = resources{CPUs: 1, MemMB: 512, TimeLimitSeconds: 60}
	}
	s := def.spec("sha256:"+strings.Repeat("0", 64), plan.Command{Argv: []string{"program"}, Workdir: plan.Workdir})
	e, _ := errors.AsType[*fault.Error](s.Validate(plan.Rules{Types: types, Asked: true}))
	if e == nil {
		return
	}
	for _, p := range e.Problems {
		if field := "defaults." + strings.TrimPrefix(p.Field, "io."); r.Has(field) {
			r.Add(strings.TrimPrefix(p.Code, "PLAN-"), field, p.Rule, p.Msg, p.Hint)
		}
	}
}

// unlessBare reads a field that only a bare toolpack may leave out.
func (d *draft) unlessBare(o yamldoc.Object, name string) yamldoc.Value {
	if d.bare {
		return o.Opt(name)
	}
	return o.Need(name)
}

// notes reads what only bare toolpacks have: name is what displayName is, and metadata has no effect.
func (d *draft) notes(o yamldoc.Object) {
	const rule = "not in a toolpack with abiVersion"
	name, meta := o.Opt("name"), o.Opt("metadata")
	switch {
	case name.Exists() && !d.bare:
		name.Fail("UNKNOWN-FIELD", rule, "there is no such field", "write displayName")
	case d.def.DisplayName == "":
		d.def.DisplayName = prose(name, 128)
	}
	if meta.Exists() && !d.bare {
		meta.Fail("UNKNOWN-FIELD", rule, "there is no such field", "write what programs search by into capabilities, and remove the rest")
	} else {
		meta.UnlessNull().JSON()
	}
}

// fill sets what a bare toolpack leaves out.
func (d *draft) fill(o yamldoc.Object) {
	f, x := d.defaults, &d.def.Execution
	if !o.Opt("contractVersion").Exists() {
		d.def.ContractVersion = f.ContractVersion
	}
	d.def.ABIVersion = ABIVersion
	if !o.Opt("planKind").Exists() {
		d.def.PlanKind = f.PlanKind
	}
	if x.Kind == "http" || x.Kind == "" {
		if !o.Opt("outputSchemaOf").Exists() {
			d.def.OutputSchemaOf = ofResult
		}
		return // it runs elsewhere, and has neither image nor outputs
	}
	if x.runs() && !o.Opt("execution").Has("payload") {
		x.Payload = payloadArguments
	}
	if !o.Opt("declaredOutputs").Exists() {
		d.def.Outputs = append([]output{}, f.Outputs...)
		if !o.Opt("outputSchemaOf").Exists() {
			d.def.OutputSchemaOf = ofResult
		}
		if x.Kind == "cli" && x.Stdout == nil && len(f.Outputs) == 1 {
			x.Stdout = clone(&f.Outputs[0].SrcRelpath)
		}
	}
	if !o.Opt("container").Exists() {
		if d.def.Image = f.Images[x.Kind]; d.def.Image == "" {
			d.Add("REQUIRED", "container", "the image of the program", "neither the toolpack nor the defaults of "+ManifestFile+
				" name an image for "+x.Kind, "add "+x.Kind+" to defaults.images in "+ManifestFile)
		}
	}
	if !o.Opt("resources").Exists() {
		d.def.Resources = f.Resources
		d.limitTime()
	}
}

// limitTime: a job gets the time the tool may take, and at least that of the defaults: a short timeoutMs is meant for a call within a
// process, and a job starts a container, too.
func (d *draft) limitTime() {
	r := &d.def.Resources
	if r.CPUs == 0 {
		d.Add("REQUIRED", "resources", "what a job gets", "neither the toolpack nor the defaults of "+ManifestFile+" say it",
			"add resources to defaults in "+ManifestFile)
		return
	}
	r.TimeLimitSeconds = max(r.TimeLimitSeconds, int(min((d.def.TimeoutMs+999)/1000, math.MaxInt32)))
	d.def.TimeoutMs = max(d.def.TimeoutMs, int64(r.TimeLimitSeconds)*1000)
}

// resultRole returns the role of the output that receives the result: a function's return value, or a program's
// standard output.
func (f definition) resultRole() string {
	at := f.Execution.Result
	if f.Execution.Stdout != nil {
		at = *f.Execution.Stdout
	}
	for _, o := range f.Outputs {
		if o.SrcRelpath == at && o.Type == resultType {
			return o.Role
		}
	}
	return ""
}

// judged returns the role of the output that the output schema checks; "" if it checks the run's output object.
func (f definition) judged() string {
	if f.OutputSchemaOf == ofResult {
		return f.resultRole()
	}
	return ""
}

// checkResult: a schema of the result needs a result.
func (d *draft) checkResult() {
	if d.def.OutputSchemaOf == ofResult && d.def.Execution.Kind != "http" && d.def.Execution.Kind != "" && d.def.resultRole() == "" {
		d.Add("RESULT", "outputSchemaOf", "a JSON output that receives the result", "no JSON output receives the result of the program",
			"declare one, and for kind cli name it in stdout")
	}
}

// runSchema returns the schema of a finished run's output whose result has the schema of.
func runSchema(of json.RawMessage, role string) (json.RawMessage, error) {
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(of))
	if err != nil {
		return nil, err
	}
	visit(tree, "", func(o map[string]any, _ string) {
		if ref, ok := o["$ref"].(string); ok {
			o["$ref"] = "#/$defs/result" + strings.TrimPrefix(ref, "#")
		}
	})
	result := map[string]any{"type": "object", "properties": map[string]any{"value": map[string]any{"$ref": "#/$defs/result"}}}
	return yamldoc.Canonical(map[string]any{"type": "object", "required": []any{role}, "properties": map[string]any{role: result},
		"$defs": map[string]any{"result": tree}})
}

// A version as Python's packaging reads one: a release of three numbers, and suffixes. The envelope has room for the
// three numbers alone.
var looseVersion = regexp.MustCompile(`(?i)^\s*v?([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})` +
	`([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?[0-9]*)?(-[0-9]+|[-_.]?(post|rev|r)[-_.]?[0-9]*)?([-_.]?dev[-_.]?[0-9]*)?` +
	`(\+[a-z0-9]+([-_.][a-z0-9]+)*)?\s*$`)

// release returns the three numbers of a version.
func release(version string) string {
	m := looseVersion.FindStringSubmatch(version)
	if m == nil {
		return version
	}
	number := func(s string) string {
		if s = strings.TrimLeft(s, "0"); s == "" {
			return "0"
		}
		return s
	}
	return fmt.Sprintf("%s.%s.%s", number(m[1]), number(m[2]), number(m[3]))
}

// readVersion: a bare toolpack's version may have a suffix. It stays part of the run's identity.
func (d *draft) readVersion(v yamldoc.Value) string {
	if d.bare && len(v.Text()) <= 128 {
		s, hint := v.Text(), ""
		if v.Exists() && !looseVersion.MatchString(s) {
			if _, rest, epoch := strings.Cut(s, "!"); epoch {
				hint = "write " + clip(rest) + ": a version has no epoch"
			}
			v.Fail("VERSION", "MAJOR.MINOR.PATCH, with a suffix such as rc1 or +local at most", `"`+clip(s)+`" does not have the right form`, hint)
			return ""
		}
		return s
	}
	s := v.Text()
	if v.Exists() && !semver.MatchString(s) {
		hint := ""
		if looseVersion.MatchString(s) {
			hint = "write " + release(s)
		}
		v.Fail("VERSION", "MAJOR.MINOR.PATCH without suffix", `"`+clip(s)+`" does not have the right form`, hint)
		return ""
	}
	return s
}
