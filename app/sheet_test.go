package app

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"

	"slurmgate/fault"
	"slurmgate/toolpack"
)

// Rows in the call equal the same sheet: the same requests under the same name are the same batch.
//
// proves MANY-01
func TestRowsAreASheet(t *testing.T) {
	g := batchGateway(t)
	ids := g.reads(t, 3)
	sheet := "sample,reads,tags\nA," + ids[0] + ",x;y\nB," + ids[1] + ",\nC," + ids[2] + ",z\n"
	rows := []map[string]any{{"sample": "A", "reads": ids[0], "tags": []string{"x", "y"}}, {"sample": "B", "reads": ids[1], "tags": nil},
		{"sample": "C", "reads": ids[2], "tags": "z"}}
	var asSheet, asRows BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": sheet}, &asSheet)
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "rows": rows}, &asRows); err != nil ||
		asRows.BatchID != asSheet.BatchID || !asRows.Existed || asRows.Rows != 3 {
		t.Errorf("batch.run with rows: batch %s, replayed %t, %d rows, %+v; want %s again", asRows.BatchID, asRows.Existed, asRows.Rows,
			err, asSheet.BatchID)
	}
	for _, args := range []map[string]any{{"rows": rows, "sheet": sheet}, {"rows": rows, "sheet_artifact_id": ids[0]}, {}} {
		args["tool_id"], args["name"] = "seqkit.stats", "c"
		if err := g.callBatch(t, "batch.run", args, nil); err == nil || !strings.Contains(err.Message, "rows, sheet and sheet_artifact_id") {
			t.Errorf("batch.run with %v ended with %+v, want exactly one of rows, sheet and sheet_artifact_id", args, err)
		}
	}
}

// All mistakes of all rows are reported together, each with its row, including an artifact that does not exist.
//
// proves MANY-01
func TestRowMistakes(t *testing.T) {
	for text, want := range map[string][]string{
		`[{"reads":"art_00000000000000000000000000"},{"raeds":"x"},{"raeds":"y","colour":1}]`: {
			"row 2, column raeds: t.x has no parameter \"raeds\"; did you mean reads?", "row 3, column colour: t.x has no parameter"},
		`[{"sample":"a/b","reads":"reads.fq"},{"sample":3,"reads":"","tags":[1]}]`: {
			"row 1, column reads: \"reads.fq\" is not an id", "row 1, column sample: \"a/b\" is not allowed here",
			"row 2, column reads: the text is empty", "row 2, column sample: the value is not a text",
			"row 2, column tags: the value is not a text"},
	} {
		var rows []Row
		must(t, json.Unmarshal([]byte(text), &rows))
		_, problems := rowRequests(sheetTool(), rows, nil)
		var got []string
		for _, p := range problems.list {
			got = append(got, p.Field+": "+p.Msg)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q", text, got)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s: %s, want %s", text, got[i], want[i])
			}
		}
	}
	rows, problems := rowRequests(sheetTool(), []Row{{"fastq": json.RawMessage(`"art_00000000000000000000000000"`),
		"more": json.RawMessage(`[1,2]`), "on": json.RawMessage(`null`)}}, Row{"level": json.RawMessage(`3`)})
	if problems.n > 0 || len(rows) != 1 || rows[0].sample != "row-1" ||
		string(rows[0].args) != `{"level":3,"more":[1,2],"reads":"art_00000000000000000000000000"}` {
		t.Errorf("rowRequests: %v, %d problems; want row-1 with reads by role", rows, problems.n)
	}

	g := batchGateway(t)
	ids := g.reads(t, 1)
	none := "art_" + strings.Repeat("0", 26)
	args := map[string]any{"tool_id": "seqkit.stats", "name": "b", "rows": []map[string]any{{"reads": ids[0]}, {"reads": none},
		{"sample": "x"},
		{"reads": ids[0], "nothing": 1}}}
	err := g.callBatch(t, "batch.run", args, nil)
	if err == nil || !strings.Contains(err.Message, "row 4, column nothing") {
		t.Errorf("batch.run with an unknown column ended with %+v, want row 4", err)
	}
	args["rows"] = []map[string]any{{"reads": ids[0]}, {"reads": none}, {"sample": "x"}}
	err = g.callBatch(t, "batch.run", args, nil)
	if err == nil || fmt.Sprint(err.Details["kind"]) != string(fault.Validation) || !strings.Contains(err.Message, "2 mistakes") ||
		!strings.Contains(err.Message, "row 2") || !strings.Contains(err.Message, "row 3") {
		t.Errorf("batch.run with two bad rows ended with %+v, want both", err)
	}
}

