package toolpack

import (
	"strings"
	"testing"

	"slurmgate/plan"
)

// A pack may have a tool name of its own, of one part too. It is T in the run's identity, and no part of the pack's hash when it is the id
// with _ for each dot.
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
