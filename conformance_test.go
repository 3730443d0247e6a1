package slurmgate_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// numbers holds the requirements: how many each group has.
var numbers = map[string]int{"CARD": 8, "ABI": 20, "LOAD": 12, "ARC": 11, "HTC": 12, "AX": 12, "SITE": 9, "EXP": 2, "OPS": 4,
	"SRC": 2, "DATA": 7, "MANY": 5}

var (
	number     = regexp.MustCompile(`\b(CARD|ABI|LOAD|ARC|HTC|AX|SITE|EXP|OPS|SRC|DATA|MANY)-([0-9]{2})\b`)
	row        = regexp.MustCompile(`(?m)^\| ([A-Z]+-[0-9]{2}) \| ([^|]+) \| ([^|]+) \| ([^|]*)\| ([^|]*)\|$`)
	shortName  = regexp.MustCompile(`^(?:([a-z0-9]+(?:/[a-z0-9]+)*)?(\.))?([A-Z]\w*)(?:/\w+)?$`)
	namedTest  = regexp.MustCompile(`(?:^|[\s;(])((?:[a-z0-9]+(?:/[a-z0-9]+)*)?\.(?:Test|Fuzz|Benchmark)\w+)`)
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	provesMark = regexp.MustCompile(`(?s)\bproves:?((?:[ ,\n]|//|\t|(?:CARD|ABI|LOAD|ARC|HTC|AX|SITE|EXP|OPS|SRC|DATA|MANY)-[0-9]+)+)`)
)

// docs/conformance.md lists every requirement once, with an honest status, and names only tests that exist; and no test
// claims to prove a requirement that does not exist.
func TestConformanceDocument(t *testing.T) {
	text, err := os.ReadFile("docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := allTests(t)
	seen := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		id, status, by, notes := m[1], m[3], m[4], m[5]
		if !exists(id) || seen[id] {
			t.Errorf("%s is no requirement, or is listed twice", id)
		}
		seen[id] = true
		named := checkShortNames(t, id, by, tests)
		switch status {
		case "met":
			if named == 0 {
				t.Errorf("%s is met, and no test shows it", id)
			}
		case "partly":
			if _, missing, ok := strings.Cut(notes, "missing: "); named == 0 || !ok || strings.TrimSpace(missing) == "" {
				t.Errorf("%s is partly met: a test shows one part, and the notes say what is missing", id)
			}
		case "not yet":
			if named > 0 {
				t.Errorf("%s is not met yet, and names a test", id)
			}
		default:
			t.Errorf("%s has status %q; there are met, partly and not yet", id, status)
		}
	}
	for group, n := range numbers {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprintf("%s-%02d", group, i); !seen[id] {
				t.Errorf("%s is not in docs/conformance.md", id)
			}
		}
	}
}

// checkShortNames reports the tests in a cell that do not exist, and returns how many the cell names. A cell has names without
// Test, and a name without a package belongs to the package before it: "run.Replay EverySeam".
func checkShortNames(t *testing.T, in, cell string, tests map[string]bool) int {
	t.Helper()
	named, dir := strings.Fields(cell), ""
	for _, name := range named {
		m := shortName.FindStringSubmatch(name)
		if m == nil {
			t.Errorf("%s: %q does not name a test", in, name)
			continue
		}
		if m[2] != "" {
			dir = m[1]
		}
		if !tests[dir+".Test"+m[3]] && !tests[dir+"."+m[3]] {
			t.Errorf("%s names %s.%s, which does not exist", in, dir, m[3])
		}
	}
	return len(named)
}

// The documents that argue from tests name only tests that exist.
func TestFaultsDocument(t *testing.T) {
	tests := allTests(t)
	text, err := os.ReadFile("docs/why/exactly-once.md")
	if err != nil {
		t.Fatal(err)
	}
	named := namedTest.FindAllStringSubmatch(string(text), -1)
	for _, n := range named {
		if !tests[n[1]] {
			t.Errorf("docs/why/exactly-once.md names %s, which does not exist", n[1])
		}
	}
	checkShortNamesOf(t, "docs/why/exactly-once.md", "| fault | tests | also |", 2, 35, tests)
	checkShortNamesOf(t, "docs/why/threats.md", "| threat | what prevents it | test |", 3, 70, tests)
}

// checkShortNamesOf reports the tests that do not exist in a column of a document's tables with the head given, and too few rows.
func checkShortNamesOf(t *testing.T, file, head string, column, atLeast int, tests map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, in := 0, false
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " |")
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case strings.TrimSpace(line) == head:
			in = true
		case in && column < len(cells) && !strings.HasPrefix(line, "|---"):
			rows++
			checkShortNames(t, file, strings.TrimPrefix(cells[column-1], "|"), tests)
		}
	}
	if rows < atLeast {
		t.Errorf("%s has %d rows, want at least %d", file, rows, atLeast)
	}
}

func exists(id string) bool {
	m := number.FindStringSubmatch(id)
	if m == nil || m[0] != id {
		return false
	}
	var i int
	fmt.Sscan(strings.TrimPrefix(m[2], "0"), &i)
	return i >= 1 && i <= numbers[m[1]]
}

// allTests returns the tests of the tree as folder.Function, the root's with an empty folder.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "build" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go") || path == "conformance_test.go":
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if dir == "." {
			dir = ""
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(src), -1) {
			out[dir+"."+m[1]] = true
		}
		for _, m := range provesMark.FindAllStringSubmatch(string(src), -1) {
			for _, id := range number.FindAllString(m[1], -1) {
				if !exists(id) {
					t.Errorf("%s claims to prove %s, which is no requirement", path, id)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
