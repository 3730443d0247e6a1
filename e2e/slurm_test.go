package e2e

import (
	"strings"
	"testing"
)

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
		t.Errorf("the third job of a QOS that takes two: %v, want it queued without a job, for Slurm's limit", l)
	}
	var again submitted
	if s.ok(&again, "submit", s.plan(plan("3"))); !again.Replayed || again.Phase != "deferred" {
		t.Errorf("the same request while it is deferred gives %v, want a replay that is deferred", again)
	}
	shell(t, "lab", `rm -r "$1"`, s.dir+"/runs/"+third.RunID) // as a user who cleans up does
	s.ok(nil, "cancel", first)
	until(t, "the third's turn", func() bool {
		s.ok(&l, "get", third.RunID)
		return l.Phase == "pending"
	})
	if v := s.story(third.RunID); len(v.Sends) < 2 || v.Sends[0].Outcome != "deferred" || v.Sends[len(v.Sends)-1].Outcome != "accepted" ||
		s.count(third.RunID).Accounted != 1 {
		t.Errorf("the run that had to wait has the sends %+v, want some deferred, the last accepted, and one job",
			v.Sends)
	}
	s.ok(nil, "cancel", third.RunID)
	s.ok(nil, "cancel", second)
}

// An edit of the policy makes new runs of old requests, and the answer names the run of the same request; or policy
// lets the old run answer.
//
// proves ABI-07 ARC-03
// short: operating it
func TestPolicyChange(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	file := s.plan(probePlan("write", "out/result", "x"))
	var first, second, third submitted
	s.ok(&first, "submit", file)
	s.mustEnd(first.RunID, "succeeded")
	s.replace("domain/policies.yaml", "max_cpus: 64", "max_cpus: 63")
	s.ok(&second, "submit", file)
	same(t, "equivalent runs", second.EquivalentRuns, []string{first.RunID})
	if second.Replayed || second.RunID == first.RunID {
		t.Errorf("under another policy the request gives %v, want a new run", second)
	}
	s.mustEnd(second.RunID, "succeeded")
	s.replace("domain/policies.yaml", "max_cpus: 63", "max_cpus: 62")
	s.replace("domain/policies.yaml", "network: none", "network: none\nequivalent_runs: reuse")
	if s.ok(&third, "submit", file); !third.Replayed || third.RunID != first.RunID && third.RunID != second.RunID {
		t.Errorf("with equivalent_runs: reuse the request gives %v, want a replay of %s or %s", third, first.RunID,
			second.RunID)
	}
}

// While slurmctld cannot be reached everything but Slurm continues: runs are accepted and wait, known results are
// returned, and with the controller back each waiting run is sent once.
//
// proves CARD-04 ABI-18
// short: at most one execution
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
		t.Errorf("while slurmctld cannot be reached %v, want it queued for slurm_unreachable", l)
	}
	var again submitted
	for _, argument := range []string{"before", "during"} {
		if s.ok(&again, "submit", s.plan(probePlan("write", "out/result", argument))); !again.Replayed {
			t.Errorf("while slurmctld cannot be reached the request of %q gives %v, want a replay", argument, again)
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
		s.ends(id, "succeeded")
		s.hasOneJob(id)
	}
}
