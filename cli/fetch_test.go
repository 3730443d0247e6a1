package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"slurmgate/app"
	"slurmgate/ledger"
)

// Outputs keep their base names where those are distinct, else all keep their paths below out/.
func TestTargets(t *testing.T) {
	for _, tt := range []struct{ paths, want []string }{
		{[]string{"out/x.txt"}, []string{"d/x.txt"}},
		{[]string{"out/a/x.txt", "out/b/y.txt"}, []string{"d/x.txt", "d/y.txt"}},
		{[]string{"out/a/x.txt", "out/b/x.txt", "out/y.txt"}, []string{"d/a/x.txt", "d/b/x.txt", "d/y.txt"}},
		{[]string{"out/x", "out/a/x"}, []string{"d/x", "d/a/x"}},
		{nil, nil},
	} {
		var outputs []app.ArtifactDoc
		for _, p := range tt.paths {
			outputs = append(outputs, app.ArtifactDoc{Relpath: p})
		}
		if got := targets("d", outputs); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v", tt.paths, got)
		}
	}
}

func TestMakeFolders(t *testing.T) {
	dir := t.TempDir()
	made, err := makeFolders(filepath.Join(dir, "a/b"))
	if err != nil || !slices.Equal(made, []string{filepath.Join(dir, "a"), filepath.Join(dir, "a/b")}) {
		t.Error(made, err)
	}
	if made, err = makeFolders(filepath.Join(dir, "a/b")); err != nil || made != nil {
		t.Error(made, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, name := range []string{"file", "file/below"} {
		if made, err = makeFolders(filepath.Join(dir, name)); err == nil || made != nil {
			t.Error(name, made)
		}
	}
}

// The time shown is the last attempt's.
func TestTook(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 1, 12, minute, 0, 0, time.UTC) }
	end := at(12)
	s := app.RunStory{CreatedAt: at(0), FinishedAt: &end}
	if got := took(s); got != "  in 12m0s" {
		t.Error(got)
	}
	for _, typ := range []string{"run.new_attempt", "run.retry"} {
		s.Events = []ledger.Entry{{Type: "run.created", At: at(0)}, {Type: "run.retry", At: at(2)}, {Type: typ, At: at(11)},
			{Type: "run.succeeded", At: end}}
		if got := took(s); got != "  in 1m0s" {
			t.Error(typ, got)
		}
	}
}
