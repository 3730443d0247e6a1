// Package shell quotes words for shells.
package shell

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Single puts s between single quotes: one word of any shell. s must not hold a NUL; no word of a process can.
func Single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Quote writes s as one word of bash, in the form an admin reads best: bare where no character means
// anything to the shell, else between single quotes, and as $'…' where s holds something that cannot be
// seen for what it is. There invalid UTF-8, control, invisible and direction-changing characters become \xHH,
// byte by byte: \uHHHH would depend on the shell's locale. s must not hold a NUL.
func Quote(s string) string { return quote(s, unicode.IsPrint) }

// QuoteASCII writes s as [Quote] does, in printable ASCII alone.
func QuoteASCII(s string) string {
	return quote(s, func(r rune) bool { return r >= ' ' && r <= '~' })
}

func quote(s string, visible func(rune) bool) string {
	bare := s != ""
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !visible(r) {
			return ansiC(s, visible)
		}
		bare = bare && isBare(r)
		i += n
	}
	if bare {
		return s
	}
	return Single(s)
}

// isBare reports whether the shell takes the character as itself anywhere in an argument.
func isBare(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
}

func ansiC(s string, visible func(rune) bool) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == utf8.RuneError && n == 1 || !visible(r):
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	b.WriteString("'")
	return b.String()
}
