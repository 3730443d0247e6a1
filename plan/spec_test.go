package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/filetype"
)

const (
	digestA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	artA    = "art_183BZJHEYXMKZBB4A0X74BNFSS"
	artB    = "art_283BZJHEYXMKZBB4A0X74BNFSS"
)

// complete is a plan that uses every field.
const complete = `{
 "version": 1,
 "resources": {"time_limit_seconds": 900, "cpus": 2, "mem_mb": 2048, "gpus": 1, "gpu_type": "a100"},
 "placement": {"partition": "short", "account": "lab", "qos": "normal", "constraint": "avx2&ib|big.mem"},
 "execution": {
  "kind": "container",
  "container": {"engine": "apptainer", "image": "samtools@sha256:` + digestA + `", "network_mode": "none", "readonly_rootfs": true},
  "command": {"argv": ["samtools", "flagstat", "-O", "json", "/work/in/input.bam", "a b\tc\nd", ""], "workdir": "/work", "env": {"B": "2", "A": "x y"}, "stdout": "out/flagstat.json"}
 },
 "io": {
  "inputs": [{"role": "index", "artifact_id": "` + artB + `", "checksum_sha256": "` + digestA + `", "dest_relpath": "in/input.bam.bai"},
             {"role": "bam", "artifact_id": "` + artA + `", "checksum_sha256": "` + digestA + `", "dest_relpath": "in/input.bam"}],
  "outputs": [{"role": "report", "src_relpath": "out/flagstat.json", "type": "JSON", "label": "flag stat"}]
 }
}`

func mustDecode(t testing.TB, doc string) Spec {
	t.Helper()
	s, err := DecodeSpec([]byte(doc), Rules{})
	must(t, err)
	return s
}

// edited returns the complete plan with the values at dotted paths replaced; nil deletes.
func edited(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	var doc any
	must(t, json.Unmarshal([]byte(complete), &doc))
	for path, value := range changes {
		parts := strings.Split(path, ".")
		at := doc
		for _, p := range parts[:len(parts)-1] {
			if list, ok := at.([]any); ok {
				at = list[p[0]-'0']
				continue
			}
			at = at.(map[string]any)[p]
		}
		last := parts[len(parts)-1]
		if value == nil {
			delete(at.(map[string]any), last)
			continue
		}
		at.(map[string]any)[last] = value
	}
	b, err := json.Marshal(doc)
	must(t, err)
	return b
}

