package site

import (
	"fmt"
	"strings"
	"testing"

	"slurmgate/fault"
)

// A site's own patterns are checked when the file is read, all of them at once.
func TestSecrets(t *testing.T) {
	s := parse(t, least+"secrets: {patterns: [{name: LIMS, pattern: '\\bLIMS-[0-9A-F]{24}\\b', keywords: [lims-]}, {name: b, pattern: "+
		"'x+'}]}\n")
	if p := s.Secrets.Patterns; len(p) != 2 || p[0].Keywords[0] != "lims-" {
		t.Error(p)
	}
	_, err := Parse("/etc/slurmgate/site.yaml", []byte(least+`secrets:
  patterns:
    - {name: "", pattern: "a["}
    - {name: b, pattern: "x*"}
    - {name: b, pattern: "", keywords: [ab]}
    - {name: c, pattern: "`+strings.Repeat("a", 501)+`", keywords: [aaa, aaa, aaa, aaa, aaa, aaa, aaa, aaa, aaa]}
`))
	var fields []string
	for _, p := range fault.ProblemsOf(err) {
		fields = append(fields, strings.TrimPrefix(p.Field, "secrets.patterns"))
		if p.Line == 0 || p.Rule == "" {
			t.Errorf("%+v", p)
		}
	}
	if got := strings.Join(fields, " "); got != "[0].name [0].pattern [1].pattern [2].name [2].pattern [2].keywords[0] [3].pattern "+
		"[3].keywords" {
		t.Error(got, err)
	}
	many := strings.Repeat("{name: n%d, pattern: abc}, ", 65)
	for i := range 65 {
		many = strings.Replace(many, "%d", fmt.Sprint(i), 1)
	}
	if _, err = Parse("/x", []byte(least+"secrets: {patterns: ["+many+"]}\n")); len(fault.ProblemsOf(err)) != 1 {
		t.Error(err)
	}
}
