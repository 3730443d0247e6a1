package slurmgate_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	problemCode = regexp.MustCompile(`^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*$`)
	// claim finds a verb that states a fact: "the bytes agree with the type".
	claim = regexp.MustCompile(`\b(is|are|has|have|was|were|agrees?|differs?|takes?|adds?|holds?|opens|asks?|becomes?|allows?)\b`)
	// qualifier begins the part of a rule that only qualifies its nouns.
	qualifier = regexp.MustCompile(` (that|which|whose|whom|where|if|unless|when|until|than|as|what|for)\b|[:;,(]`)
	// incomplete finds a message that is incomplete without its rule.
	incomplete = regexp.MustCompile(`^got\b|^unknown \w+$|^there (is|are) none$|^(they have|the call has) |^(there are|it has) …$|` +
		`^(it|this|they) (is|are|has|have) (none|not|neither|one|them|both|…|another|no)\b( \w+)?( \w+)?$|` +
		`^… (elements|outputs|bytes|variables)$|\b(another|other) (form|kind)( of value)?$`)
)

// The message of a problem is complete without the rule that follows it in brackets, and a rule names what is wanted:
// in "its first bytes are not VCF's (the bytes agree with the type)" it reads as what was found.
func TestRefusalsAreWholeSentences(t *testing.T) {
	found := 0
	inspect(t, func(files *token.FileSet, _ string, n ast.Node) bool {
		rule, msg, is := problemText(n)
		if !is {
			return true
		}
		found++
		if head, _, _ := strings.Cut(qualifier.ReplaceAllString(rule, "\n"), "\n"); claim.MatchString(head) {
			t.Errorf("%s: the rule %q reads as what was found; want what is wanted", files.Position(n.Pos()), rule)
		}
		if incomplete.MatchString(msg) {
			t.Errorf("%s: the message %q is incomplete without the rule %q", files.Position(n.Pos()), msg, rule)
		}
		return true
	})
	if found < 400 {
		t.Errorf("%d problems found in the sources, want at least 400: the test no longer knows their form", found)
	}
}

// problemText returns rule and message of a problem: a literal of fault.Problem, or a call with a code and then, with or without the field,
// the rule and the message.
func problemText(n ast.Node) (rule, msg string, is bool) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				switch key, _ := kv.Key.(*ast.Ident); {
				case key != nil && key.Name == "Rule":
					rule, is = textOf(kv.Value), true
				case key != nil && key.Name == "Msg":
					msg = textOf(kv.Value)
				}
			}
		}
	case *ast.CallExpr:
		at := slices.IndexFunc(n.Args, func(a ast.Expr) bool { return problemCode.MatchString(textOf(a)) })
		if at < 0 {
			return "", "", false
		}
		switch name := calledAs(n); {
		case name == "sheetProblem":
			at += 2 // line and column
		case !slices.Contains([]string{"Fail", "badSite", "noImport", "denied", "refuse"}, name):
			at++ // the field
		}
		if at+2 >= len(n.Args) {
			return "", "", false
		}
		rule, msg = textOf(n.Args[at+1]), textOf(n.Args[at+2])
		is = rule != "" && msg != ""
	}
	return rule, msg, is
}

func calledAs(n *ast.CallExpr) string {
	switch f := n.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// textOf returns a text as the source has it, with … for what is filled in.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return filled.ReplaceAllString(s, "…")
	case *ast.BinaryExpr:
		return textOf(e.X) + textOf(e.Y)
	case *ast.CallExpr:
		if calledAs(e) == "Sprintf" {
			return textOf(e.Args[0])
		}
	}
	return "…"
}

var filled = regexp.MustCompile(`%[-+#.0-9]*[a-z]`)
