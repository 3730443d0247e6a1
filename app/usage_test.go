package app

import (
	"testing"

	"slurmgate/gate"
)

// The table of a month is of the projects that the caller may read, and refuses what it would have to guess.
//
// proves OPS-03
func TestUsageOfAMonth(t *testing.T) {
	g := tableGateway(t)
	g.fill(t, "own")
	boss := everything("user:boss", gate.All)
	var u UsageMonth
	g.says(t, boss, "usage.month", map[string]any{"month": "2026-11", "zone": "Europe/Berlin", "by": "caller,tool"}, "", &u)
	if u.From.Format("2006-01-02T15:04Z07:00") != "2026-10-31T23:00Z" || u.To.Format("2006-01-02T15:04Z07:00") != "2026-11-30T23:00Z" ||
		u.Zone != "Europe/Berlin" || len(u.By) != 2 || u.Rows == nil {
		t.Errorf("%+v", u)
	}
	g.says(t, boss, "usage.month", map[string]any{}, "", &u)
	if u.Zone != "UTC" || len(u.By) != 4 || u.Month == "" {
		t.Errorf("%+v", u)
	}
	if u.Stored != (StoredUse{}) {
		t.Errorf("%+v", u.Stored)
	}
	for code, args := range map[string]map[string]any{"USAGE-ZONE": {"zone": "Mars/Olympus"}, "USAGE-BY": {"by": "caller,caller"}} {
		g.says(t, boss, "usage.month", args, code, nil)
	}
}
