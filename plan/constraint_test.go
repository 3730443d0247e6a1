package plan

import (
	"slices"
	"strings"
	"testing"
)

// proves SRC-01
func TestConstraints(t *testing.T) {
	for text, features := range map[string][]string{
		"intel": {"intel"}, "a&b|c": {"a", "b", "c"}, "graphics*4": {"graphics"}, "[rack1|rack2|rack3]": {"rack1", "rack2", "rack3"},
		"[rack1*2&rack2*4]": {"rack1", "rack2"}, "[(knl&snc4&flat)*4&haswell*1]": {"knl", "snc4", "flat", "haswell"},
		"(a|b)&c": {"a", "b", "c"}, "a&(b|c)*2&[d|e]": {"a", "b", "c", "d", "e"}, "[a|b]&c": {"a", "b", "c"}, "x86-64_v3.1": {"x86-64_v3.1"},
		strings.Repeat("a", 256): {strings.Repeat("a", 256)},
	} {
		if !IsConstraint(text) || !slices.Equal(Features(text), features) {
			t.Errorf("%s: %v, %v", text, IsConstraint(text), Features(text))
		}
	}
}

// Whatever is taken for a constraint is one value of --constraint wherever it is written: it has nothing in it that ends a word or a
// quotation, begins an option or means something to a shell's double quotes, and every feature in it is a name.
func FuzzConstraint(f *testing.F) {
	for _, s := range []string{"a&b", "[a|b]", "(a&b)*2", "a*3", "--time=1", "a b", "[(a)]", "a\n#SBATCH"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !IsConstraint(s) {
			return
		}
		if s[0] == '-' || strings.ContainsAny(s, " \t\n\r\"'`$\\;<>#=,/%\x00") || len(Features(s)) == 0 {
			t.Errorf("%q", s)
		}
		for _, name := range Features(s) {
			if !IsConstraint(name) || strings.ContainsAny(name, "&|()[]*") || name[0] == '-' {
				t.Errorf("%q has the feature %q", s, name)
			}
		}
	})
}

// HelixMCP's lengths: 64 characters of a role, 256 of a label and of a path, whatever they are made of.
//
// proves SRC-01 ABI-10
func TestLengths(t *testing.T) {
	for _, c := range []struct {
		what string
		msg  string
		ok   bool
	}{
		{"role of 64 characters", CheckRole(strings.Repeat("é", 64)), true},
		{"role of 128 bytes", CheckRole(strings.Repeat("a", 128)), true},
		{"role of 65 wide characters", CheckRole(strings.Repeat("é", 65)), false},
		{"role of 129 bytes", CheckRole(strings.Repeat("a", 129)), false},
		{"no role", CheckRole(""), false},
		{"role with a control character", CheckRole("a\x01"), false},
		{"label of 256 characters", CheckLabel(strings.Repeat("漢", 256)), true},
		{"label of 257 characters", CheckLabel(strings.Repeat("a", 257)), false},
		{"label with a run of blanks", CheckLabel("a  b"), false},
		{"no label", CheckLabel(""), false},
		{"path of 256 characters", CheckRelPath("in/"+strings.Repeat("a", 253), "in"), true},
	} {
		if (c.msg == "") != c.ok {
			t.Errorf("%s: %q", c.what, c.msg)
		}
	}
}
