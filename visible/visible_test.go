package visible

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// classes are the kinds of characters in which an attacker hides text, or misleads a reader.
var classes = []struct {
	name     string
	from, to rune
}{
	{"C0", 0, 0x1f}, {"DEL and C1", 0x7f, 0x9f}, {"soft hyphen", 0xad, 0xad}, {"grapheme joiner", 0x34f, 0x34f},
	{"Arabic letter mark", 0x61c, 0x61c}, {"Hangul fillers", 0x115f, 0x1160}, {"Khmer vowels", 0x17b4, 0x17b5},
	{"Mongolian selectors", 0x180b, 0x180f}, {"zero width and marks", 0x200b, 0x200f}, {"separators", 0x2028, 0x2029},
	{"bidi embeddings", 0x202a, 0x202e}, {"invisible operators, isolates", 0x2060, 0x206f}, {"braille blank", 0x2800, 0x2800},
	{"Hangul filler", 0x3164, 0x3164}, {"private use", 0xe000, 0xf8ff}, {"variation selectors", 0xfe00, 0xfe0f}, {"mark", 0xfeff, 0xfeff},
	{"half-width filler", 0xffa0, 0xffa0}, {"annotations", 0xfff0, 0xfffb}, {"noncharacters", 0xfdd0, 0xfdef}, {"shorthand", 0x1bca0,
		0x1bca3}, {"null notehead", 0x1d159, 0x1d159},
	{"music", 0x1d173, 0x1d17a}, {"tags and more selectors", 0xe0000, 0xe0fff}, {"private planes", 0xf0000, 0x10ffff},
}

func hiddenByClass(r rune) bool {
	for _, c := range classes {
		if c.from <= r && r <= c.to {
			return true
		}
	}
	return r&0xfffe == 0xfffe // noncharacters of each plane
}

// No character of these classes gets through, and no letter, digit, mark or symbol that a reader sees is changed.
func TestEveryCodePoint(t *testing.T) {
	honest := 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		s := "a" + string(r) + "b"
		text, line := Text(s), Line(s)
		switch blank := r == '\n' || r == '\t'; {
		case blank && (text != s || line != "a b"):
			t.Fatalf("%U: %q %q", r, text, line)
		case blank:
		case hiddenByClass(r):
			if strings.ContainsRune(text, r) || strings.ContainsRune(line, r) || !Hidden(r) {
				t.Fatalf("%U gets through: %q %q", r, text, line)
			}
		case unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp):
			if !Hidden(r) { // the few that no list above names: Arabic, Kaithi, Egyptian format characters
				t.Fatalf("%U gets through", r)
			}
		default:
			if honest++; text != s || line != s || Hidden(r) {
				t.Fatalf("%U is changed: %q %q", r, text, line)
			}
		}
	}
	if honest < 900_000 { // assigned ones, and those of a later Unicode
		t.Errorf("only %d characters are shown as they are", honest)
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain – ünïcödé, 漢字\n\tx": "plain – ünïcödé, 漢字\n\tx", "\x1b[2J": `\x1b[2J`, "\x1b]8;;http://x\a": `\x1b]8;;http://x\x07`,
		"a\u202eb": `a\u202eb`, "\U000e0041": `\U000e0041`, "\u3164x": `\u3164x`, "bad\xff": `bad\xff`, "I \u2764\ufe0f it": "I \u2764 it",
		"cr\r\nlf": `cr\x0d` + "\nlf", "\u009b31m": `\u009b31m`, "\ufffd": "\ufffd",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Line("a\nb\tc\x1b"); got != `a b c\x1b` {
		t.Errorf("%q", got)
	}
}

// A program reads from the JSON exactly what was written, and its bytes have nothing hidden.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{"plain", "\u202e\x1b", "\U000e0041\U0010ffff", "a\nb\u2028", "\\u202e", "\xff", "\ufe0f\u3164\uffa0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		var in strings.Builder
		e := json.NewEncoder(&in)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(map[string]any{s: []string{s}}); err != nil {
			t.Fatal(err)
		}
		out := JSON([]byte(in.String()))
		var got map[string][]string
		if err := json.Unmarshal(out, &got); err != nil || len(got) != 1 || len(got[s]) != 1 || got[s][0] != s {
			t.Fatalf("%q: %v, %q", out, err, got)
		}
		for _, r := range string(out) {
			if r != '\n' && Hidden(r) {
				t.Fatalf("%U in %q", r, out)
			}
		}
		shown := Strings([]byte(in.String()))
		if err := json.Unmarshal(shown, &got); err != nil || got[Text(s)][0] != Text(s) {
			t.Fatalf("%s: %v", shown, err)
		}
		for _, r := range Text(s) {
			if r != '\n' && r != '\t' && Hidden(r) {
				t.Fatalf("%U in the text of %q", r, s)
			}
		}
	})
}
