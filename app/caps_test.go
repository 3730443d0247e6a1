package app

import (
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// A cap that is reached names its code, the field of the site file, the rule, what was used and when it is possible again. What a project
// or a caller has of its own goes before what all have; -1 lifts a cap.
//
// proves OPS-03
func TestCapTexts(t *testing.T) {
	c := NewCaps(site.Limits{ProjectRunsPerDay: 100, CallerRunsPerDay: 10, CallerCPUHoursPerMonth: 50, CallerRunsInFlight: 7,
		Projects: []site.ProjectLimit{{Project: "big", Weight: 3, RunsPerDay: 500, RunsInFlight: 20},
			{Project: "free", RunsPerDay: -1}},
		Callers: []site.CallerLimit{{Caller: "user:alice", RunsPerDay: 20, RunsInFlight: -1}, {Caller: "prn_CI",
			CPUHoursPerMonth: -1}}}, func(id string) string { return map[string]string{"prn_A": "user:alice"}[id] })
	c.now = func() time.Time { return time.Date(2026, 12, 31, 22, 0, 0, 0, time.UTC) }
	day := func(n int64) run.Spent { return run.Spent{RunsToday: n} }
	month := func(hours int64) run.Spent { return run.Spent{CPUSecondsThisMonth: hours * 3600} }
	for _, x := range []struct {
		project, caller string
		p, c            run.Spent
		code, field     string
		says            string
	}{
		{"any", "prn_X", day(100), day(10), "", "", ""},
		{"any", "prn_X", day(101), day(1), "CAP-RUNS-PER-DAY", "limits.project_runs_per_day",
			"the project has started 100 of 100 runs today (UTC)"},
		{"any", "prn_X", day(11), day(11), "CAP-RUNS-PER-DAY", "limits.caller_runs_per_day", "the caller has started 10 of 10 runs today (UTC)"},
		{"big", "prn_A", day(500), day(20), "", "", ""},
		{"big", "prn_A", day(501), day(1), "CAP-RUNS-PER-DAY", "limits.projects[0].runs_per_day", "500 of 500"},
		{"free", "prn_A", day(5000), day(21), "CAP-RUNS-PER-DAY", "limits.callers[0].runs_per_day", "20 of 20"},
		{"free", "unix:alice", day(5000), day(21), "CAP-RUNS-PER-DAY", "limits.callers[0].runs_per_day", "20 of 20"},
		{"free", "", day(5000), day(5000), "", "", ""},
		{"any", "prn_X", month(60), month(51), "CAP-CPU-HOURS", "limits.caller_cpu_hours_per_month",
			"with this run the caller would have used, or reserved by time limits, 51.0 of 50 CPU hours this month (UTC)"},
		{"any", "prn_CI", month(60), month(51), "", "", ""},
	} {
		err := c.Admit(run.Share{Project: plan.ProjectOf(x.project), Caller: x.caller}, x.p, x.c)
		if x.code == "" {
			if err != nil {
				t.Errorf("%s %s: %v", x.project, x.caller, err)
			}
			continue
		}
		e, _ := err.(*fault.Error)
		if e == nil || e.Code != "cap_reached" || !fault.Is(err, fault.Policy) || e.Problems[0].Code != x.code ||
			e.Problems[0].Field != x.field ||
			!strings.Contains(e.Msg, x.says) || e.Retry != 7201 || !strings.Contains(e.Next, "2027-01-01T00:00:00Z") {
			t.Errorf("%s %s: %+v", x.project, x.caller, err)
		}
	}
	if n, m := c.ProjectInFlight(plan.ProjectOf("big")), c.ProjectInFlight(plan.ProjectOf("any")); n != 20 || m != 0 {
		t.Error(n, m)
	}
	if n, m := c.CallerInFlight("prn_A"), c.CallerInFlight("prn_X"); n != 0 || m != 7 {
		t.Error(n, m)
	}
	if w := c.Weights(); len(w) != 1 || w[plan.ProjectOf("big")] != 3 {
		t.Error(w)
	}
}
