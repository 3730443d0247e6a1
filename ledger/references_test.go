package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

// A name has one content at a time; its earlier contents can still be named, until it is withdrawn. Its bytes are
// held meanwhile.
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
			t.Errorf("AddReference(%s, replace %t) = created %t, %v; want created %t, code %q", x.r.SHA256, x.replace,
				created, err, x.created, x.code)
		}
	}
	versions, err := l.ReferenceVersions(ctx, "genome")
	if err != nil || len(versions) != 2 || versions[0].SHA256 != of('b') || versions[0].Ended != nil || versions[1].Ended == nil ||
		!versions[0].OfferedTo("p") || versions[0].OfferedTo("q") {
		t.Errorf("the versions are %+v, %v; want a current one with %s, offered to p alone, and an ended one", versions,
			err, of('b'))
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
		t.Errorf("%d references after the removal, %v; want none", len(list), err)
	}
	if held, err := l.Holds(ctx, of('b')); err != nil || held {
		t.Errorf("withdrawn and held: %v", err)
	}
	if created, err := l.AddReference(ctx, v('c'), false); err != nil || !created {
		t.Error(created, err)
	}
}

// Two principals that ask for one run under other labels each see their own names of its outputs, of their newest request; who asked for
// nothing sees those of the run's maker. proves DATA-01
func TestDownloadNames(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	alice, bob, carol := run.Principal{Name: "user:alice", ID: "prn_A"}, run.Principal{Name: "user:bob", ID: "prn_B"},
		run.Principal{Name: "user:carol", ID: "prn_C"}
	n := newRun(1)
	n.Run.Principal, n.Names = alice, map[string]string{"report": "a.json"}
	v, _, err := l.Insert(ctx, n)
	must(t, err)
	see := func(who run.Principal, want map[string]string) {
		t.Helper()
		got, err := l.OutputNames(ctx, v.Run.ID, who)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Error(who.Name, d, err)
		}
	}
	see(alice, map[string]string{"report": "a.json"})
	see(bob, map[string]string{"report": "a.json"})
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, map[string]string{"report": "b.json"}))
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, map[string]string{"report": "b.json"})) // nothing is written
	see(alice, map[string]string{"report": "a.json"})
	see(bob, map[string]string{"report": "b.json"})
	see(carol, map[string]string{"report": "a.json"})
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, map[string]string{"report": "b2.json"}))
	see(bob, map[string]string{"report": "b2.json"})
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, nil)) // the newest request names none
	see(bob, nil)
	other := insert(t, l, 2)
	must(t, l.NameOutputs(ctx, other.Run.ID, bob, nil))
	if got, err := l.OutputNames(ctx, other.Run.ID, bob); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
}

// What a project keeps follows its artifacts: new, removed, back again, and those of a ledger that is older than the count.
func TestUse(t *testing.T) {
	l := fresh(t)
	add := func(i int, project, source string, size int64) string {
		t.Helper()
		a := artifact(i)
		a.ProjectID, a.Source, a.SizeBytes = project, source, size
		if _, _, err := l.AddArtifact(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return a.ID
	}
	is := func(project string, want Use) {
		t.Helper()
		want.ProjectID = project
		if got, err := l.Use(t.Context(), project); err != nil || got != want {
			t.Errorf("the project %s uses %+v, %v; want %+v", project, got, err, want)
		}
	}
	const p, q = "proj_PPPPPPPPPPPPPPPPPPPPPPPPPP", "proj_QQQQQQQQQQQQQQQQQQQQQQQQQQ"
	is(p, Use{})
	id := add(1, p, "import", 10)
	add(1, p, "import", 10) // the same again
	add(2, p, "run_x", 100)
	add(3, q, "import", 1000)
	is(p, Use{Artifacts: 2, Imports: 1, Bytes: 110})
	is(q, Use{Artifacts: 1, Imports: 1, Bytes: 1000})
	db := rawDB(t, l)
	for _, removed := range []any{1, nil} {
		if _, err := db.Exec("UPDATE artifacts SET removed_at = ? WHERE artifact_id = ?", removed, id); err != nil {
			t.Fatal(err)
		}
		if removed == nil {
			is(p, Use{Artifacts: 2, Imports: 1, Bytes: 110})
		} else {
			is(p, Use{Artifacts: 1, Imports: 0, Bytes: 100})
		}
	}
}

// A caller's use follows its artifacts: those it imported, in all projects, and those that its runs made. A removed
// artifact that is restored belongs to the caller that imports it again.
func TestCallerUse(t *testing.T) {
	l := fresh(t)
	is := func(caller string, want CallerUse) {
		t.Helper()
		if got, err := l.CallerUse(t.Context(), caller); err != nil || got != want {
			t.Errorf("the caller %s uses %+v, %v; want %+v", caller, got, err, want)
		}
	}
	add := func(i int, caller, project string, size int64) string {
		t.Helper()
		a := artifact(i)
		a.Caller, a.ProjectID, a.Source, a.SizeBytes = caller, project, "import", size
		_, _, err := l.AddArtifact(t.Context(), a)
		must(t, err)
		return a.ID
	}
	is("", CallerUse{})
	is("prn_A", CallerUse{})
	const p, q = "proj_PPPPPPPPPPPPPPPPPPPPPPPPPP", "proj_QQQQQQQQQQQQQQQQQQQQQQQQQQ"
	id := add(41, "prn_A", p, 10)
	add(41, "prn_B", p, 10) // the same artifact
	add(42, "prn_A", q, 100)
	add(43, "prn_B", q, 1000)
	add(44, "", q, 5000)
	is("prn_A", CallerUse{2, 110})
	is("prn_B", CallerUse{1, 1000})
	is("", CallerUse{})
	_, err := rawDB(t, l).Exec("UPDATE artifacts SET removed_at = 1 WHERE artifact_id = ?", id)
	must(t, err)
	is("prn_A", CallerUse{1, 100})
	add(41, "prn_B", p, 10)
	is("prn_A", CallerUse{1, 100})
	is("prn_B", CallerUse{2, 1010})

	n := newRun(9)
	n.Run.Principal = run.Principal{Name: "user:carol", ID: "prn_C"}
	v, _, err := l.Insert(t.Context(), n)
	must(t, err)
	out := artifact(45)
	out.SizeBytes, out.Source = 7, v.Run.ID
	v.Run.State, v.Run.Phase = run.Running, run.InJob
	_, err = l.Apply(t.Context(), run.Write{Run: v.Run, Artifacts: []run.Artifact{out}, Event: run.Event{Type: "run.running"}})
	must(t, err)
	is("prn_C", CallerUse{1, 7})
}