// asUTF16 encodes a text as spreadsheets do for "Unicode text".
func asUTF16(text string, big bool) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
		pair := []byte{byte(u), byte(u >> 8)}
		if big {
			pair[0], pair[1] = pair[1], pair[0]
		}
		b.Write(pair)
	}
	return b.String()
}

// A sheet is read in the forms that spreadsheets save and that the bytes prove, each row with its line.
func TestSheetEncodings(t *testing.T) {
	plain := "sample,reads\nGr\u00fcn,x y\n"
	tabs := strings.ReplaceAll(plain, ",", "\t")
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"UTF-8":                {plain, 2},
		"with its mark":        {"\ufeff" + plain, 2},
		"carriage returns":     {strings.ReplaceAll(plain, "\n", "\r"), 2},
		"UTF-16, little":       {asUTF16(tabs, false), 2},
		"UTF-16, big":          {asUTF16(strings.ReplaceAll(tabs, "\n", "\r\n"), true), 2},
		"sep=;":                {"sep=;\r\n" + strings.ReplaceAll(plain, ",", ";"), 3},
		"sep=, in quotes":      {"\"sep=,\"\n" + plain, 3},
		"sep=| after the mark": {"\ufeffsep=|\n" + strings.ReplaceAll(plain, ",", "|"), 3},
	} {
		s, err := ReadSheet(t.Context(), []byte(c.text))
		if err != nil {
			t.Errorf("%s: ReadSheet: %v", name, err)
			continue
		}
		if got := strings.Join(s.Columns, "+"); got != "sample+reads" || len(s.Rows) != 1 {
			t.Errorf("%s: ReadSheet reads the columns %s and %d rows, want sample+reads and 1", name, got, len(s.Rows))
			continue
		}
		if got := strings.Join(s.Rows[0].Cells, "+"); got != "Gr\u00fcn+x y" || s.Rows[0].Line != c.line {
			t.Errorf("%s: ReadSheet reads %q of line %d, want Gr\u00fcn+x y of line %d", name, got, s.Rows[0].Line, c.line)
		}
	}
}

// A sheet whose bytes do not prove their form is refused, with the form that they seem to have and how to save it.
func TestSheetEncodingsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, code, msg, hint string }{
		"a workbook":      {"PK\x03\x04\x14\x00", "SHEET-WORKBOOK", "workbook", "CSV UTF-8"},
		"an old workbook": {"\xd0\xcf\x11\xe0\xa1", "SHEET-WORKBOOK", "workbook", "CSV UTF-8"},
		"Windows-1252":    {"sample,note\nA,Gr\xfcn\n", "SHEET-TEXT", "line 2 has the byte 0xFC", "CSV UTF-8"},
		"UTF-16, no mark": {asUTF16("sample\nA\n", false)[2:], "SHEET-TEXT", "NUL bytes", "CSV UTF-8"},
		"UTF-16, cut":     {asUTF16("sample\nA\n", false) + "x", "SHEET-TEXT", "0xFF", "CSV UTF-8"},
		"another sep=":    {"sep=xx\nsample\n", "SHEET-SEPARATOR", "names the separator", ""},
		"bare semicolons": {"sample;reads\nA;x\n", "SHEET-SEPARATOR", "separated by semicolons", "sep=;"},
	} {
		_, err := ReadSheet(t.Context(), []byte(c.text))
		found := fault.ProblemsOf(err)
		if len(found) != 1 || found[0].Code != c.code || !strings.Contains(found[0].Msg, c.msg) || !strings.Contains(found[0].Hint, c.hint) {
			t.Errorf("%s: ReadSheet refuses with %+v, want %s with %q and the hint %q", name, found, c.code, c.msg, c.hint)
		}
	}
}

