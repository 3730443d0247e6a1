package toolpack

import (
	"slices"
	"strings"
	"testing"
)

// helixCase is the declaration of a tool as HelixMCP's registration judges it, in our words: an edit of a pack,
// whether HelixMCP accepts it, and our loader's code; "" where the loader accepts it, too.
type helixCase struct {
	name   string
	edit   []string
	theirs bool
	ours   string
}

// helixCases are the rules of HelixMCP's registration, each at its bounds. docs/tools/coming-from.md lists where the two differ.
func helixCases() []helixCase {
	const out = "declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]"
	output := func(old, new string) []string { return []string{out, strings.Replace(out, old, new, 1)} }
	return []helixCase{
		// What loads in both.
		{"the pack", nil, true, ""},
		{"a role of 64 letters", output("role: count", "role: "+strings.Repeat("r", 64)), true, ""},
		{"a role with a blank", output("role: count", "role: the count"), true, ""},
		{"a label of 256 letters", output("label: the count", "label: "+strings.Repeat("l", 256)), true, ""},
		{"contract v12", []string{"contractVersion: v1", "contractVersion: v12"}, true, ""},
		{"hybrid", []string{"planKind: slurm", "planKind: hybrid"}, true, ""},
		// What neither takes.
		{"a name in capitals", []string{"version: 1.2.3", "toolName: NotValid\nversion: 1.2.3"}, false, "PACK-TOOL-NAME"},
		{"a name of 129 letters", []string{"version: 1.2.3", "toolName: " + strings.Repeat("a", 129) + "\nversion: 1.2.3"}, false,
			"PACK-TOOL-NAME"},
		{"another ABI", []string{"abiVersion: v1", "abiVersion: v2"}, false, "PACK-ABI-VERSION"},
		{"a contract without v", []string{"contractVersion: v1", `contractVersion: "1"`}, false, "PACK-CONTRACT-VERSION"},
		{"another kind", []string{"planKind: slurm", "planKind: local"}, false, "PACK-PLAN-KIND"},
		{"no list of outputs", []string{out + "\n", ""}, false, "PACK-REQUIRED"},
		{"the role log", output("role: count", "role: log"), false, "PACK-ROLE-RESERVED"},
		{"a role twice", output("}]", "}, {role: count, type: TEXT, label: b, srcRelpath: out/b}]"), false, "PACK-ROLE-DUPLICATE"},
		{"an unknown type", output("type: JSON", "type: SAM"), false, "PACK-TYPE"},
		{"an empty label", output("label: the count", "label: ''"), false, "PACK-LABEL"},
		{"a label of 257 letters", output("label: the count", "label: "+strings.Repeat("l", 257)), false, "PACK-LABEL"},
		// Stricter here.
		{"no outputs", []string{out, "declaredOutputs: []"}, true, "PACK-OUTPUTS"},
		{"a label that ends with a blank", output("label: the count", "label: 'the count '"), true, "PACK-LABEL"},
		{"the role stdout", output("role: count", "role: stdout"), true, "PACK-ROLE-RESERVED"},
		{"the role LOG", output("role: count", "role: LOG"), true, "PACK-ROLE-RESERVED"},
		{"a role with a control character", output("role: count", `role: "a\tb"`), true, "PACK-ROLE"},
		{"roles that differ in case alone", output("}]", "}, {role: Count, type: TEXT, label: b, srcRelpath: out/b}]"), true,
			"PACK-ROLE-DUPLICATE"},
		{"a role of 129 bytes", output("role: count", "role: "+strings.Repeat("é", 64)+"x"), false, "PACK-ROLE"},
		// Looser here.
		{"a role of 65 letters", output("role: count", "role: "+strings.Repeat("r", 65)), false, ""},
		{"a type of ours", []string{out, out[:len(out)-1] + ", {role: page, type: DIRECTORY, label: b, srcRelpath: out/b}]"}, false, ""},
	}
}

// HelixMCP's rules for the declaration of a tool, and ours: the same but for those that the table names.
//
// proves SRC-01
func TestHelixMCPDeclarations(t *testing.T) {
	for _, c := range helixCases() {
		_, found := loadText(map[string]string{"a.tool.yaml": with(t, c.edit...)})
		codes := []string{}
		for _, p := range found {
			codes = append(codes, p.Code)
		}
		if c.ours == "" && len(codes) > 0 || c.ours != "" && !slices.Contains(codes, c.ours) {
			t.Errorf("%s, which HelixMCP accepts: %v: our loader reports %v, want %q", c.name, c.theirs, codes, c.ours)
		}
	}
}
