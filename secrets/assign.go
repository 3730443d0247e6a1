package secrets

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the search around a name.
const (
	maxName  = 96   // bytes of an identifier to either side
	maxValue = 4096 // bytes of a value
)

// assigned finds the value that a name in text[from:to] is given: name=value, "name": "value", --name value, <name>value</name>,
// {"name": "DB_PASSWORD", "value": "x"}, or a sentence: the password for it is x.
func assigned(text string, from, to int) (s Span, ok bool) {
	from, to = identifierAround(text, from, to)
	at, how := separator(text, from, to)
	if how == nothing || ownID.MatchString(text[from:to]) {
		return s, false
	}
	strength := Name(text[from:to])
	if strength == NoName {
		return s, false
	}
	value := Span{at, at, "assignment of a secret"}
	quoted := false
	value.Start, value.End, quoted = valueAt(text, at, how, strings.HasPrefix(strings.ToLower(text[from:to]), "pass"))
	if how != sentence { // password: str = "x"
		if next, again := separator(text, value.Start, value.End); again == equals && !quoted && text[value.End] != '=' {
			value.Start, value.End, quoted = valueAt(text, next, again, false)
		}
	}
	v := text[value.Start:value.End]
	switch {
	case len(v) < 4 || placeholder(v), ours(text, from), looksLikeType(v):
		return s, false
	case how == sentence:
		return value, strength == Strong && (quoted || secretive(v))
	case how != bare && (strength <= Weak || how == blank):
		name := text[from:to]
		if name == "PASS" || name == "Pass" && how != equals {
			return s, false
		}
		label := name[0] >= utf8.RuneSelf // no program's name for something else
		long := quoted || how == equals || label || strings.Contains(name, "_") || how == blank && strength == Strong
		return value, plausible(v) || long && secretive(v) && len(v) >= 6
	case how == bare:
		return value, strength > Faint && secretive(v) && len(v) >= 6 && !wordy(v) && !identifiers.MatchString(v) && (strength == Strong ||
			len(v) >= 16 && plausible(v))
	case path(v): // PWD=/home/a, credentials: /etc/x; a password seldom is one
		return value, !strings.HasSuffix(strings.ToUpper(text[from:to]), "PWD") && !strings.Contains(strings.ToLower(text[from:to]),
			"credential") &&
			!strings.Contains(strings.ToLower(text[from:to]), "key")
	}
	return value, true
}

// Assigned reports whether a value seems to be a secret under a key, which [Name] classifies.
func Assigned(key, value string) bool {
	if len(value) < 4 || placeholder(value) || looksLikeType(value) {
		return false
	}
	return Name(key) == Strong && !path(value) && !strings.ContainsRune(value, ' ') || plausible(value)
}

// Named reports whether a value in a column with a name is a secret.
func Named(column, value string) bool {
	return value != "" && !placeholder(value) && (Name(column) == Strong && !path(value) || Name(column) == Weak && plausible(value))
}

// looksLikeType reports whether a value is a word about types rather than a value of one.
func looksLikeType(v string) bool {
	switch strings.Trim(v, ",;)") {
	case "str", "String", "text", "char", "varchar", "bytes", "Optional[str]":
		return true
	}
	return false
}

// ours reports whether the name is that of the claim token in the gateway's own job scripts and claims. It opens nothing.
func ours(text string, from int) bool {
	return claimToken.MatchString(text[from:min(len(text), from+64)]) && (from == 0 || text[from-1] == ' ' || text[from-1] == '\n')
}

// ownID matches an id whose random letters may spell a name. A role follows it: run_…:result.
var ownID = regexp.MustCompile(`^` + ownIDs + `$`)

var claimToken = regexp.MustCompile(`^token=[0-9a-f]{32}(?:\s|$)`)

