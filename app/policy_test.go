package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/site"
)

// The gate follows the settings of policies.yaml about calls.
//
// proves AX-08
func TestPolicyReachesTheGate(t *testing.T) {
	p, err := policy.Parse("p", []byte("version: 1\nconcurrency: {global: 7, per_tool: {samtools_flagstat: 2, slurm_submit: "+
		"3}}\ndefault_timeout_sec: 30\negress_allowlist: [\"api.example.org:443\"]\n"+
		"consent: {tools: [slurm_submit], request_expires_seconds: 120, approval_expires_seconds: 60}\nlogging: {level: warn}\n"), os.LookupEnv)
	must(t, err)
	g := tableGateway(t)
	g.Policy = p
	r := rulesOf{p, g.RunLimits()}
	if got := r.Rules("samtools_flagstat"); got.Together != 0 || got.Timeout != 30*time.Second || got.Consent != nil {
		t.Errorf("rules of samtools_flagstat: %d together, timeout %v, consent %v; want 0, 30 s, nil", got.Together, got.Timeout, got.Consent)
	}
	if got := r.Rules("slurm_submit"); got.Together != 3 || got.Consent == nil || *got.Consent != (gate.ConsentRule{Ask: 2 * time.Minute,
		Answer: time.Minute}) {
		t.Errorf("rules of slurm_submit: %d together, consent %v; want 3, 2 min to ask and 1 min to answer", got.Together, got.Consent)
	}
	if got := g.RunLimits(); len(got) != 1 || got["samtools_flagstat"] != 2 { // the engine bounds these, run.TestRunsOfOneTool
		t.Errorf("%v", got)
	}
	for _, word := range []string{"debug", "info", "warn", "error"} {
		var level slog.LevelVar
		if err := level.UnmarshalText([]byte(word)); err != nil {
			t.Error(word, err)
		}
	}
}

// A principal's jobs charge its own account, not the one that it names.
func TestCharged(t *testing.T) {
	for _, c := range []struct {
		accounts      map[string]string
		project, want string
	}{{nil, "p", ""}, {map[string]string{"p": "a"}, "p", "a"}, {map[string]string{"*": "b"}, "p", "b"},
		{map[string]string{"*": "b", "p": "a"}, "p", "a"}, {map[string]string{"p": "a"}, "other", ""}} {
		who := gate.Principal{Accounts: c.accounts}
		if got := who.Account(c.project); got != c.want {
			t.Errorf("Account(%s) of a principal with %v = %q, want %q", c.project, c.accounts, got, c.want)
		}
	}
}

// default_timeout_sec limits every call, except of the operations with a limit in testdata/operations.golden.
//
// proves AX-08
func TestDefaultTimeout(t *testing.T) {
	g := gatewayOver(t, t.TempDir(), "../domains/genomics", "version: 1\ndefault_timeout_sec: 3600\n")
	for _, p := range g.Domain.Packs().List() {
		if x := g.toolOf(t, p.ID()); x.Timeout != 0 {
			t.Errorf("%s has its own time limit of %s, want that of the policy", x.ID, x.Timeout)
		}
	}
	var left time.Duration
	x := Operation{ID: "config.show", Title: "Show", Description: "Shows.", Effect: gate.Read, Repeat: gate.Idempotent,
		Outcome: gate.BestEffort, Capability: gate.CapRead, Faces: shellOnly,
		Does: does(func(ctx context.Context, _ gate.Call, _ struct{}) (struct{}, error) {
			until, _ := ctx.Deadline()
			left = time.Until(until)
			return struct{}{}, nil
		})}.Tool()
	r, err := gate.NewRegistry(x)
	must(t, err)
	timed := gate.New(gate.Config{Registry: r, Policy: rulesOf{Policy: g.Policy}, Log: g.Log})
	defer timed.Close()
	if res := timed.Call(t.Context(), gate.Process(), gate.NewRequest(x.ID, x.Version, json.RawMessage("{}"))); res.Error != nil ||
		left <= 0 || left > time.Hour || left < 50*time.Minute {
		t.Errorf("%+v: %s left of an hour", res.Error, left)
	}
}

// The error about a reached cap has its code, the field of the site file, the rule, what was used and when it is
// possible again. The values of one project or caller take precedence over the common ones; -1 lifts a cap.
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
	for name, want := range map[string]int{"big": 3, "any": 1} {
		if got := c.Weight(plan.ProjectOf(name)); got != want {
			t.Errorf("Weight of the project %s = %d, want %d", name, got, want)
		}
	}
}

