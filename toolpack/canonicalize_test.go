package toolpack

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

const (
	artifact  = "art_183BZJHEYXMKZBB4A0X74BNFSS"
	artifact2 = "art_283BZJHEYXMKZBB4A0X74BNFSS"
)

func testEnv() Env {
	return Env{Project: func() string { return "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY" },
		Image: func(name string) (string, bool) { return "sha256:" + strings.Repeat("ab", 32), name != "unknown" },
		Artifact: func(id string) (ArtifactInfo, error) {
			switch id {
			case artifact:
				return ArtifactInfo{SHA256: strings.Repeat("cd", 32), Type: "TEXT", SizeBytes: 600}, nil
			case artifact2:
				return ArtifactInfo{SHA256: strings.Repeat("ef", 32), Type: "BAM", SizeBytes: 600}, nil
			}
			return ArtifactInfo{}, fault.New(fault.NotFound, "artifact_not_found", "no")
		}}
}

func packOf(t testing.TB, edit ...string) *Pack {
	t.Helper()
	set, found := loadText(map[string]string{"a.tool.yaml": with(t, edit...)})
	if found != nil {
		t.Fatal(found)
	}
	return set.List()[0]
}

// proves ABI-06 ABI-11 ABI-14
func TestCanonicalize(t *testing.T) {
	c, err := packOf(t).Canonicalize(json.RawMessage(`{"data":"`+artifact+`","n":7.0}`), testEnv())
	must(t, err)
	stdout := "out/count.json"
	want := Canonical{
		Spec: plan.Spec{Version: 1, Resources: plan.Resources{TimeLimitSeconds: 60, CPUs: 1, MemMB: 100},
			Execution: plan.Execution{Kind: "container", Container: plan.Container{Engine: "apptainer", Image: "sha256:" + strings.Repeat("ab",
				32), NetworkMode: "none", ReadonlyRootfs: true},
				Command: plan.Command{Argv: []string{"count", "--mode=a", "-n", "7", "/work/in/data"}, Workdir: "/work", Env: map[string]string{},
					Stdout: &stdout}},
			IO: plan.IO{Inputs: []plan.Input{{Role: "data", ArtifactID: artifact, ChecksumSHA256: strings.Repeat("cd", 32), DestRelpath: "in/data"}},
				Outputs: []plan.Output{{Role: "count", SrcRelpath: "out/count.json", Type: "JSON", Label: "the count"}}}},
		Extra:      plan.ToolExtra{Version: "1.2.3", MaxOutputBytes: 2000},
		InputBytes: 600,
	}
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
}

// The kind fault and every problem of arguments that are refused.
func TestArguments(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"nothing", ``, "ARGS-REQUIRED data"},
		{"null", `null`, "ARGS-TYPE "},
		{"list", `[]`, "ARGS-TYPE "},
		{"no JSON", `{`, "JSON-SYNTAX "},
		{"duplicate key", `{"data":"x","data":"y"}`, "JSON-DUPLICATE-KEY data"},
		{"unsafe integer", `{"data":"x","n":9007199254740993}`, "JSON-NUMBER n"},
		{"all at once", `{"mode":"c","n":"x","zzz":1}`, "ARGS-REQUIRED data, ARGS-TYPE n, ARGS-UNKNOWN zzz, ARGS-VALUE mode"},
		{"no artifact", `{"data":"/etc/passwd"}`, "ARGS-ARTIFACT data"},
		{"absent artifact", `{"data":"art_00000000000000000000000000"}`, "ARGS-ARTIFACT data"},
		{"wrong type", `{"data":"` + artifact2 + `"}`, "ARGS-ARTIFACT-TYPE data"},
		{"option-like", `{"data":"` + artifact + `","text":"--delete"}`, "ARGS-OPTION-LIKE text"},
		{"control character", `{"data":"` + artifact + `","text":"a\u0000b"}`, "PLAN-ARGV execution.command.argv[1]"},
		{"fine", `{"data":"` + artifact + `","text":"$(reboot); a b","mode":"-b"}`, ""},
	} {
		p := packOf(t, `"--mode={{ params.mode }}"`, `"{{ params.text }}"`)
		_, err := p.Canonicalize(json.RawMessage(c.args), testEnv())
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, p.Code+" "+p.Field)
		}
		slices.Sort(got)
		if s := strings.Join(got, ", "); s != c.want || err != nil && !fault.Is(err, fault.Validation) {
			t.Errorf("%s: got %q, want %q (%v)", c.name, s, c.want, err)
		}
	}
}