func TestCompleteSpec(t *testing.T) {
	s := mustDecode(t, complete)
	gpus, kind, qos, constraint, stdout := 1, "a100", "normal", "avx2&ib|big.mem", "out/flagstat.json"
	want := Spec{
		Version:   1,
		Resources: Resources{TimeLimitSeconds: 900, CPUs: 2, MemMB: 2048, GPUs: &gpus, GPUType: &kind},
		Placement: Placement{Partition: "short", Account: "lab", QOS: &qos, Constraint: &constraint},
		Execution: Execution{Kind: "container",
			Container: Container{Engine: "apptainer", Image: "sha256:" + digestA, NetworkMode: "none", ReadonlyRootfs: true},
			Command: Command{Argv: []string{"samtools", "flagstat", "-O", "json", "/work/in/input.bam", "a b\tc\nd", ""}, Workdir: "/work",
				Env: map[string]string{"A": "x y", "B": "2"}, Stdout: &stdout}},
		IO: IO{
			Inputs:  []Input{{"bam", artA, digestA, "in/input.bam", false}, {"index", artB, digestA, "in/input.bam.bai", false}},
			Outputs: []Output{{"report", "out/flagstat.json", "JSON", "flag stat"}},
		},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	if s.ImageDigest() != digestA {
		t.Error(s.ImageDigest())
	}
}

// Absent optionals of version 1 are null, a null stdout is absent, lists and maps are never null, workdir is filled.
func TestFilled(t *testing.T) {
	s, err := DecodeSpec(edited(t, map[string]any{"resources.gpus": nil, "resources.gpu_type": nil, "placement.qos": nil,
		"placement.constraint":      nil,
		"execution.command.workdir": nil, "execution.command.env": nil, "execution.command.stdout": nil, "io.inputs": nil}), Rules{})
	must(t, err)
	b, err := Params{ProjectID: "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", Script: "slurm_script_v1", Spec: s}.Canonical()
	must(t, err)
	for _, want := range []string{`"gpus":null`, `"gpu_type":null`, `"qos":null`, `"constraint":null`, `"env":{}`, `"inputs":[]`,
		`"workdir":"/work"`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	if bytes.Contains(b, []byte("stdout")) {
		t.Errorf("stdout in %s", b)
	}
}

// A pipe, standard input and a directory are in the canonical bytes where they are used, are decoded from them, and
// are absent elsewhere.
func TestLaterFields(t *testing.T) {
	canonical := func(changes map[string]any, docker bool) []byte {
		s, err := DecodeSpec(edited(t, changes), Rules{})
		must(t, err)
		p := Params{ProjectID: "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", Script: "slurm_script_v1", Spec: s, Docker: docker}
		if docker {
			p.Spec.Placement = Placement{}
		}
		b, err := p.Canonical()
		must(t, err)
		back, err := DecodeParams(b)
		must(t, err)
		if d := cmp.Diff(p, back); d != "" {
			t.Error(d)
		}
		return b
	}
	for _, docker := range []bool{false, true} {
		plain := canonical(map[string]any{"execution.command.pipe": []any{}}, docker)
		used := canonical(map[string]any{"execution.command.pipe": []any{[]any{"sort", "-u"}}, "execution.command.stdin": "in/input.bam",
			"io.inputs.0.directory": true}, docker)
		for _, field := range []string{`"pipe":[["sort","-u"]]`, `"stdin":"in/input.bam"`, `"directory":true`} {
			name, _, _ := strings.Cut(field, ":")
			if bytes.Contains(plain, []byte(name)) || !bytes.Contains(used, []byte(field)) {
				t.Errorf("%s\n%s\n%s", field, plain, used)
			}
		}
	}
}

// Every rule of the schema, by its code and field. proves ABI-10, ABI-12, ABI-16
func TestRules(t *testing.T) {
	type edit = map[string]any
	long := func(n int) string { return strings.Repeat("x", n) }
	hex := strings.Repeat("a", 64)
	out := func(role, src, typ, label string) edit {
		return edit{"role": role, "src_relpath": src, "type": typ, "label": label}
	}
	in := func(role, art, sum, dest string) edit {
		return edit{"role": role, "artifact_id": art, "checksum_sha256": sum, "dest_relpath": dest}
	}
	many := func(n int) (list []any) {
		for i := range n {
			list = append(list, in("r", artA, hex, fmt.Sprintf("in/%d", i)))
		}
		return list
	}
	manyOut := func(n int) (list []any) {
		for i := range n {
			list = append(list, out(fmt.Sprint("r", i), fmt.Sprintf("out/%d", i), "TSV", "l"))
		}
		return list
	}
	env := func(n int) edit {
		m := edit{}
		for i := range n {
			m[fmt.Sprint("V", i)] = "x"
		}
		return m
	}
	good := out("report", "out/flagstat.json", "JSON", "l")
	type row struct {
		name  string
		edit  edit
		code  string
		field string
	}
	rows := []row{
		{"version 2", edit{"version": 2}, "PLAN-VERSION", "version"},
		{"version 0", edit{"version": nil}, "PLAN-VERSION", "version"},
		{"no time", edit{"resources.time_limit_seconds": 0}, "PLAN-TIME-LIMIT", "resources.time_limit_seconds"},
		{"negative time", edit{"resources.time_limit_seconds": -1}, "PLAN-TIME-LIMIT", "resources.time_limit_seconds"},
		{"eight days", edit{"resources.time_limit_seconds": 604801}, "PLAN-TIME-LIMIT", "resources.time_limit_seconds"},
		{"no cpus", edit{"resources.cpus": 0}, "PLAN-CPUS", "resources.cpus"},
		{"many cpus", edit{"resources.cpus": 257}, "PLAN-CPUS", "resources.cpus"},
		{"no memory means all of it to Slurm", edit{"resources.mem_mb": 0}, "PLAN-MEM", "resources.mem_mb"},
		{"much memory", edit{"resources.mem_mb": 2097153}, "PLAN-MEM", "resources.mem_mb"},
		{"no gpus", edit{"resources.gpus": 0}, "PLAN-GPUS", "resources.gpus"},
		{"many gpus", edit{"resources.gpus": 17}, "PLAN-GPUS", "resources.gpus"},
		{"gpu type alone", edit{"resources.gpus": nil}, "PLAN-GPU-TYPE", "resources.gpu_type"},
		{"long gpu type", edit{"resources.gpu_type": long(65)}, "PLAN-GPU-TYPE", "resources.gpu_type"},
		{"gpu type with count", edit{"resources.gpu_type": "a100:8"}, "PLAN-GPU-TYPE", "resources.gpu_type"},
		{"kind", edit{"execution.kind": "shell"}, "PLAN-KIND", "execution.kind"},
		{"engine", edit{"execution.container.engine": "docker"}, "PLAN-ENGINE", "execution.container.engine"},
		{"an empty program in a pipe", edit{"execution.command.pipe": []any{[]any{}}}, "PLAN-ARGV", "execution.command.pipe[0]"},
		{"a pipe into an option", edit{"execution.command.pipe": []any{[]any{"sort"}, []any{"-x"}}}, "PLAN-ARGV", "execution.command.pipe[1][0]"},
		{"a control character in a pipe", edit{"execution.command.pipe": []any{[]any{"sort", "\x01"}}}, "PLAN-ARGV",
			"execution.command.pipe[0][1]"},
		{"a long pipe", edit{"execution.command.pipe": slices.Repeat([]any{[]any{"sort"}}, 16)}, "PLAN-PIPE", "execution.command.pipe"},
		{"stdin is no input", edit{"execution.command.stdin": "in/other"}, "PLAN-STDIN", "execution.command.stdin"},
		{"stdin is a folder", edit{"execution.command.stdin": "in/input.bam", "io.inputs.1.directory": true}, "PLAN-STDIN",
			"execution.command.stdin"},
		{"stdout is a folder", edit{"io.outputs.0.type": "DIRECTORY"}, "PLAN-STDOUT", "execution.command.stdout"},
		{"network", edit{"execution.container.network_mode": "host"}, "PLAN-NETWORK", "execution.container.network_mode"},
		{"writable root", edit{"execution.container.readonly_rootfs": false}, "PLAN-ROOTFS", "execution.container.readonly_rootfs"},
		{"argv empty", edit{"execution.command.argv": []any{}}, "PLAN-ARGV", "execution.command.argv"},
		{"argv many", edit{"execution.command.argv": strings.Split(long(1025), "")}, "PLAN-ARGV", "execution.command.argv"},
		{"argv bytes", edit{"execution.command.argv": []any{"x", long(128 << 10)}}, "PLAN-ARGV", "execution.command.argv"},
		{"argv nul", edit{"execution.command.argv": []any{"x", "a\x00b"}}, "PLAN-ARGV", "execution.command.argv[1]"},
		{"argv escape", edit{"execution.command.argv": []any{"x", "a\x1bb"}}, "PLAN-ARGV", "execution.command.argv[1]"},
		{"program empty", edit{"execution.command.argv": []any{""}}, "PLAN-ARGV", "execution.command.argv[0]"},
		{"program an option", edit{"execution.command.argv": []any{"--bind"}}, "PLAN-ARGV", "execution.command.argv[0]"},
		{"program a URL", edit{"execution.command.argv": []any{"docker://x"}}, "PLAN-ARGV", "execution.command.argv[0]"},
		{"workdir", edit{"execution.command.workdir": "/tmp"}, "PLAN-WORKDIR", "execution.command.workdir"},
		{"env many", edit{"execution.command.env": env(129)}, "PLAN-ENV", "execution.command.env"},
		{"env name", edit{"execution.command.env": edit{"A=B": "x"}}, "PLAN-ENV", "execution.command.env.A=B"},
		{"env digit", edit{"execution.command.env": edit{"1A": "x"}}, "PLAN-ENV", "execution.command.env.1A"},
		{"env value", edit{"execution.command.env": edit{"A": long(16<<10 + 1)}}, "PLAN-ENV", "execution.command.env.A"},
		{"env nul", edit{"execution.command.env": edit{"A": "\x00"}}, "PLAN-ENV", "execution.command.env.A"},
		{"stdout elsewhere", edit{"execution.command.stdout": "out/other"}, "PLAN-STDOUT", "execution.command.stdout"},
		{"inputs many", edit{"io.inputs": many(1025)}, "PLAN-INPUTS", "io.inputs"},
		{"input artifact", edit{"io.inputs": []any{in("r", "art_x", hex, "in/x")}}, "PLAN-ARTIFACT", "io.inputs[0].artifact_id"},
		{"input checksum", edit{"io.inputs": []any{in("r", artA, strings.ToUpper(hex), "in/x")}}, "PLAN-CHECKSUM",
			"io.inputs[0].checksum_sha256"},
		{"input twice", edit{"io.inputs": []any{in("a", artA, hex, "in/x"), in("b", artB, hex, "in/x")}}, "PLAN-DEST-DUPLICATE",
			"io.inputs[1].dest_relpath"},
		{"file as folder", edit{"io.inputs": []any{in("a", artA, hex, "in/x"), in("b", artB, hex, "in/x/y/z")}}, "PLAN-DEST-DUPLICATE",
			"io.inputs[1].dest_relpath"},
		{"folder as file", edit{"io.inputs": []any{in("a", artA, hex, "in/x/y"), in("b", artB, hex, "in/x")}}, "PLAN-DEST-DUPLICATE",
			"io.inputs[0].dest_relpath"},
		{"outputs none", edit{"io.outputs": []any{}, "execution.command.stdout": nil}, "PLAN-OUTPUTS", "io.outputs"},
		{"outputs many", edit{"io.outputs": manyOut(1025), "execution.command.stdout": nil}, "PLAN-OUTPUTS", "io.outputs"},
		{"output role twice", edit{"io.outputs": []any{good, out("report", "out/x", "TSV", "l")}}, "PLAN-ROLE-DUPLICATE", "io.outputs[1].role"},
		{"output roles that differ only in case", edit{"io.outputs": []any{good, out("Report", "out/x", "TSV", "l")}}, "PLAN-ROLE-DUPLICATE",
			"io.outputs[1].role"},
		{"output roles that differ only in case, long s", edit{"io.outputs": []any{out("stats", "out/flagstat.json", "TSV", "l"),
			out("\u017ftats", "out/x", "TSV", "l")}}, "PLAN-ROLE-DUPLICATE", "io.outputs[1].role"},
		{"reserved in another case", edit{"io.outputs": []any{out("Slurm_Script", "out/flagstat.json", "TSV", "l")}}, "PLAN-ROLE-RESERVED",
			"io.outputs[0].role"},
		{"output path twice", edit{"io.outputs": []any{good, out("z", "out/flagstat.json", "TSV", "l")}}, "PLAN-SRC-DUPLICATE",
			"io.outputs[1].src_relpath"},
		{"output below a file", edit{"io.outputs": []any{good, out("z", "out/flagstat.json/x", "TSV", "l")}}, "PLAN-SRC-DUPLICATE",
			"io.outputs[1].src_relpath"},
		{"output type", edit{"io.outputs": []any{out("report", "out/flagstat.json", "EXE", "l")}}, "PLAN-TYPE", "io.outputs[0].type"},
		{"output in", edit{"io.outputs": []any{out("report", "in/x", "TSV", "l")}, "execution.command.stdout": nil}, "PLAN-SRC-PATH",
			"io.outputs[0].src_relpath"},
	}
	for _, image := range []string{"", "samtools:1.19", "samtools", "docker://samtools", "docker://x@sha256:" + hex,
		"library/x@sha256:" + hex, "instance://x", "/images/x.sif", "x.sif", "sha256:" + hex[1:],
		"sha256:" + strings.ToUpper(hex), "sha512:" + hex, "Sam@sha256:" + hex, "sha256:" + hex + "\n", " sha256:" + hex, "x@y@sha256:" + hex} {
		rows = append(rows, row{fmt.Sprintf("image %q", image), edit{"execution.container.image": image}, "PLAN-IMAGE",
			"execution.container.image"})
	}
	for _, name := range []string{"APPTAINERENV_X", "SINGULARITY_BIND", "SLURM_JOB_ID", "SBATCH_TIMELIMIT", "LD_PRELOAD", "HOME", "UID",
		"PROMPT_COMMAND"} {
		rows = append(rows, row{"env " + name, edit{"execution.command.env": edit{name: "x"}}, "PLAN-ENV", "execution.command.env." + name})
	}
	for _, word := range []string{"", " ", "a ", " a", "a  b", "a\tb", "a\nb", "a\u00a0b", "a\u200bb", "\ufeffa", "a\u2028b", "a\u202eb",
		"a\x00", long(257)} {
		rows = append(rows,
			row{fmt.Sprintf("input role %.9q", word), edit{"io.inputs": []any{in(word, artA, hex, "in/x")}}, "PLAN-ROLE", "io.inputs[0].role"},
			row{fmt.Sprintf("output role %.9q", word), edit{"io.outputs": []any{out(word, "out/flagstat.json", "TSV", "l")}}, "PLAN-ROLE",
				"io.outputs[0].role"},
			row{fmt.Sprintf("label %.9q", word), edit{"io.outputs": []any{out("report", "out/flagstat.json", "TSV", word)}}, "PLAN-LABEL",
				"io.outputs[0].label"})
	}
	for _, role := range append(ReservedRoles(), "LOG", "Stdout", "Rejected:x") {
		rows = append(rows, row{"reserved " + role, edit{"io.outputs": []any{out(role, "out/flagstat.json", "TSV", "l")}}, "PLAN-ROLE-RESERVED",
			"io.outputs[0].role"})
	}
	for _, name := range []string{"", "-p", "--time=99", "a b", "a\nb", "a\n", " a", "a,b", "a=b", "a/b", "a;b", "$(x)", "`x`", "a'b", `a"b`,
		"a\x00b", "%x", "é", long(65)} {
		for code, field := range map[string]string{"PLAN-PARTITION": "placement.partition", "PLAN-ACCOUNT": "placement.account",
			"PLAN-QOS": "placement.qos"} {
			rows = append(rows, row{fmt.Sprintf("%s %.9q", field, name), edit{field: name}, code, field})
		}
	}
	for _, c := range []string{"", "-C", "a b", "a&", "|a", "a&&b", "a\n", "a,b", "--time=1", long(257), "[a", "a]", "(a", "a)", "[]", "()",
		"[a]b", "a(b)", "[[a]]", "((a))", "([a])", "a*", "a*0", "a*x", "*2", "a**2", "a*2*3", "[a]*2", "[-C]", "(--time=1)", "[a b]", "a;b",
		"$(a)", "`a`", "a&-b", "[a&]", "a*123456"} {
		rows = append(rows, row{fmt.Sprintf("constraint %.9q", c), edit{"placement.constraint": c}, "PLAN-CONSTRAINT", "placement.constraint"})
		rows = append(rows, row{fmt.Sprintf("site %.9q", c), edit{"placement.site": c}, "PLAN-SITE", "placement.site"})
	}
	for _, p := range badPaths("in") {
		rows = append(rows, row{fmt.Sprintf("dest %.20q", p), edit{"io.inputs": []any{in("r", artA, hex, p)}}, "PLAN-DEST-PATH",
			"io.inputs[0].dest_relpath"})
	}
	for _, p := range badPaths("out") {
		rows = append(rows, row{fmt.Sprintf("src %.20q", p), edit{"io.outputs": []any{out("report", p, "TSV", "l")},
			"execution.command.stdout": nil}, "PLAN-SRC-PATH", "io.outputs[0].src_relpath"})
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodeSpec(edited(t, c.edit), Rules{})
			if !fault.Is(err, fault.Validation) {
				t.Fatalf("got %v", err)
			}
			for _, p := range fault.ProblemsOf(err) {
				if p.Code == c.code && p.Field == c.field && p.Rule != "" && p.Msg != "" {
					return
				}
			}
			t.Errorf("no %s at %s in %+v", c.code, c.field, fault.ProblemsOf(err))
		})
	}
}

