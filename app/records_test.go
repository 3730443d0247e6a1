package app

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
)

// Records have the client's address and face, and are found by run, time, principal, address and face. The records of
// a run are those of the calls that created it, found it again, read it or changed it.
//
// proves OPS-03
func TestRecordsAreFound(t *testing.T) {
	g := demoGateway(t, "version: 1\n")
	admin := everything("user:boss", gate.All)
	from := func(name string, face gate.Face, address string) gate.Caller {
		return gate.Caller{Transport: gate.Local, Face: face, Address: address, Principal: gate.Principal{Name: name, Method: gate.ByPeer,
			Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapSlurm}, []string{plan.ProjectID("demo")})}}
	}
	alice, bob := from("user:alice", gate.FaceShell, "uid:1001 pid:7"), from("token:bob", gate.FaceHTTP, "203.0.113.9")
	var made struct {
		RunID string `json:"run_id"`
	}
	g.says(t, alice, "samtools.flagstat", map[string]any{"bam": demoBAM}, "", &made)
	g.says(t, bob, "samtools.flagstat", map[string]any{"bam": demoBAM}, "", nil)
	g.says(t, bob, "run.list", map[string]any{}, "", nil)
	g.says(t, bob, "run.show", map[string]any{"run_id": made.RunID}, "", nil)
	g.says(t, alice, "slurm.job.cancel", map[string]any{"run_id": made.RunID}, "", nil)
	g.recorded(t, admin)
	tools := func(args map[string]any) (tools []string) {
		var l EventList
		g.says(t, admin, "event.list", args, "", &l)
		looks := 0 // of this test that are in the ledger by now
		for _, e := range l.Events {
			if e.Principal == "user:boss" {
				looks++
				continue
			}
			tools = append(tools, e.Principal+" "+toolOf(t, e))
		}
		if l.Total != int64(len(tools)+looks) {
			t.Errorf("%v: total %d", args, l.Total)
		}
		return tools
	}
	about := []string{"user:alice slurm.job.cancel", "token:bob run.show", "token:bob samtools.flagstat", "user:alice samtools.flagstat"}
	for _, c := range []struct {
		args map[string]any
		want []string
	}{
		{map[string]any{"run_id": made.RunID}, about},
		{map[string]any{"run_id": made.RunID, "principal": "alice"}, []string{about[0], about[3]}},
		{map[string]any{"address": "203.0.113.9"}, []string{about[1], "token:bob run.list", about[2]}},
		{map[string]any{"face": "shell", "run_id": made.RunID}, []string{about[0], about[3]}},
		{map[string]any{"run_id": made.RunID, "since": time.Now().Add(time.Hour)}, nil},
		{map[string]any{"run_id": made.RunID, "since": time.Now().Add(-time.Hour), "until": time.Now().Add(time.Hour)}, about},
		{map[string]any{"run_id": made.RunID, "until": time.Now().Add(-time.Hour)}, nil},
	} {
		if got := tools(c.args); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
	var l EventList
	g.says(t, admin, "event.list", map[string]any{"address": "203.0.113.9", "limit": 1}, "", &l)
	if e := l.Events[0]; *e.Face != "http" || *e.Address != "203.0.113.9" {
		t.Errorf("%+v", e)
	}
	g.says(t, admin, "event.list", map[string]any{"principal": "user:boss", "limit": 1}, "", &l)
	if e := l.Events[0]; e.Face != nil || e.Address != nil { // unknown values stay empty
		t.Errorf("%+v", e)
	}
	if _, err := g.Ledger.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
}

func toolOf(t *testing.T, e CallEvent) string {
	t.Helper()
	var d struct {
		ToolID string `json:"tool_id"`
	}
	must(t, json.Unmarshal(e.Event, &d))
	return d.ToolID
}

