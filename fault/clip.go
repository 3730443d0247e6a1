package fault

import (
	"strconv"
	"strings"

	"slurmgate/visible"
)

const clipBytes = 100 // at most, with the mark of the cut

// Clip makes foreign text fit for a message: short, on one line, and with what cannot be printed escaped.
func Clip(s string) string {
	if len(s) > clipBytes {
		s = strings.ToValidUTF8(s[:clipBytes-3], "") + "…"
	}
	q := strconv.QuoteToGraphic(s)
	return visible.Text(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`))
}