// identifierAround widens a stem to the identifier it is part of.
func identifierAround(text string, from, to int) (int, int) {
	for low := max(0, from-maxName); from > low; {
		r, n := utf8.DecodeLastRuneInString(text[:from])
		if !inIdentifier(r) {
			break
		}
		from -= n
	}
	for high := min(len(text), to+maxName); to < high; {
		r, n := utf8.DecodeRuneInString(text[to:])
		if !inIdentifier(r) || r >= 0x2e80 && utf8.RuneLen(r) > 2 { // a verb follows a name without a blank in Chinese and Japanese
			break
		}
		to += n
	}
	return from, to
}

func inIdentifier(r rune) bool {
	return r == '_' || r == '-' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) && r != utf8.RuneError
}

// joint is the text between a name and its value.
type joint int

const (
	nothing  joint = iota
	equals         // = := =>
	colon          // :
	element        // > of <name>
	blank          // --name value, name "value"
	sentence       // is, lautet, est
	bare           // nothing but a blank
)

// separator finds what follows a name, and where the value begins.
func separator(text string, from, to int) (at int, how joint) {
	rest := text[to:min(len(text), to+160)]
	i := skipMarks(rest, 0, "\\\"'`")
	closedBy := rest[:i]
	for i < len(rest) && (rest[i] == ')' || rest[i] == ']') && i < 3 {
		i++
	}
	j := skipMarks(rest, i, " \t")
	after := rest[j:]
	switch {
	case strings.HasPrefix(after, "=>"), strings.HasPrefix(after, ":="), strings.HasPrefix(after, "=="):
		return to + j + 2, equals
	case strings.HasPrefix(after, "="):
		return to + j + 1, equals
	case strings.HasPrefix(after, ":="):
		return to + j + 2, equals
	case strings.HasPrefix(after, ":"):
		return to + j + 1, colon
	case len(after) > 2 && after[0] == '%' && (strings.EqualFold(after[:3], "%3d") || strings.EqualFold(after[:3], "%3a")):
		return to + j + 3, equals
	case strings.HasPrefix(after, ">") && from > 0 && text[from-1] == '<':
		return to + j + 1, element
	case closedBy == "" && j > i && strings.HasPrefix(text[from:], "-") && after != "" && after[0] != '-':
		return to + j, blank
	case closedBy == "" && j > i && after != "" && (after[0] == '\'' || after[0] == '"'):
		return to + j, blank
	}
	if k := pairValue(after); k > 0 {
		return to + j + k, colon
	}
	if k := verb(after, j > i); k > 0 {
		return to + j + k, sentence
	}
	if word, _, _ := strings.Cut(after, " "); closedBy == "" && rest[i:j] == " " && strings.ContainsAny(word, "0123456789") &&
		!strings.ContainsAny(word, ":;|\t\n") {
		return to + j, bare
	}
	return 0, nothing
}

// pairValue finds the value where the name is itself a value: {"name": "DB_PASSWORD", "value": "x"}.
func pairValue(after string) int {
	i := skipMarks(after, 0, ", \t\r\n\\\"'")
	if i == 0 || !strings.HasPrefix(after[i:], "value") && !strings.HasPrefix(after[i:], "Value") {
		return 0
	}
	i = skipMarks(after, i+len("value"), "\\\"' \t")
	if i < len(after) && (after[i] == ':' || after[i] == '=') {
		return i + 1
	}
	return 0
}

// verbs join a name and a value in a sentence.
var verbs = []string{"is", "was", "ist", "lautet", "heißt", "-", "–", "—", "war", "es", "est", "era", "é", "è", "är", "er", "on", "jest",
	"to", "je", "это",
	"есть", "olarak",
	"είναι", "là", "adalah", "=", "->", "→", "|"}

// verb finds the value after a verb, at most five words on.
func verb(after string, spaced bool) int {
	for _, v := range []string{"是", "为", "為", "は", "는", "은", "です"} {
		if strings.HasPrefix(after, v) {
			return len(v)
		}
	}
	if !spaced {
		return 0
	}
	at := 0
	for range 6 {
		word := after[at:]
		if i := strings.IndexAny(word, " \t\n"); i >= 0 {
			word = word[:i]
		} else {
			return 0
		}
		at += len(word) + 1
		if slices.Contains(verbs, strings.TrimSuffix(strings.ToLower(word), ":")) {
			return at
		}
		if word == "" || strings.ContainsAny(word, ".;\n") || after[at-1] == '\n' {
			return 0
		}
		if strings.HasSuffix(word, ":") {
			return at
		}
	}
	return 0
}

