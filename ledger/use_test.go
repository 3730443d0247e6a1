package ledger

import (
	"testing"

	"slurmgate/run"
)

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
			t.Errorf("%+v, %v, want %+v", got, err, want)
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
	path, _, input := olderLedger(t, 17)
	older, err := openAt(t, path).Use(t.Context(), input.ProjectID)
	if want := (Use{input.ProjectID, 1, 1, input.SizeBytes}); err != nil || older != want {
		t.Errorf("%+v, %v, want %+v", older, err, want)
	}
}

// What a caller keeps follows its artifacts: those it imported, in all projects, and those that its runs made. A removed artifact that
// comes back belongs to whoever brings it back; an artifact that is older than the record belongs to nobody.
func TestCallerUse(t *testing.T) {
	path, old, input := olderLedger(t, 25)
	l := openAt(t, path)
	is := func(caller string, want CallerUse) {
		t.Helper()
		if got, err := l.CallerUse(t.Context(), caller); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", caller, got, err, want)
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
	if a, err := l.Artifact(t.Context(), input.ID); err != nil || a.Caller != "" {
		t.Errorf("an artifact of %s's, before callers were recorded: %+v %v", old.Run.ID, a, err)
	}
}