// badPaths returns paths that are invalid below any folder dir.
func badPaths(dir string) []string {
	bad := []string{"", dir, dir + "/", "/" + dir + "/x", "//" + dir + "/x", "/etc/passwd", dir + "/../x", dir + "/..", dir + "/x/..",
		"../" + dir + "/x", "..", dir + "//x", dir + "/./x", "./" + dir + "/x",
		dir + "/x/", dir + `\x`, dir + `/x\y`, dir + "/a\x00b", dir + "/a\nb", dir + "/a\rb", dir + "/a\x7fb", dir + "/a\u0085b",
		dir + "/a\u00a0b", dir + "/a\u3000b", dir + "/a\u200bb", dir + "/a\u2060b", dir + "/\ufeffa",
		dir + "/a\u202eb", dir + "/a\u2028b", dir + "/ a", dir + "/a ", dir + "/a /b", dir + "/a/ b", dir + "/a  b", " " + dir + "/a",
		dir + "/a\t", dir + "/" + strings.Repeat("x", 256),
		dir + "/" + strings.Repeat("x/", 520) + "x", "x/" + dir + "/y", dir + "x/y", strings.ToUpper(dir) + "/y", "~/" + dir, "C:/" + dir}
	return bad
}

func TestRelPathAccepts(t *testing.T) {
	for _, p := range []string{"in/x", "in/a b/c.d", "in/...", "in/..x", "in/x..", "in/-x", "in/é", "in/" + strings.Repeat("x", 255),
		"in/in/in", "in/a:b,c", "in/$x'\""} {
		if msg := CheckRelPath(p, "in"); msg != "" {
			t.Errorf("%q: %s", p, msg)
		}
	}
	if CheckRelPath("in/a\xffb", "in") == "" || CheckWord("a\xffb") == "" {
		t.Error("invalid UTF-8 passed")
	}
}

