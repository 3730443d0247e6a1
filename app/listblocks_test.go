package app

import (
	"slices"
	"testing"
)

// A connection that is down while it is not needed is no outage, and the line reports that.
func TestConnectionsOfSites(t *testing.T) {
	got := SiteRow{Links: []SiteLink{{To: "slurm", Up: true}, {To: "files", Losses: 1}}}.about()
	want := []any{"connection to slurm is up, lost 0 times",
		"connection to files is down (it is made again when it is needed), lost 1 time"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Every empty answer has a text.
func TestEmptyAnswersSay(t *testing.T) {
	for _, o := range new(Gateway).Operations() {
		if o.Does.says == nil {
			continue
		}
		if _, err := o.Does.says([]byte("{}")); err != nil {
			t.Errorf("what an empty answer of %s says cannot be read: %v", o.ID, err)
		}
	}
}
