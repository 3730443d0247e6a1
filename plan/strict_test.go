package plan

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"slurmgate/fault"
)

// A document that could be read in two ways is refused. proves ABI-08
func TestStrictDecoding(t *testing.T) {
	in := func(old, new string) string {
		t.Helper()
		if !strings.Contains(complete, old) {
			t.Fatal(old)
		}
		return strings.Replace(complete, old, new, 1)
	}
	for _, c := range []struct{ name, doc, code, field string }{
		{"duplicate key", in(`"cpus": 2`, `"cpus": 2, "cpus": 3`), "JSON-DUPLICATE-KEY", "resources.cpus"},
		{"duplicate key, escaped", in(`"cpus": 2`, `"cpus": 2, "c\u0070us": 3`), "JSON-DUPLICATE-KEY", "resources.cpus"},
		{"case twin", in(`"cpus": 2`, `"cpus": 2, "CPUs": 3`), "JSON-CASE-TWIN", "resources.CPUs"},
		{"case twin in env", in(`"A": "x y"`, `"A": "x y", "a": "z"`), "JSON-CASE-TWIN", "execution.command.env.a"},
		{"case twin among many", in(`"A": "x y"`, `"A": "x y", "B_": "", "C_": "", "D_": "", "E_": "", "F_": "", "G_": "", "H_": "", "I_": "", "J_": "", "b_": ""`), "JSON-CASE-TWIN", "execution.command.env.b_"},
		{"late case twin among many", in(`"A": "x y"`,
			`"A": "x y", "B_": "", "C_": "", "D_": "", "E_": "", "F_": "", "G_": "", "H_": "", "I_": "", "J_": "", "j_": ""`), "JSON-CASE-TWIN",
			"execution.command.env.j_"},
		{"case of a field", in(`"image"`, `"Image"`), "JSON-UNKNOWN-FIELD", "execution.container.Image"},
		{"unknown field", in(`"version": 1`, `"version": 1, "x": 2`), "JSON-UNKNOWN-FIELD", "x"},
		{"unknown field, nested", in(`"role": "bam"`, `"role": "bam", "mode": 7`), "JSON-UNKNOWN-FIELD", "io.inputs[1].mode"},
		{"2^53", in(`"cpus": 2`, `"cpus": 9007199254740992`), "JSON-NUMBER", "resources.cpus"},
		{"-2^53", in(`"cpus": 2`, `"cpus": -9007199254740992`), "JSON-NUMBER", "resources.cpus"},
		{"1e-400", in(`"cpus": 2`, `"cpus": 1e-400`), "JSON-NUMBER", "resources.cpus"},
		{"-0.1E-400", in(`"cpus": 2`, `"cpus": -0.1E-400`), "JSON-NUMBER", "resources.cpus"},
		{"1e400", in(`"cpus": 2`, `"cpus": 1e400`), "JSON-NUMBER", "resources.cpus"},
		{"NaN", in(`"cpus": 2`, `"cpus": NaN`), "JSON-SYNTAX", ""},
		{"Infinity", in(`"cpus": 2`, `"cpus": -Infinity`), "JSON-SYNTAX", ""},
		{"undefined", in(`"cpus": 2`, `"cpus": undefined`), "JSON-SYNTAX", ""},
		{"hexadecimal", in(`"cpus": 2`, `"cpus": 0x10`), "JSON-SYNTAX", ""},
		{"leading zero", in(`"cpus": 2`, `"cpus": 02`), "JSON-SYNTAX", ""},
		{"comment", in(`"cpus": 2`, `/* */"cpus": 2`), "JSON-SYNTAX", ""},
		{"trailing comma", in(`"mem_mb": 2048, "gpus": 1, "gpu_type": "a100"`, `"mem_mb": 2048,`), "JSON-SYNTAX", ""},
		{"lone surrogate", in(`"a b\tc\nd"`, `"\ud800"`), "JSON-UNICODE", ""},
		{"reversed surrogates", in(`"a b\tc\nd"`, `"\udc00\ud800"`), "JSON-UNICODE", ""},
		{"invalid UTF-8", in(`a b\tc\nd`, "a\xffb"), "JSON-UNICODE", ""},
		{"overlong UTF-8", in(`a b\tc\nd`, "a\xc0\xafb"), "JSON-UNICODE", ""},
		{"raw newline", in(`a b\tc\nd`, "a\nb"), "JSON-SYNTAX", ""},
		{"trailing value", complete + `{}`, "JSON-TRAILING", ""},
		{"trailing text", complete + ` x`, "JSON-TRAILING", ""},
		{"trailing NUL", complete + "\x00", "JSON-TRAILING", ""},
		{"BOM", "\ufeff" + complete, "JSON-SYNTAX", ""},
		{"nothing", "", "JSON-SYNTAX", ""},
		{"blank", " \n\t", "JSON-SYNTAX", ""},
		{"half", complete[:len(complete)/2], "JSON-SYNTAX", ""},
		{"depth bomb", strings.Repeat("[", 100_000), "JSON-DEPTH", ""},
		{"depth bomb of objects", strings.Repeat(`{"a":`, 100_000), "JSON-DEPTH", ""},
		{"too large", `{"version":1}` + strings.Repeat(" ", MaxDocumentBytes), "JSON-SIZE", ""},
		{"string for number", in(`"cpus": 2`, `"cpus": "2"`), "JSON-TYPE", "resources.cpus"},
		{"fraction", in(`"cpus": 2`, `"cpus": 2.5`), "JSON-TYPE", "resources.cpus"},
		{"number for string", in(`"short"`, `7`), "JSON-TYPE", "placement.partition"},
		{"string for boolean", in(`"readonly_rootfs": true`, `"readonly_rootfs": "true"`), "JSON-TYPE", "execution.container.readonly_rootfs"},
		{"object for list", in(`["samtools", "flagstat", "-O", "json", "/work/in/input.bam", "a b\tc\nd", ""]`, `{}`), "JSON-TYPE",
			"execution.command.argv"},
		{"null in argv", in(`"flagstat"`, `null`), "JSON-TYPE", "execution.command.argv[1]"},
		{"null variable", in(`"x y"`, `null`), "JSON-TYPE", "execution.command.env.A"},
		{"list", `[]`, "JSON-TYPE", ""},
		{"text", `"x"`, "JSON-TYPE", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodeSpec([]byte(c.doc), Rules{})
			if !fault.Is(err, fault.Validation) || fault.CodeOf(err) != c.code {
				t.Fatalf("got %v, want %s", err, c.code)
			}
			if p := fault.ProblemsOf(err)[0]; c.field != "" && p.Field != c.field {
				t.Errorf("field %q, want %q", p.Field, c.field)
			}
		})
	}
	if err := Check([]byte(`9007199254740991`)); err != nil {
		t.Error(err)
	}
	if err := Check([]byte(strings.Repeat("[", 64) + strings.Repeat("]", 64))); err != nil {
		t.Error(err)
	}
}

