package policy

import (
	"slices"
	"testing"

	"slurmgate/fault"
)

func sitesPolicy(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("policies.yaml", []byte("version: 1\n"+text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A run whose caller names no site goes to the first preferred site that is not away, without a preference to the first allowed one.
//
// proves SITE-07
func TestPickSite(t *testing.T) {
	sites := []string{"a", "b", "c"}
	for _, x := range []struct {
		policy, want string
		away         []string
	}{
		{"", "a", nil},
		{"", "a", []string{"a"}}, // nobody said that another would do
		{"sites: {allowlist: [b, c]}", "b", nil},
		{"sites: {prefer: [c, a]}", "c", nil},
		{"sites: {prefer: [c, a]}", "a", []string{"c"}},
		{"sites: {prefer: [c, a]}", "c", []string{"a", "b", "c"}},
		{"sites: {allowlist: [b, c], prefer: [c]}", "c", []string{"c"}},
	} {
		got, err := sitesPolicy(t, x.policy).PickSite(sites, func(s string) bool { return slices.Contains(x.away, s) })
		if err != nil || got != x.want {
			t.Errorf("%s, away %v: %q %v", x.policy, x.away, got, err)
		}
	}
	p := sitesPolicy(t, "sites: {allowlist: []}")
	if _, err := p.PickSite(sites, func(string) bool { return false }); !fault.Is(err, fault.Policy) {
		t.Error(err)
	}
	if err := p.AllowSite("a"); !fault.Is(err, fault.Policy) || fault.CodeOf(err) != "POLICY-SITE" {
		t.Error(err)
	}
	if err := sitesPolicy(t, "").AllowSite("a"); err != nil {
		t.Error(err)
	}
}

func TestSitesOfAPolicy(t *testing.T) {
	for text, code := range map[string]string{"sites: {allowlist: [A]}": "POLICY-SITE-NAME", "sites: {prefer: ['x y']}": "POLICY-SITE-NAME",
		"sites: {allowlist: [a], prefer: [b]}": "POLICY-SITE-NAME", "sites: [a]": "POLICY-TYPE", "sites: {first: a}": "POLICY-UNKNOWN-FIELD"} {
		_, err := Parse("policies.yaml", []byte("version: 1\n"+text), func(string) (string, bool) { return "", false })
		if fault.CodeOf(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
	p := sitesPolicy(t, "sites: {allowlist: [a, b], prefer: [b]}")
	if err := p.CheckSites([]string{"a", "b"}); err != nil {
		t.Error(err)
	}
	if err := p.CheckSites([]string{"a"}); len(fault.ProblemsOf(err)) != 2 || fault.CodeOf(err) != "POLICY-UNKNOWN-SITE" {
		t.Error(err)
	}
}
