package slurmgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"slurmgate/gate"
)

// Every command that an error names as the next step is one the gate can put into the words of a chat and of HTTP. What only ever runs at a
// shell may name any.
//
// proves HTC-06
func TestNextStepsAreKnown(t *testing.T) {
	registry, err := gate.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	shellAlone := regexp.MustCompile(`^(cmd/slurmgate/(?:[a-su-z]|tools_local|tools_domain)|bench|chaos|e2e|scripts|mcp/|site/|toolpack/(?:author|domain|load)\.go)`)
	command := regexp.MustCompile(`\bslurmgate [a-z]+[ a-z-]*`)
	found := 0
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || shellAlone.MatchString(path) {
			return err
		}
		for _, text := range steps(t, path) {
			for _, c := range command.FindAllString(text, -1) {
				found++
				if said := registry.Say(gate.Other, c); said == c && !slices.Contains([]string{"slurmgate again", "slurmgate that wrote it"}, c) {
					t.Errorf("%s: %q in %q is no step of gate.Steps", path, c, text)
				}
			}
		}
		return nil
	})
	if err != nil || found < 20 {
		t.Error(found, err)
	}
}

// steps are the texts of a file that tell a next step: arguments of WithNext, values of Next and Hint, and texts with "Next: ".
func steps(t *testing.T, path string) (out []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	literals := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil {
					out = append(out, s)
				}
			}
			return true
		})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "WithNext" {
				for _, a := range n.Args {
					literals(a)
				}
			}
		case *ast.KeyValueExpr:
			if k, ok := n.Key.(*ast.Ident); ok && slices.Contains([]string{"Next", "Hint"}, k.Name) {
				literals(n.Value)
			}
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && strings.Contains(s, "Next: ") {
				out = append(out, s)
			}
		}
		return true
	})
	return out
}