// Documents that the gateway wrote itself may have keys that differ only in case: they must stay readable.
func TestMarshalTwins(t *testing.T) {
	b, err := Marshal(map[string]string{"log": "a", "LOG": "b"})
	if err != nil || string(b) != `{"LOG":"b","log":"a"}` {
		t.Errorf("%s %v", b, err)
	}
}

// A decoding error gives the place, the problem and the remedy, in a text that is complete by itself.
func TestDecodingMessages(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"{\n  \"version\": 1,\n  \"version\": 1\n}",
			`plan.json:3:3: version: the key "version" appears twice (each key once); remove one of the two`},
		{"{\"é\": 1, \"resources\": {\"cpus\": 1, \"CPUs\": 2}}",
			`plan.json:1:35: resources.CPUs: the keys "cpus" and "CPUs" differ only in case (keys that differ in more than case); rename or remove one of them`},
		{"{\"version\": 1,\n}", `plan.json:1:14: version: invalid character ',' at start of value (valid JSON); remove the comma before a } or ]`},
		{"{\"version\": 1", "plan.json:1:14: version: the text ends in the middle of a value (valid JSON)"},
		{" \n", "plan.json:2:1: the text is empty (valid JSON)"},
		{"{\"version\": 1}\n{}", "plan.json:2:1: text follows the end of the JSON value (one JSON value and nothing after it); remove it"},
		{"{\"version\":\n 9007199254740993}", "plan.json:1:2: version: the number 9007199254740993 is too large to be read exactly (numbers " +
			"within ±(2^53-1)); write a smaller number, or a string where the schema takes one"},
		{"{\"version\": 1,\n \"resources\": {\"cpu\": 1}}",
			`plan.json:2:16: resources.cpu: there is no field "cpu" here (only the fields time_limit_seconds, cpus, mem_mb, gpus, gpu_type); did you mean "cpus"?`},
		{"{\"resources\": {\"cpus\":\n \"2\"}}", "plan.json:1:16: resources.cpus: it is a string (an integer)"},
		{"{\"execution\": {\"command\": {\"argv\": [\"a\",\n null]}}}", "plan.json:2:2: execution.command.argv[1]: it is null (a string)"},
	} {
		_, err := DecodeSpec([]byte(c.doc), Rules{})
		if err == nil {
			t.Fatal(c.doc)
		}
		if got := InFile(err, "plan.json", []byte(c.doc)).Error(); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.doc, got, c.want)
		}
	}
	_, err := DecodeSpec([]byte(complete), Rules{Types: []string{"TSV"}})
	if p := fault.ProblemsOf(InFile(err, "f", []byte(complete))); len(p) == 0 || p[0].Line < 2 || p[0].Column < 2 {
		t.Errorf("a broken rule has no place: %+v", p)
	}
}

