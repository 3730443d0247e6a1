// Command lines counts how much production Go each package has at one commit and at another, or in the work tree:
//
//	go run ./scripts/lines FROM [TO]
//
// It counts lines without blank lines and comments, and tokens, which do not change when a line is broken. Tests, suites, scripts and the
// programs that measure or torment the product do not count.
package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

// rows names packages that share a row because code moved from one to another.
var rows = map[string]string{
	"cmd/slurmgate": "cmd app cli",
	"cmd":           "cmd app cli",
	"app":           "cmd app cli",
	"cli":           "cmd app cli",
	"doctor":        "cmd app cli",
	"transport":     "cmd app cli",
}

// besides lists folders that are not part of the product.
var besides = []string{"bench", "chaos", "e2e", "scripts"}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/lines FROM [TO]")
		os.Exit(2)
	}
	to := ""
	if len(os.Args) == 3 {
		to = os.Args[2]
	}
	if err := compare(os.Stdout, os.Args[1], to); err != nil {
		fmt.Fprintln(os.Stderr, "lines:", err)
		os.Exit(1)
	}
}

// compare prints the table. An empty commit is the work tree.
func compare(w io.Writer, from, to string) error {
	old, err := sizes(from)
	if err != nil {
		return err
	}
	now, err := sizes(to)
	if err != nil {
		return err
	}
	var names []string
	var oldAll, nowAll size
	for _, all := range []map[string]size{old, now} {
		for name := range all {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "package\tlines\tnow\tchange\t\ttokens\tnow\tchange\t\t\n")
	for _, name := range slices.Compact(names) {
		row(t, name, old[name], now[name])
		oldAll.add(old[name])
		nowAll.add(now[name])
	}
	row(t, "all", oldAll, nowAll)
	return t.Flush()
}

func row(w io.Writer, name string, old, now size) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%+d\t%s\t%d\t%d\t%+d\t%s\t\n", name, old.lines, now.lines, now.lines-old.lines, percent(old.lines, now.lines),
		old.tokens, now.tokens, now.tokens-old.tokens, percent(old.tokens, now.tokens))
}

func percent(old, now int) string {
	if old == 0 {
		return "new"
	}
	return fmt.Sprintf("%+.1f%%", 100*float64(now-old)/float64(old))
}

// sizes measures the product's packages.
func sizes(commit string) (map[string]size, error) {
	out := map[string]size{}
	add := func(name string, src []byte) {
		if row, ok := product(name); ok {
			s := out[row]
			s.add(measure(src))
			out[row] = s
		}
	}
	if commit != "" {
		return out, archive(commit, add)
	}
	names, err := git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.go")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		src, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // removed, not committed yet
		}
		if err != nil {
			return nil, err
		}
		add(name, src)
	}
	return out, nil
}

func archive(commit string, add func(name string, src []byte)) error {
	data, err := git("archive", "--format=tar", commit)
	if err != nil {
		return err
	}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		src, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		add(h.Name, src)
	}
}

func git(args ...string) ([]byte, error) {
	c := exec.Command("git", args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}

// product gives the row of a file of the product. Packages of suites, which end in test or conformance, are tests.
func product(name string) (string, bool) {
	folder := path.Dir(name)
	top, _, _ := strings.Cut(name, "/")
	switch {
	case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"), slices.Contains(besides, top),
		strings.HasSuffix(folder, "test"), strings.HasSuffix(folder, "conformance"):
		return "", false
	}
	if row := rows[folder]; row != "" {
		return row, true
	}
	return folder, true
}
