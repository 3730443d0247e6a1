package ledger

import (
	"testing"
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