// For any text, Position terminates and returns a place inside it.
func FuzzPosition(f *testing.F) {
	f.Add(complete, "io.outputs[0].role")
	f.Add("{\"a\":[1,{\"b\":", "a[1].b")
	f.Add("\xff\n{", "")
	f.Fuzz(func(t *testing.T, doc, field string) {
		if line, column := Position([]byte(doc), field); line < 1 || line > 1+strings.Count(doc, "\n") || column < 1 || column > 1+len(doc) {
			t.Errorf("%q %q: %d:%d", doc, field, line, column)
		}
	})
}

// A foreign text in a message is short and cannot move the cursor.
func TestMessagesArePlain(t *testing.T) {
	for _, name := range []string{"\x1b[2J", strings.Repeat("é", 500), "a\nb", "\u202e"} {
		key, _ := json.Marshal(name)
		_, err := DecodeSpec([]byte(`{`+string(key)+`: 1}`), Rules{})
		if p := fault.ProblemsOf(err); len(p) != 1 || len(p[0].Field) > 100 || strings.ContainsAny(p[0].Field, "\x1b\n\u202e") {
			t.Errorf("%q: %+v", name, p)
		}
	}
}

// An independent implementation of RFC 8785 gives the same bytes wherever both accept the document.
func FuzzCanonicalOracle(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[true,null,"\u0041\u00e9\n\u2028"]}`, `1e21`, `1E-7`, `-0`, `0.1`, `123456789012345.6`,
		`{"\ud83d\ude00":1,"\ufb33":2,"é":3}`, `"\u001f\u007f\/\""`, `[1.0,1e2,5e-324,4.35]`, complete} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ours, err := Canonical([]byte(s))
		if err != nil {
			return
		}
		again, err := Canonical(ours)
		if err != nil || string(again) != string(ours) {
			t.Errorf("not idempotent: %q %q %v", ours, again, err)
		}
		theirs, err := jcs.Transform([]byte(s))
		if err == nil && string(theirs) != string(ours) {
			t.Errorf("%q\nours   %q\ntheirs %q", s, ours, theirs)
		}
	})
}

func FuzzDecodeSpec(f *testing.F) {
	f.Add([]byte(complete))
	for _, s := range []string{`{}`, `null`, `[]`, `{"version":1,"io":{"inputs":[null]}}`, strings.ReplaceAll(complete, " ", ""),
		strings.Replace(complete, "in/input.bam", "in/../x", 1)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeSpec(data, Rules{})
		if err != nil {
			if !fault.Is(err, fault.Validation) || err.Error() == "" {
				t.Errorf("%v", err)
			}
			return
		}
		first := canonicalOf(t, paramsOf(s))
		back, err := DecodeParams([]byte(first))
		must(t, err)
		if stored := paramsOf(s).Stored(); !reflect.DeepEqual(back, stored) {
			t.Errorf("DecodeParams gives\n%+v\nwant\n%+v", back, stored)
		}
		if again := canonicalOf(t, back); again != first {
			t.Errorf("%s\n%s", first, again)
		}
		// The accepted plan, written canonically, is accepted again as the same plan.
		doc, err := Marshal(s)
		must(t, err)
		same, err := DecodeSpec(doc, Rules{})
		if err != nil || canonicalOf(t, paramsOf(same)) != first {
			t.Errorf("%s: %v", doc, err)
		}
	})
}

func FuzzRelPath(f *testing.F) {
	for _, p := range append(badPaths("in"), "in/x", "in/a/b c", "in/..x") {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if CheckRelPath(p, "in") != "" {
			return
		}
		if path.Clean(p) != p || path.IsAbs(p) || !strings.HasPrefix(p, "in/") || len(p) < 4 || len(p) > MaxRelPath || strings.ContainsAny(p,
			"\x00\n\r\t\\") || strings.TrimSpace(p) != p {
			t.Errorf("%q passed", p)
		}
		for part := range strings.SplitSeq(p, "/") {
			if part == "" || part == "." || part == ".." || len(part) > 255 {
				t.Errorf("%q passed", p)
			}
		}
	})
}

func ExampleCheckRelPath() {
	fmt.Println(CheckRelPath("in/../x", "in"))
	// Output: it contains ".."
}