// Repetitions in a sheet cause warnings, and its samples are counted, whatever the number of rows.
func TestRowWarnings(t *testing.T) {
	ids := strings.NewReplacer("$1", readsA, "$2", readsB, "$3", "art_22222222222222222222222222", "$4", "art_33333333333333333333333333")
	const lanes, shared, twice = "samples in several rows", "one file for several samples", "one file for two inputs of a row"
	for name, c := range map[string]struct {
		sheet   string
		samples int
		want    []string
	}{
		"nothing":              {"sample,x,y\nA,$1,$2\nB,$3,$4\n", 2, nil},
		"lanes":                {"sample,x\nA,$1\nA,$2\nB,$3\n", 2, []string{lanes + `.*"A" \(rows 2, 3\).*join their files`}},
		"one file, two":        {"sample,x\nA,$1\nC,$1\n", 2, []string{shared + ".*" + readsA + ` \(rows 2, 3\)`}},
		"one of four, twice":   {"sample,x\nA,$1\nB,$2\nC,$3\nD,$2\n", 4, []string{shared + ".*" + readsB + ` \(rows 3, 5\)`}},
		"a reference":          {"sample,x,y\nA,$1,$4\nB,$2,$4\nC,$3,$4\n", 3, nil},
		"two references":       {"sample,x,y\n" + strings.Repeat("A,$1,$3\nB,$2,$4\n", 1) + "C,$1,$3\n", 3, []string{shared}},
		"both mates":           {"sample,x,y\nA,$1,$1\n", 1, []string{twice + ".*" + readsA + " as x and y of row 2"}},
		"a sweep":              {"sample,x,z\nA,$1,1\nB,$1,2\nC,$1,3\n", 3, nil},
		"no samples":           {"x\n$1\n$2\n", 2, nil},
		"a reference's name":   {"sample,x,y\nA,$1,ref:hg38\nB,$2,ref:hg38\n", 2, nil},
		"lanes with two mates": {"sample,x,y\nA,$1,$2\nA,$3,$2\n", 1, []string{lanes}},
	} {
		doc := ToolDoc{Inputs: []PackInput{{Param: "x", Role: "x"}, {Param: "y", Role: "y"}}}
		doc.InputSchema = []byte(`{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"string"},"z":{"type":"integer"}}}`)
		s, err := ReadSheet(t.Context(), []byte(ids.Replace(c.sheet)))
		if err != nil {
			t.Fatal(name, err)
		}
		samples, got := s.Warnings(doc.Place, doc.Inputs)
		ok := samples == c.samples && len(got) == len(c.want)
		for i := range c.want {
			ok = ok && regexp.MustCompile(c.want[i]).MatchString(got[i])
		}
		if !ok {
			t.Errorf("%s: a sheet of %d samples with the warnings %q, want %d and %q", name, samples, got, c.samples, c.want)
		}
	}
	doc := ToolDoc{Inputs: []PackInput{{Param: "x", List: &toolpack.ListInfo{Min: 1, Max: 9}}}}
	if text := gather(doc.Inputs); !strings.Contains(text, "one cell of x, separated by semicolons") {
		t.Errorf("of a tool that takes a list: %s", text)
	}
	if text := some([]int{1, 2, 3, 4, 5, 6, 7}); text != "1, 2, 3, 4, 5, 2 more" {
		t.Error(fmt.Sprintf("some of seven is %q, want 1, 2, 3, 4, 5, 2 more", text))
	}
}

// ownTool returns a tool with parameters named like the columns of a row; sample is the schema of the parameter
// sample.
func ownTool(sample string) ToolDoc {
	schema := `{"type":"object","additionalProperties":false,"properties":{"reads":{"type":"string"},"sample":` + sample + `,
 "label":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}}}`
	d := ToolDoc{InputSchema: json.RawMessage(schema), Inputs: []PackInput{{Param: "reads", Role: "fastq"}}}
	d.ToolID = "t.own"
	return d
}

const (
	readsA   = "art_00000000000000000000000000"
	readsB   = "art_11111111111111111111111111"
	textType = `{"type":"string"}`
)

// shownRows formats rows and mistakes of a sheet for comparison.
func shownRows(rows []sheetArgs, problems any) string {
	text := ""
	for _, r := range rows {
		text += fmt.Sprintf("%s|%s|%v|%s\n", r.sample, r.label, r.tags, r.args)
	}
	return text + fmt.Sprint(problems)
}

