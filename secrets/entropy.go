package secrets

import (
	"math"
	"regexp"
	"strings"
	"unicode"
)

// entropy returns Shannon's entropy, in bits a character.
func entropy(s string) float64 {
	var count [256]int
	for i := range len(s) {
		count[s[i]]++
	}
	bits := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(s))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}

// kinds counts the kinds of characters in a text, and the changes between them: random characters change all the time, words and
// CamelCase seldom.
type kinds struct{ upper, lower, digit, other, changes, distinct int }

func kindsOf(s string) (k kinds) {
	var seen [256]bool
	last := 0
	for i := range len(s) {
		c, kind := s[i], 0
		switch {
		case c >= 'A' && c <= 'Z':
			k.upper++
			kind = 1
		case c >= 'a' && c <= 'z':
			k.lower++
			kind = 2
		case c >= '0' && c <= '9':
			k.digit++
			kind = 3
		default:
			k.other++
			kind = 4
		}
		if i > 0 && kind != last {
			k.changes++
		}
		if !seen[c] {
			seen[c] = true
			k.distinct++
		}
		last = kind
	}
	return k
}

// random reports whether a separate word is surely random characters of both cases and digits. Lengths that checksums
// have in base64 are left out, and so is all that is shorter: identifiers have that form.
func random(s string) bool {
	switch n := len(s); {
	case n < 36 || n > 128, n == 38, n == 43, n == 44, n == 64, n == 76, n == 86, n == 88:
		return false
	}
	if known.MatchString(s) {
		return false
	}
	k := kindsOf(s)
	return k.upper >= 4 && k.lower >= 4 && k.digit >= 1 && k.other <= len(s)/8 && k.distinct >= 20 && s[0] != '/' && !strings.HasSuffix(s,
		"=") &&
		2*k.changes >= len(s)
}

// ownIDs matches an id of the gateway's own: of a run, a batch, an artifact and so on, never of a bearer token (sgt_).
const ownIDs = `(?:run|batch|art|file|proj|tok|apr|prn)_[0-9A-HJKMNP-TV-Z]{26}`

// known are the beginnings of checksums, of public keys in base64, and ids of ours.
var known = regexp.MustCompile(`^(?:sha\d{1,3}|md5|blake\w*)[-=_]|^AAAA|` + ownIDs)

// identifiers are forms of names, checksums, times and places that are no secrets, however random they seem.
var identifiers = regexp.MustCompile(`^(?:[0-9a-fA-F]{8,}|` + ownIDs + `|` +
	`(?:sha\d{1,3}|md5)[:=-]\S+|` +
	`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|` + // UUID
	`[A-Z]{14}-[A-Z]{10}-[A-Z]|` + // InChIKey
	`[A-Za-z]{1,8}[_-]?[0-9]{2,}(?:[._-][A-Za-z0-9_.-]*)?|` + // accessions
	`[0-9.:TZ+_/-]+|` + // numbers, times, versions
	`[ACGTUNacgtun]+)$`)

// identifier reports whether a value has the form of a name, a checksum, a time or a path.
func identifier(s string) bool { return identifiers.MatchString(s) || path(s) || wordy(s) }

// wordy reports whether a value is a name of several words, as PatientA_rep1_388.
func wordy(s string) bool { return names.MatchString(s) }

var names = regexp.MustCompile(`^[A-Za-z]{0,16}[0-9]{0,6}(?:[._:-][A-Za-z]{0,16}[0-9]{0,6})+$`)

// peptide reports whether a word may be a sequence of amino acids.
func peptide(s string) bool { return strings.Trim(s, "ACDEFGHIKLMNPQRSTVWY") == "" }

// path reports whether a value is a path or a URL without user information.
func path(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") || strings.HasPrefix(s, "~/") ||
		strings.Contains(s, "://") && !strings.Contains(s, "@")
}

// placeholder reports whether a value only marks the place of a secret.
func placeholder(s string) bool {
	if strings.Contains(s, Redacted) && strings.Trim(strings.ReplaceAll(s, Redacted, ""), " \"'`,;&)}]>") == "" {
		return true
	}
	switch strings.ToLower(strings.Trim(s, `"',;.)]}`)) {
	case "", "null", "none", "nil", "true", "false", "undefined", "empty", "unset", "missing", "required", "optional", "string", "redacted",
		"hidden", "masked":
		return true
	}
	if len(s) > 2 && strings.Trim(s, "*xX.•-_#?") == "" {
		return true
	}
	first, last := s[0], s[len(s)-1]
	return first == '<' && last == '>' || first == '$' && !strings.HasPrefix(s, "$2") && variable.MatchString(s) || first == '%' &&
		last == '%' ||
		strings.HasPrefix(s, "{{")
}

var variable = regexp.MustCompile(`^\$(?:[A-Za-z_]\w*|\{[^}]*\}|\([^)]*\))[;,"')]*$`)

// plausible reports whether a value under a name that also has other uses (token, key) is a secret.
func plausible(s string) bool {
	if len(s) < 8 || path(s) || strings.HasPrefix(s, "{") {
		return false
	}
	if identifiers.MatchString(s) {
		return len(s) >= 32 && strings.Trim(s, "0123456789abcdefABCDEF-") == "" // a token is often hexadecimal
	}
	k := kindsOf(s)
	letters := k.upper + k.lower
	return letters > 0 && k.digit > 0 || len(s) >= 16 && k.upper > 1 && k.lower > 1 && entropy(s) > 3.5
}

// secretive reports whether a word in a sentence is a password rather than a word: it has a digit or a sign among its letters.
func secretive(s string) bool {
	if len(s) < 4 || path(s) || placeholder(s) {
		return false
	}
	letters, digits, signs, humps, last := 0, 0, 0, 0, rune(0)
	for _, r := range s {
		switch {
		case unicode.IsLetter(r):
			letters++
			if unicode.IsUpper(r) && unicode.IsLower(last) {
				humps++
			}
		case unicode.IsDigit(r):
			digits++
		case strings.ContainsRune("!@#$%^&*+=?~|", r):
			signs++
		}
		last = r
	}
	return letters > 0 && digits+signs+humps > 0 || digits >= 6 && digits == len(s)
}