// The gateway stores records of the shell's own tools only, with payloads that match the event.
func TestForgedShellRecords(t *testing.T) {
	g := tableGateway(t)
	boss := gate.Process().Principal
	res := g.calls(t, boss, "event.list", `{}`, "")
	if !res.OK {
		t.Fatalf("the call ended with %+v, want success", res.Error)
	}
	g.Gate.Close() // its record is written
	page, err := g.Ledger.Calls(t.Context(), ledger.CallFilter{})
	if err != nil || len(page.Calls) != 1 {
		t.Fatal(page.Calls, err)
	}
	real := string(page.Calls[0].Event)
	shell := strings.Replace(real, "event.list", "image.list", 1)
	for name, args := range map[string]string{
		"another tool":      `{"chain":"looks","event":` + real + `}`,
		"no event":          `{"chain":"looks","event":{"type":"tool_call"}}`,
		"a look as effect":  `{"chain":"effects","event":` + shell + `}`,
		"another's payload": `{"chain":"looks","event":` + shell + `,"payloads":[{"kind":"args","payload":{"x":1}}]}`,
	} {
		var a ShellRecord
		must(t, json.Unmarshal([]byte(args), &a))
		if _, err := a.record(gate.Caller{Principal: gate.Principal{Name: "user:x"}}); !fault.Is(err, fault.Validation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := (ShellRecord{Chain: gate.Looks, Event: json.RawMessage(shell)}).
		record(gate.Caller{Principal: gate.Principal{Name: "user:x", ID: "prn_x"}}); err != nil || r.Principal != "user:x" ||
		r.PrincipalID != "prn_x" ||
		r.ToolID != "image.list" {
		t.Error(r, err)
	}
}

// A run shows whose call created it and who asked for it later, to everyone who may read it; lists show and filter
// it. A project that a caller does not see shows no names.
//
// proves OPS-03
func TestRunsSayWhoAsked(t *testing.T) {
	g := demoGateway(t, "version: 1\n")
	project := plan.ProjectID("demo")
	member := func(name, id string) gate.Caller {
		return gate.Caller{Transport: gate.Local, Principal: gate.Principal{ID: id, Name: name, Method: gate.ByPeer,
			Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapSlurm}, []string{project})}}
	}
	alice, bob := member("user:alice", "prn_A"), member("token:bob", "prn_B")
	var made, again struct {
		RunID    string `json:"run_id"`
		Replayed bool   `json:"replayed"`
	}
	args := map[string]any{"bam": demoBAM}
	g.says(t, alice, "samtools.flagstat", args, "", &made)
	for _, who := range []gate.Caller{bob, bob, alice} {
		g.says(t, who, "samtools.flagstat", args, "", &again)
		if again.RunID != made.RunID || !again.Replayed {
			t.Fatalf("the call of %s returned %s, replayed %t; want %s again", who.Name, again.RunID, again.Replayed, made.RunID)
		}
	}
	var s RunStory
	g.says(t, bob, "run.show", map[string]any{"run_id": made.RunID}, "", &s)
	if s.Principal == nil || *s.Principal != "user:alice" || *s.PrincipalID != "prn_A" || len(s.AskedAlso) != 1 ||
		s.AskedAlso[0].Principal != "token:bob" || s.AskedAlso[0].PrincipalID != "prn_B" {
		t.Errorf("run.show: principal %v, asked also %+v; want user:alice and token:bob", s.Principal, s.AskedAlso)
	}
	for _, c := range []struct {
		who       gate.Caller
		principal string
		want      int
	}{{alice, "me", 1}, {alice, "alice", 1}, {bob, "user:alice", 1}, {bob, "me", 1}, {bob, "prn_B", 1}, {bob, "bob", 0},
		{bob, "", 1},
		{everything("user:stranger", "proj_0000000000000000000000000A"), "user:alice", 0}} {
		var l RunList
		given := map[string]any{}
		if c.principal != "" {
			given["principal"] = c.principal
		}
		g.says(t, c.who, "run.list", given, "", &l)
		if len(l.Runs) != c.want || l.Total != int64(c.want) {
			t.Errorf("%s asks for %q: %+v", c.who.Name, c.principal, l)
		}
		for _, r := range l.Runs {
			if (r.RunID == made.RunID) != (r.Principal != nil && *r.Principal == "user:alice") {
				t.Errorf("the principal of %s is %v", r.RunID, r.Principal)
			}
		}
	}
}

// The table of a month covers the projects that the caller may read; a request that is ambiguous is refused.
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
		t.Errorf("usage.month: %v to %v in %s by %v, want November in Berlin by caller and tool", u.From, u.To, u.Zone, u.By)
	}
	g.says(t, boss, "usage.month", map[string]any{}, "", &u)
	if u.Zone != "UTC" || len(u.By) != 4 || u.Month == "" {
		t.Errorf("usage.month without arguments: month %q in %s by %v", u.Month, u.Zone, u.By)
	}
	if u.Stored != (StoredUse{}) {
		t.Errorf("stored: %+v, want nothing", u.Stored)
	}
	for code, args := range map[string]map[string]any{"USAGE-ZONE": {"zone": "Mars/Olympus"}, "USAGE-BY": {"by": "caller,caller"}} {
		g.says(t, boss, "usage.month", args, code, nil)
	}
}
