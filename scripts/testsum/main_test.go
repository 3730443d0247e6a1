package main

import (
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
		{"nothing", "", 0, 1, "no test ran"},
		{"a package without tests beside one with", `{"Action":"skip","Package":"b"}` + "\n" + start + run("A") + ends("pass",
			"A") + pkg("pass"), 1, 0, "ok"},
		{"words that are no event", "ld: warning\n" + start + run("A") + ends("pass", "A") + pkg("pass"), 1, 0, "ld: warning"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			s := newSummer(&out)
			s.read(strings.NewReader(tt.stream))
			s.end()
			if s.passed != tt.passed || s.failed != tt.failed || !strings.Contains(out.String(), tt.says) {
				t.Errorf("%d passed, %d failed, said %q", s.passed, s.failed, out.String())
			}
		})
	}
}
