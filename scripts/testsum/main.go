// Command testsum reads the events of `go test -json` (or of test2json) and tells people what they need to know: one line for
// each package, and everything a failed test printed.
//
//	go test -json ./... | testsum -group host -tally FILE
//
// It appends "GROUP PASSED FAILED" to the tally. Counted are tests without subtests, and subtests; a test that was skipped, a
// package that did not build or broke down, and a stream without a single test count as failed. Exit status 1 when anything did.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
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
	passed, failed int
	packages       map[string]*packageState
}

type packageState struct {
	passed, failed int
	output         map[string][]string // by test; the package's own under ""
	parent         map[string]bool     // tests that have subtests
	badChild       map[string]bool     // parents a subtest of which failed
	open           map[string]bool     // tests that began and have not ended
	ended          bool
}

func main() {
	group := flag.String("group", "tests", "`name` of the group in the tally")
	tally := flag.String("tally", "", "`file` to add the counts to")
	flag.Parse()
	s := newSummer(os.Stdout)
	s.read(os.Stdin)
	s.end()
	if *tally != "" {
		f, err := os.OpenFile(*tally, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, *group, s.passed, s.failed)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testsum:", err)
			os.Exit(1)
		}
	}
	if s.failed > 0 {
		os.Exit(1)
	}
}

func newSummer(out io.Writer) *summer {
	return &summer{out: out, packages: map[string]*packageState{}}
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
	bad := e.Action != "pass"
	switch {
	case !bad && p.parent[e.Test]: // its subtests count
	case !bad:
		p.passed++
	case p.badChild[e.Test]: // told already
		s.tell(p, e)
	default:
		p.failed++
		s.tell(p, e)
	}
	if i := strings.LastIndexByte(e.Test, '/'); bad && i > 0 {
		p.badChild[e.Test[:i]] = true
	}
	delete(p.output, e.Test)
}

func (s *summer) tell(p *packageState, e event) {
	if e.Action == "skip" {
		fmt.Fprintf(s.out, "SKIPPED %s %s: a test that is left out counts as failed\n", e.Package, e.Test)
	}
	for _, line := range p.output[e.Test] {
		if word := strings.Fields(line); len(word) > 1 && (word[0] == "===") {
			continue
		}
		fmt.Fprint(s.out, line)
	}
}

func (s *summer) pkg(p *packageState, e event) {
	p.ended = true
	if e.Action == "fail" && p.failed == 0 || len(p.open) > 0 {
		p.failed++ // it broke down, or its TestMain did
		for t := range p.open {
			s.tell(p, event{Package: e.Package, Test: t})
		}
	}
	if e.Action == "fail" {
		s.tell(p, e)
	}
	s.passed += p.passed
	s.failed += p.failed
	switch {
	case p.failed > 0:
		fmt.Fprintf(s.out, "FAILED %-28s %5d passed, %d failed  %.1f s\n", e.Package, p.passed, p.failed, e.Elapsed)
	case p.passed > 0:
		fmt.Fprintf(s.out, "ok     %-28s %5d passed  %.1f s\n", e.Package, p.passed, e.Elapsed)
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
