package site

import (
	"fmt"
	"regexp"
	"strings"
)

// Secrets configures patterns of secrets besides the gateway's own.
type Secrets struct {
	Patterns []SecretPattern `yaml:"patterns"` // at most 64
}

// SecretPattern finds one kind of secret.
type SecretPattern struct {
	Name     string   `yaml:"name"`               // of the kind, for messages: 1 to 64 characters
	Pattern  string   `yaml:"pattern"`            // a regular expression (RE2), at most 500 bytes; the secret is a group in it, else the match
	Keywords []string `yaml:"keywords,omitempty"` // at most 8, of 3 to 64 bytes: the pattern must be near one of them
}

const (
	maxPatterns     = 64
	maxPattern      = 500
	maxKeywords     = 8
	maxKeywordBytes = 64
)

func (c *checker) secrets(s Secrets) {
	if n := len(s.Patterns); n > maxPatterns {
		c.add("SITE-SECRETS", "secrets.patterns", fmt.Sprintf("at most %d patterns", maxPatterns),
			fmt.Sprintf("%d patterns are too many", n), "")
	}
	names := map[string]bool{}
	for i, p := range s.Patterns {
		at := fmt.Sprintf("secrets.patterns[%d]", i)
		if n := len([]rune(p.Name)); n == 0 || n > 64 || strings.ContainsFunc(p.Name, func(r rune) bool { return r < ' ' }) {
			c.add("SITE-SECRETS", at+".name", "1 to 64 characters", fmt.Sprintf("the name has %d characters", n), "")
		} else if names[p.Name] {
			c.add("SITE-SECRETS", at+".name", "each name once", fmt.Sprintf("%q appears twice", p.Name), "choose another name")
		}
		names[p.Name] = true
		if msg := badPattern(p.Pattern); msg != "" {
			c.add("SITE-SECRETS", at+".pattern", fmt.Sprintf("a regular expression (RE2) of 1 to %d bytes", maxPattern), msg, "")
		}
		if n := len(p.Keywords); n > maxKeywords {
			c.add("SITE-SECRETS", at+".keywords", fmt.Sprintf("at most %d keywords", maxKeywords),
				fmt.Sprintf("%d keywords are too many", n), "")
		}
		for k, word := range p.Keywords {
			if len(word) < 3 || len(word) > maxKeywordBytes {
				c.add("SITE-SECRETS", fmt.Sprintf("%s.keywords[%d]", at, k), fmt.Sprintf("3 to %d bytes", maxKeywordBytes),
					fmt.Sprintf("%q has %d bytes", word, len(word)), "")
			}
		}
	}
}

// badPattern returns what is wrong with a pattern, or "".
func badPattern(pattern string) string {
	if len(pattern) == 0 || len(pattern) > maxPattern {
		return fmt.Sprintf("it has %d bytes", len(pattern))
	}
	x, err := regexp.Compile(pattern)
	switch {
	case err != nil:
		return strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	case x.MatchString(""):
		return "it matches the empty text, so it would match everywhere"
	}
	return ""
}
