package app

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"slurmgate/gate"
	"slurmgate/plan"
)

// Records have the client's address and how it came, and are found by run, time, principal, address and face. A run's records are those of
// the calls that made it, found it again, looked at it or changed it.
//
// proves OPS-03
func TestRecordsAreFound(t *testing.T) {
	g := beforeGateway(t, "version: 1\n")
	admin := everything("user:boss", gate.All)
	from := func(name string, face gate.Face, address string) gate.Caller {
		return gate.Caller{Transport: gate.Local, Face: face, Address: address, Principal: gate.Principal{Name: name, Method: gate.ByPeer,
			Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapSlurm}, []string{plan.ProjectID("demo")})}}
	}
	alice, bob := from("user:alice", gate.FaceShell, "uid:1001 pid:7"), from("token:bob", gate.FaceHTTP, "203.0.113.9")
	var made struct {
		RunID string `json:"run_id"`
	}
	g.says(t, alice, "samtools.flagstat", map[string]any{"bam": beforeBAM}, "", &made)
	g.says(t, bob, "samtools.flagstat", map[string]any{"bam": beforeBAM}, "", nil)
	g.says(t, bob, "run.list", map[string]any{}, "", nil)
	g.says(t, bob, "run.show", map[string]any{"run_id": made.RunID}, "", nil)
	g.says(t, alice, "slurm.job.cancel", map[string]any{"run_id": made.RunID}, "", nil)
	g.recorded(t, admin)
	tools := func(args map[string]any) (tools []string) {
		var l EventList
		g.says(t, admin, "event.list", args, "", &l)
		looks := 0 // of this test's own that are in the ledger by now
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
	if e := l.Events[0]; e.Face != nil || e.Address != nil { // what is not known is not made up
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
	if err := json.Unmarshal(e.Event, &d); err != nil {
		t.Fatal(err)
	}
	return d.ToolID
}
