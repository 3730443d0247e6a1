package toolpack

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

// forms is a correct toolpack that uses lists, optional inputs, a group, labels, fragments, a pipe and standard input.
const forms = `id: demo.forms
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
deterministic: true
timeoutMs: 60000
limits: {maxInputBytes: 100000, maxOutputBytes: 2000}
inputSchema:
  type: object
  required: [first, bams, bais]
  properties:
    first: {type: string}
    bams: {type: array, items: {type: string}}
    bais: {type: array, items: {type: string}}
    regions: {type: string}
    more: {type: array, items: {type: string}}
    names: {type: array, items: {type: string}}
    level: {type: integer}
outputSchema: {type: object}
inputs:
  - {role: first, param: first, types: [TEXT], destRelpath: "in/first/{label}"}
  - {role: bam, param: bams, types: [BAM], list: {min: 1, max: 3}, group: aln, destRelpath: "in/aln/{index}.{label}"}
  - {role: bai, param: bais, types: [BAI], list: {}, group: aln, destRelpath: "in/aln/{index}.{label:bam}.bai"}
  - {role: regions, param: regions, types: [TEXT], optional: true, destRelpath: in/regions.bed}
  - {role: more, param: more, types: [TEXT], list: {min: 0}, optional: true}
declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]
container: {image: counter}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 60}
execution:
  kind: cli
  pipe:
    - [merge, "{{ inputs.first }}", {each: inputs.bam, args: ["-b", "{{ item }}"]}, {when: params.regions is defined, args: ["-L", "{{ inputs.regions }}"]}]
    - [count, {when: params.level is defined, args: ["-{{ params.level }}"]}, {when: params.names is defined, each: params.names, args: ["--name={{ item }}"]}, {when: inputs.more is defined, each: inputs.more, args: ["{{ item }}"]}]
  stdin: in/first/{label}
  stdout: out/count.json
`

func formsPack(t testing.TB, edit ...string) *Pack {
	t.Helper()
	set, found := loadText(map[string]string{"a.tool.yaml": edited(t, forms, edit...)})
	if found != nil {
		t.Fatal(found)
	}
	return set.List()[0]
}

