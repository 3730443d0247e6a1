package ledger

import (
	"strings"
	"testing"

	"slurmgate/fault"
)

// A name stands for one content at a time; what it stood for can still be named, until it is withdrawn. Its bytes are held meanwhile.
//
// proves DATA-07
func TestReferences(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	of := func(digit byte) string { return strings.Repeat(string(rune(digit)), 64) }
	v := func(sum byte) Reference {
		return Reference{Name: "genome", SHA256: of(sum), Type: "TEXT", Label: "g", SizeBytes: 5, By: "admin", Projects: []string{"p"}}
	}
	for _, x := range []struct {
		r       Reference
		replace bool
		created bool
		code    string
	}{{v('a'), false, true, ""}, {v('a'), false, false, ""}, {v('b'), false, false, "reference_exists"}, {v('b'), true, true, ""},
		{v('b'), true, false, ""}} {
		created, err := l.AddReference(ctx, x.r, x.replace)
		if created != x.created || (err == nil) != (x.code == "") || err != nil && fault.CodeOf(err) != x.code {
			t.Errorf("%+v: %t %v", x, created, err)
		}
	}
	versions, err := l.ReferenceVersions(ctx, "genome")
	if err != nil || len(versions) != 2 || versions[0].SHA256 != of('b') || versions[0].Ended != nil || versions[1].Ended == nil ||
		!versions[0].OfferedTo("p") || versions[0].OfferedTo("q") {
		t.Errorf("%+v %v", versions, err)
	}
	for _, sum := range []byte{'a', 'b'} {
		if held, err := l.Holds(ctx, of(sum)); err != nil || !held {
			t.Errorf("%c is not held: %v", sum, err)
		}
	}
	if _, err := l.RemoveReference(ctx, "genome", "admin"); err != nil {
		t.Fatal(err)
	}
	if list, err := l.References(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if held, err := l.Holds(ctx, of('b')); err != nil || held {
		t.Errorf("withdrawn and held: %v", err)
	}
	if created, err := l.AddReference(ctx, v('c'), false); err != nil || !created {
		t.Error(created, err)
	}
}
