package artifact

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/plan"
	"slurmgate/visible"
)

// labelOf derives a label from a file name.
func labelOf(name string) string {
	name = strings.Join(strings.Fields(strings.Map(shown, strings.ToValidUTF8(name, "_"))), " ")
	for len(name) > plan.MaxWord {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	name = strings.TrimRight(name, " ")
	if plan.CheckWord(name) != "" {
		return "file"
	}
	return name
}

func shown(r rune) rune {
	if visible.Hidden(r) && !unicode.IsSpace(r) {
		return '_'
	}
	return r
}