func edited(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatal("not there:", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// art returns the artifact with a number: of type TEXT below 10, BAM below 20, BAI below 30. Its label is its number,
// or odd from 90 on.
func art(n int) string { return fmt.Sprintf("art_%026d", n) }

func formsEnv() Env {
	env := testEnv()
	env.Artifact = func(id string) (ArtifactInfo, error) {
		var n int
		if _, err := fmt.Sscanf(strings.TrimPrefix(id, "art_"), "%d", &n); err != nil {
			return ArtifactInfo{}, fault.New(fault.NotFound, "artifact_not_found", "no")
		}
		a := ArtifactInfo{SHA256: plan.Hash([]byte(id))[7:], Type: "TEXT", SizeBytes: 10, Label: fmt.Sprintf("s%d.x", n)}
		switch {
		case n >= 90:
			a.Label = "two words/and more"
		case n >= 20:
			a.Type = "BAI"
		case n >= 10:
			a.Type = "BAM"
		}
		return a, nil
	}
	return env
}

func formsArgs(t testing.TB, edit map[string]any) json.RawMessage {
	t.Helper()
	args := map[string]any{"first": art(1), "bams": []string{art(11), art(12)}, "bais": []string{art(21), art(22)}}
	for k, v := range edit {
		if args[k] = v; v == nil {
			delete(args, k)
		}
	}
	b, err := json.Marshal(args)
	must(t, err)
	return b
}

// What each form becomes in the plan: the exact set of inputs, and the words of the programs. proves DATA-01 DATA-03 DATA-04
func TestForms(t *testing.T) {
	p, golden := formsPack(t), "" // run ids and params, which no change of the gateway changes
	for _, c := range []struct {
		name   string
		args   map[string]any
		inputs string
		argv   string
	}{
		{"the least", nil, "bai in/aln/0001.s11.x.bai 21, bai in/aln/0002.s12.x.bai 22, bam in/aln/0001.s11.x 11, bam in/aln/0002.s12.x 12, " +
			"first in/first/s1.x 1", "merge /work/in/first/s1.x -b /work/in/aln/0001.s11.x -b /work/in/aln/0002.s12.x | count"},
		{"everything", map[string]any{"regions": art(2), "more": []string{art(3), art(3)}, "names": []string{"a", "b c"}, "level": 3,
			"bams": []string{art(12)}, "bais": []string{art(22)}},
			"bai in/aln/0001.s12.x.bai 22, bam in/aln/0001.s12.x 12, first in/first/s1.x 1, more in/more/0001-s3.x 3, " +
				"more in/more/0002-s3.x 3, regions in/regions.bed 2",
			"merge /work/in/first/s1.x -b /work/in/aln/0001.s12.x -L /work/in/regions.bed | count -3 --name=a --name=b c " +
				"/work/in/more/0001-s3.x /work/in/more/0002-s3.x"},
		{"empty lists", map[string]any{"more": []string{}, "names": []string{}, "bams": []string{art(12)}, "bais": []string{art(22)}},
			"bai in/aln/0001.s12.x.bai 22, bam in/aln/0001.s12.x 12, first in/first/s1.x 1",
			"merge /work/in/first/s1.x -b /work/in/aln/0001.s12.x | count"},
	} {
		got, err := p.Canonicalize(formsArgs(t, c.args), formsEnv())
		if err != nil {
			t.Fatal(c.name, err)
		}
		var inputs, argvs []string
		for _, in := range got.Spec.IO.Inputs {
			inputs = append(inputs, in.Role+" "+in.DestRelpath+" "+strings.TrimLeft(strings.TrimPrefix(in.ArtifactID, "art_"), "0"))
		}
		for _, argv := range got.Spec.Execution.Command.Programs() {
			argvs = append(argvs, strings.Join(argv, " "))
		}
		if d := cmp.Diff(c.inputs, strings.Join(inputs, ", ")); d != "" {
			t.Error(c.name, d)
		}
		if d := cmp.Diff(c.argv, strings.Join(argvs, " | ")); d != "" {
			t.Error(c.name, d)
		}
		if at := got.Spec.Execution.Command.Stdin; at == nil || *at != "in/first/s1.x" {
			t.Error(c.name, at)
		}
		params, err := got.Params(plan.ProjectID("demo"), "slurm_script_v1").Canonical()
		if err != nil {
			t.Fatal(c.name, err)
		}
		id := plan.Identity{ToolName: p.ToolName(), ContractVersion: p.ContractVersion(), PolicyHash: plan.Hash([]byte("policy")),
			ParamsHash: plan.Hash(params)}
		golden += fmt.Sprintf("%s %s %s\n%s\n", c.name, p.Hash(), id.RunID(), params)
	}
	const file = "testdata/forms.golden"
	was, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		err = os.WriteFile(file, []byte(golden), 0o644)
		was = []byte(golden)
	}
	if d := cmp.Diff(string(was), golden); d != "" || err != nil {
		t.Error("the identity of runs changed", err, d)
	}
}

// A function gets a list as an array, and nothing for an optional input that is absent. proves DATA-01
func TestFormsOfFunctions(t *testing.T) {
	a, b := strings.Index(forms, "execution:"), len(forms)
	p := formsPack(t, forms[a:b], "execution: {kind: python, module: \"a:b\"}\n")
	for _, c := range []struct{ given, want string }{
		{"", `{"bai":["/work/in/aln/0001.s11.x.bai"],"bam":["/work/in/aln/0001.s11.x"],"first":"/work/in/first/s1.x"}`},
		{"more", `{"bai":["/work/in/aln/0001.s11.x.bai"],"bam":["/work/in/aln/0001.s11.x"],"first":"/work/in/first/s1.x","more":[]}`},
	} {
		args := map[string]any{"bams": []string{art(11)}, "bais": []string{art(21)}}
		if c.given != "" {
			args[c.given] = []string{}
		}
		got, err := p.Canonicalize(formsArgs(t, args), formsEnv())
		must(t, err)
		var r struct{ Inputs map[string]any }
		must(t, json.Unmarshal(got.Made[0].Bytes, &r))
		for role, v := range r.Inputs { // only the paths
			switch v := v.(type) {
			case []any:
				for i := range v {
					v[i] = v[i].(map[string]any)["path"]
				}
			case map[string]any:
				r.Inputs[role] = v["path"]
			}
		}
		if b, err := json.Marshal(r.Inputs); err != nil || string(b) != c.want {
			t.Errorf("%s %v", b, err)
		}
	}
}

// The order of a list, and a label in a path, make another run; an artifact under another id with the same label does not. proves DATA-01
func TestFormsIdentity(t *testing.T) {
	p := formsPack(t)
	of := func(edit map[string]any) string {
		c, err := p.Canonicalize(formsArgs(t, edit), formsEnv())
		must(t, err)
		b, err := c.Params(plan.ProjectID("demo"), "slurm_script_v1").Canonical()
		must(t, err)
		if strings.Contains(string(b), "art_") {
			t.Errorf("an artifact id in %s", b)
		}
		return string(b)
	}
	if of(nil) == of(map[string]any{"bams": []string{art(12), art(11)}, "bais": []string{art(22), art(21)}}) {
		t.Error("two orders of a list are one run")
	}
	if of(nil) != of(nil) || of(nil) == of(map[string]any{"regions": art(2)}) {
		t.Error("an optional input is not part of the identity")
	}
}

// Every rule for the arguments of the new forms, by its code and field.
func TestFormsArguments(t *testing.T) {
	p := formsPack(t)
	for _, c := range []struct {
		name string
		args map[string]any
		want string
	}{
		{"too few", map[string]any{"bams": []string{}}, "ARGS-LIST bams"},
		{"too many", map[string]any{"bams": []string{art(10), art(11), art(12), art(13)}}, "ARGS-LIST bams"},
		{"no id in a list", map[string]any{"bams": []string{art(11), "x.bam"}}, "ARGS-ARTIFACT bams[1]"},
		{"wrong type in a list", map[string]any{"bams": []string{art(11), art(2)}}, "ARGS-ARTIFACT-TYPE bams[1]"},
		{"lists of a group", map[string]any{"bais": []string{art(21)}}, "ARGS-GROUP bais"},
		{"a label that is no file name", map[string]any{"first": art(91)}, "ARGS-LABEL first"},
		{"a required list", map[string]any{"bams": nil}, "ARGS-REQUIRED bams"},
		{"a text in place of a list", map[string]any{"bams": art(11)}, "ARGS-TYPE bams"},
	} {
		_, err := p.Canonicalize(formsArgs(t, c.args), formsEnv())
		if got := codesOf(err); got != c.want {
			t.Errorf("%s: %s, not %s: %v", c.name, got, c.want, err)
		}
	}
	// The same artifact twice, where only labels distinguish the positions.
	p = formsPack(t, "list: {min: 1, max: 3}, group: aln, destRelpath: \"in/aln/{index}.{label}\"",
		"list: {min: 1, max: 3}, group: aln, destRelpath: \"in/aln/{label}\"")
	_, err := p.Canonicalize(formsArgs(t, map[string]any{"bams": []string{art(11), art(11)}}), formsEnv())
	if codesOf(err) != "ARGS-DEST bams[1]" || strings.Count(fault.ProblemsOf(err)[0].Msg, art(11)) != 2 {
		t.Error(err)
	}
	// A text of the caller's never becomes an option, in a fragment too.
	p = formsPack(t, `args: ["--name={{ item }}"]`, `args: ["{{ item }}"]`)
	_, err = p.Canonicalize(formsArgs(t, map[string]any{"names": []string{"a", "-rf"}}), formsEnv())
	if codesOf(err) != "ARGS-OPTION-LIKE names" {
		t.Error(err)
	}
	if _, err = p.Canonicalize(formsArgs(t, map[string]any{"names": []string{""}}), formsEnv()); codesOf(err) !=
		"ARGS-TEMPLATE execution.pipe[1][2].args[0]" {
		t.Error("an empty word", err)
	}
	if notes := p.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "execution.pipe[1][2].args[0] begins with the caller's \"names\"") {
		t.Error(notes)
	}
	if notes := formsPack(t).Notes(); len(notes) != 0 {
		t.Error(notes)
	}
}

