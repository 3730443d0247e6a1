package slurmgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	walkStep   = regexp.MustCompile(`(?m)^(\d+)\. `)
	namedFunc  = regexp.MustCompile("`(\\w+)` \\(`([\\w/]+\\.go)`\\)")
	sourceFile = regexp.MustCompile("`((?:[a-z0-9]+/)+[a-z0-9_]+\\.(?:go|sql|sh))`")
)

// The walk from a call to its job has ten steps, and each names functions that are in the named file.
func TestWalkToSubmission(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, ok := strings.Cut(string(text), "\n## Where is a job submitted, and what if that fails\n")
	walk, _, end := strings.Cut(walk, "\n## ")
	if !ok || !end {
		t.Fatal("ARCHITECTURE.md has no walk")
	}
	starts := walkStep.FindAllStringSubmatchIndex(walk, -1)
	if len(starts) != 10 {
		t.Fatalf("%d steps", len(starts))
	}
	for i, at := range starts {
		to := len(walk)
		if i+1 < len(starts) {
			to = starts[i+1][0]
		}
		step := walk[at[0]:to]
		if n := walk[at[2]:at[3]]; n != strconv.Itoa(i+1) {
			t.Errorf("step %d has the number %s", i+1, n)
		}
		named := namedFunc.FindAllStringSubmatch(strings.Join(strings.Fields(step), " "), -1)
		if len(named) == 0 {
			t.Errorf("step %d names no function", i+1)
		}
		for _, n := range named {
			if !slices.Contains(functions(t, n[2]), n[1]) {
				t.Errorf("step %d: %s has no function %s", i+1, n[2], n[1])
			}
		}
	}
}

// functions returns the functions and methods that a file declares.
func functions(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

// A source file that a document names exists.
func TestDocumentsNameFilesThatExist(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatal(documents, err)
	}
	for _, document := range append(documents, "ARCHITECTURE.md", "README.md", "INSTALL.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range sourceFile.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(n[1]); err != nil {
				t.Errorf("%s names %s: %v", document, n[1], err)
			}
		}
	}
}
