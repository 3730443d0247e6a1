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

// Every step in the code has a verb and arguments that gate.StepForms can render; what the faces make of them cmd/slurmgate.TestStepForms shows.
func TestStepsAreOfTheTable(t *testing.T) {
	forms := map[string]string{} // a verb's argument names
	for _, f := range gate.StepForms() {
		forms[f.Verb] += " " + f.With + " " + f.Shell + f.HTTP
	}
	found := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Do" || len(call.Args) == 0 {
				return true
			} else if x, ok := f.X.(*ast.Ident); !ok || x.Name != "fault" {
				return true
			}
			found++
			verb := literal(call.Args[0])
			form, known := forms[verb]
			if !known {
				t.Errorf("%s: the verb %q is not in gate.StepForms", path, verb)
			}
			if len(call.Args)%2 != 1 {
				t.Errorf("%s: %s has a name without a value", path, verb)
			}
			for i := 1; i < len(call.Args); i += 2 {
				if name := literal(call.Args[i]); !regexp.MustCompile(`\b` + name + `\b`).MatchString(form) {
					t.Errorf("%s: %s has no argument %q in gate.StepForms", path, verb, name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || found < 5 {
		t.Error(found, err)
	}
}

func literal(n ast.Expr) string {
	if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
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
