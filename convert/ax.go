package convert

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slurmgate/fault"
	"slurmgate/toolpack"
)

// AX Tool Framework: a domain package of manifest.yaml, policies.yaml and schema files. It loads here nearly
// unchanged; the conversion writes out the implicit behaviour of its gateway, and removes what it ignores.

var (
	axManifest = []string{"domain_id", "version", "tools"}
	axTool     = []string{"tool_id", "kind", "display_name", "description", "capabilities", "transport", "timeout_sec", "input_schema_ref",
		"output_schema_ref", "egress_allowlist"}
	axPolicy = map[string][]string{"concurrency": {"max_inflight", "per_tool_max_inflight"}, "timeouts": {"default_tool_timeout_sec"},
		"network": {"default_egress_policy"}, "logging": {"level", "include_request_body"}}

	axVersion  = regexp.MustCompile(`^[vV]?([0-9]+(\.[0-9]+){1,2})$`)
	notPurpose = regexp.MustCompile(`[^a-z0-9_.-]+`)
)

const axIgnores = "AX's gateway ignores it, too"

type ax struct {
	*conversion
	dir string // of the package
	ids []string
}

func fromAX(c *conversion) {
	x := &ax{conversion: c}
	var manifests []File
	for _, f := range c.in {
		if path.Base(f.Path) == toolpack.ManifestFile {
			manifests = append(manifests, f)
		}
	}
	if len(manifests) == 0 {
		return
	}
	for _, f := range manifests[1:] {
		x.refuse(fault.Problem{Code: "CONVERT-DOMAINS", File: f.Path, Rule: "one domain package",
			Msg:  "there is another domain package in " + path.Dir(manifests[0].Path),
			Hint: "convert each folder by itself; each gateway serves one"})
	}
	x.dir = path.Dir(manifests[0].Path)
	x.manifest(manifests[0])
	x.policy()
	x.rest()
	if len(x.Refused) > 0 {
		return
	}
	x.judge(func(file string) string { return path.Join(x.dir, file) })
}

// read reads a file of the package; nil for an invalid one.
func (x *ax) read(f File) *fields {
	top, err := readYAML(f.Data)
	if err != nil {
		x.refuse(fault.Problem{Code: "CONVERT-YAML", File: f.Path, Rule: "one YAML mapping", Msg: fault.Clip(err.Error())})
		return nil
	}
	return &fields{x.conversion, f.Path, "", top}
}

func (x *ax) manifest(f File) {
	m := x.read(f)
	if m == nil {
		return
	}
	m.only(axManifest, axIgnores)
	if v := m.get("version"); v != nil {
		was := v.Value
		if part := axVersion.FindStringSubmatch(was); part != nil {
			v.Value = part[1]
		}
		if v.Tag, v.Style = "!!str", yaml.DoubleQuotedStyle; v.Value != was {
			m.changed("version", was+" is "+v.Value+": a version has two or three numbers")
		}
	}
	list := m.get("tools")
	if list == nil || list.Kind != yaml.SequenceNode {
		return // the check reports it
	}
	for i, n := range list.Content {
		if n.Kind == yaml.MappingNode {
			x.tool(fields{x.conversion, f.Path, "tools[" + strconv.Itoa(i) + "].", n})
		}
	}
	x.keep(f.Path, "", "all other fields as they are")
	x.write(f.Path, toolpack.ManifestFile, writeYAML(m.m))
}

func (x *ax) tool(t fields) {
	x.ids = append(x.ids, t.text("tool_id"))
	t.only(axTool, axIgnores)
	if tr := t.under("transport"); tr != nil {
		tr.only([]string{"type", "base_url", "endpoint"}, axIgnores)
	}
	if t.get("kind") == nil {
		t.kept("kind", "is absent, which is service_worker where there is a transport")
	}
	for _, name := range []string{"input_schema_ref", "output_schema_ref"} {
		ref := t.get(name)
		_, found := x.file(path.Join(x.dir, t.text(name)))
		switch {
		case ref == nil:
		case ref.ShortTag() == "!!null" || ref.Value == "":
			t.remove(name, "it names no file")
		case !found && filepath.IsLocal(ref.Value):
			t.remove(name, "there is no file "+ref.Value+", so AX's gateway checks nothing")
		}
	}
	if n := t.get("timeout_sec"); n != nil && n.Value == "0" {
		t.remove("timeout_sec", "0 is the policy's default")
	}
	list := t.get("capabilities")
	for i := 0; list != nil && i < len(list.Content); i++ {
		if n := list.Content[i]; n.Kind == yaml.ScalarNode {
			if now := notPurpose.ReplaceAllString(strings.ToLower(strings.TrimSpace(n.Value)), "_"); now != n.Value {
				t.changed("capabilities["+strconv.Itoa(i)+"]", n.Value+" is "+now+": lower-case letters, digits, _ . -")
				n.Value = now
			}
		}
	}
}

