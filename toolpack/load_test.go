package toolpack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/filetype"
)

// base is a correct toolpack; the tests break one thing each.
const base = `id: demo.count
version: 1.2.3
abiVersion: v1
contractVersion: v1
planKind: slurm
description: Counts.
deterministic: true
timeoutMs: 60000
limits: {maxInputBytes: 1000, maxOutputBytes: 2000}
inputSchema:
  type: object
  required: [data]
  properties:
    data: {type: string}
    mode: {type: string, enum: [a, -b], default: a}
    n: {type: integer, default: 3}
    text: {type: string, default: x}
    flag: {type: boolean}
    free: {type: string}
outputSchema: {type: object}
inputs: [{role: data, param: data, types: [TEXT], destRelpath: in/data}]
declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]
container: {image: counter}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 60}
execution:
  kind: cli
  cmd: [count, "--mode={{ params.mode }}", -n, "{{params.n}}", /work/in/data]
  stdout: out/count.json
`

func loadText(files map[string]string, list ...Option) (*Set, []fault.Problem) {
	set, _, found := loadAll(packFiles(files), "dom", ".", filetype.Names(), chosen(list))
	return set, found
}

// with replaces parts of base; each must be there.
func with(t testing.TB, pairs ...string) string {
	t.Helper()
	return replaced(t, base, pairs)
}

// replaced returns a text with each first part of the pairs, which must be there, replaced by the second.
func replaced(t testing.TB, s string, pairs []string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(s, pairs[i]) {
			t.Fatalf("there is no %q in\n%s", pairs[i], s)
		}
		s = strings.Replace(s, pairs[i], pairs[i+1], 1)
	}
	return s
}

// shippedDomains returns the folders of the domains that ship.
func shippedDomains(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("../domains/*")
	if err != nil || len(dirs) < 2 {
		t.Fatalf("the domains that ship are %q, %v; want two at least", dirs, err)
	}
	return dirs
}

// packFiles returns a file system with these files.
func packFiles(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return fsys
}

func TestBaseLoads(t *testing.T) {
	if _, found := loadText(map[string]string{"a.tool.yaml": base}); found != nil {
		t.Fatal(found)
	}
}

// ruleCase is a pack with one rule broken.
type ruleCase struct {
	name  string
	edit  []string // of base
	code  string
	field string
	line  int
}

