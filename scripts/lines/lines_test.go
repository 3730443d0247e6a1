package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      size
	}{
		{"code", "package p\n\nvar a = 1\n", size{2, 6}},
		{"comments and blank lines", "// a\npackage p /* b\n\nc */\n\n// d\nvar a = 1 // e\n", size{2, 6}},
		{"a comment in a string", "package p\n\nvar a = \"// no comment\"\nvar b = `/*\n// b\n\n*/`\n", size{5, 10}},
		{"a call in one line", "package p\n\nvar a = f(1, \"ab\")\n", size{2, 11}},
		{"the same in several", "package p\n\nvar a = f(\n\t1,\n\t\"a\"+\n\t\t\"b\",\n)\n", size{6, 11}},
		{"two statements in a line", "package p\n\nfunc f() { g(); h() }\n", size{2, 14}},
		{"the same in two", "package p\n\nfunc f() {\n\tg()\n\th()\n}\n", size{5, 14}},
	} {
		if got := measure([]byte(c.src)); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A commit is compared with another and with the work tree; moved code stays in its row, and what is no product is not counted.
func TestCompare(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, src string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=n", "-c", "user.email=n@example.org"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	for _, name := range []string{"a/a_test.go", "e2e/e.go", "chaos/prog/p.go", "run/runtest/r.go", "gate/conformance/c.go", "scripts/s/s.go",
		"a/a.txt"} {
		write(name, "package x\n\nvar a = 1\n")
	}
	run("init", "-q")
	write("a/a.go", "package a\n\nvar a = 1\nvar b = 2\n")
	write("cmd/slurmgate/main.go", "package main\n\nvar a = 1\n")
	run("add", "-A")
	run("commit", "-qm", "one")
	run("rm", "-q", "cmd/slurmgate/main.go")
	write("app/app.go", "package app\n\nvar a = 1\n")
	write("b/b.go", "package b\n")
	write("a/a.go", "package a\n\nvar a = 1\n")
	want := `package lines now change tokens now change
a 3 2 -1 -33.3% 10 6 -4 -40.0%
b 0 1 +1 new 0 2 +2 new
cmd app cli 2 2 +0 +0.0% 6 6 +0 +0.0%
all 5 5 +0 +0.0% 16 14 -2 -12.5%
`
	check := func(from, to string) {
		t.Helper()
		var out bytes.Buffer
		if err := compare(&out, from, to); err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for line := range strings.Lines(out.String()) {
			got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
		}
		if got.String() != want {
			t.Errorf("%s..%s:\n%swant\n%s", from, to, got.String(), want)
		}
	}
	check("HEAD", "")
	run("add", "-A")
	run("commit", "-qm", "two")
	check("HEAD~1", "HEAD")
	if err := compare(&bytes.Buffer{}, "no-such-commit", ""); err == nil || !strings.Contains(err.Error(), "no-such-commit") {
		t.Errorf("a commit that does not exist: %v", err)
	}
}
