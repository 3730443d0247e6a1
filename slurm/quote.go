package slurm

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote writes s as one word of bash, in the form an admin reads best: bare where no character means
// anything to the shell, else between single quotes, and as $'…' where s holds something that cannot be
// seen for what it is. There invalid UTF-8, control, invisible and direction-changing characters become \xHH,
// byte by byte: \uHHHH would depend on the shell's locale. s must not hold a NUL; no word of a process can.
func Quote(s string) string {
	if s == "" {
		return "''"
	}
	bare := true
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			return ansiC(s)
		}
		bare = bare && isBare(r)
		i += n
	}
	if bare {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// isBare reports whether the shell takes the character as itself anywhere in an argument.
func isBare(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
}

func ansiC(s string) string {
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
		case r == utf8.RuneError && n == 1 || !unicode.IsPrint(r):
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
