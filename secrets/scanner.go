// Package secrets finds passwords, tokens and keys in texts: by the rules of gitleaks, which are embedded as data, by additional rules, by
// the names of what is assigned, by a site's own patterns, and by their randomness. It knows nothing else of the program.
//
// Secrets are found with the text around them, so a text must never be cut before it is searched: see [Scanner.Part].
package secrets

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Redacted replaces a secret.
const Redacted = "[redacted]"

// Margin is how many bytes around a text must be searched with it, so that a secret at its edge is found: more than a private key has.
const Margin = 16 << 10

// defaultReach is the largest distance of a match from its keyword, in bytes.
const defaultReach = 512

// Span is a secret in a text, in bytes.
type Span struct {
	Start, End int
	Rule       string
}

// Pattern is a site's own rule.
type Pattern struct {
	Name     string
	Regex    *regexp.Regexp // a group in it is the secret, else all of it
	Keywords []string       // the pattern is searched for where a text has one of them; none: always
}

// Scanner finds secrets. It does not change, and may be used by several at once.
type Scanner struct {
	words  *words
	means  []meaning // of each word
	always []*rule   // a site's patterns without keywords
}

// meaning is what a word begins.
type meaning struct {
	what   int // one of the following
	rule   *rule
	length int
}

const (
	keyword = iota // of a rule
	stem           // part of a name of secrets
	keyWord        // PRIVATE KEY
	scheme         // ://
	percent        // %3d and the like: something is written in percents
)

// New makes a scanner with a site's patterns.
func New(site ...Pattern) *Scanner {
	s := &Scanner{}
	var list []string
	add := func(word string, m meaning) {
		m.length = len(word)
		list, s.means = append(list, word), append(s.means, m)
	}
	rules := slices.Concat(ownRules(), gitleaks())
	for _, p := range site {
		r := &rule{ID: p.Name, Regex: p.Regex.String(), Keywords: p.Keywords, Reach: 4 << 10}
		if rules = append(rules, r); len(p.Keywords) == 0 {
			s.always = append(s.always, r)
		}
	}
	for _, r := range rules {
		r.prepare()
		for i, k := range r.Keywords {
			r.Keywords[i] = strings.ToLower(k)
			add(r.Keywords[i], meaning{what: keyword, rule: r})
		}
	}
	for _, name := range stems() {
		add(name, meaning{what: stem})
	}
	add("private key", meaning{what: keyWord})
	add("://", meaning{what: scheme})
	for _, p := range []string{"%3d", "%3a", "%22"} {
		add(p, meaning{what: percent})
	}
	s.words = newWords(list)
	return s
}

// Default is the scanner without patterns of a site.
var Default = sync.OnceValue(func() *Scanner { return New() })

// Suspicious is quick, and true of every document that holds a secret. Canonical JSON escapes nothing that a keyword
// consists of.
func (s *Scanner) Suspicious(raw []byte) (found bool) {
	if len(s.always) > 0 {
		return true
	}
	if bytes.Contains(raw, []byte(`\b`)) || bytes.Contains(raw, []byte(`\u000`)) { // control characters, see shapeless
		return true
	}
	if bytes.ContainsFunc(raw, func(r rune) bool { return r >= utf8.RuneSelf || r == '\\' }) {
		if text, o := normalized(string(raw)); o != nil {
			raw = []byte(text)
		}
	}
	scan(s.words, raw, func(hit) bool { found = true; return false }, func(from, to int) bool {
		found = worthDecoding(string(raw[from:to]))
		return !found
	})
	return found
}

// Find returns the secrets in a text, in their order; none overlaps another.
func (s *Scanner) Find(text string) []Span { return merged(s.find(text, 0), text) }

// find searches a text as a reader sees it.
func (s *Scanner) find(text string, depth int) []Span {
	shown, o := normalized(text)
	out := s.findIn(shown, depth)
	if o != nil {
		for i := range out {
			out[i] = o.span(out[i])
		}
	}
	return out
}

