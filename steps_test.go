package slurmgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/mcp"
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
	inspect(t, func(_ *token.FileSet, path string, n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil || shellAlone.MatchString(path) {
			return false // help of the command line, or a file of the shell
		}
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && command.MatchString(l.Value) && !strings.Contains(l.Value,
			"# Written by") {
			t.Errorf("%s: %s names a command; make it a step (fault.Do)", path, l.Value)
		}
		return true
	})
}

// Every step in the code is an operation with arguments that it takes, or a command of the shell; its command line is
// one that the shell parses, and no face offers a step which it lacks.
//
// proves HTC-06
func TestStepsAreThere(t *testing.T) {
	operations := map[string]app.Operation{}
	for _, o := range new(app.Gateway).Operations() {
		operations[o.ID] = o
	}
	chat, http := mcp.Words(cli.FromChat), httpapi.Words(cli.CommandLine)
	steps := stepsOfTheCode(t)
	for place, s := range steps {
		line := cli.CommandLine(s)
		o, is := operations[s.Verb]
		switch {
		case is:
			checkStep(t, place, s, o, chat([]fault.Step{s}), http([]fault.Step{s}))
		case line == "" && s.Verb != "help" && s.Verb != "serve":
			t.Errorf("%s: %s is neither an operation nor a command of the shell", place, s.Verb)
		case line != "" && strings.Count(line, " 1") < len(s.Args)-strings.Count(line, "FILE")-strings.Count(line, "FOLDER"):
			if s.Args["samples"] == nil && s.Args["as"] == nil {
				t.Errorf("%s: the command line %q leaves out arguments of %q", place, line, s)
			}
		}
		if line == "" {
			continue
		}
		var verbs struct {
			cli.Verbs     `embed:""`
			cli.SiteVerbs `embed:""`
		}
		shell, err := kong.New(&verbs, kong.Name("slurmgate"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shell.Parse(strings.Fields(line)[1:]); err != nil {
			t.Errorf("%s: the shell does not parse %q: %v", place, line, err)
		}
	}
	if len(steps) < 150 {
		t.Errorf("the code has %d steps, want at least 150", len(steps))
	}
}

// checkStep compares the form of a step in a chat and over HTTP with its operation.
func checkStep(t *testing.T, place string, s fault.Step, o app.Operation, chat, http string) {
	t.Helper()
	for name := range s.Args {
		if _, takes := app.SchemaOfArgs(o.Tool().Input).Property(name); !takes {
			t.Errorf("%s: %s takes no %s", place, s.Verb, name)
		}
	}
	tool := o.Tool()
	has := mcp.ForChat(tool) && tool.Reachable(gate.MCP) || s.Verb == "run.show" // a chat has slurm.job.get instead
	if says := !strings.HasPrefix(chat, "ask an administrator") && !strings.HasPrefix(chat, "the user can run"); says != has {
		t.Errorf("%s: a chat has %s: %t, but the step is %q", place, s.Verb, has, chat)
	}
	if says := !strings.HasPrefix(http, "at the gateway"); says != tool.Reachable(gate.Other) {
		t.Errorf("%s: HTTP has %s: %t, but the step is %q", place, s.Verb, !says, http)
	}
}

// stepsOfTheCode returns the steps that the product makes with the verbs and names of arguments it has as literals, by the place in the
// code. Values are true where they are true there, else one that every command takes.
func stepsOfTheCode(t *testing.T) map[string]fault.Step {
	t.Helper()
	values := map[string]any{"as": "text", "stream": "log", "state": "failed", "workspaces_older_than": "1h"}
	steps := map[string]fault.Step{}
	inspect(t, func(files *token.FileSet, _ string, n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "Do" {
			return true
		}
		if x, ok := f.X.(*ast.Ident); !ok || x.Name != "fault" || literal(call.Args[0]) == "" {
			return true
		}
		s, place := fault.Do(literal(call.Args[0])), files.Position(call.Pos()).String()
		if len(call.Args)%2 != 1 {
			t.Errorf("%s: %s has a name without a value", place, s.Verb)
			return true
		}
		for i := 1; i < len(call.Args); i += 2 {
			name := literal(call.Args[i])
			s.Args[name] = any("1")
			if v, ok := call.Args[i+1].(*ast.Ident); ok && v.Name == "true" {
				s.Args[name] = true
			} else if values[name] != nil {
				s.Args[name] = values[name]
			}
		}
		steps[place] = s
		return true
	})
	return steps
}

func literal(n ast.Expr) string {
	if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

// The product's sentences about credentials do not look like credentials: redaction would take the advice out of the
// message.
func TestOwnTextsAreNoSecrets(t *testing.T) {
	inspect(t, func(_ *token.FileSet, path string, n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || strings.HasPrefix(path, "secrets") {
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
}

// goFiles returns the names of the Go files of this repository.
func goFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		_, err := os.Stat(name)
		return os.IsNotExist(err) // removed, not committed yet
	})
}

// inspect shows each node of the product's Go files to a function, which returns whether it wants the nodes below.
func inspect(t *testing.T, see func(files *token.FileSet, path string, n ast.Node) bool) {
	t.Helper()
	files := token.NewFileSet()
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool { return see(files, path, n) })
	}
}