// A value is one element, whatever it contains; an author's enum may hold an option. proves ABI-20
func TestOneElement(t *testing.T) {
	p := packOf(t, `"--mode={{ params.mode }}", -n, "{{params.n}}"`,
		`"{{ params.text }}", "{{ params.mode }}", "a{{params.n}}b{{ params.n }}"`)
	c, err := p.Canonicalize(json.RawMessage(`{"data":"`+artifact+`","text":"a b\n'\"$x {{ params.n }}","mode":"-b","n":-0}`), testEnv())
	must(t, err)
	if d := cmp.Diff([]string{"count", "a b\n'\"$x {{ params.n }}", "-b", "a0b0", "/work/in/data"}, c.Spec.Execution.Command.Argv); d != "" {
		t.Error(d)
	}
}

// A default left out and given is one run; so are two spellings of one number. proves ABI-07 ABI-09
func TestSameRun(t *testing.T) {
	p := packOf(t)
	first := ""
	for _, args := range []string{`{"data":"` + artifact + `"}`, `{"n":3,"data":"` + artifact + `"}`,
		`{"mode":"a","n":3.0,"data":"` + artifact + `"}`, `{"n":0.3e1,"data":"art_\u0031` + artifact[5:] + `"}`} {
		c, err := p.Canonicalize(json.RawMessage(args), testEnv())
		if err != nil {
			t.Fatal(args, err)
		}
		raw, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical()
		must(t, err)
		if first == "" {
			first = string(raw)
		}
		if string(raw) != first {
			t.Errorf("%s gives other params:\n%s\n%s", args, raw, first)
		}
	}
}

func TestLimitsAndPlacement(t *testing.T) {
	args := json.RawMessage(`{"data":"` + artifact + `"}`)
	if _, err := packOf(t, "maxInputBytes: 1000", "maxInputBytes: 599").
		Canonicalize(args, testEnv()); fault.CodeOf(err) != "ARGS-INPUT-BYTES" {
		t.Error(err)
	}
	if _, err := packOf(t, "image: counter", "image: unknown").Canonicalize(args, testEnv()); fault.CodeOf(err) != "image_not_locked" ||
		!strings.Contains(err.Error(), "image add name=unknown") {
		t.Error(err)
	}
	c, err := packOf(t, "container:", "placement: {partition: p1, account: a1, constraint: \"x&y\"}\ncontainer:").Canonicalize(args, testEnv())
	if p := c.Spec.Placement; err != nil || p.Partition != "p1" || p.Account != "a1" || p.QOS != nil || *p.Constraint != "x&y" {
		t.Error(p, err)
	}
	env := testEnv()
	env.Artifact = func(string) (ArtifactInfo, error) { return ArtifactInfo{}, fault.New(fault.Transport, "", "down") }
	if _, err := packOf(t).Canonicalize(args, env); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
}

// What a service worker carries out is no job.
func TestNoPlanOfAServicesPack(t *testing.T) {
	const exec = "execution:\n  kind: cli\n  cmd: [count, \"--mode={{ params.mode }}\", -n, \"{{params.n}}\", /work/in/data]\n  stdout: " +
		"out/count.json\n"
	for name, edit := range map[string][]string{
		"http": {exec, "execution: {kind: http, url: \"http://h/x\"}\n"},
	} {
		if _, err := packOf(t, edit...).Canonicalize(json.RawMessage(`{}`), testEnv()); fault.CodeOf(err) != "not_a_job" ||
			!fault.Is(err, fault.Validation) {
			t.Error(name, err)
		}
	}
}

