package run

import (
	"fmt"
	"strings"
	"testing"

	"slurmgate/secrets"
)

// judgeOf judges a text that is written in pieces of a size.
func judgeOf(text string, size int) *lineJudge {
	j := &lineJudge{file: "x.log", secrets: secrets.Default(), means: func(line string) (is, message string) {
		switch {
		case strings.Contains(line, "LOST"):
			return LineFailure, "a sample is lost"
		case strings.Contains(line, "late"):
			return LineWarning, "it is late"
		}
		return "", ""
	}}
	for from := 0; from < len(text); from += size {
		j.Write([]byte(text[from:min(len(text), from+size)]))
	}
	j.finish()
	return j
}

// What is found in the lines of a file depends neither on its size nor on the pieces that it is written in, and only a
// window of it is held.
func TestLineJudge(t *testing.T) {
	filler := strings.Repeat("nothing of interest in this line\n", 3*lineWindow/33)
	long := strings.Repeat("x", 2*lineWindow)
	for name, c := range map[string]struct{ text, failure, warnings string }{
		"nothing":                     {"", "", "[]"},
		"no line":                     {"\n\r\n\n", "", "[]"},
		"the first line":              {"LOST a\n" + filler, `a sample is lost (one line of x.log: "LOST a")`, "[]"},
		"the last line, without end":  {filler + "LOST b", `a sample is lost (one line of x.log: "LOST b")`, "[]"},
		"in the middle":               {filler + "LOST c\r" + filler, `a sample is lost (one line of x.log: "LOST c")`, "[]"},
		"many":                        {"LOST 1\nlate 1\n" + filler + "LOST 2\nlate 2\n" + filler + "LOST 3\n", `a sample is lost (3 lines of x.log, the first: "LOST 1")`, `[it is late (2 lines of x.log, the first: "late 1")]`},
		"the end of a long line":      {long + "LOST\nfine\n", "", "[]"},
		"the beginning of a long one": {"fine\nLOST " + long + " late\nlate", `a sample is lost (one line of x.log: "LOST ` + strings.Repeat("x", 195) + `"…)`, `[it is late (one line of x.log: "late")]`},
		"behind a long one":           {long + "\nLOST d\n", `a sample is lost (one line of x.log: "LOST d")`, "[]"},
		"colours":                     {"L\x1b[31mOST\x1b[0m e\n", `a sample is lost (one line of x.log: "LOST e")`, "[]"},
		"not printable":               {"LOST \x07\xff\u202e\n", `a sample is lost (one line of x.log: "LOST \a\u202e")`, "[]"},
	} {
		for _, size := range []int{len(c.text) + 1, 4096, 997} {
			j := judgeOf(c.text, size)
			if got := j.failure(); got != c.failure {
				t.Errorf("%s, in pieces of %d bytes: the failure is %q, want %q", name, size, got, c.failure)
			}
			if got := fmt.Sprint(j.warnings()); got != c.warnings {
				t.Errorf("%s, in pieces of %d bytes: the warnings are %q, want %q", name, size, got, c.warnings)
			}
			if held := len(j.text); size == 4096 && held > lineWindow+4096+margin {
				t.Errorf("%s: %d bytes are held, want at most %d", name, held, lineWindow+4096+margin)
			}
		}
	}
}

// A secret that begins on the line before, or ends on the line after, is not quoted.
func TestLineJudgeSecrets(t *testing.T) {
	key := "-----BEGIN RSA PRIVATE KEY-----\n" +
		strings.Repeat("MIIEowIBAAKCAQEA1234567890abcdefLOSTghijklmnopqrstuvwxyzABCDEFGH\n", 12) + "-----END RSA PRIVATE KEY-----\n"
	for _, size := range []int{100, 1 << 20} {
		got := judgeOf(strings.Repeat("fine\n", lineWindow/5)+key, size).failure()
		if !strings.HasPrefix(got, "a sample is lost (12 lines of x.log, the first: ") || strings.Contains(got, "MIIEow") {
			t.Errorf("in pieces of %d bytes the failure is %q, want 12 lines and nothing of the key", size, got)
		}
	}
}
