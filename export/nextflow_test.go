package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slurmgate/plan"
)

// groovyBlock is a script of a process, a Groovy string in three single quotes. Each quote and backslash in it is escaped.
var groovyBlock = regexp.MustCompile(`(?s)process (\w+) \{(.*?)\n\}\n`)

var groovyBody = regexp.MustCompile(`(?s)(script|stub):\s+'''((?:[^'\\]|\\.)*)'''`)

// scripts returns the scripts of a module by process and kind, as Nextflow passes them to bash.
func scripts(t *testing.T, module string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range groovyBlock.FindAllStringSubmatch(module, -1) {
		for _, b := range groovyBody.FindAllStringSubmatch(p[2], -1) {
			out[p[1]+" "+b[1]] = regexp.MustCompile(`\\(.)`).ReplaceAllString(b[2], "$1")
		}
	}
	return out
}

// hostile are arguments that a shell, Groovy or Nextflow would make something else of.
var hostile = []string{"", " ", "'", `"`, `\`, `\\n`, "$HOME", "${HOME}", "$(touch pwned)", "`touch pwned`", "; touch pwned", "'; touch pwned; '",
	"'''", "'''; touch pwned", "a\nb\n    c", "\n", "\t", "\r\n", "*", "?", "~", "!{x}", "!!", "#", "&", "| cat", ">x", "<x", "-n", "--", "\\'''",
	"ÄÖ €", "\U0001f9ec", "\u2028", "\x7f", "a=b", "$'\\''", "%s%n", "\x01", "0123\x01456"}

// The scripts of the module, run by bash in a folder that is staged as Nextflow does it, give the program exactly the plan's arguments and
// environment; wrong inputs, outputs and a failed program are found; the stub makes the outputs.
//
// proves EXP-01 ARC-09
func TestModuleRuns(t *testing.T) {
	argv := append([]string{"sh", "-c", `printf '%s\0' "$@" "$ODD" "$(cat 'in/reads one.txt')"; exit ${FAIL:-0}`, "x"}, hostile...)
	want := strings.Join(append(append([]string{}, hostile...), "it's $HOME\n\\x", "ACGT"), "\x00") + "\x00"
	r, store := made(t, argv...)
	p := value(plan.DecodeParams(r.Params))(t)
	to := "out/n.txt"
	p.Spec.Execution.Command.Stdout = &to
	sum := store.add(want)
	r.Run.Outputs[0].SHA256, r.Run.Outputs[0].SizeBytes = sum, int64(len(want))
	files := value(module(r.Run, p))(t)
	text := string(files["nextflow/main.nf"])
	if strings.Trim(text, "\n") == "" || strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && (c < ' ' || c > '~') }) {
		t.Error("the module has more than lines of ASCII")
	}
	all := scripts(t, text)
	if len(all) != 6 {
		t.Fatalf("%d scripts:\n%s", len(all), text)
	}
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "in"), 0o700))
	input := filepath.Join(t.TempDir(), "stored")
	must(t, os.WriteFile(input, []byte("ACGT\n"), 0o600))
	must(t, os.Symlink(input, filepath.Join(dir, "in/reads one.txt")))
	bash := func(name string) (string, bool) {
		t.Helper()
		script := all[name]
		if script == "" {
			t.Fatalf("no %s in\n%s", name, text)
		}
		return try(t, dir, "bash", "-ue", "-c", strings.Replace(script, "cd /work", "cd .", 1))
	}
	for _, step := range []string{"CHECK_INPUTS script", "RUN_TEST_COUNT script", "CHECK_OUTPUTS script"} {
		if out, ok := bash(step); !ok {
			t.Errorf("%s: %s", step, out)
		}
	}
	got := value(os.ReadFile(filepath.Join(dir, "out/n.txt")))(t)
	if string(got) != want {
		t.Errorf("the program got\n%q\nwant\n%q", got, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
		t.Error("an argument was executed")
	}
	must(t, os.WriteFile(filepath.Join(dir, "out/n.txt"), []byte("other"), 0o600))
	if out, ok := bash("CHECK_OUTPUTS script"); ok || !strings.Contains(out, "out/n.txt") {
		t.Errorf("another output passed: %s", out)
	}
	must(t, os.WriteFile(input, []byte("other"), 0o600))
	if out, ok := bash("CHECK_INPUTS script"); ok || !strings.Contains(out, "in/reads one.txt") {
		t.Errorf("another input passed: %s", out)
	}
	t.Setenv("FAIL", "3")
	if _, ok := bash("RUN_TEST_COUNT script"); ok {
		t.Error("the program failed and the process did not")
	}
	dir = t.TempDir()
	if out, ok := bash("RUN_TEST_COUNT stub"); !ok {
		t.Error(out)
	}
	if _, err := os.Stat(filepath.Join(dir, "out/n.txt")); err != nil {
		t.Error("the stub makes no outputs")
	}
}

// A pipe's programs run in a pipe, read the same input from standard input, and fail together.
func TestModulePipe(t *testing.T) {
	in, to := "in/a b.txt", "out/n.txt"
	c := plan.Command{Argv: []string{"sort", "-r"}, Pipe: [][]string{{"cat", "-"}, {"tr", "a'b", "A$B"}}, Stdin: &in, Stdout: &to,
		Workdir: "."}
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "in"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, in), []byte("a\nb\n"), 0o600))
	if out, ok := try(t, dir, "bash", "-ue", "-c", strings.Join(command(c), "\n")); !ok {
		t.Fatal(out)
	}
	if got, err := os.ReadFile(filepath.Join(dir, to)); err != nil || string(got) != "B\nA\n" {
		t.Errorf("%q %v", got, err)
	}
	c.Pipe[0] = []string{"false"}
	if out, ok := try(t, dir, "bash", "-ue", "-c", strings.Join(command(c), "\n")); ok {
		t.Error("a program failed, and the module succeeds", out)
	}
}

// run runs a program in a folder and returns what it printed.
func run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// try runs a program in a folder, and returns what it printed and whether it succeeded.
func try(t testing.TB, dir, name string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}
