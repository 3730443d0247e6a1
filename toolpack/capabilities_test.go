package toolpack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A pack says what it is for; what it says is in its definition, and in no run's identity. A pack that says nothing has the definition it
// had before.
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
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical()
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range domain.Packs().List() {
			if len(p.Capabilities()) == 0 {
				t.Errorf("%s declares no capability", p.ID())
			}
		}
	}
}
