package access

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/gate"
)

func grantOf(capabilities, projects []string, accounts map[string]string) Grant {
	return Grant{Grant: gate.Grant{Capabilities: capabilities, Projects: projects}, Accounts: accounts}
}

// Nobody grants what they do not have themselves: a capability, a project, or another Slurm account than their own jobs charge.
func TestWithin(t *testing.T) {
	lab := gate.Principal{Name: "token:lab", Rights: gate.RightsOf([]string{"gateway", "read", "admin"}, []string{"proj_a", "proj_b"}),
		Accounts: map[string]string{"proj_a": "research"}}
	boss := gate.Principal{Name: "user:boss", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}
	site := gate.Principal{Name: "user:site", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All}),
		Accounts: map[string]string{gate.All: "common"}}
	apart := gate.Principal{Name: "token:apart", Rights: gate.Rights{{Capabilities: []string{"read", "slurm"}, Projects: []string{"proj_a"}},
		{Capabilities: []string{"read"}, Projects: []string{"proj_b"}}}}
	for name, c := range map[string]struct {
		giver    gate.Principal
		grant    Grant
		code     string
		accounts map[string]string
	}{
		"its own": {lab, grantOf([]string{"read"}, []string{"proj_a"}, nil), "", map[string]string{"proj_a": "research"}},
		"its own, said": {lab, grantOf([]string{"read"}, []string{"proj_a"}, map[string]string{"proj_a": "research"}), "",
			map[string]string{"proj_a": "research"}},
		"another account": {lab, grantOf([]string{"read"}, []string{"proj_a"}, map[string]string{"proj_a": "other"}), "account_denied",
			nil},
		"free account": {lab, grantOf([]string{"read"}, []string{"proj_b"}, map[string]string{"proj_b": "other"}), "",
			map[string]string{"proj_b": "other"}},
		"a capability more": {lab, grantOf([]string{"slurm"}, []string{"proj_a"}, nil), "capability_denied", nil},
		"all capabilities":  {lab, grantOf([]string{gate.All}, []string{"proj_a"}, nil), "capability_denied", nil},
		"a project more":    {lab, grantOf([]string{"read"}, []string{"proj_c"}, nil), "project_not_found", nil},
		"all projects":      {lab, grantOf([]string{"read"}, []string{gate.All}, nil), "project_not_found", nil},
		"everything": {boss, grantOf([]string{gate.All}, []string{gate.All}, map[string]string{"proj_a": "x"}), "",
			map[string]string{"proj_a": "x"}},
		"beside everyone's": {site, grantOf([]string{"read"}, []string{"proj_a"}, map[string]string{"proj_a": "x"}), "account_denied",
			nil},
		"everyone's, not repeated": {site, grantOf([]string{"read"}, []string{"proj_a"}, nil), "", map[string]string{gate.All: "common"}},
		"each where it has it":     {apart, grantOf([]string{"read"}, []string{"proj_a", "proj_b"}, nil), "", map[string]string{}},
		"one where it has none":    {apart, grantOf([]string{"slurm"}, []string{"proj_a", "proj_b"}, nil), "capability_denied", nil},
		"another one for everyone": {site, grantOf([]string{"read"}, []string{gate.All}, map[string]string{gate.All: "x"}), "account_denied",
			nil},
	} {
		got, err := c.grant.Within(c.giver)
		if (c.code == "") != (err == nil) || err != nil && fault.CodeOf(err) != c.code || err == nil && !cmp.Equal(got.Accounts, c.accounts) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
