package e2e

import (
	"strings"
	"testing"
	"time"
)

// What slurmgate's own rules let through and Slurm refuses for good ends the run with Slurm's words.
func TestRejectedBySlurm(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	for _, tt := range []struct {
		name, field string
		value       any
		seconds     int
		says        string
	}{
		{"time beyond the QOS", "placement.qos", "quick", 3600, "QOSMaxWallDurationPerJobLimit"},
		{"time beyond the partition", "placement.partition", "short", 3600, "time limit"},
		{"account of nobody", "placement.account", "nobodys", 60, "account"},
		{"more memory than a node has", "resources.mem_mb", 16000, 60, "configuration"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := s.as(t)
			doc := s.set(s.set(probePlan("nothing"), "resources.time_limit_seconds", tt.seconds), tt.field, tt.value)
			a := s.submit(doc)
			l := s.wait(a.RunID)
			if l.State != "failed" || !strings.HasPrefix(l.why(), "rejected:") || !strings.Contains(strings.ToLower(l.why()),
				strings.ToLower(tt.says)) || l.SlurmJobID != nil {
				t.Errorf("%+v %s", l, l.why())
			}
			if v := s.story(a.RunID); len(v.Sends) != 1 || v.Sends[0].Outcome != "rejected" {
				t.Errorf("%+v", v.Sends)
			}
		})
	}
}

// Back-pressure is no rejection: what Slurm has no room for waits, and is sent when there is some.
func TestDeferredUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	plan := func(n string) tree { // QOS tiny: two jobs of a user at a time
		return s.set(s.set(s.set(probePlan("write", "out/result", n), "placement.qos", "tiny"), "placement.partition", "big"),
			"execution.command.env", tree{"N": n})
	}
	first, second := s.submit(plan("1")).RunID, s.submit(plan("2")).RunID
	s.phase(first, "pending")
	s.phase(second, "pending")
	third := s.submit(plan("3"))
	l := s.phase(third.RunID, "deferred")
	if l.State != "queued" || l.SlurmJobID != nil || !strings.Contains(l.why(), "Submit") {
		t.Errorf("%+v %s", l, l.why())
	}
	var again submitted
	if s.ok(&again, "submit", s.plan(plan("3"))); !again.Replayed || again.Phase != "deferred" {
		t.Errorf("%+v", again)
	}
	shell(t, "lab", `rm -r "$1"`, s.dir+"/runs/"+third.RunID) // by somebody who tidies up
	s.ok(nil, "cancel", first)
	until(t, time.Minute, "the third's turn", func() bool {
		s.ok(&l, "get", third.RunID)
		return l.Phase == "pending"
	})
	if v := s.story(third.RunID); len(v.Sends) < 2 || v.Sends[0].Outcome != "deferred" || v.Sends[len(v.Sends)-1].Outcome != "accepted" ||
		s.count(third.RunID).Accounted != 1 {
		t.Errorf("%+v", v)
	}
	s.ok(nil, "cancel", third.RunID)
	s.ok(nil, "cancel", second)
}

// An edit of the policy makes new runs of old requests, and the answer says which run was the same; or policy has it answered.
//
// proves ABI-07 ARC-03
func TestPolicyChange(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	file := s.plan(probePlan("write", "out/result", "x"))
	var first, second, third submitted
	s.ok(&first, "submit", file)
	if l := s.wait(first.RunID); l.State != "succeeded" {
		t.Fatalf("%+v", l)
	}
	s.replace("domain/policies.yaml", "max_cpus: 64", "max_cpus: 63")
	s.ok(&second, "submit", file)
	same(t, "equivalent runs", second.EquivalentRuns, []string{first.RunID})
	if second.Replayed || second.RunID == first.RunID {
		t.Errorf("%+v", second)
	}
	if l := s.wait(second.RunID); l.State != "succeeded" {
		t.Fatalf("%+v", l)
	}
	s.replace("domain/policies.yaml", "max_cpus: 63", "max_cpus: 62")
	s.replace("domain/policies.yaml", "network: none", "network: none\nequivalent_runs: reuse")
	if s.ok(&third, "submit", file); !third.Replayed || third.RunID != first.RunID && third.RunID != second.RunID {
		t.Errorf("%+v", third)
	}
	// A comment is no edit: back under the first policy the first run answers.
	s.replace("domain/policies.yaml", "network: none\nequivalent_runs: reuse", "# as before\nnetwork: none")
	s.replace("domain/policies.yaml", "max_cpus: 62", "max_cpus: 64")
	if s.ok(&third, "submit", file); !third.Replayed || third.RunID != first.RunID {
		t.Errorf("%+v", third)
	}
}

// While slurmctld cannot be reached everything but Slurm goes on: runs are taken and wait, what is known is answered, and with the
// controller back what waited is sent, once.
//
// proves CARD-04 ABI-18
func TestSlurmUnreachable(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	conf := s.dir + "/slurm.conf" // lab's own copy: the cluster itself is others' too
	shell(t, "lab", `cp /etc/slurm/slurm.conf "$1"`, conf)
	s.replace("site.yaml", "slurm:\n", "slurm:\n  conf: "+conf+"\n")
	s.serve()
	before := s.submit(probePlan("write", "out/result", "before")).RunID
	s.wait(before)

	shell(t, "lab", `sed -i '/^SlurmctldPort=/d' "$1" && echo SlurmctldPort=1 >>"$1"`, conf)
	during := s.submit(probePlan("write", "out/result", "during")).RunID
	l := s.phase(during, "deferred")
	if l.State != "queued" || !strings.Contains(l.why(), "slurm_unreachable") {
		t.Errorf("%+v %s", l, l.why())
	}
	var again submitted
	for _, argument := range []string{"before", "during"} {
		if s.ok(&again, "submit", s.plan(probePlan("write", "out/result", argument))); !again.Replayed {
			t.Errorf("%+v", again)
		}
	}
	s.ok(nil, "collect", before)
	s.ok(nil, "runs", "show", before)
	later := s.submit(probePlan("write", "out/result", "later")).RunID
	s.phase(later, "deferred")
	if v := s.story(later); len(v.Sends) > 1 {
		t.Errorf("%d sends of a run that was asked for while the site was known to be unreachable", len(v.Sends))
	}

	shell(t, "lab", `sed -i '/^SlurmctldPort=1$/d' "$1"`, conf)
	for _, id := range []string{during, later} {
		if l := s.wait(id); l.State != "succeeded" {
			t.Errorf("%+v", l)
		}
		if n := s.count(id).Accounted; n != 1 {
			t.Errorf("%d jobs of %s", n, id)
		}
	}
}