// Variables come from the policy, never from the gateway's own environment. proves LOAD-08
func TestPassthrough(t *testing.T) {
	t.Setenv("LANG", "xx")
	p := packOf(t, "container:", "env: {passthrough: [LANG], set: {TZ: UTC}}\ncontainer:")
	args, env := json.RawMessage(`{"data":"`+artifact+`"}`), testEnv()
	if _, err := p.Canonicalize(args, env); !fault.Is(err, fault.Policy) || !strings.Contains(err.Error(),
		"needs LANG, and the policy does not set it (policy env: none)") {
		t.Error(err)
	}
	env.Passthrough = map[string]string{"LANG": "C.UTF-8", "TZ": "CET", "OTHER": "x"}
	c, err := p.Canonicalize(args, env)
	must(t, err)
	if d := cmp.Diff(map[string]string{"LANG": "C.UTF-8", "TZ": "UTC"}, c.Spec.Execution.Command.Env); d != "" {
		t.Error(d)
	}
}

// A docker plan has names instead of paths and nothing about Slurm; a hybrid tool is one or the other, as policy
// picks, and the plan records which. proves ABI-06 ABI-13 ABI-15
func TestDockerPlans(t *testing.T) {
	docker := []string{"planKind: slurm", "planKind: docker", "destRelpath: in/data", "destName: some data.txt",
		", srcRelpath: out/count.json", "", "  stdout: out/count.json\n", "  stdout: out/count\n", "/work/in/data]",
		"\"{{ inputs.data }}\", \"{{ outputs.count }}\"]"}
	args := json.RawMessage(`{"data":"` + artifact + `"}`)
	params := func(p *Pack, env Env) (Canonical, string) {
		t.Helper()
		c, err := p.Canonicalize(args, env)
		must(t, err)
		asked := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1")
		raw, err := asked.Canonical()
		must(t, err)
		back, err := plan.DecodeParams(raw)
		if diff := cmp.Diff(asked.Stored(), back); diff != "" { // a submit passes on the one, a restart reads the other
			t.Error(diff)
		}
		for i := range back.Spec.IO.Inputs { // the params of a toolpack's run do not name artifacts
			back.Spec.IO.Inputs[i].ArtifactID = c.Spec.IO.Inputs[i].ArtifactID
		}
		if err != nil || cmp.Diff(c.Spec, back.Spec) != "" {
			t.Errorf("%v %s", err, cmp.Diff(c.Spec, back.Spec))
		}
		return c, string(raw)
	}
	env := testEnv()
	c, raw := params(packOf(t, docker...), env)
	const want = `{"docker":{"execution":{"command":{"argv":["count","--mode=a","-n","3","/work/in/some data.txt","/work/out/count"],"env":{},"stdout":"out/count","workdir":"/work"},` +
		`"container":{"engine":"apptainer","image":"sha256:abababababababababababababababababababababababababababababababab","network_mode":"none","readonly_rootfs":true},"kind":"container"},` +
		`"inputs":[{"checksum_sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","dest_name":"some data.txt","role":"data"}],` +
		`"outputs":[{"label":"the count","role":"count","src_relpath":"out/count","type":"JSON"}],"resources":{"cpus":1,"gpu_type":null,"gpus":null,"mem_mb":100,"time_limit_seconds":60},"script_version":"slurm_script_v1","spec_version":1},` +
		`"project_id":"proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY","tool":{"max_output_bytes":2000,"strict_outputs":false,"version":"1.2.3"}}`
	if d := cmp.Diff(want, raw); d != "" || !c.Docker || c.InputBytes != 600 {
		t.Error(d, c)
	}
	hybrid := packOf(t, "planKind: slurm", "planKind: hybrid")
	for _, local := range []bool{true, false} {
		env := testEnv()
		env.Local = func(spec plan.Spec, bytes int64) bool {
			if spec.Resources.CPUs != 1 || bytes != 600 {
				t.Errorf("Local was called with %d CPUs and %d bytes, want 1 and 600", spec.Resources.CPUs, bytes)
			}
			return local
		}
		c, raw := params(hybrid, env)
		if c.Docker != local || strings.Contains(raw, `"docker"`) != local || strings.Contains(raw, `"slurm"`) == local {
			t.Error(raw)
		}
	}
	if c, raw := params(hybrid, testEnv()); c.Docker || strings.Contains(raw, "docker") {
		t.Error(raw)
	}
	for name, edit := range map[string][]string{"twice": {"inputs: [",
		"inputs: [{role: other, param: text, types: [TEXT], destName: some data.txt}, "}, "blank": {"some data.txt", "\"some  data\""},
		"folder": {"some data.txt", "a/b"}, "up": {"some data.txt", "\"..\""}, "none": {", destName: some data.txt", ""},
		"path": {"destName: some data.txt", "destName: x, destRelpath: in/x"}} {
		if _, found := loadText(map[string]string{"a.tool.yaml": with(t, append(slices.Clone(docker), edit...)...)}); len(found) == 0 ||
			!strings.HasPrefix(found[0].Field, "inputs") {
			t.Errorf("%s: %v", name, found)
		}
	}
	twice := []string{"inputs: [", "inputs: [{role: other, param: data, types: [FASTQ_GZ], destName: some data.txt}, "}
	_, found := loadText(map[string]string{"a.tool.yaml": with(t, append(slices.Clone(docker), twice...)...)})
	if !slices.ContainsFunc(found, func(p fault.Problem) bool { return p.Code == "PACK-DEST-DUPLICATE" && p.Field == "inputs[1].destName" }) {
		t.Errorf("two inputs with one destName: found %v, want PACK-DEST-DUPLICATE at inputs[1].destName", found)
	}
}

