package toolpack

import (
	"fmt"
	"regexp"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// A folder of the site is input that no checksum covers. So a pack sees one only if it names it (binds), and its name
// and version are part of the runs' identity.

var bindName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func (d *draft) binds(v yamldoc.Value) {
	const rule = "names of folders the site offers (apptainer.binds): lower-case letters, digits and . _ -"
	d.def.Binds = v.Words("BIND", rule, bindName.MatchString)
	slices.Sort(d.def.Binds)
	if len(d.def.Binds) > 0 && d.def.Execution.Kind == "http" {
		v.Fail("BIND", "only for a tool that runs in a container", "a tool with execution.kind http cannot have binds",
			"remove binds")
	}
}

// CheckBinds reports the packs that ask for a folder the site does not offer; the gateway does not start with them.
func (s *Set) CheckBinds(offered func(name string) bool) error {
	var found []fault.Problem
	for _, p := range s.packs {
		for _, name := range p.def.Binds {
			if !offered(name) {
				found = append(found, fault.Problem{Code: "PACK-BIND", Field: "binds",
					Rule: "names of apptainer.binds in the site file",
					Msg:  p.def.ID + ` asks for "` + name + `", and this site has no bind of that name`,
					Hint: "add it to apptainer.binds with name, version, source and target, or remove the tool from the domain",
					File: p.file, Line: p.bindsAt.line, Column: p.bindsAt.column})
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fault.Invalid(fmt.Sprintf("%d binds that toolpacks need are missing on this site", len(found)), found...).
		WithNext("correct the named lines")
}

// Binds returns the names of the folders that the pack needs.
func (p *Pack) Binds() []string { return p.def.Binds }

// askedBinds returns the folders the pack needs at the versions the site has.
func (p *Pack) askedBinds(version func(string) (string, bool)) ([]plan.Bind, error) {
	var out []plan.Bind
	for _, name := range p.def.Binds {
		v, ok := "", false
		if version != nil {
			v, ok = version(name)
		}
		if !ok {
			return nil, fault.New(fault.Policy, "bind_not_offered", p.def.ID+" needs the bind "+name+", which this site does not have").
				WithNext("ask the administrator to add it to apptainer.binds in the site file")
		}
		out = append(out, plan.Bind{Name: name, Version: v})
	}
	return out, nil
}
