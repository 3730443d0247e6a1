package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"slurmgate/cli"
)

// Every verb, argument and option that help shows is in the manual, with its help; the pages are such as a reader of manuals has no
// complaint about.
//
// proves OPS-01
func TestManual(t *testing.T) {
	parser, err := kong.New(&commands{}, kong.Name("slurmgate"), kong.Description(about), kong.Exit(func(int) {}),
		kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for name, text := range cli.Manual(parser.Model, "v1.2.3", time.Unix(0, 0)) {
		pages[name] = readPage(t, name, text)
	}
	holds := func(name string, wants ...string) {
		for _, w := range wants {
			if !strings.Contains(pages[name], strings.Join(strings.Fields(w), " ")) {
				t.Errorf("%s does not have %q", name, w)
			}
		}
	}
	seen := 1
	for _, verb := range parser.Model.Children {
		name := "slurmgate-" + verb.Name + ".1"
		if verb.Hidden {
			if pages[name] != "" {
				t.Errorf("%s is about a hidden verb", name)
			}
			continue
		}
		seen++
		holds("slurmgate.1", "slurmgate-"+verb.Name+"(1) "+verb.Help)
		for _, c := range append(verb.Leaves(true), verb) {
			holds(name, "slurmgate "+c.Path(), c.Help)
			for _, a := range c.Positional {
				holds(name, a.Summary()+" "+a.Help)
			}
			for _, f := range c.Flags {
				if !f.Hidden {
					holds(name, "--"+f.Name, f.Help)
				}
			}
		}
	}
	for _, f := range parser.Model.Flags {
		holds("slurmgate.1", "--"+f.Name, f.Help, strings.Join(f.Envs, " "))
	}
	if seen != len(pages) || seen < 20 {
		t.Errorf("%d pages about %d verbs", len(pages), seen)
	}
	holds("slurmgate.1", exitStatuses(t)...)
}

// readPage shows a page as plain words, each separated by one space.
func readPage(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mandoc", "-Tlint", "-Wwarning", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := exec.Command("mandoc", "-Tutf8", "-Owidth=1000", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	struck := strings.NewReplacer("_\b", "")
	plain := []byte(struck.Replace(string(out)))
	for i := 0; i+2 < len(plain); i++ {
		if plain[i+1] == '\b' && plain[i] == plain[i+2] {
			plain = append(plain[:i], plain[i+2:]...)
		}
	}
	return strings.Join(strings.Fields(string(plain)), " ")
}

// exitStatuses reads the table of docs/operations.md: the manual says the same.
func exitStatuses(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Exit status of the command line")
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.Trim(cells[1], " 0123456789") == "" {
			out = append(out, strings.ReplaceAll(cells[1]+" "+cells[2], "`", ""))
		}
	}
	if len(out) < 10 {
		t.Errorf("docs/operations.md has %d exit statuses", len(out))
	}
	return out
}
