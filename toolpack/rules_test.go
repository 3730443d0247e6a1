package toolpack

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
)

const checkedOutput = `declaredOutputs:
  - role: count
    type: JSON
    label: the count
    srcRelpath: out/count.json
    minBytes: 7
    checks:
      - {expr: "value['QC-passed reads'].total > 0", message: there are no reads}
      - {expr: "value.list | length == 2 and value.big == 4097", message: the list is wrong}
stderr:
  - {pattern: '\[ERRO\]', is: failure, message: the reads are broken}
  - {pattern: '(?i)^warn', is: warning, message: look at it}
  - {pattern: 'late', is: failure, message: never said of a warning}`

// A pack's conditions are part of its hash, and judge the same when it is read back from the ledger.
func TestOutputRules(t *testing.T) {
	plainPack, checked := packOf(t), packOf(t, "declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]",
		checkedOutput)
	if plainPack.Hash() == checked.Hash() {
		t.Error("checks do not change the pack_hash")
	}
	def, err := plainPack.Definition()
	if err != nil || strings.Contains(string(def), "checks") || strings.Contains(string(def), "stderr") || strings.Contains(string(def),
		"minRows") || strings.Contains(string(def), "lines") {
		t.Errorf("fields that are not used are in the definition: %s, %v", def, err)
	}
	if def, err = checked.Definition(); err != nil {
		t.Fatal(err)
	}
	stored, err := ReadContract(def)
	must(t, err)
	for name, c := range map[string]*Contract{"loaded": checked.Contract(), "stored": stored} {
		if bytes, rows := c.Least("count"); bytes != 7 || rows != 0 || !c.Asks("count") || c.Asks("other") {
			t.Error(name, bytes, rows)
		}
		for doc, want := range map[string]string{
			`{"QC-passed reads":{"total":3},"list":[1,2],"big":4097}`: "",
			`{"QC-passed reads":{"total":0},"list":[1,2],"big":4097}`: "there are no reads (the check value['QC-passed reads'].total > 0 is false)",
			`{"QC-passed reads":{"total":3},"list":[1],"big":4097}`:   "the list is wrong",
			`{"QC-passed reads":{"total":3},"list":[1,2],"big":4096}`: "the list is wrong",
			`{"list":[1,2]}`: "cannot be evaluated",
			`[]`:             "cannot be evaluated",
			`{`:              "not valid JSON",
		} {
			err := c.CheckValue("count", json.RawMessage(doc))
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || fault.CodeOf(err) != "OUTPUT-EXPR" ||
				!fault.Is(err, fault.Tool)) {
				t.Errorf("%s: %s: %v", name, doc, err)
			}
		}
		for line, want := range map[string]string{
			"[ERRO] x": "failure the reads are broken", "fine": " ", "Warn: late": "warning look at it",
			"too late": "failure never said of a warning",
		} {
			is, message := c.Line("stderr", "", line)
			if is+" "+message != want {
				t.Errorf("%s: %s: %s %s", name, line, is, message)
			}
		}
	}
	bad := strings.Replace(string(def), `\\[ERRO\\]`, `(`, 1)
	if _, err := ReadContract(json.RawMessage(bad)); !fault.Is(err, fault.Validation) || bad == string(def) {
		t.Errorf("a stored pattern that cannot be used: %v", err)
	}
}

const linedOutputs = `declaredOutputs:
  - {role: count, type: JSON, label: the count, srcRelpath: out/count.json}
  - role: logs
    type: DIRECTORY
    label: logs
    srcRelpath: out/logs
    lines:
      - {file: run.log, pattern: 'harmless', is: warning, message: look at it}
      - {file: run.log, pattern: 'Overwriting', is: failure, message: a sample is lost}
      - {file: sub/other.log, pattern: '^E', is: failure, message: it failed}
  - {role: text, type: LOG, label: log, srcRelpath: out/run.log, lines: [{pattern: '^E', is: failure, message: it failed}]}`

// A pack's rules for lines of its outputs are part of its hash, apply to the named files alone, and give the same
// result when the pack is read back from the ledger.
func TestLinesOfOutputs(t *testing.T) {
	const plainOutputs = "declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]"
	lined := packOf(t, plainOutputs, linedOutputs)
	other := packOf(t, plainOutputs, strings.Replace(linedOutputs, "Overwriting", "overwriting", 1))
	if lined.Hash() == other.Hash() {
		t.Errorf("packs with other patterns have one pack_hash, %s", lined.Hash())
	}
	def, err := lined.Definition()
	must(t, err)
	stored, err := ReadContract(def)
	must(t, err)
	for name, c := range map[string]*Contract{"loaded": lined.Contract(), "stored": stored} {
		for role, want := range map[string][]string{"logs": {"run.log", "sub/other.log"}, "text": {""}, "count": nil, "stderr": nil} {
			if got := c.LineFiles(role); !slices.Equal(got, want) {
				t.Errorf("the %s contract has patterns for the files %q of the role %s, want %q", name, got, role, want)
			}
		}
		for _, x := range []struct{ role, path, line, want string }{
			{"logs", "run.log", "Overwriting: reads", "failure a sample is lost"},
			{"logs", "run.log", "harmless: Overwriting", "warning look at it"},
			{"logs", "run.log", "Error", " "},
			{"logs", "sub/other.log", "Error", "failure it failed"},
			{"logs", "sub/other.log", "Overwriting", " "},
			{"logs", "", "Overwriting", " "},
			{"text", "", "Error", "failure it failed"},
			{"stderr", "", "Error", " "},
			{"count", "", "Error", " "},
		} {
			is, message := c.Line(x.role, x.path, x.line)
			if got := is + " " + message; got != x.want {
				t.Errorf("by the %s contract the line %q of %s %s is %q, want %q", name, x.line, x.role, x.path, got, x.want)
			}
		}
	}
}

// A condition ends soon, whatever the output holds.
func FuzzCheckValue(f *testing.F) {
	p := packOf(f, "declaredOutputs: [{role: count, type: JSON, label: the count, srcRelpath: out/count.json}]", checkedOutput)
	for _, s := range []string{`{}`, `{"list":[1,2]}`, `{"QC-passed reads":{"total":1e400}}`, `[[]]`, `7`} {
		f.Add(s, "value.a > 0")
	}
	f.Add(`{"list":[1]}`, "value.list | sort | join('x') != 'x' * 10 ** 9")
	f.Fuzz(func(t *testing.T, doc, expr string) {
		if err := p.Contract().CheckValue("count", json.RawMessage(doc)); err != nil && !fault.Is(err, fault.Tool) {
			t.Error(err)
		}
		if c, err := parseCondition(expr); err == nil {
			var tree any
			if json.Unmarshal([]byte(doc), &tree) == nil {
				c.Holds(map[string]any{objValue: plainValue(tree)})
			}
		}
	})
}

// An input with verify is verified, by the pack as it is loaded and as it is stored; an unused field is not in the
// definition.
func TestVerifiedInputs(t *testing.T) {
	plainPack, asking := packOf(t), packOf(t, "inputs: [{", "inputs: [{verify: full, ")
	def, err := plainPack.Definition()
	if err != nil || strings.Contains(string(def), "verify") || plainPack.Contract().Verify("data") {
		t.Errorf("%s, %v", def, err)
	}
	if def, err = asking.Definition(); err != nil {
		t.Fatal(err)
	}
	stored, err := ReadContract(def)
	must(t, err)
	for _, c := range []*Contract{stored, asking.Contract()} {
		if !c.Verify("data") || c.Verify("other") {
			t.Error("the input is not verified, or another one is")
		}
	}
}