// All broken rules of a plan are reported together.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := DecodeSpec([]byte(`{}`), Rules{})
	got := map[string]bool{}
	for _, p := range fault.ProblemsOf(err) {
		got[p.Code] = true
	}
	for _, code := range []string{"PLAN-VERSION", "PLAN-TIME-LIMIT", "PLAN-CPUS", "PLAN-MEM", "PLAN-PARTITION", "PLAN-ACCOUNT", "PLAN-KIND",
		"PLAN-ENGINE", "PLAN-IMAGE", "PLAN-NETWORK", "PLAN-ROOTFS", "PLAN-ARGV", "PLAN-OUTPUTS"} {
		if !got[code] {
			t.Errorf("no %s in %v", code, err)
		}
	}
}

func TestDomainTypes(t *testing.T) {
	doc := edited(t, map[string]any{"io.outputs": []any{map[string]any{"role": "r", "src_relpath": "out/x", "type": "PAF", "label": "l"}},
		"execution.command.stdout": nil})
	if _, err := DecodeSpec(doc, Rules{}); fault.CodeOf(err) != "PLAN-TYPE" {
		t.Error(err)
	}
	if _, err := DecodeSpec(doc, Rules{Types: append(filetype.Names(), "PAF")}); err != nil {
		t.Error(err)
	}
}

