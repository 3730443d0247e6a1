package main

import (
	"go/scanner"
	"go/token"
	"strings"
)

// size counts code.
type size struct{ lines, tokens int }

func (s *size) add(o size) {
	s.lines += o.lines
	s.tokens += o.tokens
}

// measure counts a Go file: lines that have code, so neither blank lines nor comments, and tokens. What breaking or joining lines adds or
// removes is no token: a semicolon, a comma before a closing bracket, and the plus between two parts of one string.
func measure(src []byte) size {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	var n size
	last := 0 // the last line counted
	var before, before2 token.Token
	for {
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return n
		case tok == token.SEMICOLON:
			continue
		}
		text := strings.Split(lit, "\n")
		if tok != token.STRING {
			text = []string{tok.String()}
		}
		for i, line := range text {
			if at := file.Line(pos) + i; at > last && strings.TrimSpace(line) != "" {
				last = at
				n.lines++
			}
		}
		n.tokens++
		switch {
		case before == token.COMMA && (tok == token.RPAREN || tok == token.RBRACE || tok == token.RBRACK):
			n.tokens--
		case tok == token.STRING && before == token.ADD && before2 == token.STRING:
			n.tokens -= 2
		}
		before2, before = before, tok
	}
}
