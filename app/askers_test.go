package app

import (
	"testing"

	"slurmgate/gate"
	"slurmgate/plan"
)

// A run says whose call made it and who asked for it later, to everyone who may read it; lists show and filter it. A project that a caller
// does not see shows no names.
//
// proves OPS-03
func TestRunsSayWhoAsked(t *testing.T) {
	g := beforeGateway(t, "version: 1\n")
	project, older := plan.ProjectID("demo"), g.runIDs(t)
	member := func(name, id string) gate.Caller {
		return gate.Caller{Transport: gate.Local, Principal: gate.Principal{ID: id, Name: name, Method: gate.ByPeer,
			Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapSlurm}, []string{project})}}
	}
	alice, bob := member("user:alice", "prn_A"), member("token:bob", "prn_B")
	var made, again struct {
		RunID    string `json:"run_id"`
		Replayed bool   `json:"replayed"`
	}
	args := map[string]any{"bam": beforeBAM}
	g.says(t, alice, "samtools.flagstat", args, "", &made)
	for _, who := range []gate.Caller{bob, bob, alice} {
		g.says(t, who, "samtools.flagstat", args, "", &again)
		if again.RunID != made.RunID || !again.Replayed {
			t.Fatalf("%+v, first %+v", again, made)
		}
	}
	var s RunStory
	g.says(t, bob, "run.show", map[string]any{"run_id": made.RunID}, "", &s)
	if s.Principal == nil || *s.Principal != "user:alice" || *s.PrincipalID != "prn_A" || len(s.AskedAlso) != 1 ||
		s.AskedAlso[0].Principal != "token:bob" || s.AskedAlso[0].PrincipalID != "prn_B" {
		t.Errorf("%+v", s)
	}
	g.says(t, bob, "run.show", map[string]any{"run_id": older[0]}, "", &s)
	if s.Principal != nil || s.PrincipalID != nil || len(s.AskedAlso) != 0 {
		t.Errorf("a run of nobody known: %+v", s)
	}
	for _, c := range []struct {
		who       gate.Caller
		principal string
		want      int
	}{{alice, "me", 1}, {alice, "alice", 1}, {bob, "user:alice", 1}, {bob, "me", 1}, {bob, "prn_B", 1}, {bob, "bob", 0},
		{bob, "", len(older) + 1},
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
				t.Errorf("%+v", r)
			}
		}
	}
}
