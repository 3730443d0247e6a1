package blocks

import "testing"

// A count names one thing in the singular, also where the noun is more than a word.
func TestCount(t *testing.T) {
	one := [][]any{{"x"}}
	for _, c := range []struct {
		table Table
		want  string
	}{
		{Table{Noun: "batches", Total: 1, Rows: one}, "1 batch"},
		{Table{Noun: "runs not yet started", Total: 1, Rows: one}, "1 run not yet started"},
		{Table{Noun: "rows", Of: "batch b", Total: 9, Rows: one}, "1 of 9 rows of batch b"},
		{Table{Noun: "artifacts", Total: 1, AtLeast: true, Rows: one}, "1 of at least 1 artifacts"},
		{Table{Noun: "runs"}, "0 runs"},
	} {
		if got := c.table.Count(); got != c.want {
			t.Errorf("Count of %d %s = %q, want %q", c.table.Total, c.table.Noun, got, c.want)
		}
	}
}
