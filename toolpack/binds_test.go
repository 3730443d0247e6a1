package toolpack

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

// A tool gets a folder of the site only by asking for it by name; name and the site's version are in its params, and nowhere else is a
// trace.
//
// proves ABI-08 ABI-19
func TestBinds(t *testing.T) {
	args := json.RawMessage(`{"data":"` + artifact + `"}`)
	versions := map[string]string{"ref": "2026-11", "soft": "3"}
	env := testEnv()
	env.Bind = func(name string) (string, bool) { v, ok := versions[name]; return v, ok }
	params := func(edit ...string) string {
		t.Helper()
		c, err := packOf(t, edit...).Canonicalize(args, env)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical()
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	plain := params()
	if strings.Contains(plain, "bind") {
		t.Error(plain)
	}
	asks := []string{"container:", "binds: [soft, ref]\ncontainer:"}
	want := strings.Replace(plain, `"tool":{`, `"tool":{"binds":[{"name":"ref","version":"2026-11"},{"name":"soft","version":"3"}],`, 1)
	if d := cmp.Diff(want, params(asks...)); d != "" {
		t.Error(d)
	}
	if back, err := plan.DecodeParams([]byte(want)); err != nil || len(back.Tool.Asked()) != 2 {
		t.Error(err)
	}
	versions["ref"] = "2026-12"
	if params(asks...) == want {
		t.Error("another version, and it is the same run")
	}
	if packOf(t, asks...).Hash() == packOf(t).Hash() {
		t.Error("binds are no part of the pack_hash")
	}
	delete(versions, "ref")
	if _, err := packOf(t, asks...).Canonicalize(args, env); !fault.Is(err, fault.Policy) || fault.CodeOf(err) != "bind_not_offered" {
		t.Error(err)
	}
	for _, text := range []string{"binds: ref", "binds: [Ref]", "binds: [a/b]", "binds: [\"\"]", "binds: [ref, ref]"} {
		if _, found := loadText(map[string]string{"a.tool.yaml": with(t, "container:", text+"\ncontainer:")}); len(found) == 0 ||
			!strings.HasPrefix(found[0].Field, "binds") {
			t.Errorf("%s: %v", text, found)
		}
	}
}

// A pack that asks for what the site does not offer is named with its file and line, and with what to do.
//
// proves ABI-01 ABI-19
func TestCheckBinds(t *testing.T) {
	set, found := loadText(map[string]string{"a.tool.yaml": with(t, "container:", "binds: [ref, soft]\ncontainer:")})
	if found != nil {
		t.Fatal(found)
	}
	if err := set.CheckBinds(func(string) bool { return true }); err != nil {
		t.Error(err)
	}
	err := set.CheckBinds(func(name string) bool { return name == "soft" })
	p := fault.ProblemsOf(err)
	if len(p) != 1 || p[0].Code != "PACK-BIND" || !strings.HasSuffix(p[0].File, "a.tool.yaml") || p[0].Line == 0 ||
		!strings.Contains(p[0].Msg, `"ref"`) || !strings.Contains(p[0].Hint, "apptainer.binds") {
		t.Errorf("%+v", p)
	}
}
