package slurmgate_test

import (
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// No line of Go is longer than 140 characters, but for rows of nothing but strings and lines with text in backquotes: tables of data,
// SQL, schemas, templates.
func TestLineWidth(t *testing.T) {
	const width = 140
	row := regexp.MustCompile(`^\t+("([^"\\]|\\.)*"[:,]?\s*(\+$)?)+$`)
	for _, name := range goFiles(t) {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		quoted := rawLines(src)
		for i, line := range strings.Split(string(src), "\n") {
			if n := utf8.RuneCountInString(line); n > width && !quoted[i+1] && !row.MatchString(line) {
				t.Errorf("%s:%d: %d characters, at most %d", name, i+1, n, width)
			}
		}
	}
}

// rawLines returns the lines of a Go file that have text in backquotes.
func rawLines(src []byte) map[int]bool {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && lit[0] == '`' {
			first := file.Line(pos)
			for n := range strings.Count(lit, "\n") + 1 {
				lines[first+n] = true
			}
		}
	}
}
