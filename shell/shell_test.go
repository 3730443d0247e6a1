package shell

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// throughBash gives the quoted words to a real bash: each must come back as one argument.
func throughBash(t *testing.T, words []string) {
	t.Helper()
	for _, quote := range []func(string) string{Single, Quote, QuoteASCII} {
		quotedThroughBash(t, quote, words)
	}
}

func quotedThroughBash(t *testing.T, quote func(string) string, words []string) {
	t.Helper()
	var script, want bytes.Buffer
	script.WriteString("LC_ALL=C\n")
	for _, w := range words {
		script.WriteString("printf '%s|%s\\0' " + quote(w) + " end\n")
		want.WriteString(w + "|end\x00")
	}
	cmd := exec.Command("bash", "-u")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.Stdin = &script
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	got, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("bash: %v: %s\nwords: %q", err, stderr.Bytes(), words)
	}
	if !bytes.Equal(got, want.Bytes()) {
		g, w := strings.Split(string(got), "\x00"), strings.Split(want.String(), "\x00")
		for i := range w {
			if i >= len(g) || g[i] != w[i] {
				t.Fatalf("word %d: quoted %s gives %q, not %q", i, quote(words[i]), g[i], w[i])
			}
		}
	}
}

var nasty = []string{
	"", " ", "a", "a b", "-n", "--", "~", "~root", "#x", "a#b", "!", "!!", "$HOME", "${x}", "$(id)", "`id`", "'", "''", `\`, `\\`, `\'`, `"`,
	`"'"`,
	"*", "?", "[a-z]", "{a,b}", "a=b", "a;b", "a&b", "a|b", "<x", ">x", "(", ")", "\n", "a\nb\n", "\t", "\r\n", "\x01", "\x1b[31m", "\x7f",
	"\x80", "\xff\xfe",
	"$'", `$'\x41'`, "é", "日本", "\u202e", "a\u200bb", "\u00a0", "\ufeff", "\U0001f9ec", "\x01'\x7f\\", "%s%n", "\\x41", "\x0041"[1:],
	"\xc3(", "\u2028", "a\x1bf",
	"\x01f", "\x0af", "\xe2\x80", "=", "x=$'\n'", "sg-run_0X8Z4D1X467KV94K4TXG0D9BXT-a1-0123456789ab",
}

func TestQuoteForms(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/bin/x-1.0":    "/usr/bin/x-1.0",
		"--mem=2048M":       "--mem=2048M",
		"":                  "''",
		"two words":         "'two words'",
		"it's":              `'it'\''s'`,
		"intel&avx2":        "'intel&avx2'",
		"résumé":            "'résumé'",
		"a\u202eb":          `$'a\xe2\x80\xaeb'`,
		"tab\there":         `$'tab\there'`,
		"it's\\\n":          `$'it\'s\\\n'`,
		"\xffx":             `$'\xffx'`,
		"\x1b[31mred\x1b[m": `$'\x1b[31mred\x1b[m'`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestQuoteThroughBash(t *testing.T) {
	words := append([]string(nil), nasty...)
	for b := 1; b < 256; b++ {
		words = append(words, string([]byte{byte(b)}), string([]byte{'a', byte(b), '4'}))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		w := make([]byte, rnd.IntN(12))
		for i := range w {
			w[i] = byte(1 + rnd.IntN(255))
		}
		words = append(words, string(w), nasty[rnd.IntN(len(nasty))]+string(w)+nasty[rnd.IntN(len(nasty))])
	}
	throughBash(t, words)
}

// FuzzQuote cuts its input at NULs into many words, so that one bash tries them all.
func FuzzQuote(f *testing.F) {
	f.Add(strings.Join(nasty, "\x00"))
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, "\x00")
		for _, w := range words {
			q := Quote(w)
			if strings.ContainsAny(q, "\n\r\x1b\x00") {
				t.Fatalf("Quote(%q) = %q shows control characters raw", w, q)
			}
			q = QuoteASCII(w)
			if strings.ContainsFunc(q, func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Fatalf("QuoteASCII(%q) = %q, want printable ASCII alone", w, q)
			}
		}
		throughBash(t, words)
	})
}
