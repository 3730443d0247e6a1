package toolpack

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

const baseExec = "execution:\n  kind: cli\n  cmd: [count, \"--mode={{ params.mode }}\", -n, \"{{params.n}}\", /work/in/data]\n  stdout: " +
	"out/count.json\n"

// Templates see arguments, paths, resources and the pack's context; each element is one argument. proves LOAD-09 ABI-20
func TestTemplates(t *testing.T) {
	p := packOf(t, baseExec, `env: {set: {OMP_NUM_THREADS: "{{ resources.cpus }}", NOTE: "{{ notes[params.mode] }}", PLAIN: "a {b}"}}
templating: {engine: jinja2, context: {notes: {a: first, "-b": second}, big: 12}}
execution: {kind: cli, cmd: [count, "{{ inputs.data }}", "{{ outputs.count }}", "{{ (resources.memMb * 1024) // 3 }}", "{{ big + params.n }}", "{% if params.flag is defined and params.flag %}--flag{% endif %}",
  "{{ params.free | default('none') }}", "{{ 'x y' ~ params.text }}"]}
`)
	c, err := p.Canonicalize(json.RawMessage(`{"data":"`+artifact+`","n":30,"mode":"-b","flag":true}`), testEnv())
	must(t, err)
	want := plan.Command{Argv: []string{"count", "/work/in/data", "/work/out/count.json", "34133", "42", "--flag", "none", "x yx"},
		Workdir: "/work",
		Env:     map[string]string{"OMP_NUM_THREADS": "1", "NOTE": "second", "PLAIN": "a {b}"}}
	if d := cmp.Diff(want, c.Spec.Execution.Command); d != "" {
		t.Error(d)
	}
	c, err = p.Canonicalize(json.RawMessage(`{"data":"`+artifact+`","free":"$(x)\n{{ params.n }}"}`), testEnv())
	if err != nil || c.Spec.Execution.Command.Argv[5] != "" || c.Spec.Execution.Command.Argv[6] != "$(x)\n{{ params.n }}" {
		t.Errorf("%q %v", c.Spec.Execution.Command.Argv, err)
	}
}

// What a caller's text could do by way of a template, and what cannot be rendered at all.
func TestTemplateArguments(t *testing.T) {
	for _, c := range []struct{ element, args, want string }{
		{"{{ params.free | default('x') }}", `"free":"-x"`, "ARGS-OPTION-LIKE free"},
		{"{{ params.free | default('x') | lower }}", `"free":"-X"`, "ARGS-OPTION-LIKE free"},
		{"{% if params.n > 0 %}{{ params.text }}{% endif %}", `"text":"--rf"`, "ARGS-OPTION-LIKE text"},
		{"{{ 'a' | replace('a', '-') }}{{ params.text }}", `"text":"o"`, "ARGS-OPTION-LIKE text"},
		{" {{- params.text }}", `"text":"-o"`, "ARGS-OPTION-LIKE text"},
		{"{{ params.n }}{{ params.text }}", `"n":-1`, ""},
		{"-{{ params.text }}", `"text":"-o"`, ""},
		{"{{ params.mode }}{{ params.text }}", `"mode":"-b"`, ""},
		{"{{ 1 // (params.n - 3) }}", `"n":3`, "ARGS-TEMPLATE execution.cmd[1]"},
		{"{{ ['a', 'b'][params.n] }}", `"n":2`, "ARGS-TEMPLATE execution.cmd[1]"},
		{"{{ params.n > 5 if params.n > 5 else 'x' }}", `"n":6`, "ARGS-TEMPLATE execution.cmd[1]"},
	} {
		_, err := packOf(t, baseExec, "execution: {kind: cli, cmd: [count, \""+c.element+"\"]}\n").
			Canonicalize(json.RawMessage(`{"data":"`+artifact+`",`+c.args+`}`), testEnv())
		got := ""
		for _, p := range fault.ProblemsOf(err) {
			got += p.Code + " " + p.Field
		}
		if got != c.want || err != nil && !fault.Is(err, fault.Validation) {
			t.Errorf("%s with %s: %q, want %q (%v)", c.element, c.args, got, c.want, err)
		}
	}
}