func codesOf(err error) string {
	var list []string
	for _, p := range fault.ProblemsOf(err) {
		list = append(list, p.Code+" "+p.Field)
	}
	return strings.Join(list, ", ")
}

// Every rule for a toolpack with the new forms, by its code and field.
func TestFormsRules(t *testing.T) {
	for _, c := range []struct {
		name, old, now, want string
	}{
		{"a list at one path", "in/aln/{index}.{label}\"", "in/aln/x\"", "PACK-INPUT-LIST inputs[1].destRelpath"},
		{"an index without a list", "in/first/{label}\"", "in/first/{index}\"",
			"PACK-INPUT-LIST inputs[0].destRelpath, PACK-STDIN execution.stdin"},
		{"min above max", "{min: 1, max: 3}", "{min: 4, max: 3}", "PACK-INPUT-LIST inputs[1].list"},
		{"a list of no array", "bams: {type: array, items: {type: string}}", "bams: {type: string}", "PACK-INPUT-PARAM inputs[1].param"},
		{"a list of numbers", "bams: {type: array, items: {type: string}}", "bams: {type: array, items: {type: integer}}",
			"PACK-INPUT-PARAM inputs[1].param"},
		{"an optional input that is required", "required: [first", "required: [regions, first", "PACK-INPUT-PARAM inputs[3].param"},
		{"an optional input without a condition", `{when: params.regions is defined, args: ["-L", "{{ inputs.regions }}"]}`, `"{{ inputs.regions }}"`,
			"PACK-TEMPLATE execution.pipe[0][3]"},
		{"a list as a word", `{each: inputs.bam, args: ["-b", "{{ item }}"]}`, `"{{ inputs.bam }}"`, "PACK-TEMPLATE execution.pipe[0][2]"},
		{"a label outside of the group", "{label:bam}", "{label:first}", "PACK-INPUT-GROUP inputs[2].destRelpath"},
		{"a label of nobody", "{label:bam}", "{label:bim}", "PACK-INPUT-GROUP inputs[2].destRelpath"},
		{"a group in two folders", "in/aln/{index}.{label:bam}.bai", "in/bai/{index}.{label:bam}.bai", "PACK-INPUT-GROUP inputs[2].destRelpath"},
		{"a fragment without a condition", "{when: params.level is defined, args:", "{args:",
			"PACK-EXECUTION execution.pipe[1][1], PACK-TEMPLATE execution.pipe[1][1].args[0]"},
		{"a fragment without arguments", `args: ["-{{ params.level }}"]`, `args: []`, "PACK-EXECUTION execution.pipe[1][1].args"},
		{"an empty word", `args: ["-{{ params.level }}"]`, `args: [""]`, "PACK-EXECUTION execution.pipe[1][1].args[0]"},
		{"no expression", "when: params.level is defined", `when: "{{ params.level }}"`, "PACK-TEMPLATE execution.pipe[1][1].when, " +
			"PACK-TEMPLATE execution.pipe[1][1].args[0]"},
		{"no list", "each: inputs.bam,", "each: inputs.bam +,", "PACK-TEMPLATE execution.pipe[0][2].each"},
		{"another's absence", "when: params.level is defined", "when: params.names is defined", "PACK-TEMPLATE execution.pipe[1][1].args[0]"},
		{"item without each", `args: ["-{{ params.level }}"]`, `args: ["-{{ item }}"]`, "PACK-TEMPLATE execution.pipe[1][1].args[0]"},
		{"a shell in a pipe", "- [count,", "- [bash,", "PACK-PROGRAM execution.pipe[1][0]"},
		{"a template in a pipe's program", "- [count,", `- ["{{ resources.cpus }}",`, "PACK-PROGRAM execution.pipe[1][0]"},
		{"a fragment as the program", "- [count,", `- [{when: params.level is defined, args: [count]},`, "PACK-PROGRAM execution.pipe[1][0]"},
		{"free text for an interpreter in a pipe", "- [count,", `- [python3,`,
			"PACK-TEMPLATE execution.pipe[1][2].each"},
		{"standard input of a list", "stdin: in/first/{label}", "stdin: \"in/aln/{index}.{label}\"", "PACK-STDIN execution.stdin"},
		{"cmd and pipe", "  stdin: in/first", "  cmd: [count]\n  stdin: in/first", "PACK-EXECUTION execution.pipe"},
		{"a URL as a program", "- [count,", `- ["x://y",`, "PACK-ARGV execution.pipe[1][0], PACK-PROGRAM execution.pipe[1][0]"},
	} {
		text := edited(t, forms, c.old, c.now)
		_, found := loadText(map[string]string{"a.tool.yaml": text})
		var got []string
		for _, p := range found {
			got = append(got, p.Code+" "+p.Field)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %v, not %s", c.name, found, c.want)
		}
	}
	if check := formatSchemaOf(t); check(forms) != nil {
		t.Error(check(forms))
	}
}
