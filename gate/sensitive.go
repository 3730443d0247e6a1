package gate

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"maps"
	"net/url"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Sensitive arguments are those that a tool of a service worker declares: a password or a token that the worker
// needs. Only the worker gets their values. In records, payloads, runs, approvals and dry runs a marker replaces
// them; keys and approvals are bound to them by an HMAC with the ledger's key; and where an answer, an error or a log
// line repeats one, it is replaced.

// Hidden are the values of a call's sensitive arguments. The nil Hidden hides nothing.
type Hidden struct {
	exact  map[string]bool // too short to be searched for within a text
	within *strings.Replacer
}

// Lengths of the values that are searched for, in bytes.
const (
	shortValue = 4 // a shorter value is replaced where it is a whole text
	wordOfOne  = 8 // a word of a value counts by itself
)

// masked returns a call's arguments with a marker in place of the sensitive ones, and what their values are; nil if there are none.
func (t Tool) masked(args plan.Doc) (plan.Doc, *Hidden) {
	value, _ := args.Value.(map[string]any)
	var values []any
	for _, name := range t.Sensitive {
		if v, given := value[name]; given {
			if values == nil {
				value = maps.Clone(value)
			}
			values = append(values, v)
			value[name] = Redacted
		}
	}
	if values == nil {
		return args, nil
	}
	out, _ := plan.Of(value) // it was JSON just now
	return out, hide(values)
}

func hide(values []any) *Hidden {
	h := &Hidden{exact: map[string]bool{}}
	var forms []string
	add := func(s string) {
		quoted, _ := json.Marshal(s) // a text can always be encoded
		forms = append(forms, s, strings.Trim(string(quoted), `"`), url.QueryEscape(s), url.PathEscape(s), html.EscapeString(s),
			base64.RawStdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)))
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		case float64:
			doc, _ := plan.Of(v) // a number of a document
			walk(string(doc.Bytes))
		case string:
			if len(v) < shortValue {
				h.exact[v] = v != ""
				return
			}
			add(v)
			for _, word := range strings.Fields(v) {
				if len(word) >= wordOfOne {
					add(word)
				}
			}
		}
	}
	walk(values)
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // of two that begin alike the longer one counts
	var pairs []string
	for _, f := range forms {
		pairs = append(pairs, f, Redacted)
	}
	h.within = strings.NewReplacer(pairs...)
	return h
}

// Text returns a text without the values.
func (h *Hidden) Text(s string) string {
	switch {
	case h == nil:
		return s
	case h.exact[s]:
		return Redacted
	}
	return h.within.Replace(s)
}

// Doc returns a document without the values.
func (h *Hidden) Doc(d plan.Doc) (plan.Doc, error) {
	if h == nil {
		return d, nil
	}
	return plan.Of(h.value(d.Value))
}

func (h *Hidden) value(v any) any {
	switch v := v.(type) {
	case string:
		return h.Text(v)
	case float64:
		if doc, err := plan.Of(v); err == nil && h.Text(string(doc.Bytes)) == Redacted {
			return Redacted
		}
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = h.value(x)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, x := range v {
			out[h.Text(key)] = h.value(x)
		}
		return out
	}
	return v
}

// body returns an error without the values.
func (h *Hidden) body(e *ErrorBody) *ErrorBody {
	if h == nil || e == nil {
		return e
	}
	out := *e
	out.Message = h.Text(e.Message)
	if doc, err := plan.Of(e.Details); err == nil {
		if clean, err := h.Doc(doc); err == nil && string(clean.Bytes) != string(doc.Bytes) {
			out.Details = clean.Value.(map[string]any)
		}
	}
	return &out
}

// unsaid returns the violations of a schema without details of sensitive arguments, such as their length or size.
func (t Tool) unsaid(found []fault.Problem) []fault.Problem {
	for i, p := range found {
		for _, name := range t.Sensitive {
			if p.Field == "args."+name || strings.HasPrefix(p.Field, "args."+name+".") {
				found[i].Field, found[i].Msg = "args."+name, "it violates the schema"
			}
		}
	}
	return slices.CompactFunc(found, func(a, b fault.Problem) bool { return a.Field == b.Field && a.Msg == b.Msg })
}

// notByReference refuses sensitive arguments in an artifact: it would keep them.
func notByReference() error {
	return fault.New(fault.Validation, "sensitive_by_reference", "the tool has sensitive arguments, and an artifact would store them").
		WithNext("pass the arguments in args, and erase the artifact")
}
