package gate

import (
	"testing"

	"slurmgate/plan"
)

// What is a principal's own is nobody else's: not of a principal with the same name, nor of a project that is named like it.
func TestOwnIsOnesOwn(t *testing.T) {
	read := RightsOf([]string{CapGateway, CapRead}, []string{"proj_x"})
	old := Principal{ID: "prn_1", Name: "token:ci", Former: "token:ci", Rights: read}
	young := Principal{ID: "prn_2", Name: "token:ci", Rights: read}
	before := Principal{Name: "token:ci"}.Own() // where no ledger gives ids
	kept := plan.ProjectID("answers to token:ci")
	for _, c := range []struct {
		what    string
		who     Principal
		project string
		sees    bool
	}{
		{"its own", old, old.Own(), true}, {"what an older ledger keeps under its name", old, kept, true}, {"its own", young, young.Own(), true},
		{"a namesake's", young, old.Own(), false}, {"a namesake's, the other way", old, young.Own(), false},
		{"what an older ledger keeps under a name that it never had", young, kept, false}, {"what a principal without id has", young, before,
			false},
	} {
		if c.who.Can(CapRead, c.project) != c.sees || c.who.Can(CapSlurm, c.project) || c.who.Can(CapImport, c.project) {
			t.Errorf("%s: %t", c.what, !c.sees)
		}
	}
	for _, name := range []string{"answers to prn_1", "answers to " + old.Name, " answers to prn_1", "\u00a0answers to prn_1"} {
		if plan.CheckProject(name) == "" && plan.ProjectOf(name) == old.Own() {
			t.Errorf("the project %q is a principal's own", name)
		}
	}
}