func ruleCases() []ruleCase {
	const (
		exec = "execution:\n  kind: cli\n  cmd: [count, \"--mode={{ params.mode }}\", -n, \"{{params.n}}\", /work/in/data]\n  stdout: " +
			"out/count.json\n"
		in  = "inputs: [{role: data, param: data, types: [TEXT], destRelpath: in/data}]"
		out = "declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]"
	)
	checked := func(more string) string { return strings.Replace(out, "count.json}", "count.json, "+more+"}", 1) }
	lined := func(typ, rule string) string {
		return strings.Replace(out, "}]", "}, {role: logs, type: "+typ+", label: logs, srcRelpath: out/logs, lines: [{"+rule+"}]}]", 1)
	}
	cmd := func(c string) []string { return []string{exec, "execution: {kind: cli, cmd: " + c + "}\n"} }
	return []ruleCase{
		// YAML
		{"malformed", []string{"id: demo.count", "id: [demo"}, "PACK-YAML", "", 1},
		{"duplicate key", []string{"version: 1.2.3\n", "version: 1.2.3\nversion: 1.2.4\n"}, "PACK-DUPLICATE-KEY", "version", 3},
		{"anchor", []string{"description: Counts.", "description: &a Counts."}, "PACK-ANCHOR", "description", 6},
		{"tag", []string{"description: Counts.", "description: !!str Counts."}, "PACK-TAG", "description", 6},
		{"merge key", []string{"description: Counts.", "<<: {description: x}"}, "PACK-MERGE-KEY", "", 6},
		{"two documents", []string{exec, exec + "---\nid: x.y\n"}, "PACK-DOCUMENTS", "", 29},
		{"implicit number", []string{"description: Counts.", "description: 12"}, "PACK-TYPE", "description", 6},
		{"implicit bool", []string{"deterministic: true", "deterministic: True"}, "PACK-TYPE", "deterministic", 7},
		{"yes is no bool", []string{"deterministic: true", "deterministic: yes"}, "PACK-TYPE", "deterministic", 7},
		{"octal", []string{"timeoutMs: 60000", "timeoutMs: 060000"}, "PACK-TYPE", "timeoutMs", 8},
		{"depth", []string{"{type: object}", "{const: " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "}"}, "PACK-DEPTH",
			"outputSchema.const" + strings.Repeat("[0]", 46), 20},
		// LOAD-02, LOAD-03
		{"no id", []string{"id: demo.count\n", ""}, "PACK-REQUIRED", "id", 1},
		{"no version", []string{"version: 1.2.3\n", ""}, "PACK-REQUIRED", "version", 1},
		{"no deterministic", []string{"deterministic: true\n", ""}, "PACK-REQUIRED", "deterministic", 1},
		{"no timeoutMs", []string{"timeoutMs: 60000\n", ""}, "PACK-REQUIRED", "timeoutMs", 1},
		{"no maxInputBytes", []string{"maxInputBytes: 1000, ", ""}, "PACK-REQUIRED", "limits.maxInputBytes", 9},
		{"no maxOutputBytes", []string{", maxOutputBytes: 2000", ""}, "PACK-REQUIRED", "limits.maxOutputBytes", 9},
		{"no outputSchema", []string{"outputSchema: {type: object}\n", ""}, "PACK-REQUIRED", "outputSchema", 1},
		{"no execution", []string{exec, ""}, "PACK-REQUIRED", "execution", 1},
		{"snake case", []string{"timeoutMs", "timeout_ms"}, "PACK-SNAKE-CASE", "timeout_ms", 8},
		{"nested snake case", []string{"maxInputBytes", "max_input_bytes"}, "PACK-SNAKE-CASE", "limits.max_input_bytes", 9},
		{"unknown field", []string{"description: Counts.", "colour: red"}, "PACK-UNKNOWN-FIELD", "colour", 6},
		// LOAD-04
		{"id of one part", []string{"demo.count", "demo"}, "PACK-ID", "id", 1},
		{"id in capitals", []string{"demo.count", "Demo.count"}, "PACK-ID", "id", 1},
		{"id with underscore", []string{"demo.count", "demo.co_unt"}, "PACK-ID", "id", 1},
		{"id too long", []string{"demo.count", "demo." + strings.Repeat("a", 130)}, "PACK-ID", "id", 1},
		{"version suffix", []string{"1.2.3", "1.2.3-rc1"}, "PACK-VERSION", "version", 2},
		{"version of two", []string{"1.2.3", `"1.2"`}, "PACK-VERSION", "version", 2},
		{"zero timeout", []string{"60000", "0"}, "PACK-RANGE", "timeoutMs", 8},
		{"zero limit", []string{"maxInputBytes: 1000", "maxInputBytes: 0"}, "PACK-RANGE", "limits.maxInputBytes", 9},
		{"fraction", []string{"maxInputBytes: 1000", "maxInputBytes: 1.5"}, "PACK-TYPE", "limits.maxInputBytes", 9},
		{"timeout below the job's limit", []string{"60000", "59999"}, "PACK-TIMEOUT", "timeoutMs", 8},
		// checks of outputs and of standard error
		{"more bytes than there may be", []string{out, checked("minBytes: 2001")}, "PACK-CHECK", "declaredOutputs[0].minBytes", 22},
		{"no bytes", []string{out, checked("minBytes: 0")}, "PACK-RANGE", "declaredOutputs[0].minBytes", 22},
		{"another way to verify", []string{"inputs: [{", "inputs: [{verify: quick, "}, "PACK-VERIFY", "inputs[0].verify", 21},
		{"rows of a JSON output", []string{out, checked("minRows: 2")}, "PACK-CHECK", "declaredOutputs[0].minRows", 22},
		{"checks of a table", []string{out, strings.Replace(checked(`checks: [{expr: value.a, message: x}]`), "JSON", "TSV", 1)}, "PACK-CHECK",
			"declaredOutputs[0].checks", 22},
		{"expression that is none", []string{out, checked(`checks: [{expr: "value.a >", message: x}]`)}, "PACK-CHECK-EXPR",
			"declaredOutputs[0].checks[0].expr", 22},
		{"expression of something else", []string{out, checked(`checks: [{expr: "params.a > 1", message: x}]`)}, "PACK-CHECK-EXPR",
			"declaredOutputs[0].checks[0].expr", 22},
		{"expression that ends its block", []string{out, checked(`checks: [{expr: "value.a %}{% if 1", message: x}]`)}, "PACK-CHECK-EXPR",
			"declaredOutputs[0].checks[0].expr", 22},
		{"expression without value", []string{out, checked(`checks: [{expr: "1 > 0", message: x}]`)}, "PACK-CHECK-EXPR",
			"declaredOutputs[0].checks[0].expr", 22},
		{"check without message", []string{out, checked(`checks: [{expr: value.a}]`)}, "PACK-REQUIRED", "declaredOutputs[0].checks[0].message",
			22},
		{"unknown field of a check", []string{out, checked(`checks: [{expr: value.a, message: x, colour: red}]`)}, "PACK-UNKNOWN-FIELD",
			"declaredOutputs[0].checks[0].colour", 22},
		{"pattern that is none", []string{out, out + "\nstderr: [{pattern: '(', is: failure, message: x}]"}, "PACK-STDERR", "stderr[0].pattern",
			23},
		{"pattern of every line", []string{out, out + "\nstderr: [{pattern: 'a*', is: failure, message: x}]"}, "PACK-STDERR",
			"stderr[0].pattern", 23},
		{"pattern of another meaning", []string{out, out + "\nstderr: [{pattern: a, is: fatal, message: x}]"}, "PACK-STDERR", "stderr[0].is", 23},
		{"pattern without message", []string{out, out + "\nstderr: [{pattern: a, is: failure, message: ''}]"}, "PACK-TEXT", "stderr[0].message",
			23},
		{"stderr pattern with a line break", []string{out, out + "\nstderr: [{pattern: 'a\\nb', is: failure, message: x}]"}, "PACK-STDERR",
			"stderr[0].pattern", 23},
		{"lines of a JSON output", []string{out, checked("lines: [{pattern: a, is: failure, message: x}]")}, "PACK-LINES",
			"declaredOutputs[0].lines", 22},
		{"lines of a compressed output", []string{out, lined("FASTQ_GZ", "pattern: a, is: failure, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines", 22},
		{"lines of a file of a file", []string{out, lined("TEXT", "file: x.log, pattern: a, is: failure, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines[0].file", 22},
		{"lines of no file of a directory", []string{out, lined("DIRECTORY", "pattern: a, is: failure, message: x")}, "PACK-REQUIRED",
			"declaredOutputs[1].lines[0].file", 22},
		{"lines of a file outside of a directory", []string{out, lined("DIRECTORY", "file: ../x.log, pattern: a, is: failure, message: x")},
			"PACK-LINES", "declaredOutputs[1].lines[0].file", 22},
		{"lines of several files", []string{out, lined("DIRECTORY", "file: '*.log', pattern: a, is: failure, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines[0].file", 22},
		{"lines of a template", []string{out, lined("DIRECTORY", "file: '{{ params.x }}', pattern: a, is: failure, message: x")}, "PACK-TEMPLATE",
			"declaredOutputs[1].lines[0].file", 22},
		{"lines by a pattern that is none", []string{out, lined("TEXT", "pattern: '(', is: failure, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines[0].pattern", 22},
		{"lines by a pattern with look-ahead", []string{out, lined("TEXT", "pattern: 'a(?=b)', is: failure, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines[0].pattern", 22},
		{"lines by a pattern of every line", []string{out, lined("TEXT", "pattern: 'a*', is: failure, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines[0].pattern", 22},
		{"lines by a pattern with a line break", []string{out, lined("TEXT", "pattern: '(a|b\\rc)', is: failure, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines[0].pattern", 22},
		{"lines of another meaning", []string{out, lined("TEXT", "pattern: a, is: error, message: x")}, "PACK-LINES",
			"declaredOutputs[1].lines[0].is", 22},
		{"lines without message", []string{out, lined("TEXT", "pattern: a, is: failure, message: ' '")}, "PACK-TEXT",
			"declaredOutputs[1].lines[0].message", 22},
		{"lines of an unknown field", []string{out, lined("TEXT", "pattern: a, is: failure, message: x, colour: red")}, "PACK-UNKNOWN-FIELD",
			"declaredOutputs[1].lines[0].colour", 22},
		{"too many patterns of lines", []string{out, lined("TEXT", strings.Repeat("pattern: a, is: failure, message: x}, {", 32)+
			"pattern: a, is: failure, message: x")}, "PACK-LINES", "declaredOutputs[1].lines", 22},
		// ABI-02, ABI-03, ABI-04
		{"abi v2", []string{"abiVersion: v1", "abiVersion: v2"}, "PACK-ABI-VERSION", "abiVersion", 3},
		{"no abi", []string{"abiVersion: v1\n", ""}, "PACK-REQUIRED", "abiVersion", 1},
		{"contract version", []string{"contractVersion: v1", `contractVersion: "1"`}, "PACK-CONTRACT-VERSION", "contractVersion", 4},
		{"plan kind", []string{"planKind: slurm", "planKind: k8s"}, "PACK-PLAN-KIND", "planKind", 5},
		{"tool name with a dot", []string{"version: 1.2.3", "toolName: a.b\nversion: 1.2.3"}, "PACK-TOOL-NAME", "toolName", 2},
		{"tool name form", []string{"version: 1.2.3", "toolName: Demo\nversion: 1.2.3"}, "PACK-TOOL-NAME", "toolName", 2},
		// ABI-05, ABI-10, ABI-12, ABI-14, ABI-16
		{"no outputs", []string{out, "declaredOutputs: []"}, "PACK-OUTPUTS", "declaredOutputs", 22},
		{"output without srcRelpath", []string{", srcRelpath: out/count.json", ""}, "PACK-REQUIRED", "declaredOutputs[0].srcRelpath", 22},
		{"output role", []string{"role: count", `role: " count"`}, "PACK-ROLE", "declaredOutputs[0].role", 22},
		{"reserved role", []string{"role: count", "role: log"}, "PACK-ROLE-RESERVED", "declaredOutputs[0].role", 22},
		{"reserved role in capitals", []string{"role: count", "role: LOG"}, "PACK-ROLE-RESERVED", "declaredOutputs[0].role", 22},
		{"output roles that differ only in case", []string{out,
			"declaredOutputs:\n  - {role: count, type: JSON, label: c, srcRelpath: out/count.json}\n  - {role: Count, type: JSON, label: c, " +
				"srcRelpath: out/b}"},
			"PACK-ROLE-DUPLICATE", "declaredOutputs[1].role", 24},
		{"input roles that differ only in case", []string{in, "inputs:\n  - {role: data, param: data, types: [TEXT], destRelpath: in/data}\n  " +
			"- {role: Data, param: free, types: [TEXT], destRelpath: in/b}", "[data]", "[data, free]"},
			"PACK-ROLE-DUPLICATE", "inputs[1].role", 23},
		{"role of the arguments in another case", []string{exec, "execution: {kind: python, script: s.py}\n", "role: data", "role: Args"},
			"PACK-ROLE-DUPLICATE", "inputs[0].role", 21},
		{"reserved role stdout", []string{"role: count", "role: stdout"}, "PACK-ROLE-RESERVED", "declaredOutputs[0].role", 22},
		{"output type", []string{"type: JSON", "type: SOUP"}, "PACK-TYPE", "declaredOutputs[0].type", 22},
		{"output label", []string{"label: the count", `label: "the  count"`}, "PACK-LABEL", "declaredOutputs[0].label", 22},
		{"output path", []string{"srcRelpath: out/count.json", "srcRelpath: out/../x"}, "PACK-SRC-PATH", "declaredOutputs[0].srcRelpath", 22},
		{"input role", []string{"role: data", `role: "a  b"`}, "PACK-ROLE", "inputs[0].role", 21},
		{"input path", []string{"in/data}", "/etc/passwd}"}, "PACK-DEST-PATH", "inputs[0].destRelpath", 21},
		{"input path twice", []string{in, "inputs:\n  - {role: data, param: data, types: [TEXT], destRelpath: in/data}\n  - {role: b, param: " +
			"free, types: [TEXT], destRelpath: in/data}", "[data]", "[data, free]"}, "PACK-DEST-DUPLICATE", "inputs[1].destRelpath", 23},
		{"input role twice", []string{in, "inputs:\n  - {role: data, param: data, types: [TEXT], destRelpath: in/data}\n  - {role: data, " +
			"param: free, types: [TEXT], destRelpath: in/b}", "[data]", "[data, free]"}, "PACK-ROLE-DUPLICATE", "inputs[1].role", 23},
		{"input type", []string{"types: [TEXT]", "types: [SOUP]"}, "PACK-TYPE", "inputs[0].types[0]", 21},
		{"input without types", []string{"types: [TEXT]", "types: []"}, "PACK-TYPE", "inputs[0].types", 21},
		{"input param unknown", []string{"param: data", "param: date"}, "PACK-INPUT-PARAM", "inputs[0].param", 21},
		{"input param no string", []string{"data: {type: string}", "data: {type: integer}"}, "PACK-INPUT-PARAM", "inputs[0].param", 21},
		{"input param optional", []string{"  required: [data]\n", ""}, "PACK-INPUT-PARAM", "inputs[0].param", 20},
		{"stdout is no output", []string{"stdout: out/count.json", "stdout: out/other"}, "PACK-STDOUT", "execution.stdout", 28},
		{"output path with a pattern", []string{"srcRelpath: out/count.json", "srcRelpath: out/*.json", "stdout: out/count.json",
			"stdout: out/*.json"}, "PACK-SRC-PATH", "declaredOutputs[0].srcRelpath", 22},
		{"role of a docker output as a path", []string{"planKind: slurm", "planKind: docker", ", srcRelpath: out/count.json", "",
			"destRelpath: in/data", "destName: data", "role: count", "role: a/b", "  stdout: out/count.json\n", ""},
			"PACK-ROLE", "declaredOutputs[0].role", 22},
		// What no call, or no finished run, can satisfy.
		{"minimum above maximum", []string{"  required: [data]\n",
			"  required: [data]\n  $defs: {n: {type: integer, minimum: 3, maximum: 2}}\n"}, "PACK-SCHEMA", "inputSchema.$defs.n.minimum", 13},
		{"maximum not above exclusive minimum", []string{"  required: [data]\n",
			"  required: [data]\n  $defs: {n: {exclusiveMinimum: 2, maximum: 2.0}}\n"}, "PACK-SCHEMA", "inputSchema.$defs.n.exclusiveMinimum", 13},
		{"minLength above maxLength", []string{"  required: [data]\n", "  required: [data]\n  $defs: {n: {minLength: 3, maxLength: 2}}\n"},
			"PACK-SCHEMA", "inputSchema.$defs.n.minLength", 13},
		{"minItems above maxItems", []string{"outputSchema: {type: object}",
			"outputSchema: {type: object, $defs: {n: {minItems: 3, maxItems: 2}}}"}, "PACK-SCHEMA", "outputSchema.$defs.n.minItems", 20},
		{"empty enum", []string{"  required: [data]\n", "  required: [data]\n  $defs: {n: {enum: []}}\n"}, "PACK-SCHEMA",
			"inputSchema.$defs.n.enum", 13},
		{"misspelt keyword", []string{"data: {type: string}", "data: {type: string, maxLenght: 5}"}, "PACK-SCHEMA-KEYWORD",
			"inputSchema.properties.data.maxLenght", 14},
		{"unknown keyword", []string{"data: {type: string}", "data: {type: string, colour: red}"}, "PACK-SCHEMA-KEYWORD",
			"inputSchema.properties.data.colour", 14},
		{"keyword of another draft", []string{"outputSchema: {type: object}", "outputSchema: {type: object, dependencies: {a: [b]}}"},
			"PACK-SCHEMA-KEYWORD", "outputSchema.dependencies", 20},
		{"required argument that is not declared", []string{"  required: [data]\n", "  required: [data, dta]\n"}, "PACK-SCHEMA",
			"inputSchema.required", 12},
		{"required output that is not declared", []string{"outputSchema: {type: object}", "outputSchema: {type: object, required: [counts]}"},
			"PACK-SCHEMA", "outputSchema.required", 20},
		{"output without a place in a closed schema", []string{"outputSchema: {type: object}",
			"outputSchema: {type: object, additionalProperties: false}"}, "PACK-SCHEMA", "declaredOutputs[0].role", 22},
		{"template that always fails", []string{exec, "execution: {kind: cli, cmd: [count, \"{{ params.n // 0 }}\"]}\n"}, "PACK-TEMPLATE",
			"execution.cmd[1]", 25},
		{"template that prints a truth value", []string{exec, "execution: {kind: cli, cmd: [count, \"{{ params.n > 0 }}\"]}\n"},
			"PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"variable whose template always fails", []string{"container:", "env: {set: {A: \"{{ [] | first }}\"}}\ncontainer:"}, "PACK-TEMPLATE",
			"env.set.A", 23},
		{"two words as a program", []string{exec, "execution: {kind: cli, cmd: [\"samtools flagstat\", x]}\n"}, "PACK-PROGRAM",
			"execution.cmd[0]", 25},
		{"variable set and passed through", []string{"container:", "env: {passthrough: [TZ], set: {TZ: UTC}}\ncontainer:"}, "PACK-ENV",
			"env.set.TZ", 23},
		// container, resources, placement
		{"no container", []string{"container: {image: counter}\n", ""}, "PACK-REQUIRED", "container", 1},
		{"image by URL", []string{"image: counter", `image: "docker://x"`}, "PACK-IMAGE", "container.image", 23},
		{"image by tag", []string{"image: counter", `image: "counter:1"`}, "PACK-IMAGE", "container.image", 23},
		{"no cpus", []string{"cpus: 1, ", ""}, "PACK-REQUIRED", "resources.cpus", 24},
		{"zero cpus", []string{"cpus: 1", "cpus: 0"}, "PACK-CPUS", "resources.cpus", 24},
		{"memory", []string{"memMb: 100", "memMb: 99999999"}, "PACK-MEM", "resources.memMb", 24},
		{"time limit", []string{"timeLimitSeconds: 60", "timeLimitSeconds: -1"}, "PACK-TIME-LIMIT", "resources.timeLimitSeconds", 24},
		{"download name with a path", []string{"srcRelpath: out/count", "downloadName: a/b, srcRelpath: out/count"}, "PACK-DOWNLOAD-NAME",
			"declaredOutputs[0].downloadName", 22},
		{"download name of no input", []string{"srcRelpath: out/count", "downloadName: '{label:none}.json', srcRelpath: out/count"},
			"PACK-DOWNLOAD-NAME", "declaredOutputs[0].downloadName", 22},
		{"download name with a template", []string{"srcRelpath: out/count", "downloadName: '{{ params.n }}', srcRelpath: out/count"},
			"PACK-DOWNLOAD-NAME", "declaredOutputs[0].downloadName", 22},
		{"memory without base", []string{"memMb: 100", "memMb: {perInputMb: 2}"}, "PACK-REQUIRED", "resources.memMb.base", 24},
		{"memory of zero", []string{"memMb: 100", "memMb: {base: 0}"}, "PACK-RANGE", "resources.memMb.base", 24},
		{"memory per input below zero", []string{"memMb: 100", "memMb: {base: 100, perInputMb: -1}"}, "PACK-RANGE",
			"resources.memMb.perInputMb", 24},
		{"memory per input no number", []string{"memMb: 100", "memMb: {base: 100, perInputMb: much}"}, "PACK-TYPE",
			"resources.memMb.perInputMb", 24},
		{"factor below one", []string{"memMb: 100", "memMb: {base: 100, retryFactor: 0.5}"}, "PACK-RANGE", "resources.memMb.retryFactor", 24},
		{"max below base", []string{"memMb: 100", "memMb: {base: 100, max: 99}"}, "PACK-RESOURCES", "resources.memMb.max", 24},
		{"memory of no such kind", []string{"memMb: 100", "memMb: {base: 100, perCpu: 2}"}, "PACK-UNKNOWN-FIELD", "resources.memMb.perCpu", 24},
		{"timeout below the largest time", []string{"timeLimitSeconds: 60", "timeLimitSeconds: {base: 60, max: 7200}"}, "PACK-TIMEOUT",
			"timeoutMs", 8},
		{"gpu type alone", []string{"cpus: 1", "cpus: 1, gpuType: a100"}, "PACK-GPU-TYPE", "resources.gpuType", 24},
		{"partition", []string{"container:", "placement: {partition: \"a b\"}\ncontainer:"}, "PACK-PARTITION", "placement.partition", 23},
		{"constraint", []string{"container:", "placement: {constraint: \"--x\"}\ncontainer:"}, "PACK-CONSTRAINT", "placement.constraint", 23},
		// LOAD-05
		{"execution kind", []string{"kind: cli", "kind: ruby"}, "PACK-EXECUTION-KIND", "execution.kind", 26},
		{"no cmd", cmd("[]"), "PACK-EXECUTION", "execution.cmd", 25},
		{"cmd is text", cmd("count all"), "PACK-TYPE", "execution.cmd", 25},
		{"cmd has a number", cmd("[count, 5]"), "PACK-TYPE", "execution.cmd[1]", 25},
		{"field of another kind", []string{"  kind: cli", "  url: http://x\n  kind: cli"}, "PACK-EXECUTION", "execution.url", 26},
		{"python module", []string{exec, "execution: {kind: python, module: \"os system\"}\n"}, "PACK-EXECUTION", "execution.module", 25},
		{"python both", []string{exec, "execution: {kind: python, module: \"a.b:c\", script: s.py}\n"}, "PACK-EXECUTION", "execution.script", 25},
		{"python neither", []string{exec, "execution: {kind: python}\n"}, "PACK-EXECUTION", "execution", 25},
		{"python script outside", []string{exec, "execution: {kind: python, script: ../s.py}\n"}, "PACK-EXECUTION", "execution.script", 25},
		{"node neither", []string{exec, "execution: {kind: node}\n"}, "PACK-EXECUTION", "execution", 25},
		{"php neither", []string{exec, "execution: {kind: php}\n"}, "PACK-EXECUTION", "execution", 25},
		{"http without url", []string{exec, "execution: {kind: http}\n"}, "PACK-REQUIRED", "execution.url", 25},
		{"http url", []string{exec, "execution: {kind: http, url: \"file:///etc/passwd\"}\n"}, "PACK-EXECUTION", "execution.url", 25},
		{"http header", []string{exec, "execution: {kind: http, url: \"http://h/x\", headers: {A: 1}}\n"}, "PACK-TYPE", "execution.headers.A",
			25},
		{"http header name", []string{exec, "execution: {kind: http, url: \"http://h/x\", headers: {\"a b\": x}}\n"}, "PACK-EXECUTION",
			"execution.headers.a b", 25},
		// ABI-20
		{"shell", cmd("[sh, -c, ls]"), "PACK-PROGRAM", "execution.cmd[0]", 25},
		{"shell by path", cmd("[/usr/bin/bash, -c, ls]"), "PACK-PROGRAM", "execution.cmd[0]", 25},
		{"launcher", cmd("[env, count]"), "PACK-PROGRAM", "execution.cmd[0]", 25},
		{"program from the inputs", cmd("[/work/in/data]"), "PACK-PROGRAM", "execution.cmd[0]", 25},
		{"program by relative path", cmd("[in/data]"), "PACK-PROGRAM", "execution.cmd[0]", 25},
		{"program is a placeholder", cmd(`["{{ params.mode }}"]`), "PACK-PROGRAM", "execution.cmd[0]", 25},
		{"free text into an interpreter", cmd(`[python3, -c, "{{ params.text }}"]`), "PACK-TEMPLATE", "execution.cmd[2]", 25},
		{"free text into awk", cmd(`[awk, "{{ params.text }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		// templates
		{"template with an unknown filter", cmd(`[count, "{{ params.n | nosuch }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template statement", cmd(`[count, "{% if x %}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template comment not closed", cmd(`[count, "a{# x"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template not closed", cmd(`[count, "{{ params.n"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of nothing", cmd(`[count, "{{ params.zzz }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of an artifact", cmd(`[count, "{{ params.data }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of a boolean", cmd(`[count, "{{ params.flag }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of an optional", cmd(`[count, "{{ params.free }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template that includes", cmd(`[count, "{% include '/etc/passwd' %}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template that calls", cmd(`[count, "{{ range(9) | join }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of an unknown name", cmd(`[count, "{{ environ }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of all params", cmd(`[count, "{{ params | length }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of no input", cmd(`[count, "{{ inputs.reads }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of no output", cmd(`[count, "{{ outputs.reads }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"template of no resource", cmd(`[count, "{{ resources.gpus }}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"optional in a condition", cmd(`[count, "{% if params.free %}x{% endif %}"]`), "PACK-TEMPLATE", "execution.cmd[1]", 25},
		{"free text by way of a filter into an interpreter", cmd(`[python3, "{{ params.text | upper }}"]`), "PACK-TEMPLATE", "execution.cmd[1]",
			25},
		{"free text into mlr", cmd(`[mlr, put, "{{ params.text }}"]`), "PACK-TEMPLATE", "execution.cmd[2]", 25},
		{"program by condition", cmd(`["{% if params.n > 1 %}a{% else %}b{% endif %}"]`), "PACK-PROGRAM", "execution.cmd[0]", 25},
		{"template in env", []string{"container:", "env: {set: {A: \"{{ params.zzz }}\"}}\ncontainer:"}, "PACK-TEMPLATE", "env.set.A", 23},
		{"free text that decides what code is loaded", []string{"container:", "env: {set: {PYTHONPATH: \"{{ params.text }}\"}}\ncontainer:"},
			"PACK-TEMPLATE", "env.set.PYTHONPATH", 23},
		{"context with a name that is taken", []string{"container:", "templating: {engine: jinja2, context: {params: {}}}\ncontainer:"},
			"PACK-TEMPLATING", "templating.context", 23},
		{"template in stdout", []string{"stdout: out/count.json", "stdout: \"out/{{ params.mode }}\""}, "PACK-TEMPLATE", "execution.stdout", 28},
		{"template in a label", []string{"label: the count", `label: "{{ params.text }}"`}, "PACK-TEMPLATE", "declaredOutputs[0].label", 22},
		// python, node, php
		{"node twice", []string{exec, "execution: {kind: node, script: a.js, module: b}\n"}, "PACK-EXECUTION", "execution.module", 25},
		{"php twice", []string{exec, "execution: {kind: php, php: a.php, script: b.php}\n"}, "PACK-EXECUTION", "execution.php", 25},
		{"node module outside", []string{exec, "execution: {kind: node, module: a/../../b}\n"}, "PACK-EXECUTION", "execution.module", 25},
		{"node option for a module", []string{exec, "execution: {kind: node, module: --eval}\n"}, "PACK-EXECUTION", "execution.module", 25},
		{"php script outside", []string{exec, "execution: {kind: php, php: /etc/x.php}\n"}, "PACK-EXECUTION", "execution.php", 25},
		{"result is no output", []string{exec, "execution: {kind: python, script: s.py, result: out/other.json}\n"}, "PACK-EXECUTION",
			"execution.result", 25},
		{"no output for the result", []string{exec, "execution: {kind: python, script: s.py}\n", "type: JSON", "type: TSV"}, "PACK-EXECUTION",
			"execution.result", 25},
		{"result of a cli pack", []string{"  stdout: out/count.json", "  result: out/count.json"}, "PACK-EXECUTION", "execution.result", 28},
		{"role of the arguments", []string{exec, "execution: {kind: python, script: s.py}\n", "role: data", "role: args"},
			"PACK-ROLE-DUPLICATE", "inputs[0].role", 21},
		{"place of the arguments", []string{exec, "execution: {kind: python, script: s.py}\n", "in/data", "in/args.json"}, "PACK-INPUT-DEST",
			"inputs[0].destRelpath", 21},
		{"template in a script's name", []string{exec, "execution: {kind: python, script: \"{{ params.mode }}.py\"}\n"}, "PACK-TEMPLATE",
			"execution.script", 25},
		{"template in a path", []string{"destRelpath: in/data", `destRelpath: "in/{{ params.n }}"`}, "PACK-TEMPLATE", "inputs[0].destRelpath",
			21},
		// LOAD-07, LOAD-08, LOAD-09
		{"caps key", []string{"container:", "caps: {gpu: true}\ncontainer:"}, "PACK-UNKNOWN-FIELD", "caps.gpu", 23},
		{"caps network", []string{"container:", "caps: {network: [ftp]}\ncontainer:"}, "PACK-CAPS", "caps.network[0]", 23},
		{"caps that no job has", []string{"container:", "caps: {network: [https]}\ncontainer:"}, "PACK-CAPS", "caps.network", 23},
		{"caps to write inputs", []string{"container:", "caps: {filesystem: {write: [out/x, in]}}\ncontainer:"}, "PACK-CAPS",
			"caps.filesystem.write[1]", 23},
		{"caps path", []string{"container:", "caps: {filesystem: {read: [/etc]}}\ncontainer:"}, "PACK-CAPS", "caps.filesystem.read[0]", 23},
		{"caps path out", []string{"container:", "caps: {filesystem: {write: [out/../../x]}}\ncontainer:"}, "PACK-CAPS",
			"caps.filesystem.write[0]", 23},
		{"caps filesystem key", []string{"container:", "caps: {filesystem: {exec: [in]}}\ncontainer:"}, "PACK-UNKNOWN-FIELD",
			"caps.filesystem.exec", 23},
		{"caps subprocess", []string{"container:", "caps: {subprocess: maybe}\ncontainer:"}, "PACK-TYPE", "caps.subprocess", 23},
		{"env name", []string{"container:", "env: {set: {path: x}}\ncontainer:"}, "PACK-ENV", "env.set.path", 23},
		{"env passthrough name", []string{"container:", "env: {passthrough: [1A]}\ncontainer:"}, "PACK-ENV", "env.passthrough[0]", 23},
		{"env of the loader", []string{"container:", "env: {set: {LD_PRELOAD: x}}\ncontainer:"}, "PACK-ENV", "env.set.LD_PRELOAD", 23},
		{"env value", []string{"container:", "env: {set: {A: 1}}\ncontainer:"}, "PACK-TYPE", "env.set.A", 23},
		{"template engine", []string{"container:", "templating: {engine: erb}\ncontainer:"}, "PACK-TEMPLATING", "templating.engine", 23},
		{"template context", []string{"container:", "templating: {engine: jinja2, context: {a: .nan}}\ncontainer:"}, "PACK-TYPE",
			"templating.context.a", 23},
		{"template context date", []string{"container:", "templating: {engine: jinja2, context: {a: 2026-01-01}}\ncontainer:"}, "PACK-TYPE",
			"templating.context.a", 23},
		// schemas
		{"schema against its metaschema", []string{"data: {type: string}", "data: {type: strong}"}, "PACK-SCHEMA",
			"inputSchema.properties.data.type", 14},
		{"input schema is no object", []string{"  type: object\n  required", "  required"}, "PACK-SCHEMA", "inputSchema", 10},
		{"schema draft", []string{"  type: object\n  required",
			"  type: object\n  $schema: http://json-schema.org/draft-04/schema#\n  required"}, "PACK-SCHEMA-DRAFT", "inputSchema.$schema", 12},
		{"schema id", []string{"{type: object}", "{type: object, not: {$id: \"http://h/x\"}}"}, "PACK-SCHEMA-ID", "outputSchema.not.$id", 20},
		{"schema regexp", []string{"data: {type: string}", `data: {type: string, pattern: "(?=x)"}`}, "PACK-SCHEMA",
			"inputSchema.properties.data.pattern", 14},
		{"default against its schema", []string{"default: 3", "default: x"}, "PACK-SCHEMA", "inputSchema.properties.n.default", 16},
		{"ref over the network", []string{"{type: object}", "{$ref: \"https://json-schema.org/draft/2020-12/schema\"}"}, "PACK-REF",
			"outputSchema.$ref", 20},
		{"ref outside", []string{"{type: object}", "{$ref: ../../etc/x.json}"}, "PACK-REF", "outputSchema.$ref", 20},
		{"ref absolute", []string{"{type: object}", "{$ref: /etc/x.json}"}, "PACK-REF", "outputSchema.$ref", 20},
		{"ref to nothing", []string{"{type: object}", "{$ref: x.json}"}, "PACK-REF", "outputSchema.$ref", 20},
		{"ref to no place", []string{"{type: object}", "{$ref: \"#/$defs/a\"}"}, "PACK-REF", "outputSchema.$ref", 20},
	}
}

// Each rule of the loader and of the ABI: the exact code, field and line. proves ABI-02 ABI-03 ABI-04 ABI-05 ABI-10 ABI-12 ABI-14
// ABI-16 ABI-20 LOAD-02 LOAD-03 LOAD-04 LOAD-05 LOAD-07 LOAD-08 LOAD-09 LOAD-11
func TestRules(t *testing.T) {
	for _, c := range ruleCases() {
		t.Run(c.name, func(t *testing.T) {
			set, found := loadText(map[string]string{"a.tool.yaml": with(t, c.edit...)})
			if set != nil || len(found) == 0 {
				t.Fatal("it was accepted")
			}
			got := fmt.Sprintf("%s %s %s:%d", found[0].Code, found[0].Field, found[0].File, found[0].Line)
			want := fmt.Sprintf("%s %s dom/a.tool.yaml:%d", c.code, c.field, c.line)
			if got != want || len(found) > 1 {
				t.Errorf("got  %s\nwant %s\nall: %v", got, want, found)
			}
			if found[0].Rule == "" || found[0].Msg == "" {
				t.Errorf("the problem has the rule %q and the message %q, want both", found[0].Rule, found[0].Msg)
			}
		})
	}
}

// Packs that are unusual and valid. proves LOAD-05 LOAD-07 LOAD-08 LOAD-09 ABI-04
func TestAccepted(t *testing.T) {
	for name, text := range goodPacks(t) {
		if _, found := loadText(map[string]string{"a.tool.yaml": text}); found != nil {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func goodPacks(t testing.TB) map[string]string {
	const exec = baseExec
	out := map[string]string{}
	for name, edit := range map[string][]string{
		"python module": {exec, "execution: {kind: python, module: \"pkg.mod:main\"}\n"},
		"python script": {exec, "execution: {kind: python, script: tools/run.py}\n"},
		"node script":   {exec, "execution: {kind: node, script: run.js}\n"},
		"node module":   {exec, "execution: {kind: node, module: thing}\n"},
		"node node":     {exec, "execution: {kind: node, node: run.js}\n"},
		"php":           {exec, "execution: {kind: php, php: run.php}\n"},
		"http": {exec, "execution: {kind: http, url: \"https://h:1/x\", method: PUT, headers: {X-A: b}}\n",
			"container: {image: counter}\n", ""},
		"docker": {"planKind: slurm", "planKind: docker", "destRelpath: in/data", "destName: data", ", srcRelpath: out/count.json", "",
			"  stdout: out/count.json\n", ""},
		"hybrid": {"planKind: slurm", "planKind: hybrid"},
		"caps": {"container:", "caps: {network: [], filesystem: {read: [in, /work/in, ./x], write: [/work/out]}, subprocess: " +
			"false}\ncontainer:"},
		"env":        {"container:", "env: {passthrough: [LANG], set: {A_1: \"1\"}}\ncontainer:"},
		"templating": {"container:", "templating: {engine: jinja2, context: {a: [1, {b: null}]}}\ncontainer:"},
		"template": {exec, "execution: {kind: cli, cmd: [count, \"{% if params.flag is defined and params.flag %}-v{% endif %}\", \"{{ " +
			"params.free | default('x') }}\", \"{{ resources.cpus * 2 }}\", \"{{ inputs.data }}\", \"{{ outputs['count'] }}\"]}\n"},
		"context": {exec, "templating: {engine: jinja2, context: {presets: {a: [1], b: [2]}}}\nexecution: {kind: cli, cmd: [count, " +
			"\"{% for x in presets[params.mode] %}{{ x }}{% endfor %}\"]}\n"},
		"env template": {"container:", "env: {set: {THREADS: \"{{ resources.cpus }}\", PYTHONHASHSEED: \"{{ params.n }}\"}}\ncontainer:"},
		"node scoped":  {exec, "execution: {kind: node, module: \"@lab/x:main\"}\n"},
		"result":       {exec, "execution: {kind: python, script: a/b.py, result: out/count.json}\n"},
		"arguments alone": {exec, "execution: {kind: php, script: a.php, phpBinary: /usr/bin/php8.4, payload: arguments}\n",
			"outputSchema:", "outputSchemaOf: result\noutputSchema:"},
		"node args":   {exec, "execution: {kind: node, script: a.js, payload: request, args: [--fast, \"a b\"]}\n"},
		"lines":       {"declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]", linedOutputs},
		"nulls":       {"container:", "caps: null\nenv: ~\ntemplating:\ncontainer:"},
		"inner nulls": {"container:", "caps: {filesystem: null}\nenv: {set: null}\ntemplating: {context: null, cacheKey: x}\ncontainer:"},
		"http timeout": {exec, "execution: {kind: http, url: \"http://h\", timeoutMs: 10, headers: null}\n", "container: {image: counter}\n", "",
			"resources: {cpus: 1, memMb: 100, timeLimitSeconds: 60}\n", ""},
		"tool name":     {"version: 1.2.3", "toolName: demo_count\nversion: 1.2.3"},
		"static awk":    {exec, "execution: {kind: cli, cmd: [awk, \"{n++} END {print n}\", /work/in/data]}\n"},
		"listed to awk": {exec, "execution: {kind: cli, cmd: [awk, -v, \"m={{ params.mode }}\", \"{print m}\"]}\n"},
		"braces":        {exec, "execution: {kind: cli, cmd: [count, \"{a} }} {\"]}\n"},
		"params by $ref": {"n: {type: integer, default: 3}", "n: {$ref: \"#/$defs/n\", default: 3}", "  properties:",
			"  $defs: {n: {type: integer}}\n  properties:"},
	} {
		out[name] = with(t, edit...)
	}
	return out
}

// Every broken rule of every file is in one report, in order of file and line. proves LOAD-11 ABI-01
func TestAllProblemsAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.tool.yaml", with(t, "version: 1.2.3", "version: one", "memMb: 100", "mem_mb: 100"))
	write(t, dir, "sub/a.tool.yaml", "id: x\n")
	write(t, dir, "a.tool.yaml", "\tno yaml")
	_, err := Load(dir)
	if !fault.Is(err, fault.Validation) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		rel, _ := filepath.Rel(dir, p.File)
		got = append(got, fmt.Sprintf("%s:%d %s %s", rel, p.Line, p.Code, p.Field))
	}
	want := []string{"a.tool.yaml:1 PACK-YAML ", "b.tool.yaml:2 PACK-VERSION version", "b.tool.yaml:24 PACK-SNAKE-CASE resources.mem_mb",
		"sub/a.tool.yaml:1 PACK-ID id"}
	for _, f := range []string{"version", "abiVersion", "contractVersion", "planKind", "deterministic", "timeoutMs", "limits", "inputSchema",
		"outputSchema", "declaredOutputs", "execution", "container", "resources"} {
		want = append(want, "sub/a.tool.yaml:1 PACK-REQUIRED "+f)
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, p := range fault.ProblemsOf(err) {
		if p.Code == "PACK-SNAKE-CASE" && p.Hint != "write memMb" {
			t.Errorf("hint %q", p.Hint)
		}
	}
}

// proves LOAD-01 LOAD-06
func TestWalk(t *testing.T) {
	named := func(id string) string { return with(t, "demo.count", id) }
	set, found := loadText(map[string]string{"z.tool.yaml": named("a.b"), "a/b/c.tool.yaml": named("c.d"), "m.tool.yaml": named("b.c.d"),
		"notes.yaml": "not: [a pack", "x.tool.yaml.bak": "{"})
	if found != nil {
		t.Fatal(found)
	}
	var ids []string
	for _, p := range set.List() {
		ids = append(ids, p.ID())
	}
	if d := cmp.Diff([]string{"a.b", "b.c.d", "c.d"}, ids); d != "" {
		t.Error(d)
	}
	if p, err := set.Get("b.c.d"); err != nil || p.ToolName() != "b_c_d" {
		t.Error(p, err)
	}
	if _, err := set.Get("nobody.here"); !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != "tool_not_found" {
		t.Error(err)
	}
	_, found = loadText(map[string]string{"a.tool.yaml": base, "b.tool.yaml": base})
	if len(found) != 1 || found[0].Code != "PACK-DUPLICATE-ID" || found[0].File != "dom/b.tool.yaml" || !strings.Contains(found[0].Msg,
		"dom/a.tool.yaml") {
		t.Error(found)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "absent")); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// A toolpack whose name ends otherwise is not passed over in silence.
func TestOtherSuffix(t *testing.T) {
	_, found := loadText(map[string]string{"a.tool.yaml": base, "sub/b.tool.yml": base})
	if len(found) != 1 || found[0].Code != "PACK-FILE" || found[0].File != "dom/sub/b.tool.yml" {
		t.Error(found)
	}
}

// Every default that its own schema refuses is reported, with its line.
//
// proves LOAD-11
func TestBadDefaults(t *testing.T) {
	text := with(t, "default: a}", "default: c}", "default: 3}", "default: many}")
	_, found := loadText(map[string]string{"a.tool.yaml": text})
	lines := strings.Split(text, "\n")
	told := 0
	for _, p := range found {
		if strings.HasSuffix(p.Field, ".default") && p.Code == "PACK-SCHEMA" && strings.Contains(lines[p.Line-1], "default: ") {
			told++
		}
	}
	if told != 2 || len(found) != 2 {
		t.Error(found)
	}
}

// A symlink, a pipe and a huge file are refused, not followed, waited for or read.
func TestOddFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "real.tool.yaml", base)
	must(t, os.Symlink(filepath.Join(outside, "real.tool.yaml"), filepath.Join(dir, "link.tool.yaml")))
	must(t, os.Symlink(outside, filepath.Join(dir, "folder")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe.tool.yaml"), 0o600))
	f, err := os.Create(filepath.Join(dir, "vast.tool.yaml"))
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(100<<20))
	_, err = Load(dir)
	var got []string
	for _, p := range fault.ProblemsOf(err) {
		got = append(got, filepath.Base(p.File)+" "+p.Code)
	}
	if d := cmp.Diff([]string{"folder PACK-LINK", "link.tool.yaml PACK-LINK", "pipe.tool.yaml PACK-FILE", "vast.tool.yaml PACK-FILE"},
		got); d != "" {
		t.Error(d)
	}
}

// The hash covers meaning, not layout; it sees every schema file. proves LOAD-12
func TestHash(t *testing.T) {
	hash := func(files map[string]string) string {
		t.Helper()
		set, found := loadText(files)
		if found != nil {
			t.Fatal(found)
		}
		return set.List()[0].Hash()
	}
	const ref = "outputSchema: {$ref: s/o.json}"
	linked := with(t, "outputSchema: {type: object}", ref)
	first := hash(map[string]string{"a.tool.yaml": base})
	for range 20 {
		if hash(map[string]string{"a.tool.yaml": base}) != first {
			t.Fatal("the hash varies")
		}
	}
	same := "# a comment\n" + with(t, "limits: {maxInputBytes: 1000, maxOutputBytes: 2000}",
		"limits:\n  maxOutputBytes: 2000\n  maxInputBytes: 1000", "deterministic: true\n", "", "execution:", "deterministic: true\nexecution:")
	if hash(map[string]string{"other/name.tool.yaml": same}) != first {
		t.Error("layout changes the hash")
	}
	if hash(map[string]string{"a.tool.yaml": linked, "s/o.json": `{ "type":"object" }`}) != first {
		t.Error("a schema in a separate file changes the hash")
	}
	for name, text := range map[string]string{"version": with(t, "1.2.3", "1.2.4"), "cmd": with(t, "-n", "-m"), "limit": with(t, "2000",
		"2001")} {
		if hash(map[string]string{"a.tool.yaml": text}) == first {
			t.Errorf("%s does not change the hash", name)
		}
	}
	if hash(map[string]string{"a.tool.yaml": linked, "s/o.json": `{"type":"object","minProperties":1}`}) == first {
		t.Error("the schema file does not change the hash")
	}
	a, _ := loadText(map[string]string{"a.tool.yaml": base})
	b, _ := loadText(map[string]string{"a.tool.yaml": base, "b.tool.yaml": with(t, "demo.count", "demo.other")})
	if a.Hash() == b.Hash() {
		t.Error("the set's hash does not see its packs")
	}
}

// Changing what an accessor returns cannot change the pack. proves LOAD-12
func TestImmutable(t *testing.T) {
	set, _ := loadText(map[string]string{"a.tool.yaml": base})
	p := set.List()[0]
	before := string(p.InputSchema())
	p.InputSchema()[0] = 'x'
	p.Inputs()[0].Types[0] = "BAM"
	set.List()[0] = nil
	if string(p.InputSchema()) != before || p.Inputs()[0].Types[0] != "TEXT" || set.List()[0] != p {
		t.Error("the pack changed")
	}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(text), 0o644))
}

// A file in a folder's place is a mistake of who named it, and a folder that is not there is not found.
func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tool.yaml")
	must(t, os.WriteFile(file, []byte("id: x.y\n"), 0o600))
	for dir, kind := range map[string]fault.Kind{file: fault.Validation, file + ".none": fault.NotFound} {
		if _, err := Load(dir); !fault.Is(err, kind) || fault.CodeOf(err) != "domain_not_readable" {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
