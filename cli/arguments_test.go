package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/fault"
)

const argumentsSchema = `{"type":"object","additionalProperties":false,"properties":{
	"bam":{"type":"string","pattern":"^art_[0-9A-HJKMNP-TV-Z]{26}$"},"bams":{"type":"array","items":{"$ref":"#/properties/bam"}},
	"plain":{"type":"string"},"min_quality":{"type":"integer"},"flags":{"type":"array","items":{"type":"string"}},
	"sizes":{"type":"array","items":{"type":"integer"}},"any":{"type":"array"},"note":{"type":"string"},"index":{"type":"string"},
	"opts":{"type":"object","additionalProperties":false,"properties":{"x":{"type":"integer"},"deep":{"type":"object","properties":{"y":{"type":"boolean"}}}}}}}`

func commandLine(t *testing.T, words ...string) Run {
	t.Helper()
	var c struct {
		Run Run `cmd:""`
	}
	p, err := kong.New(&c)
	if err == nil {
		_, err = p.Parse(append([]string{"run", "a.tool"}, words...))
	}
	must(t, err)
	return c.Run
}

// Lists and parts of objects come one by one, with the types of the schema, and each misspelt name is answered with its neighbour.
func TestArgumentsOfAPerson(t *testing.T) {
	id, other := "art_183BZJHEYXMKZBB4A0X74BNFSS", "art_283BZJHEYXMKZBB4A0X74BNFSS"
	tool := app.ToolDoc{ToolRow: app.ToolRow{ToolID: "a.tool"}, InputSchema: json.RawMessage(argumentsSchema), MaxInputBytes: 10,
		Inputs: []app.PackInput{{Role: "alignments", Param: "bams"}, {Role: "bam", Param: "bam", Types: []string{"BAM"}},
			{Role: "list", Param: "plain"}, {Role: "index", Param: "index", Types: []string{"DIRECTORY"}}}}
	for line, want := range map[string]string{
		"-i bam=" + id: `{"bam":"` + id + `"}`, "-p bam=ref:hg38": `{"bam":"ref:hg38"}`,
		"-i alignments=" + id + " -i alignments=" + other: `{"bams":["` + id + `","` + other + `"]}`,
		"-i bams=" + id:                          `{"bams":["` + id + `"]}`,
		`-p bams=["` + id + `"]`:                 `{"bams":["` + id + `"]}`,
		"-p flags=a -p flags=b":                  `{"flags":["a","b"]}`,
		"-p flags=5":                             `{"flags":["5"]}`,
		"-p sizes=1 -p sizes=2":                  `{"sizes":[1,2]}`,
		"-p sizes=[1,2]":                         `{"sizes":[1,2]}`,
		"-p opts.x=3 -p opts.deep.y=true":        `{"opts":{"deep":{"y":true},"x":3}}`,
		`-p opts={"x":3} -p min_quality=7`:       `{"min_quality":7,"opts":{"x":3}}`,
		"-p any=1 -p any=two":                    `{"any":[1,"two"]}`,
		"-p note=a.b=c":                          `{"note":"a.b=c"}`,
		"-p plain=" + id + " -p flags=[\"a,b\"]": `{"flags":["a,b"],"plain":"` + id + `"}`,
	} {
		args, err := commandLine(t, strings.Fields(line)...).args(t.Context(), nil, nil, tool)
		got, _ := json.Marshal(args)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", line, got, err, want)
		}
	}
	dir := t.TempDir()
	reads := filepath.Join(dir, "reads.bam")
	must(t, os.WriteFile(reads, []byte("more than ten bytes"), 0o600))
	small := filepath.Join(dir, "small.idx")
	must(t, os.WriteFile(small, nil, 0o600))
	for line, want := range map[string]string{
		"-p min_qualty=7":                   `a.tool has no parameter "min_qualty"; did you mean min_quality?`,
		"-p opts.z=7":                       `a.tool has no parameter "opts.z"; did you mean opts.x?`,
		"-i alignment=" + reads:             `a.tool has no input "alignment"; did you mean alignments?`,
		"-p min_quality=1 -p min_quality=2": "min_quality already has a value", "-p opts={} -p opts.x=1": "opts already has a value",
		"-p sizes=1 -p sizes=two":     "an integer",
		"-i bam=" + dir + "/read.bam": `did you mean "` + reads + `"?`,
		"-i bam=" + reads:             "have 19 bytes in total; a.tool accepts at most 10 bytes. Nothing was read",
		"-p any=word":                 "a JSON array",
		"-i bam=" + dir:               `"` + dir + `" is a folder, but a.tool takes a file here`,
		"-i index=" + small:           `"` + small + `" is a file, but a.tool takes a folder here`,
	} {
		args, err := commandLine(t, strings.Fields(line)...).args(t.Context(), nil, nil, tool)
		if err == nil || !strings.Contains(err.Error()+" "+fault.Prose(err), want) {
			t.Errorf("%s: %v %v", line, args, err)
		}
	}
}

// The beginning of an id is found in either case, with its prefix or without; other words are not ids.
func TestBeginningsOfIDs(t *testing.T) {
	whole := "run_183BZJHEYXMKZBB4A0X74BNFSS"
	for text, want := range map[string]string{"run_183b": "run_183B", "183B": "run_183B", "RUN_1": "run_1", whole: whole, "run_": "", "": "",
		"odd": "", "run_x-1": "", whole + "0": "", "art_183B": ""} {
		if got := runIDs.beginning(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if isShort(runIDs, whole) || !isShort(runIDs, whole[:29]) {
		t.Error("a whole id is not short")
	}
}
