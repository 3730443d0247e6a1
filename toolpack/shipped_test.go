package toolpack

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shippedPacks returns the packs of all domains that ship.
func shippedPacks(t *testing.T) (packs []*Pack) {
	t.Helper()
	for _, dir := range shippedDomains(t) {
		d, err := openDir(dir, AllowMissingImages)
		must(t, err)
		packs = append(packs, d.Packs().List()...)
	}
	return packs
}

// No shipped pack has a default for a sample's identity: the argument is required, and a read group has only that.
// Two runs without it would be called as one person.
func TestNoDefaultSample(t *testing.T) {
	named := regexp.MustCompile(`(?i)sample|individual|patient|donor|read_?group`)
	readGroup := regexp.MustCompile(`@RG|--read-group|--rg`)
	for _, p := range shippedPacks(t) {
		for name, prop := range p.in.props {
			if named.MatchString(name) && (prop.hasDefault || !prop.required) {
				t.Errorf("the argument %s of %s %s has a default or is optional; it identifies a sample, so it must be required", name, p.ID(),
					p.Version())
			}
		}
		for _, word := range slices.Concat(append(p.def.Execution.Pipe, p.def.Execution.Cmd)...) {
			texts := []string{word.Text}
			if word.Fragment != nil {
				texts = word.Fragment.Args
			}
			for _, text := range texts {
				if readGroup.MatchString(text) && !strings.Contains(text, `SM:{{ params.sample }}`) {
					t.Errorf("the read group %q of %s %s does not have the argument sample as its sample", text, p.ID(), p.Version())
				}
			}
		}
	}
}

// The lines in which MultiQC 1.21 reports that it replaced a sample, as its modules print them, are failures of
// multiqc.report; other lines of a good report are not.
func TestOverwrittenSampleFails(t *testing.T) {
	packs := shippedPacks(t)
	p := packs[slices.IndexFunc(packs, func(p *Pack) bool { return p.ID() == "multiqc.report" })]
	for line, want := range map[string]string{
		"[2026-11-28 02:44:39,836] multiqc.modules.fastp.fastp [DEBUG]  Duplicate sample name found! Overwriting: reads":       "failure",
		"[2026-11-28 02:44:39,836] multiqc.modules.picard [DEBUG]  Duplicate sample name found in a.txt! Overwriting: reads":   "failure",
		"[2026-11-28 02:44:39,836] multiqc.modules.star [DEBUG]  Duplicate ReadsPerGene sample name found! Overwriting: reads": "failure",
		"[2026-11-28 02:44:39,836] multiqc.modules.dragen [DEBUG]  Duplicate DRAGEN output prefix found! Overwriting: reads":   "failure",
		"[2026-11-28 02:44:39,836] multiqc.modules.fastp.fastp [INFO]  Found 1 reports":                                        "",
		"[2026-11-28 02:44:39,836] multiqc.modules.fastp.fastp [DEBUG]  No duplication rate plot data: reads":                  "",
		"[2026-11-28 02:44:39,836] multiqc [DEBUG]  Summary of files that were skipped by the search: [skipped: 2]":            "",
	} {
		if is, _ := p.Contract().Line("data", "multiqc.log", line); is != want {
			t.Errorf("the line %q of MultiQC's log means %q to multiqc.report, want %q", line, is, want)
		}
	}
}

// unit matches what a numeric parameter of a shipped pack counts or measures. A new one is added here.
var unit = regexp.MustCompile(`\b(bases?|Phred|fraction|how many (genes|hits|reads|sequences|words|positions)|reads of each file|` +
	`number of (copies|rows|the last page)|maximum number of rows|pixels|without a unit)\b`)

// Every numeric parameter of a shipped pack names its unit, or what it counts: people and models choose values by
// that alone.
func TestUnits(t *testing.T) {
	type param struct {
		Type        any
		Description string
		Items       *param
	}
	numeric := func(p *param) bool {
		return p != nil && slices.ContainsFunc([]any{"integer", "number"}, func(is any) bool { return p.Type == is })
	}
	n := 0
	for _, dir := range shippedDomains(t) {
		d, err := openDir(dir, AllowMissingImages)
		must(t, err)
		for _, p := range d.Packs().List() {
			var schema struct{ Properties map[string]param }
			if err := json.Unmarshal(p.InputSchema(), &schema); err != nil {
				t.Fatal(p.ID(), err)
			}
			for name, x := range schema.Properties {
				if !numeric(&x) && !numeric(x.Items) {
					continue
				}
				if n++; !unit.MatchString(x.Description) {
					t.Errorf("%s: the parameter %s has no unit: %q", p.ID(), name, x.Description)
				}
			}
		}
	}
	if n < 15 {
		t.Errorf("%d numeric parameters, want at least 15: this test searches for the wrong thing", n)
	}
}

