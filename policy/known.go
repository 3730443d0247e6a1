package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Known lists what a policy may name.
type Known struct {
	Tools []string // names of its tools (the id with _ for .): the domain's and its own
	Types []string // artifact types of the domain
	Sites []string // of the site file; nil: not known, so not checked
}

// CheckNames refuses a policy that names a tool or a type the gateway does not have: a misspelt name in a list protects nothing, and
// allows nothing. Every such name is reported, in one Validation fault.
func (p *Policy) CheckNames(known Known) error {
	var found []fault.Problem
	check := func(field, what, name string, of []string) {
		if slices.Contains(of, name) {
			return
		}
		bad := fault.Problem{Code: "POLICY-UNKNOWN-" + strings.ToUpper(what), Field: field, Rule: "a " + what + " that this gateway has",
			Msg: "there is no " + what + ` "` + clip(name) + `"`, Hint: plan.DidYouMean(name, of), File: p.file}
		if bad.Hint == "" {
			bad.Hint = "remove it, or correct its spelling"
		}
		if p.doc != nil {
			bad.Line, bad.Column = p.doc.Place(field)
		}
		found = append(found, bad)
	}
	list := func(field, what string, names *[]string, of []string) {
		for i := 0; names != nil && i < len(*names); i++ {
			check(fmt.Sprintf("%s[%d]", field, i), what, (*names)[i], of)
		}
	}
	list("tool_allowlist", "tool", p.ToolAllowlist, known.Tools)
	if known.Sites != nil {
		list("sites.allowlist", "site", p.Sites.Allowlist, known.Sites)
		list("sites.prefer", "site", &p.Sites.Prefer, known.Sites)
	}
	list("local.tools_allowlist", "tool", p.Local.Tools, known.Tools)
	list("import.types_allowlist", "type", p.Import.Types, known.Types)
	list("consent.tools", "tool", &p.Consent.Tools, known.Tools)
	for _, name := range slices.Sorted(maps.Keys(p.Concurrency.PerTool)) {
		check("concurrency.per_tool."+name, "tool", name, known.Tools)
	}
	if len(found) == 0 {
		return nil
	}
	return &fault.Error{Op: "policy.CheckNames", Kind: fault.Validation, Code: found[0].Code, Problems: found,
		Msg:  "the policy " + p.file + " names what this gateway does not have",
		Next: "correct the named lines; the gateway does not start until then"}
}