// A python, node or php pack is a plan whose arguments are a pinned input. proves ABI-06 ABI-11 ABI-19 LOAD-05
func TestRunnerPlans(t *testing.T) {
	for execution, argv := range map[string]string{
		`{kind: python, module: "pkg.mod:main"}`: "python3 -B -s /opt/slurmgate/run.py pkg.mod:main /work/in/args.json " +
			"/work/out/count.json",
		`{kind: python, script: a/b.py, result: out/count.json}`: "python3 -B -s /opt/tool/a/b.py /work/in/args.json /work/out/count.json",
		`{kind: node, module: "lib/x.mjs:run"}`: "node /opt/slurmgate/run.mjs lib/x.mjs:run /work/in/args.json " +
			"/work/out/count.json",
		`{kind: node, script: x.js}`: "node /opt/tool/x.js /work/in/args.json /work/out/count.json",
		`{kind: node, node: x.js}`:   "node /opt/tool/x.js /work/in/args.json /work/out/count.json",
		`{kind: php, php: x.php}`:    "php /opt/tool/x.php /work/in/args.json /work/out/count.json",
		`{kind: php, script: x.php}`: "php /opt/tool/x.php /work/in/args.json /work/out/count.json",
	} {
		p := packOf(t, baseExec, "execution: "+execution+"\n")
		call := func(args string) Canonical {
			c, err := p.Canonicalize(json.RawMessage(args), testEnv())
			if err != nil {
				t.Fatal(execution, err)
			}
			return c
		}
		c := call(`{"data":"` + artifact + `","text":"; rm -rf / {{ x }}","n":5}`)
		if got := strings.Join(c.Spec.Execution.Command.Argv, " "); got != argv {
			t.Errorf("%s\n got %s\nwant %s", execution, got, argv)
		}
		if len(c.Made) != 1 || len(c.Spec.IO.Inputs) != 2 {
			t.Fatalf("the plan has %d made files and %d inputs, want 1 and 2", len(c.Made), len(c.Spec.IO.Inputs))
		}
		m, in := c.Made[0], c.Spec.IO.Inputs[0]
		if id, err := plan.ArtifactID("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", m.SHA256, "JSON", "arguments"); err != nil || m.ID != id ||
			"sha256:"+m.SHA256 != plan.Hash(m.Bytes) {
			t.Errorf("the arguments are %s with SHA-256 %s, error %v; want %s of the same bytes", m.ID, m.SHA256, err, id)
		}
		if d := cmp.Diff(plan.Input{Role: "args", ArtifactID: m.ID, ChecksumSHA256: m.SHA256, DestRelpath: "in/args.json"}, in); d != "" {
			t.Error(d)
		}
		const want = `{"args":{"data":"` + artifact + `","mode":"a","n":5,"text":"; rm -rf / {{ x }}"},"inputs":{"data":{"artifact_id":"` +
			artifact + `","checksum_sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","label":"","path":"/work/in/data","type":"TEXT"}},` +
			`"outputs":{"count":{"label":"the count","path":"/work/out/count.json","type":"JSON"}},"resources":{"cpus":1,"memMb":100,"timeLimitSeconds":60},"result":"/work/out/count.json","tool_id":"demo.count","tool_version":"1.2.3"}`
		if d := cmp.Diff(want, string(m.Bytes)); d != "" {
			t.Error(d)
		}
		same, other := call(`{"n":5.0,"mode":"a","text":"; rm -rf / {{ x }}","data":"`+artifact+`"}`), call(`{"data":"`+artifact+`"}`)
		if same.Made[0].ID != m.ID || other.Made[0].ID == m.ID {
			t.Error("the arguments decide the artifact, and nothing else")
		}
	}
}
