package slurmgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	walkStep   = regexp.MustCompile(`(?m)^(\d+)\. `)
	namedFunc  = regexp.MustCompile("`(\\w+)` \\(`([\\w/]+\\.go)`\\)")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
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

// A source file that a document names exists, and so does the heading or file that a link leads to.
func TestDocumentsNameWhatExists(t *testing.T) {
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range sourceFile.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(n[1]); err != nil {
				t.Errorf("%s names %s: %v", document, n[1], err)
			}
		}
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			name, anchor, anchored := strings.Cut(l[1], "#")
			target := document
			if name != "" {
				target = filepath.Join(filepath.Dir(document), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", document, l[1], err)
			} else if anchored && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", document, l[1], target)
			}
		}
	}
}

// documents returns the names of all documents.
func documents(t *testing.T) []string {
	t.Helper()
	list := []string{"ARCHITECTURE.md", "README.md", "INSTALL.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir("docs", func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".md" {
			list = append(list, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(t *testing.T, document string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, h[1])
		list = append(list, slug)
	}
	return list
}
