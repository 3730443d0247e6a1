package visible

import (
	"strings"
	"unicode/utf8"
)

// Mark shows where a text was cut. It is cut between characters, and never within a number: its beginning would be
// another one.
const Mark = "…"

// Clip returns s, or if it has more than n bytes its beginning and [Mark], together at most n bytes.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:Head(s, n-len(Mark))] + Mark
}

// ClipWords cuts as [Clip] does, between words.
func ClipWords(s string, n int) string {
	short := s[:Head(s, n)]
	if i := strings.LastIndexByte(short, ' '); len(short) < len(s) && i > 0 {
		return short[:i] + " " + Mark
	}
	return Clip(s, n)
}

// ClipRunes cuts as [Clip] does, to n characters.
func ClipRunes(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	at := 0
	for range n - 1 {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return s[:Head(s, at)] + Mark
}

// maxNumber bounds a number that [Cell] shows whole.
const maxNumber = 400

// Cell cuts as [Clip] does, for a cell of a table: a number is shown whole, however wide.
func Cell(s string, n int) string {
	if len(s) <= maxNumber && IsNumber(s) {
		return s
	}
	return Clip(s, n)
}

// IsNumber reports whether a text is one number, as programs write them: 12, -1.5e-300, 1,234,567, 98.7%.
func IsNumber(s string) bool {
	digits := strings.TrimSuffix(strings.TrimLeft(s, "+-"), "%")
	return digits != "" && isDigit(digits[0]) && numberStart(digits, len(digits)) == 0
}

// Head returns how many of the first n bytes of s may be shown if only its beginning is.
func Head(s string, n int) int {
	n = min(max(n, 0), len(s))
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	if within(s, n) {
		n = numberStart(s, n)
	}
	return n
}

// Tail returns where the part of the last n bytes of s begins that may be shown if only its end is.
func Tail(s string, n int) int {
	at := max(len(s)-max(n, 0), 0)
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	if within(s, at) {
		for at < len(s) && inNumber(s[at]) {
			at++
		}
	}
	return at
}

// within reports whether a cut at a byte would leave a part of a number.
func within(s string, at int) bool {
	if at <= 0 || at >= len(s) || !inNumber(s[at-1]) || !inNumber(s[at]) {
		return false
	}
	from := numberStart(s, at)
	return strings.ContainsFunc(s[from:at], func(r rune) bool { return isDigit(byte(r)) }) && strings.ContainsFunc(s[at:min(len(s), at+2)],
		func(r rune) bool { return isDigit(byte(r)) })
}

// numberStart returns where the number begins that ends at a byte; the byte itself without one.
func numberStart(s string, at int) int {
	for at > 0 && inNumber(s[at-1]) {
		at--
	}
	return at
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func inNumber(c byte) bool { return isDigit(c) || strings.IndexByte(".,_+-eE", c) >= 0 }
