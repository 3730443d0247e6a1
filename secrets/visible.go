package secrets

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// origin maps the bytes of a normalized text to the text that it was made of: byte i was made of the bytes from[i] up to to[i].
type origin struct{ from, to []int }

// span returns the place of a span of the normalized text in the original.
func (o *origin) span(s Span) Span {
	if s.Start >= s.End {
		return Span{Rule: s.Rule}
	}
	return Span{o.from[s.Start], o.to[s.End-1], s.Rule}
}

// normalized returns a text as a reader sees it: without format characters and a terminal's escapes, and with one
// spelling of each character (NFKC), so that a full-width letter is that letter. The origin is nil where the text has
// this form already.
func normalized(text string) (string, *origin) {
	if seenAsWritten(text) {
		return text, nil
	}
	var shown []byte
	o := &origin{}
	for i := 0; i < len(text); {
		if n := unseen(text[i:]); n > 0 {
			i += n
			continue
		}
		if text[i] == '\b' { // what follows takes the place of the character before
			_, n := utf8.DecodeLastRune(shown)
			shown, o.from, o.to = shown[:len(shown)-n], o.from[:len(shown)-n], o.to[:len(shown)-n]
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		shown = o.add(shown, text[i:i+n], i, i+n, true)
		i += n
	}
	if norm.NFKC.IsNormal(shown) {
		return string(shown), o
	}
	var out []byte
	composed := &origin{}
	for at := 0; at < len(shown); {
		end := at + norm.NFKC.NextBoundary(shown[at:], true)
		segment := string(shown[at:end])
		part := norm.NFKC.String(segment)
		out = composed.add(out, part, at, end, part == segment)
		at = end
	}
	for i := range out {
		composed.from[i], composed.to[i] = o.from[composed.from[i]], o.to[composed.to[i]-1]
	}
	return string(out), composed
}

// add appends a part to a text and records which bytes it was made of; same: of those at its own places.
func (o *origin) add(text []byte, part string, from, to int, same bool) []byte {
	for i := range len(part) {
		if same {
			o.from, o.to = append(o.from, from+i), append(o.to, from+i+1)
		} else {
			o.from, o.to = append(o.from, from), append(o.to, to)
		}
	}
	return append(text, part...)
}

// seenAsWritten reports whether normalized would change nothing of a text.
func seenAsWritten(text string) bool {
	ascii := true
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\x1b', c == '\b', shapeless(c), c == '\\' && escape(text[i:]) > 0:
			return false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return ascii || !strings.ContainsFunc(text, formats) && norm.NFKC.IsNormalString(text)
}

// unseen returns the length of the invisible beginning of a text, 0 for none.
func unseen(text string) int {
	if n := escape(text); n > 0 {
		return n
	}
	if r, n := utf8.DecodeRuneInString(text); r >= utf8.RuneSelf && formats(r) || shapeless(text[0]) {
		return n
	}
	return 0
}

// shapeless reports whether a byte is a control character that neither ends a word nor moves on: a bell, a shift of fonts, a deletion.
func shapeless(c byte) bool { return c == '\a' || c == '\x0e' || c == '\x0f' || c == '\x7f' }

// formats reports whether a character has no shape: zero-width blanks and joiners, marks of direction, soft hyphens, variants, and control
// characters above ASCII but for the next line.
func formats(r rune) bool {
	control := r >= 0x80 && r < 0xa0 && r != 0x85
	return control || unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// maxEscape bounds a terminal's escape, in bytes.
const maxEscape = 256

// escape returns the length of the terminal's escape that a text begins with, also as programs write it in place of
// the byte: \x1b[31m. So it does for a format character as JSON in a text may write it: \u200b. 0: none.
func escape(text string) int {
	if strings.HasPrefix(text, `\u`) && len(text) >= 6 {
		if r, err := strconv.ParseUint(text[2:6], 16, 16); err == nil && r >= utf8.RuneSelf && formats(rune(r)) {
			return 6
		}
	}
	for _, written := range []string{`\x1b[`, `\u001b[`, `\033[`, `\e[`, "\x1b[", "\u009b"} {
		if strings.HasPrefix(text, written) {
			n := len(written)
			for n < min(len(text), maxEscape) && (text[n] < '@' && text[n] >= ' ') {
				n++
			}
			if n == len(text) || text[n] < '@' || text[n] > '~' {
				return 0
			}
			return n + 1
		}
	}
	if len(text) < 2 || text[0] != '\x1b' {
		return 0
	}
	if strings.IndexByte("]PX^_", text[1]) >= 0 { // a text that is not for the screen: the title of a window, a link
		for i := 2; i < min(len(text), maxEscape); i++ {
			if text[i] == '\a' {
				return i + 1
			}
			if strings.HasPrefix(text[i:], "\x1b\\") {
				return i + 2
			}
		}
		return 2
	}
	return min(len(text), 2+len(text[1:])-len(strings.TrimLeft(text[1:], " !\"#$%&'()*+,-./")))
}
