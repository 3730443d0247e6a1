package slurmgate_test

import (
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// No format shortens a text: %.200q and the like cut it within a character or a number, without a mark. [visible.Clip]
// and [fault.Quote] mark the cut.
func TestNoFormatCutsText(t *testing.T) {
	cuts := regexp.MustCompile(`%[-+# 0-9]*\.(\d+|\*)[sqvx]`)
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "e2e/") || strings.HasPrefix(name, "bench/") ||
			strings.Contains(name, "test/") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file := token.NewFileSet().AddFile(name, -1, len(src))
		var s scanner.Scanner
		s.Init(file, src, nil, 0)
		for {
			pos, tok, lit := s.Scan()
			if tok == token.EOF {
				break
			}
			if cut := cuts.FindString(lit); tok == token.STRING && cut != "" {
				t.Errorf("%s:%d: %s cuts a text; use visible.Clip or fault.Quote", name, file.Line(pos), cut)
			}
		}
	}
}
