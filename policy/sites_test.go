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
		{"", "a", []string{"a"}}, // no other site is preferred
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
		"sites: {allowlist: [a], prefer: [b]}": "POLICY-SITE-NAME", "sites: [a]": "POLICY-TYPE", "sites: {first: a}": "POLICY-UNKNOWN-FIELD",
		"sites: {pick: first}": "POLICY-SITE-PICK", "sites: {pick: }": "POLICY-TYPE", "sites: {pick: [first_that_fits]}": "POLICY-TYPE"} {
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

// Each rule leaves out the sites that do not fit the run, puts sites where it would wait last, and follows policy's
// order among equal ones.
//
// proves SITE-07
func TestPickByRule(t *testing.T) {
	misfit, waits := Candidate{Free: 99, InputBytes: 99}, Candidate{Fits: true, Waits: true, Free: 99, InputBytes: 99}
	free := func(f float64) Candidate { return Candidate{Fits: true, Free: f} }
	data := func(n int64) Candidate { return Candidate{Fits: true, InputBytes: n} }
	for _, x := range []struct {
		rule string
		list []Candidate
		want int
	}{
		{FirstThatFits, []Candidate{free(1), free(9), data(9)}, 0},
		{FirstThatFits, []Candidate{misfit, waits, free(1)}, 2},
		{FirstThatFits, []Candidate{misfit, waits, waits}, 1},
		{FirstThatFits, []Candidate{misfit, misfit}, -1},
		{MostFreeBudget, []Candidate{free(1), free(3), free(2)}, 1},
		{MostFreeBudget, []Candidate{free(2), free(2)}, 0},
		{MostFreeBudget, []Candidate{misfit, waits, free(1)}, 2},
		{WhereTheDataIs, []Candidate{data(1), data(0), data(3)}, 2},
		{WhereTheDataIs, []Candidate{free(0), free(9)}, 0},
		{WhereTheDataIs, []Candidate{misfit, waits, data(1)}, 2},
		{WhereTheDataIs, nil, -1},
	} {
		if got := sitesPolicy(t, "sites: {pick: "+x.rule+"}").Pick(x.list); got != x.want {
			t.Errorf("%s of %+v: %d", x.rule, x.list, got)
		}
	}
	for text, want := range map[string][]string{"": {"a", "b"}, "sites: {prefer: [b, a]}": {"b", "a"}, "sites: {allowlist: [b]}": {"b"}} {
		if got, err := sitesPolicy(t, text).Candidates([]string{"a", "b"}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
}

// A misspelt rule is reported with its line, and a policy without a rule keeps the hash it had before there were
// rules.
func TestPickOfAPolicy(t *testing.T) {
	_, err := Parse("policies.yaml", []byte("version: 1\nsites:\n  prefer: [a]\n  pick: first\n"),
		func(string) (string, bool) { return "", false })
	p := fault.ProblemsOf(err)
	if len(p) != 1 || p[0].Line != 4 || p[0].Field != "sites.pick" || p[0].File != "policies.yaml" ||
		p[0].Rule != "one of first_that_fits, most_free_budget, where_the_data_is" {
		t.Errorf("Parse of an unknown rule reports %v, want one problem of sites.pick in policies.yaml:4 with the rules", p)
	}
	const before = "sha256:50e1e5c4757a2fbde84df3efcbf45568c439066c74d6334d70ae6820f7334b24"
	if p := sitesPolicy(t, "sites: {prefer: [a]}\n"); p.Hash != before || p.Sites.Pick != "" {
		t.Error(p.Hash, p.Sites)
	}
}