// A pack's plan holds what the pack asks for. The site's defaults and the caller's own account are added to what runs and what policy
// judges, and change no identity; a dry run shows both.
//
// proves ABI-07 ARC-06
func TestPlacementIsTheSites(t *testing.T) {
	args := map[string]any{"bam": demoBAM}
	var ids []string
	for name, c := range map[string]struct {
		policy, partition, account, denied string
	}{
		"the site's defaults": {"version: 1\n", "main", "research", ""},
		"others":              {"version: 1\n", "fast", "other", ""},
		"allowed":             {"version: 1\nslurm: {partitions_allowlist: [main], accounts_allowlist: [research]}\n", "main", "research", ""},
		"denied":              {"version: 1\nslurm: {partitions_allowlist: [main]}\n", "fast", "research", "POLICY-PARTITION"},
	} {
		t.Run(name, func(t *testing.T) {
			g := demoGateway(t, c.policy)
			g.Site.Slurm.DefaultPartition, g.Site.Slurm.DefaultAccount = c.partition, c.account
			p, err := g.Domain.Packs().Get("samtools.flagstat")
			must(t, err)
			call := gate.Call{Args: []byte(`{"bam":"` + demoBAM + `"}`), Value: map[string]any{"bam": demoBAM},
				Caller: gate.Caller{Principal: gate.Principal{Rights: gate.RightsOf([]string{gate.CapSlurm}, []string{plan.ProjectID("demo")})}}}
			o, _, err := g.packOrder(t.Context(), call, p)
			if c.denied != "" {
				if fault.CodeOf(err) != c.denied {
					t.Error(err)
				}
				return
			}
			must(t, err)
			if o.Params.Spec.Placement != (plan.Placement{}) || o.Placement.Partition != c.partition || o.Placement.Account != c.account {
				t.Errorf("asked for %+v, placed %+v", o.Params.Spec.Placement, o.Placement)
			}
			shown, err := g.Sites.Preview(t.Context(), o)
			if err != nil || shown.Placement.Partition != c.partition || !strings.Contains(string(shown.Params), `"partition":null`) ||
				shown.Script != "partition "+c.partition+" account "+c.account {
				t.Errorf("Preview: placement %v, params %s, script %q, %v; want partition %s, account %s", shown.Placement, shown.Params,
					shown.Script, err, c.partition, c.account)
			}
			if name != "allowed" {
				a := g.ask(t, "samtools.flagstat", args, false)
				if ids = append(ids, a.RunID); ids[0] != a.RunID || a.Replayed {
					t.Errorf("the call returned %s, replayed %t; the runs are %v", a.RunID, a.Replayed, ids)
				}
				v, err := g.Ledger.View(t.Context(), a.RunID)
				if err != nil || v.Attempt.Placement.Partition != c.partition {
					t.Errorf("the attempt's placement is %v, %v; want partition %s", v.Attempt.Placement, err, c.partition)
				}
			}
		})
	}
}

// A run continues only while the site has the folders of its identity at the versions of its identity.
//
// proves ABI-19
func TestSameBinds(t *testing.T) {
	s := &site.Site{Apptainer: site.Apptainer{Binds: []site.Bind{{Name: "ref", Version: "2"}}}}
	if err := sameBinds(s, []plan.Bind{{Name: "ref", Version: "2"}}); err != nil {
		t.Error(err)
	}
	for code, b := range map[string]plan.Bind{"bind_changed": {Name: "ref", Version: "1"}, "bind_not_offered": {Name: "soft", Version: "1"}} {
		if err := sameBinds(s, []plan.Bind{b}); fault.CodeOf(err) != code || !fault.Is(err, fault.Policy) {
			t.Errorf("sameBinds(%s version %s): %v, want %s", b.Name, b.Version, err, code)
		}
	}
	g := tableGateway(t)
	p := plan.Params{Tool: &plan.ToolExtra{Binds: []plan.Bind{{Name: "ref", Version: "1"}}}}
	if err := g.StillAllowed(g.Site, "samtools.flagstat", p); fault.CodeOf(err) != "bind_not_offered" {
		t.Error(err)
	}
	if w := bindWarnings(p.Tool.Binds); len(w) != 1 || !strings.Contains(w[0], "ref, version 1") {
		t.Error(w)
	}
}