func (s *Scanner) findIn(text string, depth int) (out []Span) {
	var near map[*rule][]int // the ends of a rule's keywords
	var order []*rule
	seen := 0    // the end of the last value: a name within it does not count
	decoded := 0 // the end of the last word in percents
	keys := 0    // the end of the last private key
	scan(s.words, text, func(h hit) bool {
		m := s.means[h.word]
		start := h.end - m.length
		switch m.what {
		case keyword:
			if m.length < 4 && text[h.end-1] != ' ' && !longWord(text, start, h.end) {
				break
			}
			if near == nil {
				near = map[*rule][]int{}
			}
			if near[m.rule] == nil {
				order = append(order, m.rule)
			}
			near[m.rule] = append(near[m.rule], h.end)
		case stem:
			if start < seen {
				break
			}
			end := h.end
			if c := text[end-1]; c == '=' || c == ':' { // pw=
				end--
			}
			if x, ok := assigned(text, start, end); ok {
				out = append(out, x)
				seen = x.End
			}
		case keyWord:
			if start < keys {
				break
			}
			if x, ok := pem(text, start); ok {
				out = append(out, x)
				keys = x.End
			}
		case scheme:
			if x, ok := userInfo(text, h.end); ok {
				out = append(out, x)
			}
		case percent:
			if start >= decoded {
				out, decoded = s.percents(text, start, depth, out)
			}
		}
		return true
	}, func(from, to int) bool {
		out = s.run(text, from, to, depth, out)
		return true
	})
	budget := maxRuleBytes * max(len(text), 64<<10)
	for _, r := range order {
		out = r.around(text, near[r], &budget, out)
	}
	for _, r := range s.always {
		out = r.find(text, 0, len(text), out)
	}
	return out
}

// longWord reports whether a short keyword is in a long word: else it is in half of all words.
func longWord(text string, from, to int) bool {
	for from > 0 && text[from-1] > ' ' && to-from < 20 {
		from--
	}
	for to < len(text) && text[to] > ' ' && to-from < 20 {
		to++
	}
	return to-from >= 20
}

// maxRuleBytes bounds the work for a text that is filled with keywords on purpose: the stretches all rules search
// together are at most so many times as long as it. Where more would have to be searched, the stretch is redacted.
const maxRuleBytes = 24

// around runs the rule's expression over the stretches around its keywords.
func (r *rule) around(text string, ends []int, budget *int, out []Span) []Span {
	reach := r.Reach
	if reach == 0 {
		reach = defaultReach
	}
	for i := 0; i < len(ends); {
		from := wordEdge(text, max(0, ends[i]-reach), -1)
		to := ends[i] + reach
		for i++; i < len(ends) && ends[i]-reach <= to; i++ {
			to = ends[i] + reach
		}
		to = wordEdge(text, min(len(text), to), 1)
		if *budget -= to - from; *budget < 0 {
			out = append(out, Span{from, to, "too much that looks like secrets"})
			continue
		}
		out = r.find(text, from, to, out)
	}
	return out
}

// wordEdge moves the edge of a stretch out to the next blank, if there is one near: an edge must not be taken for the
// end of a word.
func wordEdge(text string, at, direction int) int {
	for i := at; i > 0 && i < len(text) && i-at < 256 && at-i < 256; i += direction {
		if text[i] <= ' ' {
			return i
		}
	}
	if at > 0 && at < len(text) && direction < 0 {
		return max(0, at-256)
	}
	return min(len(text), at+max(0, direction)*256)
}

// run searches a long stretch of base64: a text in it is searched too, and a separate one may be random.
func (s *Scanner) run(text string, from, to, depth int, out []Span) []Span {
	if depth > 2 || !worthDecoding(text[from:to]) {
		return out
	}
	if i := strings.LastIndexByte(strings.TrimRight(text[from:to], "="), '='); i >= 0 { // name=value
		from += i + 1
	}
	alone := (from == 0 || strings.IndexByte(" \t\r\n\"'`=,;(>", text[from-1]) >= 0) &&
		(to == len(text) || strings.IndexByte(" \t\r\n\"'`,;)<", text[to]) >= 0)
	if inner := decoded(text[from:to]); inner != "" {
		if len(s.find(inner, depth+1)) > 0 {
			out = append(out, Span{from, to, "secret in base64"})
		}
	} else if alone && random(text[from:to]) {
		out = append(out, Span{from, to, "random characters"})
	}
	return out
}