func paramsOf(s Spec) Params {
	return Params{ProjectID: "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", Script: "slurm_script_v1", Spec: s, Tool: &ToolExtra{Version: "1.0.0",
		MaxOutputBytes: 1 << 20, StrictOutputs: true}}
}

func canonicalOf(t testing.TB, p Params) string {
	t.Helper()
	b, err := p.Canonical()
	must(t, err)
	return string(b)
}

// The stored and hashed bytes decode to the same params, and encode to the same bytes: complete for a plan without a
// toolpack, without artifact ids, which the program does not see, for a toolpack's plan. proves ABI-09
func TestParamsRoundTrip(t *testing.T) {
	for _, p := range []Params{paramsOf(mustDecode(t, complete)), {ProjectID: "p", Script: "s", Spec: mustDecode(t, complete)}} {
		first := canonicalOf(t, p)
		back, err := DecodeParams([]byte(first))
		must(t, err)
		want := p
		if p.Tool != nil {
			want.Spec.IO.Inputs = slices.Clone(p.Spec.IO.Inputs)
			for i := range want.Spec.IO.Inputs {
				want.Spec.IO.Inputs[i].ArtifactID = ""
			}
		}
		if d := cmp.Diff(want, back); d != "" {
			t.Error(d)
		}
		if again := canonicalOf(t, back); again != first {
			t.Errorf("%s\n%s", first, again)
		}
	}
}

