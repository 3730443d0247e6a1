package toolpack

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

// The resources by the size of the inputs, and after an attempt that had too little. The arithmetic is exact, and
// rounds up.
func TestGrowth(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		g     growth
		base  int
		bytes int64
		want  int
	}{
		{growth{}, 100, 1 << 50, 100},
		{growth{PerInputMB: 1.5}, 2048, 0, 2048},
		{growth{PerInputMB: 1.5}, 2048, 1000 * mb, 3548},
		{growth{PerInputMB: 1.5}, 2048, 1, 2049},
		{growth{PerInputMB: 0.1}, 0, 30 * mb, 3}, // 0.1 × 30 in binary is more than 3
		{growth{PerInputMB: 1.1}, 0, 10 * mb, 11},
		{growth{PerInputMB: 1.1}, 0, 10*mb + 1, 12},
		{growth{PerInputMB: 2, Max: 5000}, 2048, 1000 * mb, 4048},
		{growth{PerInputMB: 2, Max: 4000}, 2048, 1000 * mb, 4000},
		{growth{PerInputMB: mostPerInputMB}, 1, 1 << 62, 2147483647}, // more than a plan allows, which refuses it
	} {
		if got := c.g.on(c.base, c.bytes); got != c.want {
			t.Errorf("%+v of %d for %d bytes: got %d, want %d", c.g, c.base, c.bytes, got, c.want)
		}
	}
	for _, c := range []struct {
		g         growth
		had, want int
	}{
		{growth{}, 100, 100},
		{growth{RetryFactor: 2}, 100, 200},
		{growth{RetryFactor: 1.5}, 101, 152},
		{growth{RetryFactor: 2, Max: 150}, 100, 150},
		{growth{RetryFactor: 2, Max: 150}, 200, 200}, // a retry gave it more than max already
	} {
		if got := c.g.after(c.had); got != c.want {
			t.Errorf("%+v after %d: got %d, want %d", c.g, c.had, got, c.want)
		}
	}
}

// Resources by the size of the inputs are in the plan and in the templates; those in a call replace them. A call with
// the pack's own resources is the same run.
func TestSizedResources(t *testing.T) {
	p := packOf(t, "memMb: 100, timeLimitSeconds: 60", "memMb: {base: 100, perInputMb: 1048576, max: 1000}, "+
		"timeLimitSeconds: {base: 60, perInputMb: 3, retryFactor: 2, max: 60}", `"--mode={{ params.mode }}"`,
		`"{{ resources.cpus }}", "{{ resources.memMb }}", "{{ resources.timeLimitSeconds }}"`)
	canonical := func(more plan.MoreResources) (plan.Spec, string) {
		env := testEnv()
		env.Resources = more
		c, err := p.Canonicalize(json.RawMessage(`{"data":"`+artifact+`"}`), env)
		must(t, err)
		raw, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical()
		must(t, err)
		return c.Spec, string(raw)
	}
	plain, raw := canonical(plan.MoreResources{})
	if d := cmp.Diff(plan.Resources{CPUs: 1, MemMB: 700, TimeLimitSeconds: 60}, plain.Resources); d != "" { // the input has 600 bytes
		t.Error(d)
	}
	if d := cmp.Diff([]string{"1", "700", "60"}, plain.Execution.Command.Argv[1:4]); d != "" {
		t.Error(d)
	}
	mem, cpus, seconds := 5000, 4, 7200
	more, other := canonical(plan.MoreResources{CPUs: &cpus, MemMB: &mem, TimeLimitSeconds: &seconds})
	if d := cmp.Diff(plan.Resources{CPUs: 4, MemMB: 5000, TimeLimitSeconds: 7200}, more.Resources); d != "" || other == raw {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"4", "5000", "7200"}, more.Execution.Command.Argv[1:4]); d != "" {
		t.Error(d)
	}
	same := 700
	if _, again := canonical(plan.MoreResources{MemMB: &same}); again != raw {
		t.Errorf("asking for what the pack gives is another run:\n%s\n%s", again, raw)
	}
	definition, err := p.Definition()
	must(t, err)
	contract, err := ReadContract(definition)
	if err != nil || contract.AfterTimeLimit(60) != 60 || contract.AfterOutOfMemory(700) != 700 {
		t.Error(contract.AfterTimeLimit(60), contract.AfterOutOfMemory(700), err)
	}
}

// An output is named by the label of an input where it is downloaded; the name is no part of the plan, and a label
// that makes no file name gives none. proves DATA-01
func TestDownloadNames(t *testing.T) {
	p := packOf(t, "srcRelpath: out/count", "downloadName: '{label}.count.json', srcRelpath: out/count")
	params := ""
	for label, want := range map[string]map[string]string{
		"sample1.txt": {"count": "sample1.txt.count.json"}, "S_2+x-3": {"count": "S_2+x-3.count.json"},
		"two words": nil, "../etc": nil, "": nil, ".hidden": nil, "-o": nil, "né": nil, strings.Repeat("a", 128): nil, `a"b`: nil, "a\nb": nil,
	} {
		env := testEnv()
		look := env.Artifact
		env.Artifact = func(id string) (ArtifactInfo, error) {
			a, err := look(id)
			a.Label = label
			return a, err
		}
		c, err := p.Canonicalize(json.RawMessage(`{"data":"`+artifact+`"}`), env)
		must(t, err)
		if d := cmp.Diff(want, c.Names); d != "" {
			t.Errorf("%q: %s", label, d)
		}
		raw, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical()
		if err != nil || params != "" && params != string(raw) {
			t.Errorf("%q is another run: %s %v", label, raw, err)
		}
		params = string(raw)
	}
}

// The resources of a pack's run are described with units and with their growth.
func TestResourcesOfAPack(t *testing.T) {
	const plainText = "resources: {cpus: 1, memMb: 100, timeLimitSeconds: 60}"
	for text, want := range map[string]string{
		plainText: "1 CPU, memory 100 MiB, time 60 s",
		"resources: {cpus: 4, memMb: {base: 2048, perInputMb: 1.5, retryFactor: 2, max: 65536}, timeLimitSeconds: {base: 50, max: 60}}": "4 CPUs, " +
			"memory 2048 MiB and 1.5 MiB for each MiB of inputs (2 times as much in a retry after too little, at most 65536 MiB), " +
			"time 50 s (at most 60 s)",
		"resources: {cpus: 1, memMb: 100, timeLimitSeconds: 60, gpus: 2, gpuType: a100}": "1 CPU, memory 100 MiB, time 60 s, 2 GPUs of type a100",
	} {
		if got := packOf(t, plainText, text).Resources(); got == nil || got.Summary != want {
			t.Errorf("the pack with %s gives a run %+v, want %s", text, got, want)
		}
	}
}

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
		must(t, err)
		raw, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical()
		must(t, err)
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

// A pack that needs a folder that the site does not offer is named with its file and line, and with the next step.
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
		t.Errorf("CheckBinds reported %d problems: %+v; want PACK-BIND of ref in a.tool.yaml, with a hint", len(p), p)
	}
}
