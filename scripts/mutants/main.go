// Command mutants breaks promises of the program on purpose, one at a time, and holds that a short test notices each.
//
//	mutants          every mutant of the table
//	mutants NAME...  these only
//
// The tree is not touched: the go command reads the broken file from a temporary folder (-overlay). A test counts only if it passes on the
// program as it is.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a change of the program that breaks a promise.
type mutant struct {
	name     string
	file     string
	old, now string // the replaced text, which is in the file once, and its replacement
	pkg      string // whose test notices it
	test     string // its name, or a path of subtests
}

func main() {
	if err := try(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// try tries the mutants with these names; none: all.
func try(names []string) error {
	list := table
	if len(names) > 0 {
		list = slices.DeleteFunc(slices.Clone(table), func(m mutant) bool { return !slices.Contains(names, m.name) })
		if len(list) != len(names) {
			return fmt.Errorf("no mutant has one of the names %s; scripts/mutants/table.go has them", strings.Join(names, " "))
		}
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := passes(list); err != nil {
		return err
	}
	caught := 0
	for _, m := range list {
		noticed, err := m.noticed(dir)
		switch {
		case err != nil:
			fmt.Printf("BROKEN    %-32s %v\n", m.name, err)
		case noticed:
			caught++
			fmt.Printf("caught    %-32s %s.%s\n", m.name, m.pkg, m.test)
		default:
			fmt.Printf("SURVIVED  %-32s %s.%s passes\n", m.name, m.pkg, m.test)
		}
	}
	fmt.Printf("%d mutants, %d caught\n", len(list), caught)
	if caught < len(list) {
		return fmt.Errorf("%d mutants were not caught: no test notices what they break, or the program has changed under them", len(list)-caught)
	}
	return nil
}

// passes runs the tests of the mutants on the program as it is, those of a package together.
func passes(list []mutant) error {
	tests := map[string][]string{}
	for _, m := range list {
		if whole, _, _ := strings.Cut(m.test, "/"); !slices.Contains(tests[m.pkg], whole) {
			tests[m.pkg] = append(tests[m.pkg], whole)
		}
	}
	for pkg, names := range tests {
		if out, err := goTest(pkg, "^("+strings.Join(names, "|")+")$"); err != nil {
			return fmt.Errorf("the tests %s of %s fail without a mutant: %w\n%s", strings.Join(names, ", "), pkg, err, out)
		}
	}
	return nil
}

// mutated returns the mutant's file with its change. root is the folder of the module.
func (m mutant) mutated(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s has the text to replace %d times, not once: %s", m.file, n, m.old)
	}
	return strings.Replace(string(text), m.old, m.now, 1), nil
}

// noticed runs the mutant's test on the broken program and reports whether it fails.
func (m mutant) noticed(dir string) (bool, error) {
	text, err := m.mutated(".")
	if err != nil {
		return false, err
	}
	broken, list := filepath.Join(dir, m.name+filepath.Ext(m.file)), filepath.Join(dir, m.name+".json")
	here, err := filepath.Abs(m.file)
	if err != nil {
		return false, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{here: broken}})
	if err := errors.Join(err, os.WriteFile(broken, []byte(text), 0o600), os.WriteFile(list, overlay, 0o600)); err != nil {
		return false, err
	}
	var parts []string
	for part := range strings.SplitSeq(m.test, "/") {
		parts = append(parts, "^"+part+"$")
	}
	out, err := goTest(m.pkg, strings.Join(parts, "/"), "-overlay", list)
	switch {
	case err == nil:
		return false, nil
	case !strings.Contains(out, "--- FAIL: "+strings.Split(m.test, "/")[0]) && !strings.Contains(out, "panic: "):
		return false, fmt.Errorf("the test did not run: %w\n%s", err, out)
	}
	return true, nil
}

// goTest runs tests of a package of this module, below its root.
func goTest(pkg, tests string, more ...string) (out string, err error) {
	args := append([]string{"test", "-vet=off", "-count=1", "-timeout=5m", "-run", tests}, more...)
	data, err := exec.Command("go", append(args, "./"+pkg)...).CombinedOutput()
	return string(data), err
}
