package gate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/secrets"
)

// Redacted replaces a secret.
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

// reasonAfter finds the system's error about a path; it is not a value of that name.
var reasonAfter = regexp.MustCompile(`:( (?:permission denied|no such file or directory|not a directory|is a directory|file exists|no such device or address|` +
	`read-only file system|input/output error|too many levels of symbolic links|file name too long|operation not permitted|stale NFS file handle))`)

// finding is a secret found in a document.
type finding struct{ at, what string }

// redactor walks a document. byName: keys count, not only forms.
type redactor struct {
	secrets *secrets.Scanner
	keys    *knownKeys
	byName  bool
	path    []step // to the value that is walked
	found   []finding
}

// step leads to an element of a list, or, with an index of -1, to the value of a key.
type step struct {
	key   string
	index int
}

// walk returns the value without its secrets: the value itself if it has none.
func (r *redactor) walk(value any) any {
	switch v := value.(type) {
	case string:
		if what := r.secrets.Kind(v); what != "" {
			r.hide(what)
			return r.secrets.Redact(v)
		}
	case []any:
		var out []any
		for i := range v {
			before := len(r.found)
			var clean any
			r.path = append(r.path, step{index: i})
			if i > 0 && isOption(v[i-1]) && isWord(v[i]) { // --password, hunter2
				clean = r.hide("value of an option for secrets")
			} else {
				clean = r.walk(v[i])
			}
			r.path = r.path[:len(r.path)-1]
			if len(r.found) > before {
				if out == nil {
					out = slices.Clone(v)
				}
				out[i] = clean
			}
		}
		if out != nil {
			return out
		}
	case map[string]any:
		var out map[string]any
		label, _ := v["name"].(string) // {"name": "DB_PASSWORD", "value": "hunter2"}
		for key, in := range v {
			k, name, before := r.keys.of(r.secrets, key), key, len(r.found)
			if k.kind != "" {
				name = Redacted
				r.hide(k.kind + " as a key")
			}
			var clean any
			r.path = append(r.path, step{name, -1})
			if r.named(k.name, key, in) || key == "value" && label != "" && r.named(secrets.Name(label), label, in) {
				clean = r.hide("value under a secret's name")
			} else {
				clean = r.walk(in)
			}
			r.path = r.path[:len(r.path)-1]
			if len(r.found) > before {
				if out == nil {
					out = maps.Clone(v)
				}
				delete(out, key)
				out[name] = clean
			}
		}
		if out != nil {
			return out
		}
	}
	return value
}

// hide notes what was found at the present place.
func (r *redactor) hide(what string) any {
	at := ""
	for _, s := range r.path {
		if s.index >= 0 {
			at += fmt.Sprintf("[%d]", s.index)
		} else {
			at = strings.TrimPrefix(at+"."+s.key, ".")
		}
	}
	r.found = append(r.found, finding{at, what})
	return Redacted
}

// knownKeys remembers what the keys of documents mean: tools' answers have the same ones again and again.
type knownKeys struct {
	mu    sync.RWMutex
	known map[string]knownKey
}

type knownKey struct {
	kind string // of the secret that the key itself holds, "" for none
	name secrets.Strength
}

// Bounds of what is remembered.
const (
	maxKnownKeys = 4096
	maxKnownKey  = 64 // bytes
)

func (m *knownKeys) of(by *secrets.Scanner, key string) knownKey {
	m.mu.RLock()
	k, ok := m.known[key]
	m.mu.RUnlock()
	if ok {
		return k
	}
	k = knownKey{by.Kind(key), secrets.Name(key)}
	if k.kind == "" && len(key) <= maxKnownKey {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.known == nil {
			m.known = map[string]knownKey{}
		}
		if len(m.known) < maxKnownKeys {
			m.known[key] = k
		}
	}
	return k
}

// named reports whether a value is a secret because of its key. In arguments every such value is. An answer describes
// things too, such as a schema with a password in it: there only a text is.
func (r *redactor) named(name secrets.Strength, key string, value any) bool {
	text, isText := value.(string)
	if name == secrets.NoName {
		return false
	}
	if r.byName && name >= secrets.Weak {
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

// redact removes the secrets from a document. A document without secrets is returned unchanged.
func (g *Gate) redact(d document, byName bool) (document, []finding, error) {
	if d.harmless = d.harmless || !g.secrets.Suspicious(d.Bytes); d.harmless {
		return d, nil, nil
	}
	r := redactor{secrets: g.secrets, keys: &g.keys, byName: true}
	v := r.walk(d.Value)
	if len(r.found) == 0 {
		d.harmless = true
		return d, nil, nil
	}
	if !byName { // what is found by form alone is found by name too
		r.byName, r.found = false, nil
		v = r.walk(d.Value)
	}
	if len(r.found) == 0 {
		return d, nil, nil
	}
	slices.SortFunc(r.found, func(a, b finding) int { return strings.Compare(a.at, b.at) })
	doc, err := plan.Of(v)
	return document{Doc: doc}, r.found, err
}
