package fault

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	for in, want := range map[string]string{"": "", `a "b" é`: `a "b" é`, "a\nb\x00\xff": `a\nb\x00\xff`,
		strings.Repeat("é", 100): strings.Repeat("é", 48) + "…", strings.Repeat("a", 100): strings.Repeat("a", 100)} {
		if got := Clip(in); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestClipEnd(t *testing.T) {
	for in, want := range map[string]string{"": "", "a\x1b[31m": `a\x1b[31m`, strings.Repeat("x", 300) + "end": "…" + strings.Repeat("x", 14) + "end"} {
		if got := ClipEnd(in, 20); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
