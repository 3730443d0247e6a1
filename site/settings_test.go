package site

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy"
)

// A runs_dir may end with the user's name, and may contain that name twice.
func TestOwnFolder(t *testing.T) {
	for dir, want := range map[string]string{"/scratch/{user}/slurmgate": "/scratch/alice", "/scratch/{user}": "/scratch/alice",
		"/alice/runs/{user}/sg": "/alice/runs/alice"} {
		if got := (&Site{Storage: Storage{RunsDir: dir}}).OwnFolder("alice"); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}

// Every number of a site file and of a policy accepts the ends of its range and nothing beyond them.
func TestBounds(t *testing.T) {
	testBounds(t, Site{}, 30, least, func(text []byte) error {
		_, err := Parse("site.yaml", text)
		return err
	})
	testBounds(t, policy.Policy{}, 18, "version: 1\n", func(text []byte) error {
		_, err := policy.Parse("policies.yaml", text, os.LookupEnv)
		return err
	})
}

func testBounds(t *testing.T, of any, atLeast int, least string, parse func([]byte) error) {
	t.Helper()
	tested := 0
	each("", reflect.ValueOf(of), func(field string, tag reflect.StructTag, v reflect.Value) {
		section, _, _ := strings.Cut(field, ".")
		for _, key := range []string{"min", "max"} {
			if text := tag.Get(key); text != "" && fmt.Sprint(number(text)) != text {
				t.Errorf("%s has the tag %s:%q, want a number", field, key, text)
			}
		}
		low, high := number(tag.Get("min")), number(tag.Get("max"))
		if low != high && v.Kind() != reflect.Map && !strings.Contains(least, section+":") {
			tested++
			for n, good := range map[int64]bool{low - 1: false, low: true, high: true, high + 1: false} {
				text := fmt.Sprintf("%s: %d", strings.ReplaceAll(field, ".", ": {"), n) + strings.Repeat("}", strings.Count(field, "."))
				err := parse([]byte(least + text + "\n"))
				if good != (err == nil) || err != nil && !strings.Contains(err.Error(), field) {
					t.Errorf("%s: %d: %v", field, n, err)
				}
			}
		}
	})
	if tested < atLeast {
		t.Errorf("%d numbers of the sections that %q leaves out were tested, want at least %d", tested, least, atLeast)
	}
}

// A receiver has a unique name and files; a secret in place of a file's path is refused, and not repeated.
func TestReceivers(t *testing.T) {
	for entry, want := range map[string]string{
		"{name: lab-slack, url_file: /etc/x.url, body: text, secret_file: /etc/x.secret}": "",
		"{name: Lab, url_file: /etc/x.url}":                                               "SITE-NAME notify.receivers[0].name",
		"{name: a, url_file: /etc/x.url}, {name: a, url_file: /etc/x.url}":                "SITE-NAME notify.receivers[1].name",
		"{name: a, url_file: x.url}":                                                      "SITE-PATH notify.receivers[0].url_file",
		"{name: a, url_file: 'https://hooks.example.org/T0/TOKENTOKENTOKEN'}":             "SITE-SECRET notify.receivers[0].url_file",
		"{name: a, url_file: /etc/x.url, secret_file: whsec_TOKENTOKENTOKEN}":             "SITE-SECRET notify.receivers[0].secret_file",
		"{name: a, url_file: /etc/x.url, body: xml}":                                      "SITE-BODY notify.receivers[0].body",
	} {
		_, err := Parse("site.yaml", []byte(least+"notify: {receivers: ["+entry+"]}\n"))
		var got string
		for _, p := range fault.ProblemsOf(err) {
			got = p.Code + " " + p.Field
		}
		if got != want || (err == nil) != (want == "") || err != nil && strings.Contains(fault.Prose(err), "TOKENTOKEN") {
			t.Errorf("%s: %q, want %q (%v)", entry, got, want, err)
		}
	}
}

// A site's own patterns are checked when the file is read, all of them together.
func TestSecrets(t *testing.T) {
	s := parse(t, least+"secrets: {patterns: [{name: LIMS, pattern: '\\bLIMS-[0-9A-F]{24}\\b', keywords: [lims-]}, {name: b, pattern: "+
		"'x+'}]}\n")
	if p := s.Secrets.Patterns; len(p) != 2 || p[0].Keywords[0] != "lims-" {
		t.Error(p)
	}
	_, err := Parse("/etc/slurmgate/site.yaml", []byte(least+`secrets:
  patterns:
    - {name: "", pattern: "a["}
    - {name: b, pattern: "x*"}
    - {name: b, pattern: "", keywords: [ab]}
    - {name: c, pattern: "`+strings.Repeat("a", 501)+`", keywords: [aaa, aaa, aaa, aaa, aaa, aaa, aaa, aaa, aaa]}
`))
	var fields []string
	for _, p := range fault.ProblemsOf(err) {
		fields = append(fields, strings.TrimPrefix(p.Field, "secrets.patterns"))
		if p.Line == 0 || p.Rule == "" {
			t.Errorf("the problem of %s has line %d and rule %q, want both", p.Field, p.Line, p.Rule)
		}
	}
	if got := strings.Join(fields, " "); got != "[0].name [0].pattern [1].pattern [2].name [2].pattern [2].keywords[0] [3].pattern "+
		"[3].keywords" {
		t.Error(got, err)
	}
	many := strings.Repeat("{name: n%d, pattern: abc}, ", 65)
	for i := range 65 {
		many = strings.Replace(many, "%d", fmt.Sprint(i), 1)
	}
	if _, err = Parse("/x", []byte(least+"secrets: {patterns: ["+many+"]}\n")); len(fault.ProblemsOf(err)) != 1 {
		t.Error(err)
	}
}

// A root is a path, or a path with its projects; the effective file has the same form.
func TestImportRoots(t *testing.T) {
	s := parse(t, least+`import:
  roots:
    - /data/old
    - {path: /data/p, projects: [genomics, "*"]}
    - path: /data/q
      projects: [q]
`)
	want := []Root{{Path: "/data/old"}, {Path: "/data/p", Projects: []string{"genomics", "*"}}, {Path: "/data/q", Projects: []string{"q"}}}
	if diff := cmp.Diff(want, s.Import.Roots); diff != "" || s.Import.Local != LocalRoots {
		t.Error(diff, s.Import.Local)
	}
	if got := s.Import.Roots[1].ProjectIDs(); !slices.Equal(got, []string{plan.ProjectOf("genomics"), "*"}) {
		t.Error(got)
	}
	wantReadBack(t, t.Name(), s)
	if notes := fmt.Sprint(s.Notes()); !strings.Contains(notes, "/data/old belongs to no project") || strings.Contains(notes, "/data/p") {
		t.Error(notes)
	}
	for text, want := range map[string]string{
		"roots: [{path: /a, projects: []}]":                "SITE-MISSING import.roots[0].projects",
		"roots: [{projects: [p]}]":                         "SITE-MISSING import.roots[0]",
		"roots: [{path: a, projects: [p]}]":                "SITE-PATH import.roots[0].path",
		"roots: [/a, {path: /a, projects: [p]}]":           "SITE-IMPORT-ROOT import.roots[1].path",
		"roots: [{path: /a, projects: [\" \"]}]":           "SITE-PROJECT import.roots[0].projects[0]",
		"roots: [{path: /a, project: [p]}]":                "SITE-UNKNOWN-FIELD import.roots[0].project",
		"roots: [7]":                                       "SITE-TYPE import.roots[0]",
		"roots: [[/a]]":                                    "SITE-TYPE import.roots[0]",
		"roots: [{path: /a, projects: [p], shared: true}]": "SITE-UNKNOWN-FIELD import.roots[0].shared",
		"local: any":                                       "SITE-VALUE import.local",
		"roots: [{path: /a, projects: [p, p2]}, {path: /a/b, projects: [q]}]": "",
	} {
		_, err := Parse("site.yaml", []byte(least+"import: {"+text+"}\n"))
		got := ""
		for _, p := range fault.ProblemsOf(err) {
			got += p.Code + " " + p.Field
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A folder in place may be shared with its projects; the effective file has that too.
func TestSharedFolders(t *testing.T) {
	const folders = "/data/p, projects: [p]}, {path: /data/refs, projects: [\"*\"], shared: true}"
	s := parse(t, strings.Replace(least, "storage:\n", "storage:\n  in_place: [{path: "+folders+"]\n", 1))
	want := []InPlace{{Root: Root{Path: "/data/p", Projects: []string{"p"}}},
		{Root: Root{Path: "/data/refs", Projects: []string{"*"}}, Shared: true}}
	if diff := cmp.Diff(want, s.Storage.InPlace); diff != "" {
		t.Errorf("storage.in_place differs: %s", diff)
	}
	wantReadBack(t, t.Name(), s)
	_, err := Parse("site.yaml", []byte(strings.Replace(least, "storage:\n", "storage:\n  in_place: [{path: /data/refs, shared: true}]\n", 1)))
	if list := fault.ProblemsOf(err); len(list) != 1 || list[0].Field != "storage.in_place[0].projects" {
		t.Errorf("a shared folder without projects gives %v, want one problem of storage.in_place[0].projects", err)
	}
}