// worthDecoding reports whether a stretch of base64 may be more than a name or a checksum in hexadecimal.
func worthDecoding(s string) bool {
	if len(s) == 30 && s[3] == '_' || len(s) == 31 && s[4] == '_' { // an id of ours
		return false
	}
	upper, low := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			upper++
		case c >= 'a' && c <= 'z':
			low++
		}
	}
	return upper > 1 && low > 1
}

// percents searches a word that is written in percents.
func (s *Scanner) percents(text string, at, depth int, out []Span) ([]Span, int) {
	from, to := at, at
	for from > 0 && text[from-1] > ' ' && at-from < maxValue && text[from-1] != '"' {
		from--
	}
	for to < len(text) && text[to] > ' ' && to-at < maxValue && text[to] != '"' {
		to++
	}
	if depth > 2 {
		return out, to
	}
	if inner := unpercent(text[from:to]); inner != text[from:to] && len(s.find(inner, depth+1)) > 0 {
		out = append(out, Span{from, to, "secret in percents"})
	}
	return out, to
}

// unpercent decodes what is good of a text written in percents.
func unpercent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if hi, lo := strings.IndexByte(hexDigits, lower(s[i+1])), strings.IndexByte(hexDigits, lower(s[i+2])); hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

const hexDigits = "0123456789abcdef"

// merged sorts spans, joins those that overlap, and widens each to the end of the word it ends in.
func merged(spans []Span, text string) []Span {
	if len(spans) == 0 {
		return nil
	}
	for i := range spans {
		for e := &spans[i].End; *e > spans[i].Start && *e < len(text) && wordByte(text[*e-1]) && wordByte(text[*e]); {
			*e++
		}
	}
	slices.SortFunc(spans, func(a, b Span) int { return a.Start - b.Start })
	out := spans[:1]
	for _, s := range spans[1:] {
		if last := &out[len(out)-1]; s.Start < last.End {
			last.End = max(last.End, s.End)
		} else {
			out = append(out, s)
		}
	}
	return out
}

func wordByte(c byte) bool { return base64Byte[c] && c != '=' && c != '/' }

// Kind names the kind of the first secret in a text, "" for none.
func (s *Scanner) Kind(text string) string {
	if found := s.Find(text); len(found) > 0 {
		return found[0].Rule
	}
	return ""
}

// Redact returns a text without its secrets.
func (s *Scanner) Redact(text string) string { return s.Part(text, 0, len(text)) }

// Part returns text[from:to] without secrets, where the whole text is searched: one across an edge is left out too.
// The edges are moved inwards to whole characters.
func (s *Scanner) Part(text string, from, to int) string {
	for from < to && from > 0 && !utf8.RuneStart(text[from]) {
		from++
	}
	for to > from && to < len(text) && !utf8.RuneStart(text[to]) {
		to--
	}
	var b strings.Builder
	for _, x := range s.Find(text) {
		if x.End <= from || x.Start >= to {
			continue
		}
		if x.Start > from {
			b.WriteString(text[from:x.Start])
		}
		b.WriteString(Redacted)
		from = min(to, x.End)
	}
	if b.Len() == 0 {
		return text[from:to]
	}
	b.WriteString(text[from:to])
	return b.String()
}

// Outside returns the first place at or after one that is in no secret.
func (s *Scanner) Outside(text string, at int) int {
	for _, x := range s.Find(text) {
		if x.Start < at && at < x.End {
			return x.End
		}
	}
	return at
}

// Head returns at most the first n bytes of a text, without secrets; cut reports whether there is more of it.
func (s *Scanner) Head(text string, n int) (head string, cut bool) {
	if len(text) <= n {
		return s.Redact(text), false
	}
	return s.Part(text[:min(len(text), n+Margin)], 0, n), true
}

// Tail returns at most the last n bytes of a text, without secrets.
func (s *Scanner) Tail(text string, n int) string {
	if len(text) <= n {
		return s.Redact(text)
	}
	text = text[max(0, len(text)-n-Margin):]
	return s.Part(text, len(text)-n, len(text))
}