// policy converts the policies, or writes those that AX's gateway has without a file.
func (x *ax) policy() {
	rel := path.Join(x.dir, toolpack.PolicyFileName)
	f, ok := x.file(rel)
	if !ok {
		f = File{rel, []byte("concurrency: {max_inflight: 8}\ntimeouts: {default_tool_timeout_sec: 60}\n" +
			"network: {default_egress_policy: deny}\n")}
		x.change(rel, "", "it is missing; AX's defaults are written out")
	}
	p := x.read(f)
	if p == nil {
		return
	}
	p.only([]string{"concurrency", "timeouts", "network", "logging"}, axIgnores)
	for _, name := range []string{"concurrency", "timeouts", "network", "logging"} {
		if o := p.under(name); o != nil {
			o.only(axPolicy[name], axIgnores)
		}
	}
	x.limits(p)
	if n := p.under("network"); n != nil && n.text("default_egress_policy") != "deny" && n.get("default_egress_policy") != nil {
		n.changed("default_egress_policy", "is deny: neither gateway enforces it for workers, and a job has no network")
		n.get("default_egress_policy").Value = "deny"
	}
	if l := p.under("logging"); l != nil {
		if level := l.get("level"); level != nil && slices.Contains([]string{"CRITICAL", "FATAL"}, strings.ToUpper(level.Value)) {
			l.changed("level", level.Value+" is ERROR, the least there is")
			level.Value = "ERROR"
		}
		if l.text("include_request_body") == "true" {
			l.changed("include_request_body", "is false: the log has no arguments; the record of each call has them, without secrets")
			l.get("include_request_body").Value = "false"
		}
	}
	x.keep(rel, "", "all other settings as they are")
	x.write(rel, toolpack.PolicyFileName, writeYAML(p.m))
}

// limits writes out that AX's gateway makes one call at a time of a tool that has no limit.
func (x *ax) limits(p *fields) {
	con := p.under("concurrency")
	if con == nil {
		p.m.Content = append(p.m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "concurrency"},
			&yaml.Node{Kind: yaml.MappingNode})
		con = p.under("concurrency")
	}
	per := con.under("per_tool_max_inflight")
	if per == nil {
		con.remove("per_tool_max_inflight", "it lists no tool")
		con.m.Content = append(con.m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "per_tool_max_inflight"},
			&yaml.Node{Kind: yaml.MappingNode})
		per = con.under("per_tool_max_inflight")
	}
	per.only(x.ids, "the manifest has no such tool")
	for _, id := range x.ids {
		if n := per.get(id); n != nil && (n.Value == "0" || strings.HasPrefix(n.Value, "-")) {
			per.changed(id, n.Value+" is 1, as AX's gateway reads it")
			n.Value = "1"
		} else if n == nil && id != "" {
			per.changed(id, "1 is written out: AX's gateway makes one call at a time of a tool without a limit")
			per.m.Content = append(per.m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: id, Style: yaml.DoubleQuotedStyle},
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: "1"})
		}
	}
}

// rest copies the schema files of the package and notes other files.
func (x *ax) rest() {
	for _, f := range x.in {
		rel, below := f.Path, x.dir == "."
		if x.dir != "." {
			rel, below = strings.CutPrefix(f.Path, x.dir+"/")
		}
		switch {
		case below && (rel == toolpack.ManifestFile || rel == toolpack.PolicyFileName):
		case below && path.Ext(rel) == ".json":
			x.write(f.Path, rel, f.Data)
		default:
			x.keep(f.Path, "", "left out: no part of the domain package")
		}
	}
}
