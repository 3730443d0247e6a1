package visible

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A cut text has a mark, and neither a character nor a number is cut: the beginning of a number is another number.
func TestClip(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"short", 5, "short"},
		{"a longer text", 10, "a longe…"},
		{"reads 1234567", 12, "reads …"},
		{"reads 1234567", 13, "reads 1234567"},
		{"rate 0.98765 x", 10, "rate …"},
		{"p 1.5e-300 x", 9, "p …"},
		{"1234567890", 8, "…"},
		{"1,234,567 reads", 10, "…"},
		{"1,234,567 reads", 13, "1,234,567 …"},
		{"x 12 of 34", 8, "x 12 …"},
		{"Gene and more", 8, "Gene …"},
		{"größer", 7, "grö…"},
		{"anything", 0, "…"},
	} {
		if got := Clip(c.s, c.n); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.s, c.n, got, c.want)
		}
	}
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{"größer", 6, "größer"}, {"größer als", 6, "größe…"}, {"1234567", 4, "…"}} {
		if got := ClipRunes(c.s, c.n); got != c.want {
			t.Errorf("ClipRunes(%q, %d) = %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

// A cell that is a number is whole in any width.
func TestCell(t *testing.T) {
	for s, number := range map[string]bool{"12": true, "-1.5e-300": true, "1,234,567": true, "98.7%": true, strings.Repeat("9", 300): true,
		"": false, "1 of 2": false, "x1": false, "-": false, "1.2.3.4 and more": false} {
		if IsNumber(s) != number {
			t.Errorf("IsNumber(%q) = %v, want %v", s, !number, number)
		}
		if got := Cell(s, 4); number && got != s {
			t.Errorf("Cell(%q, 4) = %q, want all of it", s, got)
		}
	}
	if got := Cell(strings.Repeat("1", 1000), 40); got != Mark {
		t.Errorf("a number of 1000 digits is shown as %q, want %q", got, Mark)
	}
}

// The end of a text begins with a whole number, too.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{"total 1234567 reads", 10, " reads"}, {"total 1234567 reads", 13, "1234567 reads"}, {"größer", 4, "ßer"}, {"abc", 9, "abc"}} {
		if got := c.s[Tail(c.s, c.n):]; got != c.want {
			t.Errorf("the last %d bytes of %q are shown as %q, want %q", c.n, c.s, got, c.want)
		}
	}
}

func FuzzClip(f *testing.F) {
	f.Add("reads 1234567 of größe 1e-5", 9)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = n % 100
		got := Clip(s, n)
		head, cut := strings.CutSuffix(got, Mark)
		if len(got) > max(n, len(Mark)) && len(s) > n || !strings.HasPrefix(s, head) || !cut && got != s {
			t.Errorf("Clip(%q, %d) = %q", s, n, got)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("Clip(%q, %d) = %q, which cuts a character", s, n, got)
		}
	})
}
