package toolpack

import (
	"regexp"
	"strings"
)

// template is one argv element: literal text and placeholders, in order. It renders to exactly one element.
type template []segment

// segment is a literal, or the value of a param.
type segment struct {
	literal string
	param   string // empty for a literal
}

var placeholder = regexp.MustCompile(`^\{\{[ \t]*params\.([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}`)

// parseTemplate reads the one form that is understood, {{ params.NAME }}. msg says what else stands there.
func parseTemplate(s string) (t template, msg string) {
	for s != "" {
		i := strings.IndexByte(s, '{')
		for i >= 0 && (i+1 >= len(s) || !strings.ContainsRune("{%#", rune(s[i+1]))) {
			if j := strings.IndexByte(s[i+1:], '{'); j >= 0 {
				i += 1 + j
			} else {
				i = -1
			}
		}
		if i < 0 {
			return append(t, segment{literal: s}), ""
		}
		if i > 0 {
			t = append(t, segment{literal: s[:i]})
		}
		m := placeholder.FindStringSubmatch(s[i:])
		if m == nil {
			return nil, `it contains "` + clip(s[i:]) + `"`
		}
		t = append(t, segment{param: m[1]})
		s = s[i+len(m[0]):]
	}
	return t, ""
}

// params are the names used.
func (t template) params() []string {
	var out []string
	for _, s := range t {
		if s.param != "" {
			out = append(out, s.param)
		}
	}
	return out
}

// render puts the values in.
func (t template) render(value func(param string) string) string {
	var b strings.Builder
	for _, s := range t {
		if s.param != "" {
			b.WriteString(value(s.param))
		} else {
			b.WriteString(s.literal)
		}
	}
	return b.String()
}