func TestCheckOutput(t *testing.T) {
	p := packOf(t, "outputSchema: {type: object}", "outputSchema: {type: object, required: [count], properties: {count: {type: integer}}}")
	if err := p.Contract().CheckOutput(json.RawMessage(`{"count":1}`)); err != nil {
		t.Error(err)
	}
	for text, code := range map[string]string{`{}`: "OUTPUT-REQUIRED", `{"count":"x"}`: "OUTPUT-TYPE", `{`: "OUTPUT-JSON"} {
		err := p.Contract().CheckOutput(json.RawMessage(text))
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Kind != fault.Tool || e.Code != code {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What a run is judged by is read back from the definition that the ledger keeps, and judges the same.
func TestReadContract(t *testing.T) {
	set, found := loadText(map[string]string{
		"a.tool.yaml": with(t, "outputSchema: {type: object}", "outputSchema: {type: object, required: [count], properties: {count: {$ref: "+
			"\"s/all.json#/$defs/n\"}}}"),
		"s/all.json": `{"$defs":{"n":{"type":"integer"}}}`,
	})
	if found != nil {
		t.Fatal(found)
	}
	p := set.List()[0]
	def, err := p.Definition()
	if err != nil || plan.Hash(def) != p.Hash() {
		t.Fatal(err, plan.Hash(def), p.Hash())
	}
	c, err := ReadContract(def)
	if err != nil || string(c.out.raw) != string(p.out.raw) {
		t.Fatal(err)
	}
	if c.Timeout() != time.Minute || p.Contract().Timeout() != time.Minute || milliseconds(maxSafe) <= 0 {
		t.Errorf("timeouts %s, %s of 60000 ms", c.Timeout(), p.Contract().Timeout())
	}
	for text, ok := range map[string]bool{`{"count":1}`: true, `{"count":"x"}`: false, `{}`: false, `{`: false} {
		want, got := p.Contract().CheckOutput(json.RawMessage(text)), c.CheckOutput(json.RawMessage(text))
		if (got == nil) != ok || fault.CodeOf(got) != fault.CodeOf(want) {
			t.Errorf("%s: %v, of the pack itself: %v", text, got, want)
		}
	}
	for _, text := range []string{``, `7`, `{}`, `{"outputSchema":7}`, `{"outputSchema":{"type":"nonsense"}}`,
		`{"outputSchema":{"$ref":"https://example.org/x"}}`} {
		if _, err := ReadContract(json.RawMessage(text)); !fault.Is(err, fault.Validation) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if got, ok := set.ByHash(p.Hash()); !ok || got != p {
		t.Error("not found by its hash")
	}
	if _, ok := set.ByHash("sha256:none"); ok {
		t.Error("found by a hash that no pack has")
	}
}
