package fault

import (
	"strconv"
	"strings"

	"slurmgate/secrets"
	"slurmgate/visible"
)

const clipBytes = 100 // at most, with the mark of the cut

// Clip makes foreign text fit for a message: short, on one line, and with what cannot be printed escaped.
func Clip(s string) string {
	if len(s) > clipBytes { // a secret that is cut is none that is found later
		s, _ = secrets.Default().Head(s, clipBytes-3)
		s = strings.ToValidUTF8(s, "") + "…"
	}
	q := strconv.QuoteToGraphic(s)
	return visible.Text(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`))
}