// A check reports where a caller's text could become an option, a file of arguments or a plug-in, and where it
// reaches a program that runs code.
func TestOptionNotes(t *testing.T) {
	const mode = `"--mode={{ params.mode }}"`
	for _, c := range []struct{ cmd, schema, want string }{
		{`"--mode={{ params.text }}"`, "", ""},
		{`"{{ params.text }}"`, "", `"text", which may begin with - or @ or +`},
		{`"{{ params.text }}.txt"`, "", `"text", which may begin with - or @ or +`},
		{`"{% if params.n > 1 %}{{ params.text }}{% endif %}"`, "", `"text", which may begin`},
		{`--, "{{ params.text }}"`, "", ""},
		{`"x{{ params.text }}"`, "", ""},
		{`"{{ params.n }}{{ params.text }}"`, "", ""},
		{`"{{ params.text }}"`, `, pattern: "^[a-z]"`, ""},
		{`"{{ params.text }}"`, `, pattern: "[a-z]+"`, "- or @ or +"},
		{`"{{ params.text }}"`, `, pattern: "^[^-]"`, "begin with @ or +:"},
		{`"{{ params.text }}"`, `, pattern: "^(x|-b)"`, "begin with -:"},
		{`"{{ params.text }}"`, `, pattern: "^[^-@+]|^$"`, ""},
		{`"{{ params.text }}"`, `, pattern: "^[a-z]*"`, "- or @ or +"},
		{`"{{ params.text }}"`, `, pattern: "^x?\\w"`, ""},
		{`"{{ params.text }}"`, `, enum: ["-a", "@b", x]`, ""},
	} {
		text := with(t, mode, c.cmd, "text: {type: string, default: x", "text: {type: string, default: x"+c.schema)
		set, found := loadText(map[string]string{"a.tool.yaml": text})
		if found != nil {
			t.Fatalf("%s %s: %v", c.cmd, c.schema, found)
		}
		notes := strings.Join(set.List()[0].Notes(), "\n")
		if (c.want == "") != (notes == "") || !strings.Contains(notes, c.want) {
			t.Errorf("%s %s: %q, want %q", c.cmd, c.schema, notes, c.want)
		}
	}
	text := strings.Replace(with(t, mode, `"--mode={{ params.text }}"`), "cmd: [count", "cmd: [java, -jar, /opt/x.jar", 1)
	set, found := loadText(map[string]string{"a.tool.yaml": text})
	if found != nil {
		t.Fatal(found)
	}
	if notes := set.List()[0].Notes(); len(notes) != 1 || !strings.Contains(notes[0], `"text" to java, which runs code`) {
		t.Error(notes)
	}
}

// A pack that has an interpreter run an input is named.
func TestScriptNotes(t *testing.T) {
	for cmd, named := range map[string]bool{
		"[python3.12, -I, /work/in/data]": true, `[java, -jar, "{{ inputs.data }}"]`: true, "[Rscript, /work/in/data, x]": true,
		"[python3, /opt/x.py, /work/in/data]": false, "[samtools, /work/in/data]": false, "[tar, -tf, /work/in/data]": false,
	} {
		text := with(t, `[count, "--mode={{ params.mode }}", -n, "{{params.n}}", /work/in/data]`, cmd)
		set, found := loadText(map[string]string{"a.tool.yaml": text})
		if found != nil {
			t.Fatal(cmd, found)
		}
		notes := strings.Join(set.List()[0].Notes(), "\n")
		if strings.Contains(notes, "a file of the caller's to run") != named {
			t.Errorf("%s: %q", cmd, notes)
		}
	}
}

// Shipped packs, and an author's starters, pass no caller's text to a program as an option.
func TestShippedPacksTakeNoOptions(t *testing.T) {
	for _, dir := range shippedDomains(t) {
		d, err := openDir(dir, AllowMissingImages)
		must(t, err)
		for _, p := range d.Packs().List() {
			if notes := p.Notes(); len(notes) > 0 {
				t.Error(notes)
			}
		}
	}
	for _, kind := range StarterKinds() {
		text, err := Starter("lab.count.lines", kind)
		must(t, err)
		set, _ := loadText(map[string]string{"x.tool.yaml": text})
		if notes := set.List()[0].Notes(); len(notes) > 0 {
			t.Error(notes)
		}
	}
}
