package gate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/secrets"
)

// Redacted stands where a secret stood.
const Redacted = secrets.Redacted

// Scrub takes secrets out of a text, as a gate without patterns of a site does.
func Scrub(s string) string { return secrets.Default().Redact(s) }

// ScrubMessage takes secrets out of the message of an error of this program. In "file:line:column: field: message" and in "path: no such
// file", file, field and path are names of places, however they are called; what is said of them is scrubbed as any text.
func ScrubMessage(message string, problems []fault.Problem) string {
	return scrubMessage(secrets.Default(), message, problems)
}

func scrubMessage(by *secrets.Scanner, message string, problems []fault.Problem) string {
	const colon = "\x00" // in place of a colon that assigns nothing; no message has one
	if strings.Contains(message, colon) {
		return by.Redact(message)
	}
	masked := func(s string) string { return strings.ReplaceAll(s, ":", colon) }
	for _, p := range problems {
		text := p.Text(func([]fault.Step) string { return "" })
		place, _, ok := strings.Cut(text, ": "+p.Msg)
		if !ok || p.Msg == "" || by.Kind(p.File) != "" || by.Kind(p.Field) != "" {
			continue
		}
		message = strings.ReplaceAll(message, place+": "+p.Msg, masked(place+": ")+p.Msg)
	}
	message = reasonAfter.ReplaceAllString(message, colon+"$1")
	return strings.ReplaceAll(by.Redact(message), colon, ":")
}

// reasonAfter finds what the system says of a path; it is no value of that name.
var reasonAfter = regexp.MustCompile(`:( (?:permission denied|no such file or directory|not a directory|is a directory|file exists|no such device or address|` +
	`read-only file system|input/output error|too many levels of symbolic links|file name too long|operation not permitted|stale NFS file handle))`)

// finding is a secret found in a document.
type finding struct{ at, what string }

// redactor walks a document. byName: keys count, not only forms.
type redactor struct {
	secrets *secrets.Scanner
	byName  bool
	found   []finding
}

func (r *redactor) walk(at string, v any) any {
	switch v := v.(type) {
	case string:
		if what := r.secrets.Kind(v); what != "" {
			r.found = append(r.found, finding{at, what})
			return r.secrets.Redact(v)
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			place := fmt.Sprintf("%s[%d]", at, i)
			if i > 0 && isOption(v[i-1]) && isWord(v[i]) { // --password, hunter2
				out[i] = r.hide(place, "value of an option for secrets")
				continue
			}
			out[i] = r.walk(place, v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		label, _ := v["name"].(string) // {"name": "DB_PASSWORD", "value": "hunter2"}
		for key, value := range v {
			name := key
			if what := r.secrets.Kind(key); what != "" {
				name = Redacted
				r.found = append(r.found, finding{at, what + " as a key"})
			}
			place := strings.TrimPrefix(at+"."+name, ".")
			if r.named(key, value) || key == "value" && label != "" && r.named(label, value) {
				out[name] = r.hide(place, "value under a secret's name")
				continue
			}
			out[name] = r.walk(place, value)
		}
		return out
	}
	return v
}

func (r *redactor) hide(place, what string) any {
	r.found = append(r.found, finding{place, what})
	return Redacted
}

// named reports whether a value is a secret by the key it stands under. In arguments everything is. An answer describes things too, such as
// a schema with a password in it: there a text is.
func (r *redactor) named(key string, value any) bool {
	text, isText := value.(string)
	if secrets.Name(key) == secrets.NoName {
		return false
	}
	if r.byName && secrets.Name(key) >= secrets.Weak {
		return holdsText(value)
	}
	return isText && text != Redacted && secrets.Assigned(key, text)
}

// isOption reports whether an element of a command is an option whose value is a secret.
func isOption(v any) bool {
	s, ok := v.(string)
	return ok && strings.HasPrefix(s, "-") && !strings.Contains(s, "=") && secrets.Name(s) >= secrets.Weak
}

// isWord reports whether an element of a command is a value rather than an option.
func isWord(v any) bool {
	s, ok := v.(string)
	return ok && len(s) > 2 && s != Redacted && !strings.HasPrefix(s, "-")
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
func (g *Gate) redact(d document, byName bool) (document, []finding, error) {
	if d.harmless = d.harmless || !g.secrets.Suspicious(d.Bytes); d.harmless {
		return d, nil, nil
	}
	r := redactor{secrets: g.secrets, byName: byName}
	v := r.walk("", d.Value)
	if len(r.found) == 0 {
		d.harmless = byName
		return d, nil, nil
	}
	slices.SortFunc(r.found, func(a, b finding) int { return strings.Compare(a.at, b.at) })
	doc, err := plan.Of(v)
	return document{Doc: doc}, r.found, err
}