// valueAt finds the ends of the value that begins at or after a place.
func valueAt(text string, at int, how joint, phrase bool) (from, to int, quoted bool) {
	i := at
	limit := min(len(text), at+maxValue)
	i = skipMarks(text[:limit], i, " \t")
	if how == colon || how == equals { // a block of YAML
		if b := strings.TrimLeft(text[i:limit], "|>-+"); len(b) < limit-i && strings.HasPrefix(b, "\n") &&
			len(strings.TrimLeft(b[1:], " ")) < len(b)-1 {
			i = limit - len(strings.TrimLeft(b[1:], " "))
		}
		i = skipMarks(text[:limit], i, " \t:=>")
	}
	escapes := skipMarks(text[:limit], i, `\`)
	for _, q := range []string{`"`, "'", "`", "「", "«", "“", "„", "&quot;", "%22"} {
		if !strings.HasPrefix(text[escapes:limit], q) {
			continue
		}
		from = escapes + len(q)
		end := map[string]string{"「": "」", "«": "»", "“": "”", "„": "“"}[q]
		if end == "" {
			end = text[i:escapes] + q // as deeply escaped as it was opened
		}
		if n := closing(text[from:limit], end); n >= 0 {
			return from, from + n, true
		}
		return from, lineEnd(text, from, limit), true
	}
	if strings.HasPrefix(text[i:limit], "[") && !strings.HasPrefix(text[i:limit], Redacted) {
		if n := strings.IndexByte(text[i:lineEnd(text, i, limit)], ']'); n > 0 {
			return i + 1, i + n, false
		}
	}
	stop := " \t\r\n\"'`"
	switch {
	case how == element:
		stop = "<\n"
	case how == equals && query(text, at):
		stop += "&#"
	}
	to = limit
	if n := strings.IndexAny(text[i:limit], stop); n >= 0 {
		to = i + n
	}
	if phrase && to < limit && text[to] == ' ' && (how == colon || how == equals) && words4(text[i:lineEnd(text, i, limit)]) {
		to = lineEnd(text, i, limit)
	}
	if how == sentence {
		to = i + len(strings.TrimRight(text[i:to], ".,;:!?)"))
	} else {
		to = i + len(strings.TrimRight(text[i:to], ",;"))
	}
	return i, to, false
}

// words4 reports whether a line is nothing but three to eight or so words of small letters, as a passphrase is.
func words4(line string) bool {
	n := 0
	for w := range strings.FieldsSeq(line) {
		if strings.Trim(w, "abcdefghijklmnopqrstuvwxyz") != "" || len(w) < 3 {
			return false
		}
		n++
	}
	return n >= 4 && n <= 24
}

// query reports whether a place is in the query of a URL.
func query(text string, at int) bool {
	before := text[max(0, at-maxName):at]
	i := strings.LastIndexAny(before, "?& \t\n\"'")
	return i >= 0 && (before[i] == '?' || before[i] == '&')
}

// closing finds a quote that is not escaped more deeply, in the same line.
func closing(text, quote string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], quote)
		if i < 0 {
			return -1
		}
		at := from + i
		if strings.ContainsRune(text[:at], '\n') {
			return -1
		}
		if at == 0 || text[at-1] != '\\' || strings.HasPrefix(quote, `\`) {
			return at
		}
		from = at + len(quote)
	}
}

func lineEnd(text string, at, limit int) int {
	if n := strings.IndexAny(text[at:limit], "\r\n"); n >= 0 {
		return at + n
	}
	return limit
}

// skipMarks skips bytes of a set.
func skipMarks(text string, i int, set string) int {
	for i < len(text) && strings.IndexByte(set, text[i]) >= 0 {
		i++
	}
	return i
}
