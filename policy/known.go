package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Known lists the names that a policy may contain.
type Known struct {
	Tools []string // names of its tools (the id with _ for .): the domain's and its own
	Types []string // artifact types of the domain
	// names of the hybrid tools that a service worker can carry out
	Hybrid []string
}

// CheckNames refuses a policy that names a tool or a type the gateway does not have: a misspelt name in a list
// neither protects nor allows anything. It reports all such names in one Validation fault.
func (p *Policy) CheckNames(known Known) error {
	u := unknown{Policy: p}
	u.list("tool_allowlist", "tool", p.ToolAllowlist, known.Tools)
	u.list("local.tools_allowlist", "tool", p.Local.Tools, known.Tools)
	u.list("import.types_allowlist", "type", p.Import.Types, known.Types)
	u.list("consent.tools", "tool", &p.Consent.Tools, known.Tools)
	u.list("workers.hybrid", "hybrid_tool", &p.Workers.Hybrid, known.Hybrid)
	for _, name := range slices.Sorted(maps.Keys(p.Concurrency.PerTool)) {
		u.at("concurrency.per_tool."+name, "tool", name, known.Tools, p.axTools[name])
	}
	return u.fault("the domain")
}

// CheckSites refuses a policy that names a site the site file does not have.
func (p *Policy) CheckSites(names []string) error {
	u := unknown{Policy: p}
	u.list("sites.allowlist", "site", p.Sites.Allowlist, names)
	u.list("sites.prefer", "site", &p.Sites.Prefer, names)
	return u.fault("the site file")
}

// unknown collects the unknown names of a policy.
type unknown struct {
	*Policy
	found []fault.Problem
}

func (u *unknown) check(field, what, name string, of []string) {
	u.at(field, what, name, of, yamldoc.Value{})
}

// at is check for a name whose place is known.
func (u *unknown) at(field, what, name string, of []string, at yamldoc.Value) {
	if slices.Contains(of, name) {
		return
	}
	words := strings.ReplaceAll(what, "_", " ")
	bad := fault.Problem{Code: "POLICY-UNKNOWN-" + strings.ToUpper(what), Field: field, Rule: "a " + words + " that this gateway has",
		Msg: "there is no " + words + ` "` + clip(name) + `"`, Hint: plan.DidYouMean(name, of), File: u.file}
	if bad.Hint == "" {
		bad.Hint = "remove it, or correct its spelling"
	}
	if at.Exists() {
		bad.Field = at.Path()
		bad.Line, bad.Column = at.Place()
	} else if u.doc != nil {
		bad.Line, bad.Column = u.doc.Place(field)
	}
	u.found = append(u.found, bad)
}

func (u *unknown) list(field, what string, names *[]string, of []string) {
	for i := 0; names != nil && i < len(*names); i++ {
		u.check(fmt.Sprintf("%s[%d]", field, i), what, (*names)[i], of)
	}
}

func (u *unknown) fault(in string) error {
	if len(u.found) == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Validation, Code: u.found[0].Code, Problems: u.found,
		Msg:  "the policy " + u.file + " names what " + in + " does not have",
		Next: "correct the named lines; the gateway does not start until then"}
}
