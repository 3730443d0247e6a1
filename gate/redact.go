package gate

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Redacted stands where a secret stood.
const Redacted = "[redacted]"

// secretValue finds secrets by their form. The anchors are looked for first: most texts have none of them, and then no expression
// runs. Forms that a sequence or an identifier of ours could have by chance are avoided.
var secretValue = []struct {
	name    string
	anchors []string
	form    *regexp.Regexp
}{
	{"private key", []string{"PRIVATE KEY"}, regexp.MustCompile(
		`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|$)`)},
	{"JSON web token", []string{"eyJ"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	{"token of this gateway", []string{"sgt_"}, regexp.MustCompile(`\bsgt_[A-Za-z0-9_]{24,}`)},
	{"AWS key id", []string{"AKIA", "ASIA"}, regexp.MustCompile(`\bA[KS]IA[A-Z0-9]{16}\b`)},
	{"GitHub token", []string{"gh", "github_pat_"}, regexp.MustCompile(`\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})`)},
	{"GitLab token", []string{"glpat-"}, regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{16,}`)},
	{"Slack token", []string{"xox", "xapp-"}, regexp.MustCompile(`\b(xox[abeprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})`)},
	{"API key", []string{"sk-", "sk_", "rk_", "pk_"}, regexp.MustCompile(`\b(sk-[A-Za-z0-9_-]{20,}|[rsp]k_(live|test)_[A-Za-z0-9]{10,})`)},
	{"Google key", []string{"AIza", "ya29."}, regexp.MustCompile(`\b(AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,})`)},
	{"package registry token", []string{"npm_", "pypi-", "hf_", "dckr_pat_"},
		regexp.MustCompile(`\b(npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{30,}|dckr_pat_[A-Za-z0-9_-]{20,})`)},
	{"mail service key", []string{"SG."}, regexp.MustCompile(`\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`)},
	{"munge credential", []string{"MUNGE:"}, regexp.MustCompile(`MUNGE:[A-Za-z0-9+/=]{20,}:?`)},
	// digits: "basic documentation" is none
	{"authorization", []string{"earer ", "asic ", "EARER ", "ASIC "},
		regexp.MustCompile(`(?i)\b(bearer|basic)\s+([A-Za-z._~+/=-]{0,64}[0-9]){2}[A-Za-z0-9._~+/=-]{6,}`)},
	{"password in a URL", []string{"://"}, regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@]*:[^\s/@]+@`)},
	{"assignment of a secret", []string{"=", ":"},
		regexp.MustCompile(`(?i)\b[a-z0-9_.-]*(passw(or)?d|passphrase|secret|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|credentials?|(access|auth|refresh|bearer|session|api)[_-]?token)["']?\s*[=:]\s*["']?[^\s"']{4,}`)},
}

// secretName finds secrets by the key they stand under, whatever they look like.
var secretName = [][]string{{"password"}, {"passwd"}, {"pwd"}, {"passphrase"}, {"secret"}, {"secrets"}, {"token"}, {"apikey"},
	{"api", "key"}, {"access", "key"},
	{"account", "key"}, {"private", "key"}, {"secret", "key"}, {"authorization"}, {"credential"}, {"credentials"}, {"cookie"}, {"jwt"},
	{"bearer"}}

// aboutSecret are last words of keys that say something about a secret, and hold none: token_id, secret_name.
var aboutSecret = []string{"id", "ids", "name", "names", "type", "kind", "hash", "count", "limit", "length", "expires", "file", "path",
	"url", "uri"}

// isSecretName reports whether a key's words name a secret: api_key, API-Key, apiKey, userPassword; not max_tokens or token_id.
func isSecretName(key string) bool {
	words := wordsOf(key)
	if n := len(words); n > 0 && slices.Contains(aboutSecret, words[n-1]) {
		return false
	}
	return slices.ContainsFunc(secretName, func(name []string) bool {
		for i := range words {
			if len(words)-i >= len(name) && slices.Equal(words[i:i+len(name)], name) {
				return true
			}
		}
		return false
	})
}

func wordsOf(key string) (words []string) {
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	low := false
	for _, r := range key {
		switch {
		case !unicode.IsLetter(r):
			end()
		case unicode.IsUpper(r) && low: // the hump in apiKey
			end()
			word.WriteRune(r)
		default:
			word.WriteRune(r)
		}
		low = unicode.IsLower(r)
	}
	end()
	return words
}

// Scrub takes secrets out of a text by their form.
func Scrub(s string) string {
	for _, p := range secretValue {
		if slices.ContainsFunc(p.anchors, func(a string) bool { return strings.Contains(s, a) }) {
			s = p.form.ReplaceAllLiteralString(s, Redacted)
		}
	}
	return s
}

