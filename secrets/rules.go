package secrets

import (
	_ "embed"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// gitleaksJSON are the rules of gitleaks, as scripts/secret-rules writes them.
//
//go:embed gitleaks.json
var gitleaksJSON []byte

// rule finds one kind of secret near one of its keywords.
type rule struct {
	ID       string   `json:"id"`
	Regex    string   `json:"regex"`
	Group    int      `json:"group"`    // of the expression that is the secret; 0: the first that took part, else all
	Entropy  float64  `json:"entropy"`  // of the secret, at least, in bits a character
	Keywords []string `json:"keywords"` // in lower case; one of them is in every match
	Allow    []allow  `json:"allow"`
	Reach    int      `json:"-"` // bytes around a keyword to search for a match; 0: defaultReach

	ok      func(text string, from, to int) bool // a further condition on the secret; nil: none
	compile func() *regexp.Regexp                // once, when first needed
}

// allow describes matches of a rule that are not secrets.
type allow struct {
	Regexes   []string `json:"regexes"`
	Stopwords []string `json:"stopwords"`
	Target    string   `json:"target"` // match or line; empty: the secret
	All       bool     `json:"all"`

	compile func() []*regexp.Regexp
}

func (r *rule) prepare() {
	r.compile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Regex) })
	for i := range r.Allow {
		a := &r.Allow[i]
		a.compile = sync.OnceValue(func() (out []*regexp.Regexp) {
			for _, x := range a.Regexes {
				out = append(out, regexp.MustCompile(x))
			}
			return out
		})
	}
}

// gitleaks reads the embedded rules.
func gitleaks() (rules []*rule) {
	var file struct {
		Allow allow
		Rules []*rule
	}
	if err := json.Unmarshal(gitleaksJSON, &file); err != nil {
		panic("secrets: gitleaks.json: " + err.Error()) // it is part of the program
	}
	for _, r := range file.Rules {
		if r.ID == "private-key" { // see pem
			continue
		}
		r.Allow = append(r.Allow, file.Allow)
		if r.ID == "generic-api-key" {
			r.ok = func(text string, from, to int) bool {
				return !identifier(text[from:to]) && !strings.Contains(lineOf(text, from), "ccession")
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// lineOf returns the line of a text up to a place.
func lineOf(text string, at int) string { return text[strings.LastIndexByte(text[:at], '\n')+1 : at] }

// allowed reports whether something the rule found is no secret.
func (a *allow) allowed(text string, match, secret [2]int) bool {
	target := text[secret[0]:secret[1]]
	low := strings.ToLower(target)
	switch a.Target {
	case "match":
		target = text[match[0]:match[1]]
	case "line":
		target = lineOf(text, match[0]) + text[match[0]:match[1]]
	}
	byForm := slices.ContainsFunc(a.compile(), func(x *regexp.Regexp) bool { return x.MatchString(target) })
	byWord := slices.ContainsFunc(a.Stopwords, func(w string) bool { return strings.Contains(low, w) })
	if a.All {
		return (byForm || len(a.Regexes) == 0) && (byWord || len(a.Stopwords) == 0)
	}
	return byForm || byWord
}

// find adds the secrets that the rule finds in text[from:to], around its keywords.
func (r *rule) find(text string, from, to int, out []Span) []Span {
	part := text[from:to]
	for _, m := range r.compile().FindAllStringSubmatchIndex(part, -1) {
		at := [2]int{m[0], m[1]}
		if g := 2 * r.Group; g > 0 && m[g] >= 0 {
			at = [2]int{m[g], m[g+1]}
		} else if g == 0 {
			for i := 2; i < len(m); i += 2 {
				if m[i] >= 0 && m[i] < m[i+1] {
					at = [2]int{m[i], m[i+1]}
					break
				}
			}
		}
		secret := part[at[0]:at[1]]
		if strings.Contains(secret, Redacted) || peptide(secret) || r.Entropy > 0 && entropy(secret) <= r.Entropy ||
			r.ok != nil && !r.ok(part, at[0], at[1]) || !r.hasKeyword(part[m[0]:m[1]]) {
			continue
		}
		if !slices.ContainsFunc(r.Allow, func(a allow) bool { return a.allowed(part, [2]int{m[0], m[1]}, at) }) {
			out = append(out, Span{from + at[0], from + at[1], r.ID})
		}
	}
	return out
}

// hasKeyword holds a rule to its keyword: one that takes any 40 digits where the name of a service is somewhere else finds checksums.
func (r *rule) hasKeyword(match string) bool {
	low := strings.ToLower(match)
	return len(r.Keywords) == 0 || slices.ContainsFunc(r.Keywords, func(k string) bool { return strings.Contains(low, k) })
}
