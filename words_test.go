package slurmgate_test

import (
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	// privateWords are words that make a sentence need its author: a plain one is at hand for each.
	privateWords = regexp.MustCompile(`(?i)\b(nobody|whoever|somebody|his|goes on|is none|beside)\b|` +
		`\blies (in|at|below|behind|outside|under|elsewhere|there)\b|\bof its own([.,;:)]|$| (that|and|in|for)\b)`)
	// fieldWords are texts in which such a word is a term: the Unix user nobody, an operator of Jinja2.
	fieldWords = regexp.MustCompile("(?i)(as|user|users|reuid|of) `?nobody`?\\b|nobody:x:65534:65534:nobody|^\"nobody\"$|`is none`")
)

// Comments, messages of the product and documents are written in plain words.
func TestPlainWords(t *testing.T) {
	check := func(file string, line int, text string) {
		if w := privateWords.FindString(fieldWords.ReplaceAllString(text, "")); w != "" {
			t.Errorf("%s:%d has %q: say it in plain words, for example no other user, separate, next to, continues, is at, if absent", file, line, w)
		}
	}
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			check(name, i+1, line)
		}
	}
	for _, name := range goFiles(t) {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file := token.NewFileSet().AddFile("", -1, len(src))
		var s scanner.Scanner
		s.Init(file, src, nil, scanner.ScanComments)
		for pos, tok, text := s.Scan(); tok != token.EOF; pos, tok, text = s.Scan() {
			if tok == token.COMMENT || tok == token.STRING && product(name) {
				for i, line := range strings.Split(text, "\n") {
					check(name, file.Line(pos)+i, line)
				}
			}
		}
	}
}

// product reports whether people who use the program read the texts of a Go file.
func product(name string) bool {
	if strings.HasSuffix(name, "_test.go") {
		return false
	}
	top, _, _ := strings.Cut(name, "/")
	switch top {
	case "bench", "chaos", "e2e", "docs", "scripts":
		return false
	}
	return !strings.Contains(name, "runtest/") && !strings.Contains(name, "/conformance/")
}