// A sheet's columns sample, tags and label name the row, and reach the tool's parameters of these names too.
//
// proves MANY-01
func TestOwnColumnsReachParameters(t *testing.T) {
	one := `S1|L1|[x y]|{"label":"L1","reads":"` + readsA + `","sample":"S1","tags":["x","y"]}` + "\n"
	for name, c := range map[string]struct{ sample, sheet, rows, want string }{
		"all three": {textType, "sample,reads,label,tags\nS1," + readsA + ",L1,x;y\n",
			`[{"sample":"S1","reads":"` + readsA + `","label":"L1","tags":["x","y"]}]`, one + "[]"},
		"a number": {`{"type":"integer"}`, "sample\n7\n", `[{"sample":7}]`, `7||[]|{"sample":7}` + "\n[]"},
	} {
		sheet, err := ReadSheet(context.Background(), []byte(c.sheet))
		must(t, err)
		got, problems := sheet.requests(ownTool(c.sample).Place, nil)
		if text := shownRows(got, problems.list); text != c.want {
			t.Errorf("%s: requests of the sheet are\n%s\nwant\n%s", name, text, c.want)
		}
		var rows []Row
		must(t, json.Unmarshal([]byte(c.rows), &rows))
		got, problems = rowRequests(ownTool(c.sample), rows, nil)
		if text := shownRows(got, problems.list); text != c.want {
			t.Errorf("%s: requests of the rows are\n%s\nwant\n%s", name, text, c.want)
		}
	}
}

// A sample that cannot name a row is refused although the tool would accept it; a row without a sample does not set
// the parameter.
func TestSampleThatNamesNoRow(t *testing.T) {
	sheet, err := ReadSheet(context.Background(), []byte("sample,reads\na/b,"+readsA+"\n,"+readsB+"\n"))
	must(t, err)
	rows, problems := sheet.requests(ownTool(textType).Place, nil)
	if problems.n != 1 || problems.list[0].Field != "row 2, column sample" {
		t.Errorf("the sample a/b gave the mistakes %v, want one of row 2, column sample", problems.list)
	}
	want := `row-3||[]|{"reads":"` + readsB + `"}` + "\n[]"
	if got := shownRows(rows, "[]"); got != want {
		t.Errorf("the row without a sample is %s, want %s", got, want)
	}
}

// An input named sample is a file: its column is only that file, and does not name the row.
func TestInputNamedSample(t *testing.T) {
	tool := ownTool(textType)
	tool.Inputs = append(tool.Inputs, PackInput{Param: "sample", Role: "sample"})
	sheet, err := ReadSheet(context.Background(), []byte("sample\n"+readsA+"\n"))
	must(t, err)
	rows, problems := sheet.requests(tool.Place, nil)
	if got, want := shownRows(rows, problems.list), `row-2||[]|{"sample":"`+readsA+`"}`+"\n[]"; got != want {
		t.Errorf("the row is %s, want %s", got, want)
	}
}

// In a sheet of several steps the column sample names the rows of all of them and sets each parameter of that name;
// STEP.sample is an argument of that step only, and where another step makes the argument the column only names the
// row.
func TestSampleOfSteps(t *testing.T) {
	plain := ownTool(textType)
	fed := ownTool(textType)
	fed.Inputs = append(fed.Inputs, PackInput{Param: "label", Role: "label"})
	tools := StepTools{Steps: []Step{{Name: "one"}, {Name: "two", From: []StepInput{{Param: "label", Of: []StepOutput{{"one", "out"}}}}}},
		Tools: []ToolDoc{plain, fed}}
	sheet, err := ReadSheet(context.Background(), []byte("two.sample,sample,label\nS2,S1,L1\n"))
	must(t, err)
	for i, want := range []string{`S1|L1|[]|{"label":"L1","sample":"S1"}` + "\n[]", `S1|L1|[]|{"sample":"S2"}` + "\n[]"} {
		rows, problems := tools.requests(i, sheet, nil)
		if got := shownRows(rows, problems.list); got != want {
			t.Errorf("step %s has the row %s, want %s", tools.Steps[i].Name, got, want)
		}
	}
}
