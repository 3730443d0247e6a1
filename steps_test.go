package slurmgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/secrets"
)

// No text of the product names a command of the shell: what to do next is a step, which each face writes in its own words. Help, and
// comments in files written for authors, are the shell's own.
//
// proves HTC-06
func TestTextsNameNoCommands(t *testing.T) {
	shellAlone := regexp.MustCompile(`^(toolpack/author\.go|bench|chaos|e2e|scripts|gate/conformance)`)
	command := regexp.MustCompile(`\bslurmgate (get|wait|collect|recollect|logs|cancel|retry|adopt|declare-absent|runs (?:list|show|diff)|artifact|tool (?:list|show|check|init)|approve|approvals|deny|token|events|image|doctor|` +
		`config|gc|submit)\b`)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || shellAlone.MatchString(path) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Tag != nil {
				return false // help of the command line
			}
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && command.MatchString(l.Value) && !strings.Contains(l.Value,
				"# Written by") {
				t.Errorf("%s: %s names a command; make it a step (fault.Do)", path, l.Value)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Every step in the code has a verb and arguments that gate.StepForms can render; what the faces make of them cmd/slurmgate.TestStepForms
// shows.
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
			if path == "gate/next.go" || path == "gate/hide.go" { // a copy of a step, with other arguments
				return true
			}
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

// What the product says about credentials does not look like one: redaction would take the advice out of the message.
func TestOwnTextsAreNoSecrets(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "secrets") {
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
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "New" && f.Sel.Name != "Wrap" && f.Sel.Name != "WithNext" {
				return true
			}
			for _, arg := range call.Args {
				if l, ok := arg.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if text, err := strconv.Unquote(l.Value); err == nil && secrets.Default().Redact(text) != text {
						t.Errorf("%s: %s is redacted", path, l.Value)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
