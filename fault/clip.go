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
	if len(s) > n { // a secret that is cut is none that is found later
		s, _ = secrets.Default().Head(s, n-3)
		s = strings.ToValidUTF8(s, "") + "…"
	}
	return printable(s)
}

// ClipEnd is Clip for text whose end says most: at most n bytes of it.
func ClipEnd(s string, n int) string {
	if len(s) > n {
		s = "…" + strings.ToValidUTF8(secrets.Default().Tail(s, n-3), "")
	}
	return printable(s)
}

func printable(s string) string {
	q := strconv.QuoteToGraphic(s)
	return visible.Text(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`))
}