// ScrubMessage takes secrets out of the message of an error of this program. In "file:line:column: field: message" and in "path: no such
// file", file, field and path are names of places, however they are called; what is said of them is scrubbed as any text.
func ScrubMessage(message string, problems []fault.Problem) string {
	const colon = "\x00" // in place of a colon that assigns nothing; no message has one
	if strings.Contains(message, colon) {
		return Scrub(message)
	}
	masked := func(s string) string { return strings.ReplaceAll(s, ":", colon) }
	for _, p := range problems {
		text := p.Text(func([]fault.Step) string { return "" })
		place, _, ok := strings.Cut(text, ": "+p.Msg)
		if !ok || p.Msg == "" || secretIn(p.File) != "" || secretIn(p.Field) != "" {
			continue
		}
		message = strings.ReplaceAll(message, place+": "+p.Msg, masked(place+": ")+p.Msg)
	}
	message = reasonAfter.ReplaceAllString(message, colon+"$1")
	return strings.ReplaceAll(Scrub(message), colon, ":")
}

// reasonAfter finds what the system says of a path; it is no value of that name.
var reasonAfter = regexp.MustCompile(`:( (?:permission denied|no such file or directory|not a directory|is a directory|file exists|no such device or address|` +
	`read-only file system|input/output error|too many levels of symbolic links|file name too long|operation not permitted|stale NFS file handle))`)

// secretIn names the kind of secret a text holds, "" for none.
func secretIn(s string) string {
	for _, p := range secretValue {
		if slices.ContainsFunc(p.anchors, func(a string) bool { return strings.Contains(s, a) }) && p.form.MatchString(s) {
			return p.name
		}
	}
	return ""
}

// finding is a secret found in a document.
type finding struct{ at, what string }

// redactor walks a document. byName: keys count, not only forms.
type redactor struct {
	byName bool
	found  []finding
}

func (r *redactor) walk(at string, v any) any {
	switch v := v.(type) {
	case string:
		if what := secretIn(v); what != "" {
			r.found = append(r.found, finding{at, what})
			return Scrub(v)
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = r.walk(fmt.Sprintf("%s[%d]", at, i), v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			name := key
			if what := secretIn(key); what != "" {
				name = Redacted
				r.found = append(r.found, finding{at, what + " as a key"})
			}
			place := strings.TrimPrefix(at+"."+name, ".")
			if r.byName && isSecretName(key) && holdsText(value) {
				r.found = append(r.found, finding{place, "value under a secret's name"})
				out[name] = Redacted
				continue
			}
			out[name] = r.walk(place, value)
		}
		return out
	}
	return v
}

// holdsText reports whether there is something to hide: a number, a truth value or nothing is no secret.
func holdsText(v any) bool {
	switch v := v.(type) {
	case string:
		return v != "" && v != Redacted
	case []any:
		return slices.ContainsFunc(v, holdsText)
	case map[string]any:
		for _, x := range v {
			if holdsText(x) {
				return true
			}
		}
	}
	return false
}

// document is JSON in a call.
type document struct {
	plan.Doc
	harmless bool // it holds no secret, neither by form nor by name
}

// redact takes the secrets out of a document. One that holds none is given back as it is.
func redact(d document, byName bool) (document, []finding, error) {
	if d.harmless = d.harmless || !suspicious(d.Bytes); d.harmless {
		return d, nil, nil
	}
	r := redactor{byName: byName}
	v := r.walk("", d.Value)
	if len(r.found) == 0 {
		d.harmless = byName
		return d, nil, nil
	}
	slices.SortFunc(r.found, func(a, b finding) int { return strings.Compare(a.at, b.at) })
	doc, err := plan.Of(v)
	return document{Doc: doc}, r.found, err
}

// nameStems are parts of every secret's name; a text without any of them need not be taken apart.
var nameStems = [][]byte{[]byte("pass"), []byte("pwd"), []byte("secret"), []byte("token"), []byte("key"), []byte("authorization"),
	[]byte("credential"), []byte("cookie"), []byte("jwt"), []byte("bearer")}

// suspicious is quick, and true of every document that holds a secret. Canonical JSON escapes nothing that an anchor consists of.
func suspicious(raw []byte) bool {
	for _, p := range secretValue {
		for _, a := range p.anchors {
			if len(a) > 1 && bytes.Contains(raw, []byte(a)) {
				return true
			}
		}
	}
	// Keys, and assignments in a text, have a secret's name.
	low := bytes.ToLower(raw)
	return slices.ContainsFunc(nameStems, func(s []byte) bool { return bytes.Contains(low, s) })
}
