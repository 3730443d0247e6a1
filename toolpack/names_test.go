package toolpack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"slurmgate/plan"
)

// A pack may set a tool name, of one part too. It is T in the run's identity, and no part of the pack's hash when it
// is the id with _ for each dot.
//
// proves SRC-01 ABI-03 ABI-07
func TestToolName(t *testing.T) {
	plain := packOf(t)
	same := packOf(t, "version: 1.2.3", "toolName: "+plain.ToolName()+"\nversion: 1.2.3")
	if same.ToolName() != plain.ToolName() || same.Hash() != plain.Hash() {
		t.Error(same.ToolName(), same.Hash(), plain.Hash())
	}
	for _, name := range []string{"fastqc", "seqkit_stats", strings.Repeat("a", 128)} {
		p := packOf(t, "version: 1.2.3", "toolName: "+name+"\nversion: 1.2.3")
		if p.ToolName() != name || p.ID() != plain.ID() || p.Hash() == plain.Hash() {
			t.Error(p.ToolName(), p.ID())
		}
		stored, err := p.Definition()
		if err != nil || !strings.Contains(string(stored), `"toolName":"`+name+`"`) {
			t.Error(string(stored), err)
		}
		is := plan.Identity{ToolName: p.ToolName(), ContractVersion: p.ContractVersion(), PolicyHash: "p", ParamsHash: "q"}
		if is.RunID() == (plan.Identity{ToolName: plain.ToolName(), ContractVersion: "v1", PolicyHash: "p", ParamsHash: "q"}).RunID() {
			t.Error("the name is not part of the run id")
		}
	}
}

// proves ABI-01 ABI-03
func TestToolNamesAreDistinct(t *testing.T) {
	named := func(id, name string) string {
		edit := []string{"id: demo.count", "id: " + id}
		if name != "" {
			edit = append(edit, "version: 1.2.3", "toolName: "+name+"\nversion: 1.2.3")
		}
		return with(t, edit...)
	}
	for _, c := range []struct {
		what, a, b string
		good       bool
	}{
		{"two names", named("demo.a", "first"), named("demo.b", "second"), true},
		{"one name twice", named("demo.a", "same"), named("demo.b", "same"), false},
		{"the name of another id", named("demo.a", "demo_b"), named("demo.b", ""), false},
		{"names exchanged", named("demo.a", "demo_b"), named("demo.b", "demo_a"), true},
		{"one id with two names", named("demo.a", "first"), named("demo.a", "second"), false},
		{"the name of an operation", named("demo.a", "slurm_submit"), named("demo.b", ""), false},
	} {
		_, found := loadText(map[string]string{"a.tool.yaml": c.a, "b.tool.yaml": c.b}, Taken([]string{"slurm.submit"}))
		if (len(found) == 0) != c.good {
			t.Errorf("%s: %v", c.what, found)
		}
	}
}

// A pack's capabilities are in its definition, and in no run's identity. A pack without any has the definition it had
// before.
//
// proves AX-03
func TestCapabilities(t *testing.T) {
	asked := packOf(t, "deterministic:", "capabilities: [text.count, a_b-c.d9]\ndeterministic:")
	if got := asked.Capabilities(); !slices.Equal(got, []string{"a_b-c.d9", "text.count"}) {
		t.Error(got)
	}
	for _, p := range []*Pack{packOf(t), packOf(t, "deterministic:", "capabilities: []\ndeterministic:")} {
		raw, err := p.Definition()
		if err != nil || bytes.Contains(raw, []byte("capabilities")) || len(p.Capabilities()) != 0 || p.Hash() != packOf(t).
			Hash() || p.Hash() == asked.Hash() {
			t.Errorf("%s %v", raw, err)
		}
	}
	params := func(p *Pack) string {
		t.Helper()
		c, err := p.Canonicalize(json.RawMessage(`{"data":"`+artifact+`"}`), testEnv())
		must(t, err)
		raw, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical()
		must(t, err)
		return string(raw)
	}
	if params(asked) != params(packOf(t)) {
		t.Error("capabilities are part of a run's identity")
	}
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprint("c", i))
	}
	for _, text := range []string{"text.count", "[Text]", "[9a]", "[\"\"]", "[a b]", "[a, a]", "[" + strings.Repeat("a", 65) + "]",
		"[" + strings.Join(many, ", ") + "]", "{a: b}", "[1]"} {
		_, found := loadText(map[string]string{"a.tool.yaml": with(t, "deterministic:", "capabilities: "+text+"\ndeterministic:")})
		if len(found) == 0 || !strings.HasPrefix(found[0].Field, "capabilities") {
			t.Errorf("%s: %v", text, found)
		}
	}
	for _, d := range []string{"../domains/genomics", "../domains/examples"} {
		domain, err := openDir(d, AllowMissingImages)
		must(t, err)
		for _, p := range domain.Packs().List() {
			if len(p.Capabilities()) == 0 {
				t.Errorf("%s declares no capability", p.ID())
			}
		}
	}
}
