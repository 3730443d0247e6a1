package cli

import (
	"slices"
	"testing"

	"slurmgate/app"
)

// A connection that is down while nothing needs it is no outage, and the line says so.
func TestConnectionsOfSites(t *testing.T) {
	got := aboutSite(app.SiteRow{Links: []app.SiteLink{{To: "slurm", Up: true}, {To: "files", Losses: 1}}})
	want := []string{"connection to slurm is up, lost 0 times",
		"connection to files is down (it is made again when it is needed), lost 1 time"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
