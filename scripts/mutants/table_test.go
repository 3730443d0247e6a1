package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each mutant has a unique name, changes a text that its file has once, and names a test that exists. make mutants runs
// them.
func TestTable(t *testing.T) {
	const root = "../.."
	names := map[string]bool{}
	for _, m := range table {
		if names[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		names[m.name] = true
		if _, err := m.mutated(root); err != nil {
			t.Errorf("%s: %v; write the text as it is now into scripts/mutants/table.go", m.name, err)
		}
		files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		there := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			there = there || strings.Contains(string(text), "func "+m.test+"(t *testing.T)")
		}
		if !there {
			t.Errorf("%s: package %s has no test %s", m.name, m.pkg, m.test)
		}
	}
}
