package app

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	diff "github.com/google/go-cmp/cmp"
)

// What the operations are, what they do and who may call them is held against a table in testdata, so that no change of it goes unseen.
//
// proves HTC-05
func TestOperations(t *testing.T) {
	list := new(Gateway).Operations()
	slices.SortFunc(list, func(a, b Operation) int { return strings.Compare(a.ID, b.ID) })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "operation\teffect\tthe same call again\tits answer\tcapability\tneeds\tfaces\tlimit\tdry run\tacts as or on\tverb")
	for _, o := range list {
		if o.Acts() == "" {
			t.Errorf("%s: what does it do as a Unix user of the cluster? Say it in acting", o.ID)
		}
		var faces []string
		for _, f := range o.Faces {
			faces = append(faces, string(f))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%t\t%s\t%s\n", o.ID, o.Effect, o.Repeat, o.Outcome, o.Capability, o.Needs,
			strings.Join(faces, " "), o.Limit, o.DryRun.handle != nil, o.Acts(), cmp.Or(o.Verb, "-"))
	}
	w.Flush()
	want, err := os.ReadFile("testdata/operations.golden")
	if err != nil {
		t.Fatal(err)
	}
	if d := diff.Diff(string(want), b.String()); d != "" {
		t.Errorf("testdata/operations.golden differs:\n%s\nnow:\n%s", d, b.String())
	}
}