// Neither the order in which inputs, outputs, variables and keys are given nor the image's name is part of
// the identity; everything else is. proves ABI-07, ABI-08, ABI-09
func TestIdentityIgnoresOrder(t *testing.T) {
	var ins, outs []any
	for i := range 6 {
		ins = append(ins, map[string]any{"role": fmt.Sprint("r", i%2), "artifact_id": artA, "checksum_sha256": digestA,
			"dest_relpath": fmt.Sprint("in/", i)})
		outs = append(outs, map[string]any{"role": fmt.Sprint("o", i), "src_relpath": fmt.Sprint("out/", i), "type": "TSV", "label": "l"})
	}
	hashOf := func(changes map[string]any) string {
		t.Helper()
		s, err := DecodeSpec(edited(t, changes), Rules{})
		must(t, err)
		return Hash([]byte(canonicalOf(t, paramsOf(s))))
	}
	base := func() map[string]any {
		return map[string]any{"io.inputs": ins, "io.outputs": outs, "execution.command.stdout": "out/3"}
	}
	want := hashOf(base())
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		rng.Shuffle(len(ins), func(i, j int) { ins[i], ins[j] = ins[j], ins[i] })
		rng.Shuffle(len(outs), func(i, j int) { outs[i], outs[j] = outs[j], outs[i] })
		if got := hashOf(base()); got != want {
			t.Fatalf("order changed the hash: %v %v", ins, outs)
		}
	}
	for _, image := range []string{"sha256:" + digestA, "other-name@sha256:" + digestA} {
		c := base()
		c["execution.container.image"] = image
		if hashOf(c) != want {
			t.Error(image)
		}
	}
	for path, value := range map[string]any{"resources.cpus": 3, "placement.qos": nil, "execution.command.argv": []any{"samtools"},
		"execution.command.env":     map[string]any{"A": "x y"},
		"execution.container.image": "sha256:" + strings.Repeat("b", 64), "io.inputs": ins[1:], "execution.command.stdout": "out/4"} {
		c := base()
		c[path] = value
		if hashOf(c) == want {
			t.Errorf("%s is not part of the identity", path)
		}
	}
}

