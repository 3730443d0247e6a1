package artifact

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/plan"
)

// labelOf derives a label from a file name.
func labelOf(name string) string {
	name = strings.Join(strings.Fields(strings.Map(visible, strings.ToValidUTF8(name, "_"))), " ")
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

func visible(r rune) rune {
	if hidden(r) && !unicode.IsSpace(r) {
		return '_'
	}
	return r
}

// hidden reports whether a rune is invisible or changes how others are shown.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}
