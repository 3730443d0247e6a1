package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
)

// A root is a path, or a path with its projects; the effective file says the same.
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
	out, err := s.Effective()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, parse(t, string(out)), ignorePrivate); diff != "" {
		t.Errorf("%s\n%s", diff, out)
	}
	if notes := fmt.Sprint(s.Notes()); !strings.Contains(notes, "/data/old belongs to no project") || strings.Contains(notes, "/data/p") {
		t.Error(notes)
	}
	for text, want := range map[string]string{
		"roots: [{path: /a, projects: []}]":      "SITE-MISSING import.roots[0].projects",
		"roots: [{projects: [p]}]":               "SITE-MISSING import.roots[0]",
		"roots: [{path: a, projects: [p]}]":      "SITE-PATH import.roots[0].path",
		"roots: [/a, {path: /a, projects: [p]}]": "SITE-IMPORT-ROOT import.roots[1].path",
		"roots: [{path: /a, projects: [\" \"]}]": "SITE-PROJECT import.roots[0].projects[0]",
		"roots: [{path: /a, project: [p]}]":      "SITE-UNKNOWN-FIELD import.roots[0].project",
		"roots: [7]":                             "SITE-TYPE import.roots[0]",
		"roots: [[/a]]":                          "SITE-TYPE import.roots[0]",
		"local: any":                             "SITE-VALUE import.local",
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