func TestIDForms(t *testing.T) {
	for _, c := range []struct {
		is   func(string) bool
		good string
		bad  []string
	}{
		{IsRunID, "run_0X8Z4D1X467KV94K4TXG0D9BXT", []string{"", "run_", "run_0x8z4d1x467kv94k4txg0d9bxt", "run_0X8Z4D1X467KV94K4TXG0D9BXT\n",
			"run_0X8Z4D1X467KV94K4TXG0D9BXI", "proj_0X8Z4D1X467KV94K4TXG0D9BXT", "run_../../../../../../../../etc"}},
		{IsArtifactID, artA, []string{"art_", artA + "0", "run_183BZJHEYXMKZBB4A0X74BNFSS"}},
		{IsProjectID, ProjectID("demo"), []string{"demo", "proj_"}},
		{IsSHA256, digestA, []string{digestA[1:], strings.ToUpper(digestA), digestA + "\n"}},
		{IsTypeName, "FASTQ_GZ", []string{"fastq", "", "1A", strings.Repeat("A", 33)}},
		{IsEnvName, "_a1", []string{"1a", "a-b", "", "a\n"}},
		{IsSlurmName, "gpu-a100.x+y_z", []string{"-a", "a b", ""}},
	} {
		if !c.is(c.good) {
			t.Errorf("%q refused", c.good)
		}
		for _, b := range c.bad {
			if c.is(b) {
				t.Errorf("%q taken", b)
			}
		}
	}
}

// A plan of the gateway's own script is valid if the gateway made it, and refused from a caller.
func TestScriptedPlans(t *testing.T) {
	scripted := map[string]any{"execution.kind": Scripted, "execution.container.engine": "bash", "execution.container.network_mode": "host",
		"execution.container.readonly_rootfs": false}
	doc := edited(t, scripted)
	if _, err := DecodeSpec(doc, Rules{}); fault.CodeOf(err) != "PLAN-KIND" {
		t.Errorf("from a caller: %v", err)
	}
	s, err := DecodeSpec(doc, Rules{Stored: true})
	must(t, err)
	if err := s.Validate(Rules{Stored: true, Docker: true}); err == nil {
		t.Error("it is a docker plan")
	}
	s.Execution.Kind = Contained
	if err := s.Validate(Rules{Stored: true}); err == nil {
		t.Error("a container has the rules of a script")
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
