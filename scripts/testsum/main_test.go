package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	const start = `{"Action":"start","Package":"a"}` + "\n"
	run := func(test string) string { return `{"Action":"run","Package":"a","Test":"` + test + `"}` + "\n" }
	ends := func(how, test string) string {
		return `{"Action":"output","Package":"a","Test":"` + test + `","Output":"said by ` + test + `\n"}` + "\n" + `{"Action":"` + how +
			`","Package":"a","Test":"` + test + `"}` + "\n"
	}
	pkg := func(how string) string {
		return `{"Action":"output","Package":"a","Output":"said by the package\n"}` + "\n" + `{"Action":"` + how + `","Package":"a"}` + "\n"
	}
	tests := []struct {
		name           string
		stream         string
		passed, failed int
		says           string
	}{
		{"two good ones", start + run("A") + run("B") + ends("pass", "A") + ends("pass", "B") + pkg("pass"), 2, 0, "ok     a"},
		{"subtests count, their parent does not", start + run("A") + run("A/x") + run("A/y") + ends("pass", "A/x") + ends("pass",
			"A/y") + ends("pass", "A") + pkg("pass"), 2, 0, "ok"},
		{"a bad subtest is one failure", start + run("A") + run("A/x") + run("A/y") + ends("fail", "A/x") + ends("pass", "A/y") + ends("fail",
			"A") + pkg("fail"), 1, 1, "said by A/x"},
		{"a parent that fails by itself", start + run("A") + run("A/x") + ends("pass", "A/x") + ends("fail", "A") + pkg("fail"), 1, 1,
			"said by A"},
		{"skipped", start + run("A") + ends("skip", "A") + pkg("pass"), 0, 1, "SKIPPED a A"},
		{"broken down", start + run("A") + pkg("fail"), 0, 1, "said by the package"},
		{"TestMain failed", start + pkg("fail"), 0, 1, "said by the package"},
		{"cut off", start + run("A") + ends("pass", "A"), 1, 1, "FAILED a"},
		{"not built", `{"Action":"build-output","ImportPath":"a","Output":"x.go:1: no\n"}` + "\n" + start +
			`{"Action":"fail","Package":"a","FailedBuild":"a"}` + "\n", 0, 1, "x.go:1: no"},
		{"slow", start + run("A") + `{"Action":"pass","Package":"a","Test":"A","Elapsed":20}` + "\n" + pkg("pass"), 1, 0, "  20.0 s  A"},
		{"nothing", "", 0, 1, "no test ran"},
		{"a package without tests beside one with", `{"Action":"skip","Package":"b"}` + "\n" + start + run("A") + ends("pass",
			"A") + pkg("pass"), 1, 0, "ok"},
		{"words that are no event", "ld: warning\n" + start + run("A") + ends("pass", "A") + pkg("pass"), 1, 0, "ld: warning"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			s := newSummer(&out, io.Discard)
			s.read(strings.NewReader(tt.stream))
			s.end()
			if s.passed != tt.passed || s.failed != tt.failed || !strings.Contains(out.String(), tt.says) {
				t.Errorf("%d passed, %d failed, said %q", s.passed, s.failed, out.String())
			}
		})
	}
}

// The reason of a failure comes last, after at most twenty lines of what is only context, and it is in the list of failures.
func TestReasonsComeLast(t *testing.T) {
	var stream, out, failures strings.Builder
	says := func(action, test, text string) {
		data, err := json.Marshal(event{Action: action, Package: "a", Test: test, Output: text})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&stream, "%s\n", data)
	}
	says("run", "A", "")
	says("output", "A", "=== RUN   A\n")
	says("output", "A", "    a_test.go:7: no gateway after 20s\n")
	says("output", "A", "        with more: "+strings.Repeat("é", 600)+"\n")
	says("output", "A", "    b_test.go:32: context: first line of the journal\n")
	for i := range 60 {
		says("output", "A", fmt.Sprintf("        line %d of the journal\n", i))
	}
	says("output", "A", "    a_test.go:9: the machine did not stop\n")
	says("output", "A", "--- FAIL: A (95.33s)\n")
	says("fail", "A", "")
	says("run", "B", "")
	says("output", "B", "panic: of B\n")
	for range 60 {
		says("output", "B", "goroutine\n")
	}
	says("output", "", "FAIL\n")
	says("fail", "", "")
	s := newSummer(&out, &failures)
	s.read(strings.NewReader(stream.String()))
	s.end()
	lines := strings.Split(out.String(), "\n")
	if lines[0] != "        line 40 of the journal" || lines[19] != "        line 59 of the journal" ||
		lines[20] != "    a_test.go:7: no gateway after 20s" || lines[23] != "--- FAIL: A (95.33s)" {
		t.Errorf("printed:\n%s", out.String())
	}
	list := strings.Split(failures.String(), "\n")
	if !strings.Contains(failures.String(), "\na B\n    panic: of B\n") {
		t.Errorf("the reason of a crash is missing:\n%s", failures.String())
	}
	if list[0] != "a A" || list[1] != "    a_test.go:7: no gateway after 20s" || len(list[2]) > width+3 ||
		list[3] != "    a_test.go:9: the machine did not stop" || list[4] != "    --- FAIL: A (95.33s)" ||
		strings.Contains(failures.String(), "journal") {
		t.Errorf("the failures:\n%s", failures.String())
	}
}
