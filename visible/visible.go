// Package visible makes text of others safe to show to a person at a terminal and to a model in a chat: what is invisible, or changes how
// the text around it is shown, becomes a visible escape. The exact bytes stay available by download, and JSON for programs keeps them too.
package visible

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden reports whether a character is invisible or steers how others are shown: control characters, newline and tab among them; format
// characters (bidi controls, zero width, soft hyphen, tags, annotations, invisible operators); variation selectors; fillers and what else
// is ignored by default; line and paragraph separators; private use; noncharacters.
func Hidden(r rune) bool {
	if r < 0x7f { // most text
		return r < ' '
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point) || r == brailleBlank || r == nullNotehead
}

// Characters that are symbols by category, and show nothing.
const (
	brailleBlank = '\u2800'
	nullNotehead = '\U0001d159'
)

// The selectors that choose between the two forms of an emoji. They are dropped, not escaped: honest text has them.
const (
	textForm  = '\ufe0e'
	emojiForm = '\ufe0f'
)

// Text returns s with every hidden character but newline and tab escaped, as \x1b, \u202e or \U000e0041, and bytes
// that are not UTF-8 as \xff.
func Text(s string) string { return show(s, true) }

// Line is [Text] on one line: newlines and tabs become spaces.
func Line(s string) string { return show(s, false) }

func show(s string, lines bool) string {
	i := 0
	for i < len(s) {
		if c := s[i]; ' ' <= c && c < 0x7f {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || Hidden(r) && !(lines && isBlank(r)) {
			break
		}
		i += n
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:i])
	for i < len(s) {
		text, n := Next(s[i:])
		if !lines && isBlank(rune(s[i])) {
			text = " "
		}
		b.WriteString(text)
		i += n
	}
	return b.String()
}

func isBlank(r rune) bool { return r == '\n' || r == '\t' }

// Next returns the first character of s as [Text] shows it, and its length in bytes. s is not empty.
func Next[T string | []byte](s T) (text string, n int) {
	head := string(s[:min(len(s), utf8.UTFMax)])
	r, n := utf8.DecodeRuneInString(head)
	switch {
	case r == utf8.RuneError && n == 1:
		return fmt.Sprintf(`\x%02x`, head[0]), 1
	case isBlank(r), !Hidden(r):
		return head[:n], n
	case r == textForm, r == emojiForm:
		return "", n
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r), n
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r), n
	}
	return fmt.Sprintf(`\u%04x`, r), n
}

// Writer passes on what is written to it as [Text] shows it. Each write has whole characters.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
