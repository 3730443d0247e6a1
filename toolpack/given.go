package toolpack

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// The artifacts of a call for the inputs of a pack: one artifact, a list of them, or none where the input is
// optional. The destination of an input may hold {index}, the place of an artifact in its list, {label}, the
// artifact's label as a file name, and {label:ROLE}, the label of another member of its group.

// maxList bounds how many artifacts one input takes.
const maxList = 1024

// span is the number of artifacts in a list.
type span struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// input is an input as the toolpack has it.
type input struct {
	Role        string   `json:"role"`
	Param       string   `json:"param"`
	Types       []string `json:"types"`
	DestRelpath string   `json:"destRelpath"`
	DestName    string   `json:"destName"`
	Verify      string   `json:"verify,omitzero"` // full, or nothing
	List        *span    `json:"list,omitzero"`   // nil: one artifact
	Optional    bool     `json:"optional,omitzero"`
	Group       string   `json:"group,omitzero"` // files that belong together: one folder, and lists of one length
}

var (
	placeholder = regexp.MustCompile(`\{(index|label(?::[^{}/]*)?)\}`)
	groupName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	fileLabel   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`)
)

// labelRule describes what fileLabel accepts.
const labelRule = "a label that can be a file name: letters, digits and . _ + -, first a letter or digit, at most 128"

// place returns the destination of an artifact; label returns that of a role.
func (in input) place(index int, label func(role string) string) string {
	return placeholder.ReplaceAllStringFunc(in.DestRelpath, func(s string) string {
		switch name := s[1 : len(s)-1]; {
		case name != "index":
			_, role, _ := strings.Cut(name, ":")
			return label(cmp.Or(role, in.Role))
		default:
			return fmt.Sprintf("%04d", index+1)
		}
	})
}

// labels returns the roles whose labels the destination holds.
func (in input) labels() (roles []string) {
	for _, m := range placeholder.FindAllStringSubmatch(in.DestRelpath, -1) {
		if m[1] != "index" {
			_, role, _ := strings.Cut(m[1], ":")
			roles = append(roles, cmp.Or(role, in.Role))
		}
	}
	return roles
}

// shape reads how many artifacts an input takes, and what belongs to it.
func (in *input) shape(f yamldoc.Object, docker bool) {
	if v := f.Opt("list"); v.Exists() {
		o := v.Object("min", "max")
		in.List = &span{Min: 1, Max: maxList}
		if least := o.Opt("min"); least.Exists() {
			in.List.Min = int(least.Int(0, maxList))
		}
		if most := o.Opt("max"); most.Exists() {
			in.List.Max = int(most.Int(1, maxList))
		}
		if in.List.Min > in.List.Max && in.List.Max > 0 {
			v.Fail("INPUT-LIST", "a min of at most max",
				fmt.Sprintf("min, %d, is more than max, %d", in.List.Min, in.List.Max), "")
		}
		if at := map[bool]string{true: "destName", false: "destRelpath"}[docker]; !f.Opt(at).Exists() {
			in.DestRelpath = "in/" + in.Role + "/{index}-{label}"
		}
	}
	in.Optional = f.Opt("optional").Bool()
	if v := f.Opt("group"); v.Exists() {
		in.Group = v.Match(groupName, "INPUT-GROUP", "a name of letters, digits and . _ -, at most 64")
	}
}

// checkShape checks what an input's destination and argument must be, and what its group has in common.
func (d *draft) checkShape(i int) {
	in, at := d.def.Inputs[i], fmt.Sprintf("inputs[%d].", i)
	dest := at + "destRelpath"
	if d.def.PlanKind == KindDocker {
		dest = at + "destName"
	}
	const rule = "{index} in a list, {label}, or {label:ROLE} of another input of its group"
	used := placeholder.FindAllString(in.DestRelpath, -1)
	switch {
	case in.List != nil && len(used) == 0:
		d.Add("INPUT-LIST", dest, "{index} or {label} in the destination of a list",
			"all artifacts of the list would have one path",
			"write {index}, for example in/"+clip(in.Role)+"/{index}-{label}")
	case in.List == nil && slices.Contains(used, "{index}"):
		d.Add("INPUT-LIST", dest, rule, "the input is no list, so it has no {index}", "")
	}
	for _, role := range in.labels() {
		j := slices.IndexFunc(d.def.Inputs, func(o input) bool { return o.Role == role })
		switch {
		case role == in.Role:
		case j < 0:
			d.Add("INPUT-GROUP", dest, rule, `there is no input "`+clip(role)+`"`, "")
		case in.Group == "" || d.def.Inputs[j].Group != in.Group:
			d.Add("INPUT-GROUP", dest, rule, `"`+clip(role)+`" is not in the group of this input`, "give both the same group")
		case d.def.Inputs[j].Optional && !in.Optional:
			d.Add("INPUT-GROUP", dest, "an input that is always there", `"`+clip(role)+`" may be absent, and this input needs its label`,
				"make this input optional too")
		}
	}
	for j, o := range d.def.Inputs {
		if in.Group == "" || o.Group != in.Group || j >= i {
			continue
		}
		if (o.List == nil) != (in.List == nil) {
			d.Add("INPUT-GROUP", at+"group", "only lists in a group, or none",
				`one of "`+clip(o.Role)+`" and "`+clip(in.Role)+`" is a list, and the other is not`, "")
		}
		if path.Dir(o.DestRelpath) != path.Dir(in.DestRelpath) {
			d.Add("INPUT-GROUP", dest, "one folder for all inputs of a group",
				`"`+clip(o.Role)+`" is in `+clip(path.Dir(o.DestRelpath)), "")
		}
		break
	}
	if in.Group != "" && !slices.ContainsFunc(d.def.Inputs, func(o input) bool { return o.Role != in.Role && o.Group == in.Group }) {
		d.Add("INPUT-GROUP", at+"group", "at least two inputs in a group", `"`+clip(in.Group)+`" has only this one`,
			"give another input the same group, or remove it")
	}
	if in.Verify == verifyFull && !slices.ContainsFunc(in.Types, func(t string) bool { return t != plan.Directory }) {
		d.Add("VERIFY", at+"verify", "an input that is a file", "the input is a directory, whose files have no type", "remove it")
	}
}

// given is one artifact in a call.
type given struct {
	in    *input
	index int // in its list
	field string
	id    string
	info  ArtifactInfo
	dest  string
}

// takes are the artifacts of a call, in the order of the pack.
type takes struct {
	list  []given
	seen  map[string]ArtifactInfo
	roles map[string]bool // the inputs of the call, even an empty list
}

// of returns the artifacts of a role.
func (g takes) of(role string) (list []given) {
	for _, one := range g.list {
		if one.in.Role == role {
			list = append(list, one)
		}
	}
	return list
}

// plan returns the inputs of the plan.
func (g takes) plan() []plan.Input {
	out := []plan.Input{}
	for _, one := range g.list {
		out = append(out, plan.Input{Role: one.in.Role, ArtifactID: one.id, ChecksumSHA256: one.info.SHA256, DestRelpath: one.dest,
			Directory: one.info.Type == plan.Directory})
	}
	return out
}

// inputs turns artifact handles into pinned inputs.
func (p *Pack) inputs(values map[string]any, env Env) (takes, error) {
	g := takes{seen: map[string]ArtifactInfo{}, roles: map[string]bool{}}
	var found []fault.Problem
	var total int64
	for i := range p.def.Inputs {
		in := &p.def.Inputs[i]
		if _, there := values[in.Param]; !there && in.Optional {
			continue
		}
		g.roles[in.Role] = true
		ids, problem := in.handles(values)
		if problem != nil {
			found = append(found, *problem)
			continue
		}
		for index, id := range ids {
			one := given{in: in, index: index, field: in.Param, id: id}
			if in.List != nil {
				one.field = fmt.Sprintf("%s[%d]", in.Param, index)
			}
			if !plan.IsArtifactID(id) {
				found = append(found, fault.Problem{Code: "ARGS-ARTIFACT", Field: one.field, Rule: "an artifact_id: art_ and 26 characters",
					Msg:  `"` + clip(id) + `" is not an artifact_id`,
					Next: []fault.Step{fault.Do("artifact.import")}})
				continue
			}
			a, err := env.Artifact(id)
			switch {
			case fault.Is(err, fault.NotFound):
				found = append(found, fault.Problem{Code: "ARGS-ARTIFACT", Field: one.field, Rule: "an artifact of this project",
					Msg: "this project has no artifact " + id, Next: []fault.Step{fault.Do("artifact.list")}})
				continue
			case err != nil:
				return takes{}, fault.Wrap("", "", "cannot look up "+id, err)
			case !slices.Contains(in.Types, a.Type):
				found = append(found, fault.Problem{Code: "ARGS-ARTIFACT-TYPE", Field: one.field,
					Rule: "an artifact of type " + strings.Join(in.Types, " or "),
					Msg:  id + " has the type " + a.Type + ", which this input does not take",
					Hint: "if its content is right, import it again with that type"})
			}
			if total += a.SizeBytes; a.SizeBytes < 0 || total < 0 {
				total = math.MaxInt64 / 2
			}
			one.info, g.seen[id] = a, a
			g.list = append(g.list, one)
		}
	}
	if most := p.def.Limits.MaxInputBytes; total > most {
		found = append(found, fault.Problem{Code: "ARGS-INPUT-BYTES", Field: "inputs",
			Rule: "limits.maxInputBytes of the toolpack",
			Msg:  fmt.Sprintf("the inputs have %d bytes in total; the tool accepts at most %d bytes", total, most)})
	}
	if len(found) == 0 {
		found = p.settle(&g)
	}
	if len(found) > 0 {
		return takes{}, p.refused(found)
	}
	return g, nil
}

// handles returns the artifact ids in a call for an input.
func (in *input) handles(values map[string]any) ([]string, *fault.Problem) {
	if in.List == nil {
		id, _ := values[in.Param].(string)
		return []string{id}, nil
	}
	list, _ := values[in.Param].([]any)
	ids := make([]string, len(list))
	for i, v := range list {
		ids[i], _ = v.(string)
	}
	if n := len(ids); n < in.List.Min || n > in.List.Max {
		return nil, &fault.Problem{Code: "ARGS-LIST", Field: in.Param, Rule: fmt.Sprintf("%d to %d artifacts", in.List.Min, in.List.Max),
			Msg: fmt.Sprintf("%d artifacts are given", n)}
	}
	return ids, nil
}

// settle sets the destination of each artifact.
func (p *Pack) settle(g *takes) (found []fault.Problem) {
	report := func(code, field, rule, msg, hint string) {
		found = append(found, fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg, Hint: hint})
	}
	for i, in := range p.def.Inputs {
		for _, o := range p.def.Inputs[:i] {
			if in.Group == "" || o.Group != in.Group || in.List == nil {
				continue
			}
			if n, m := len(g.of(in.Role)), len(g.of(o.Role)); n != m && g.roles[in.Role] && g.roles[o.Role] {
				report("ARGS-GROUP", in.Param, "as many artifacts as in "+o.Param+", in the same order",
					fmt.Sprintf("%s has %d artifacts, and %s has %d", in.Param, n, o.Param, m), "")
			}
		}
	}
	if len(found) > 0 {
		return found
	}
	taken := map[string]string{} // destination → whose it is
	if p.def.Execution.runs() {
		taken[argsDest] = "the file with the tool's arguments"
	}
	for i := range g.list {
		one := &g.list[i]
		one.dest = one.in.place(one.index, func(role string) string {
			of := g.of(role)
			j := slices.IndexFunc(of, func(o given) bool { return o.index == one.index })
			switch {
			case j < 0:
				report("ARGS-GROUP", one.field, `together with the input "`+clip(role)+`", whose name its file gets`,
					`no artifact is given for "`+clip(role)+`"`, "give both, or neither")
				return "x"
			case !fileLabel.MatchString(of[j].info.Label):
				report("ARGS-LABEL", of[j].field, labelRule, `the label of `+of[j].id+`, "`+clip(of[j].info.Label)+`", cannot be a file name`,
					"import the file again with a label that can be a file name, such as "+fileName(of[j].info.Label))
				return "x"
			}
			return of[j].info.Label
		})
		if was, twice := taken[one.dest]; twice && len(found) == 0 {
			report("ARGS-DEST", one.field, "one path for each artifact: "+one.in.DestRelpath,
				fmt.Sprintf("%s and %s would both be %s", was, one.id, one.dest), "leave one out, or import one of them again with another label")
		}
		taken[one.dest] = one.id
	}
	return slices.CompactFunc(found, fault.Problem.Equal)
}

// fileName returns a file name that resembles a label.
func fileName(label string) string {
	s := strings.Map(func(c rune) rune {
		if strings.ContainsRune("._+-", c) || c < 0x80 && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return c
		}
		return '_'
	}, label)
	s = strings.TrimLeft(s[:min(len(s), 100)], "._+-")
	return cmp.Or(s, "sample1")
}

// paths returns the paths in the container by role: a text, or a list of them. A role without an artifact is absent.
func (p *Pack) paths(g takes) map[string]any {
	out := map[string]any{}
	for i := range p.def.Inputs {
		if in := &p.def.Inputs[i]; in.List != nil && g.roles[in.Role] {
			out[in.Role] = []any{}
		}
	}
	for _, one := range g.list {
		at := plan.Workdir + "/" + one.dest
		if one.in.List == nil {
			out[one.in.Role] = at
			continue
		}
		list, _ := out[one.in.Role].([]any)
		out[one.in.Role] = append(list, at)
	}
	return out
}

// stdin returns the destination of the input that standard input is read from; nil where that is absent.
func (p *Pack) stdin(g takes) *string {
	if p.def.Execution.Stdin == nil {
		return nil
	}
	for _, one := range g.list {
		if one.in.DestRelpath == *p.def.Execution.Stdin {
			return &one.dest
		}
	}
	return nil
}

// sampled returns inputs of a plan as a call could have them, one for each input of the pack.
func (f definition) sampled() []plan.Input {
	var out []plan.Input
	for _, in := range f.Inputs {
		dest := in.place(0, func(role string) string {
			return fmt.Sprintf("label%d", slices.IndexFunc(f.Inputs, func(o input) bool { return o.Role == role }))
		})
		out = append(out, plan.Input{Role: in.Role, ArtifactID: "art_" + strings.Repeat("0", 26),
			ChecksumSHA256: strings.Repeat("0", 64), DestRelpath: dest, Directory: slices.Equal(in.Types, []string{plan.Directory})})
	}
	return out
}
