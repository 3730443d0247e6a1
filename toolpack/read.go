package toolpack

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack/jinja"
)

const maxSafe = 1<<53 - 1

// idRule describes what packID accepts.
const idRule = "two or more parts of lower-case letters and digits joined by dots, e.g. samtools.flagstat"

// The forms of the words in a toolpack.
var (
	manifestID      = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$`) // of a tool without a toolpack, too
	packID          = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9]+)+$`)
	semver          = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$`)
	contractVersion = regexp.MustCompile(`^v[0-9]{1,9}$`)
	toolNameForm    = regexp.MustCompile(`^[a-z][a-z0-9_]{0,127}$`)
	imageName       = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)
	packEnvName     = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	paramName       = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// draft is a toolpack file that is being read.
type draft struct {
	*yamldoc.Reader
	*Pack                    // as far as it was read
	rel       string         // path in the domain folder
	defaults  *Defaults      // of the manifest; nil: it has none
	bare      bool           // the file leaves out what the defaults give
	documents map[string]any // inputSchema and outputSchema as they are in the file, where they are usable
	unread    bool           // the fields were not read
}

var topFields = []string{"id", "toolName", "version", "abiVersion", "contractVersion", "planKind", "displayName", "description",
	"capabilities", "deterministic", "timeoutMs", "limits", "inputSchema", "outputSchema", "inputs", "declaredOutputs", "strictOutputs",
	"stderr",
	"container", "resources", "placement", "execution", "caps", "env", "templating", "binds", "outputSchemaOf", "name", "metadata"}

// read reads the fields of the file and records each broken rule that concerns a single field.
func (d *draft) read(data []byte) {
	doc := d.Parse(data)
	if d.unread = !doc.Exists(); d.unread {
		return
	}
	// A file of another ABI version has other rules, so nothing else is reported about it.
	if v := doc.Peek("abiVersion"); v != "" && v != ABIVersion {
		d.Add("ABI-VERSION", "abiVersion", "must be "+ABIVersion, `this gateway cannot read abiVersion "`+clip(v)+`"`,
			"write the toolpack for abiVersion "+ABIVersion)
		d.unread = true
		return
	}
	o := doc.Object(topFields...)
	d.bare = d.defaults != nil && !o.Opt("abiVersion").Exists()
	d.identity(o)
	d.schemas(o)
	d.files(o)
	d.stderr(o.Opt("stderr"))
	d.templating(o.Opt("templating").UnlessNull()) // before the fields that are rendered with it
	d.execution(o.Need("execution"))
	d.place(o)
	d.caps(o.Opt("caps").UnlessNull())
	d.env(o.Opt("env").UnlessNull())
	d.binds(o.Opt("binds"))
	if v := o.Opt("outputSchemaOf"); v.OneOf("OUTPUT-SCHEMA-OF", ofOutputs, ofResult) == ofResult {
		d.def.OutputSchemaOf = ofResult
	}
	if d.bare {
		d.fill(o)
	}
}

func (d *draft) identity(o yamldoc.Object) {
	f := &d.def
	id := o.Need("id")
	f.ID = readID(id)
	if len(f.ID) > 128 {
		id.Fail("ID", "at most 128 characters", "the id is too long", "shorten it")
	}
	if name := o.Opt("toolName"); name.Exists() {
		f.ToolName = name.Match(toolNameForm, "TOOL-NAME", "a lower-case letter, then lower-case letters, digits and _, at most 128 characters")
		if f.ToolName == toolName(f.ID) {
			f.ToolName = "" // what it is without the field
		}
	}
	f.Version = d.readVersion(o.Need("version"))
	if !d.bare {
		f.ABIVersion = o.NeedOr("abiVersion", "write "+ABIVersion+", or give what this toolpack leaves out in defaults of "+ManifestFile).
			OneOf("ABI-VERSION", ABIVersion)
	}
	f.ContractVersion = d.unlessBare(o, "contractVersion").Match(contractVersion, "CONTRACT-VERSION", "v and a number, e.g. v1")
	f.PlanKind = d.unlessBare(o, "planKind").OneOf("PLAN-KIND", KindSlurm, KindDocker, KindHybrid)
	f.Description = prose(o.Opt("description"), 4096)
	f.DisplayName = prose(o.Opt("displayName"), 128)
	f.Capabilities = purposes(o.Opt("capabilities"))
	d.notes(o)
	if f.DisplayName == "" {
		f.DisplayName = f.ID
	}
	f.Deterministic = o.Need("deterministic").Bool()
	f.StrictOutputs = o.Opt("strictOutputs").Bool()
	f.TimeoutMs = o.Need("timeoutMs").Int(1, maxSafe)
	lim := o.Need("limits").Object("maxInputBytes", "maxOutputBytes")
	f.Limits = limits{lim.Need("maxInputBytes").Int(1, maxSafe), lim.Need("maxOutputBytes").Int(1, maxSafe)}
}

// readID reads an id, and hints how one of ragx's is written here.
func readID(v yamldoc.Value) string {
	s, hint := v.Text(), ""
	dotted := strings.ReplaceAll(s, ":", ".")
	switch {
	case s == "" || packID.MatchString(s):
		return v.Match(packID, "ID", idRule)
	case packID.MatchString(dotted):
		hint = "write " + dotted
	case packID.MatchString("x" + s):
		hint = "begin it with a letter"
	}
	v.Fail("ID", idRule, `"`+clip(s)+`" does not have the right form`, hint)
	return ""
}

var capability = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

const maxCapabilities = 32

// purposes reads what a tool is for. It is part of no run's identity.
func purposes(v yamldoc.Value) []string {
	list := v.Words("CAPABILITY", "a lower-case letter, then lower-case letters, digits, _ . -, at most 64 characters, e.g. "+
		"alignment.summary", capability.MatchString)
	if len(list) > maxCapabilities {
		v.Fail("CAPABILITY", fmt.Sprintf("at most %d capabilities", maxCapabilities),
			fmt.Sprintf("%d capabilities are too many", len(list)), "")
	}
	slices.Sort(list)
	return list
}

// prose reads text for people: one or more lines, without characters that could change what a terminal shows.
func prose(v yamldoc.Value, most int) string {
	s := v.Text()
	if len(s) > most {
		v.Fail("TEXT", fmt.Sprintf("at most %d bytes", most), "the text is too long", "shorten it")
	}
	if strings.ContainsFunc(s, func(c rune) bool {
		return c != '\n' && c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c))
	}) {
		v.Fail("TEXT", "plain text", "the text contains control or invisible characters", "remove them")
	}
	return strings.TrimSpace(s)
}

func (d *draft) schemas(o yamldoc.Object) {
	d.documents = map[string]any{}
	for _, field := range []string{"inputSchema", "outputSchema"} {
		v, n := o.Need(field), len(d.Problems())
		doc := v.JSON()
		switch {
		case !v.Exists() || len(d.Problems()) > n:
		case doc == nil:
			v.Fail("SCHEMA", "a JSON Schema, or {$ref: FILE.json}", "the schema is empty", "")
		default:
			d.documents[field] = doc
		}
	}
}

func (d *draft) files(o yamldoc.Object) {
	ins := o.Opt("inputs").List()
	d.def.Inputs = make([]input, len(ins))
	for i, v := range ins {
		f := v.Object("role", "param", "types", "destRelpath", "destName", "verify", "list", "optional", "group")
		in := input{Role: f.Need("role").Text(),
			Param: f.Need("param").Match(paramName, "INPUT-PARAM", "the name of an argument: letters, digits and _"),
			Types: f.Need("types").Words("TYPE", "artifact types, e.g. BAM", plan.IsTypeName)}
		if f.Opt("types").Exists() && in.Types != nil && len(in.Types) == 0 {
			f.Opt("types").Fail("TYPE", "at least one artifact type", "the list is empty", "")
		}
		in.shape(f, d.def.PlanKind == KindDocker)
		if d.def.PlanKind == KindDocker {
			if in.DestRelpath == "" {
				in.DestName = f.Need("destName").Text()
				in.DestRelpath = "in/" + in.DestName
			}
			if at := f.Opt("destRelpath"); at.Exists() {
				at.Fail("DEST", "destName, the file's name in /work/in", "an input of a docker plan cannot have a destRelpath", "remove it")
			}
		} else {
			if in.DestRelpath == "" {
				in.DestRelpath = f.Need("destRelpath").Text()
			}
			in.DestName = f.Opt("destName").Text()
		}
		if v := f.Opt("verify"); v.Exists() {
			in.Verify = v.OneOf("VERIFY", verifyFull)
		}
		d.noTemplate(in.DestRelpath, f.Opt("destRelpath").Path())
		if strings.Contains(in.DestName, "/") {
			f.Opt("destName").Fail("DEST", "a file name in /work/in", "the name contains a /", "")
		}
		d.def.Inputs[i] = in
	}
	outs := d.unlessBare(o, "declaredOutputs").List()
	d.def.Outputs = make([]output, len(outs))
	for i, v := range outs {
		f := v.Object("role", "type", "label", "srcRelpath", "minBytes", "minRows", "checks", "lines", "downloadName")
		src := f.Opt("srcRelpath")
		if d.def.PlanKind != KindDocker {
			src = f.Need("srcRelpath")
		}
		d.def.Outputs[i] = output{Role: f.Need("role").Text(), Type: f.Need("type").Text(), Label: f.Need("label").Text(), SrcRelpath: src.Text()}
		d.rulesOf(f, &d.def.Outputs[i])
		d.def.Outputs[i].DownloadName = f.Opt("downloadName").Text()
		d.noTemplate(d.def.Outputs[i].Label, f.Opt("label").Path())
		d.noTemplate(src.Text(), src.Path())
		if strings.ContainsAny(src.Text(), "*?[") {
			src.Fail("SRC-PATH", "the path of one file, as the program writes it", "it contains *, ? or [, but patterns are not supported",
				"declare each file, or have the program write one archive")
		}
		if role := f.Opt("role"); !src.Exists() && d.def.PlanKind == KindDocker && strings.Contains(role.Text(), "/") {
			role.Fail("ROLE", "a file name in /work/out, where there is no srcRelpath",
				`the role "`+clip(role.Text())+`" contains a /`,
				"give a srcRelpath, or rename the role")
		}
		if !src.Exists() && d.def.PlanKind == KindDocker {
			d.def.Outputs[i].SrcRelpath = "out/" + d.def.Outputs[i].Role // {{ outputs.ROLE }} is this path
		}
	}
}

func (d *draft) place(o yamldoc.Object) {
	const most = 1 << 31
	c, r := o.Opt("container"), o.Opt("resources")
	// A job needs both; an http pack does not run as a job.
	if d.def.Execution.Kind != "http" && !d.bare {
		c, r = o.Need("container"), o.Need("resources")
	}
	d.def.Image = c.Object("image").Need("image").Match(imageName, "IMAGE",
		"a name that images.lock.yaml maps to a digest: no tag, no URL, no path")
	f := r.Object("cpus", "memMb", "timeLimitSeconds", "gpus", "gpuType") // Need reports nothing where r is absent
	d.def.Resources = resources{CPUs: int(f.Need("cpus").Int(-most, most)), GPUType: optText(f.Opt("gpuType"))}
	d.def.Resources.MemMB, d.def.Resources.MemGrows = readAmount(f.Need("memMb"), plan.MaxMemMB)
	d.def.Resources.TimeLimitSeconds, d.def.Resources.TimeGrows = readAmount(f.Need("timeLimitSeconds"), plan.MaxTimeLimitSeconds)
	if v := f.Opt("gpus"); v.Exists() {
		n := int(v.Int(-most, most))
		d.def.Resources.GPUs = &n
	}
	p := o.Opt("placement").Object("partition", "account", "qos", "constraint")
	d.def.Placement = plan.AskedPlacement{Partition: optText(p.Opt("partition")), Account: optText(p.Opt("account")),
		QOS: optText(p.Opt("qos")), Constraint: optText(p.Opt("constraint"))}
}

func optText(v yamldoc.Value) *string {
	if !v.Exists() {
		return nil
	}
	s := v.Text()
	return &s
}

// caps reads what the tool needs. A job has no network, reads /work, writes /work/out and may start processes. A pack that
// needs more is refused here, because no call of it could succeed. Declaring less does not restrict the job.
func (d *draft) caps(v yamldoc.Value) {
	o := v.Object("network", "filesystem", "subprocess")
	fs := o.Opt("filesystem").UnlessNull().Object("read", "write")
	inside := func(s string) bool {
		p := path.Clean(path.Join(plan.Workdir, strings.TrimPrefix(s, plan.Workdir)))
		return s != "" && !strings.ContainsFunc(s, unicode.IsControl) && (p == plan.Workdir || strings.HasPrefix(p, plan.Workdir+"/")) &&
			(!path.IsAbs(s) || path.Clean(s) == plan.Workdir || strings.HasPrefix(path.Clean(s), plan.Workdir+"/"))
	}
	const rule, hint = "paths below /work, or relative to it", "make a caller's file an input and a folder of the site a bind, or put the " +
		"files into the image"
	d.def.Caps = caps{
		Network:    networks(o.Opt("network")),
		Read:       fs.Opt("read").WordsOr("CAPS", rule, hint, inside),
		Write:      fs.Opt("write").WordsOr("CAPS", rule, hint, inside),
		Subprocess: o.Opt("subprocess").Bool(),
	}
	if d.def.Execution.Kind == "http" {
		return // it runs elsewhere
	}
	if n := o.Opt("network"); len(d.def.Caps.Network) > 0 {
		n.Fail("CAPS", "no network", "the tool asks for "+strings.Join(d.def.Caps.Network, ", ")+", but a job has no network",
			"put what the tool would fetch into its image or an input")
	}
	out := plan.Workdir + "/out"
	for i, s := range d.def.Caps.Write {
		p := path.Clean(path.Join(plan.Workdir, strings.TrimPrefix(s, plan.Workdir)))
		if p != out && !strings.HasPrefix(p, out+"/") {
			d.Add("CAPS", fmt.Sprintf("caps.filesystem.write[%d]", i), "out, or a path below it", `a job cannot write to "`+clip(s)+`"`,
				"write to /work/out or /tmp")
		}
	}
}

// networks reads the protocols a tool needs: one, or a list of them.
func networks(v yamldoc.Value) []string {
	protocol := func(s string) bool { return s == "http" || s == "https" }
	if v.IsText() {
		s := strings.ToLower(strings.TrimSpace(v.Text()))
		if v.Text() != "" && !protocol(s) {
			v.Fail("CAPS", "http or https", `"`+clip(s)+`" is not allowed here`, "")
		}
		return []string{s}
	}
	list := v.Words("CAPS", "http or https", func(s string) bool { return protocol(strings.ToLower(strings.TrimSpace(s))) })
	for i, s := range list {
		list[i] = strings.ToLower(strings.TrimSpace(s))
	}
	return slices.Compact(list)
}

func (d *draft) env(v yamldoc.Value) {
	o := v.Object("passthrough", "set")
	const rule = "upper-case letters, digits and _, not starting with a digit or _"
	d.envs = map[string]*jinja.Template{}
	d.def.Env = environment{Passthrough: o.Opt("passthrough").Words("ENV", rule, packEnvName.MatchString), Set: map[string]string{}}
	for _, e := range o.Opt("set").UnlessNull().Entries() {
		if !packEnvName.MatchString(e.Key) {
			e.Fail("ENV", rule, `"`+clip(e.Key)+`" is not a valid name of a variable`, "")
			continue
		}
		if slices.Contains(d.def.Env.Passthrough, e.Key) {
			e.Fail("ENV", "each variable once, in set or in passthrough", `"`+e.Key+`" is also in env.passthrough`,
				"remove it from one of them")
		}
		value := e.Text()
		d.def.Env.Set[e.Key] = value
		d.envs[e.Key] = d.template(value, e.Path())
	}
}

func (d *draft) templating(v yamldoc.Value) {
	o := v.Object("engine", "context", "cacheKey")
	if !v.Exists() {
		return
	}
	d.def.Templating.Engine = "jinja2"
	o.Opt("engine").OneOf("TEMPLATING", "jinja2")
	if key := o.Opt("cacheKey"); key.Exists() && key.Text() == "" { // without effect: a run's identity covers all it depends on
		key.Fail("TEMPLATING", "a text", "the name is empty", "remove it")
	}
	c := o.Opt("context").UnlessNull()
	if !c.Exists() {
		return
	}
	n := len(d.Problems())
	tree, isMap := c.JSON().(map[string]any)
	if !isMap && len(d.Problems()) == n {
		c.Fail("TEMPLATING", "a mapping of JSON values", "the context is not a mapping", "")
	}
	raw, err := yamldoc.Canonical(tree)
	if err != nil && len(d.Problems()) == n {
		c.Fail("TEMPLATING", "a mapping of JSON values", fault.First(err), "")
	}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if slices.Contains(objects, name) || name == "loop" {
			c.Fail("TEMPLATING", "not "+strings.Join(objects, ", ")+" or loop",
				`the name "`+name+`" already has a meaning in templates`, "rename it")
		}
	}
	d.def.Templating.Context = json.RawMessage(raw)
	d.context, _ = plainValue(tree).(map[string]any)
}
