// Command testsum reads the events of `go test -json` (or of test2json) and prints one line for each package, with its slowest tests below,
// and everything a failed test printed.
//
//	go test -json ./... | testsum -group host -tally FILE -failures FILE
//
// It appends "GROUP PASSED FAILED" to the tally, and each failed test with the end of what it printed to the failures. Counted are
// tests without subtests, and subtests; a test that was skipped, a package that did not build or broke down, and a stream without a
// single test count as failed. Exit status 1 when anything did.
//
// What a test logs with "context: " in front, such as a daemon's log, is printed before the test's other lines, and its last 20 lines
// only: the reason of a failure is what people read last.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is one line of the stream (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// summer counts a stream.
type summer struct {
	out            io.Writer
	failures       io.Writer
	passed, failed int
	packages       map[string]*packageState
}

type packageState struct {
	passed, failed int
	output         map[string][]string // by test; the package's own under ""
	parent         map[string]bool     // tests that have subtests
	badChild       map[string]bool     // parents a subtest of which failed
	open           map[string]bool     // tests that began and have not ended
	slow           []event             // ended tests that took long, without subtests
	ended          bool
}

func main() {
	group := flag.String("group", "tests", "`name` of the group in the tally")
	tally := flag.String("tally", "", "`file` to add the counts to")
	failures := flag.String("failures", "", "`file` to add the failed tests to")
	flag.Parse()
	var failed strings.Builder
	s := newSummer(os.Stdout, &failed)
	s.read(os.Stdin)
	s.end()
	if err := errors.Join(add(*tally, fmt.Sprintln(*group, s.passed, s.failed)), add(*failures, failed.String())); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if s.failed > 0 {
		os.Exit(1)
	}
}

// add appends a text to a file; without a name it does nothing.
func add(name, text string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func newSummer(out, failures io.Writer) *summer {
	return &summer{out: out, failures: failures, packages: map[string]*packageState{}}
}

func (s *summer) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				s.event(e)
			} else {
				fmt.Fprint(s.out, line) // not from a test: a linker's warning, a crash of go itself
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *summer) event(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(s.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := s.packages[e.Package]
	if p == nil {
		p = &packageState{output: map[string][]string{}, parent: map[string]bool{}, badChild: map[string]bool{}, open: map[string]bool{}}
		s.packages[e.Package] = p
	}
	switch {
	case e.Action == "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case e.Action == "run":
		p.open[e.Test] = true
		for i := range e.Test {
			if e.Test[i] == '/' {
				p.parent[e.Test[:i]] = true
			}
		}
	case e.Test != "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		s.test(p, e)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		s.pkg(p, e)
	}
}

func (s *summer) test(p *packageState, e event) {
	delete(p.open, e.Test)
	if e.Elapsed >= long && !strings.Contains(e.Test, "/") {
		p.slow = append(p.slow, e)
	}
	bad := e.Action != "pass"
	switch {
	case !bad && p.parent[e.Test]: // its subtests count
	case !bad:
		p.passed++
	case p.badChild[e.Test]: // counted already
		s.show(p, e)
	default:
		p.failed++
		s.show(p, e)
	}
	if i := strings.LastIndexByte(e.Test, '/'); bad && i > 0 {
		p.badChild[e.Test[:i]] = true
	}
	delete(p.output, e.Test)
}

// show prints what a failed test printed, its context first.
func (s *summer) show(p *packageState, e event) {
	var lines []string
	if e.Action == "skip" {
		lines = append(lines, fmt.Sprintf("SKIPPED %s %s: a test that is left out counts as failed\n", e.Package, e.Test))
	}
	context, rest := divide(p.output[e.Test])
	lines = append(lines, rest...)
	for _, line := range append(context, lines...) {
		fmt.Fprint(s.out, line)
	}
	if e.Test == "" && p.failed > 1 { // the tests that failed are there
		return
	}
	fmt.Fprintf(s.failures, "%s %s\n", e.Package, e.Test)
	end := last(lines, shown)
	if i := slices.IndexFunc(lines, fatal); i >= 0 {
		end = lines[i:min(i+shown, len(lines))]
	}
	for _, line := range end {
		fmt.Fprintln(s.failures, clip("    "+strings.TrimSpace(line)))
	}
}

const (
	shown    = 12  // lines of a test in the list of failures
	contexts = 20  // lines of context
	width    = 500 // bytes of a line in the list of failures
	long     = 20  // seconds that a test takes before the line of its package names it
	slowest  = 5   // how many that line names
)

// fatal reports whether a line is the first that Go prints of a crash or a race; the stacks follow.
func fatal(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "WARNING: DATA RACE")
}

func last(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

func clip(line string) string {
	if len(line) <= width {
		return line
	}
	return strings.ToValidUTF8(line[:width], "") + "…"
}

// entry matches the first line of a test's log entry: "    file_test.go:12: text".
var entry = regexp.MustCompile(`^ +\S+\.go:\d+: (context: )?`)

// divide separates the context from the other lines, without those of go test about starts and pauses.
func divide(output []string) (context, rest []string) {
	in := false
	for _, line := range output {
		if m := entry.FindStringSubmatch(line); m != nil {
			in = m[1] != ""
		} else if word := strings.Fields(line); len(word) > 1 && (word[0] == "===" || word[0] == "---") {
			in = false
			if word[0] == "===" {
				continue
			}
		}
		if in {
			context = append(context, line)
		} else {
			rest = append(rest, line)
		}
	}
	return last(context, contexts), rest
}

func (s *summer) pkg(p *packageState, e event) {
	p.ended = true
	if e.Action == "fail" && p.failed == 0 || len(p.open) > 0 {
		p.failed++ // it broke down, or its TestMain did
		for t := range p.open {
			s.show(p, event{Package: e.Package, Test: t})
		}
	}
	if e.Action == "fail" {
		s.show(p, e)
	}
	s.passed += p.passed
	s.failed += p.failed
	switch {
	case p.failed > 0:
		fmt.Fprintf(s.out, "FAILED %-28s %5d passed, %d failed  %.1f s\n", e.Package, p.passed, p.failed, e.Elapsed)
	case p.passed > 0:
		fmt.Fprintf(s.out, "ok     %-28s %5d passed  %.1f s\n", e.Package, p.passed, e.Elapsed)
	}
	slices.SortFunc(p.slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, t := range p.slow[:min(slowest, len(p.slow))] {
		fmt.Fprintf(s.out, "       %6.1f s  %s\n", t.Elapsed, t.Test)
	}
}

// end finds what never came: the end of a package, or any test at all.
func (s *summer) end() {
	for name, p := range s.packages {
		if !p.ended {
			s.pkg(p, event{Action: "fail", Package: name})
		}
	}
	if s.passed+s.failed == 0 {
		fmt.Fprintln(s.out, "no test ran")
		s.failed = 1
	}
}
