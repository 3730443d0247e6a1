package fault

import (
	"strconv"
	"strings"

	"slurmgate/secrets"
	"slurmgate/visible"
)

const clipBytes = 100 // at most, with the mark of the cut

// Clip makes foreign text fit for a message: short, on one line, and with what cannot be printed escaped.
func Clip(s string) string { return ClipTo(s, clipBytes) }

// ClipTo is Clip for text of which at most n bytes are shown.
func ClipTo(s string, n int) string {
	if len(s) > n { // a part of a secret would not be recognised later
		s, _ = secrets.Default().Head(s, visible.Head(s, n-len(visible.Mark)))
		s = strings.ToValidUTF8(s, "") + visible.Mark
	}
	return printable(s)
}

// Quote puts a text in quotation marks and shows at most n bytes of it; what is left out is marked.
func Quote(s string, n int) string { return strconv.Quote(visible.Clip(s, n)) }

// ClipEnd is Clip for text whose end matters most: at most n bytes of it.
func ClipEnd(s string, n int) string {
	if len(s) > n {
		s = visible.Mark + strings.ToValidUTF8(secrets.Default().Tail(s, len(s)-visible.Tail(s, n-len(visible.Mark))), "")
	}
	return printable(s)
}

func printable(s string) string {
	q := strconv.QuoteToGraphic(s)
	return visible.Text(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`))
}
