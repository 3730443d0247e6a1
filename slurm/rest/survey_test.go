package rest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/slurm"
)

// The recorded answers of every version show one cluster.
func TestSurvey(t *testing.T) {
	onEach(t, func(t *testing.T, s *Slurm, _ *slurm.CLI, _, version string) {
		parts, err := s.Partitions(t.Context())
		if err != nil || len(parts) != 3 {
			t.Fatalf("%+v %v", parts, err)
		}
		for _, p := range parts {
			want := fmt.Sprint(map[string][]any{"main": {true, 86400, 8, 8000, 0}, "short": {true, 600, 8, 8000, 0},
				"big": {true, 0, 256, 2200000, 16}}[p.Name])
			if got := fmt.Sprint([]any{p.Up, p.MaxSeconds, p.CPUs, p.MemMB, p.GPUs}); got != want {
				t.Errorf("%s: %s, want %s", p.Name, got, want)
			}
			if shown := version == "v0.0.38" || version == "v0.0.45"; p.Default != (shown && p.Name == "main") {
				t.Errorf("%s is default: %v", p.Name, p.Default)
			}
		}
		nodes, err := s.Nodes(t.Context())
		big := slices.IndexFunc(nodes, func(n slurm.NodeIn) bool { return n.Node == "big1" })
		if err != nil || len(nodes) != 5 || big < 0 || nodes[big] != (slurm.NodeIn{Node: "big1", Partition: "big", State: "down*",
			Reason: "has no slurmd by design"}) {
			t.Errorf("%+v %v", nodes, err)
		}
		if archs, err := s.Archs(t.Context()); err != nil || strings.Join(archs, " ") != "amd64" {
			t.Errorf("%v %v", archs, err)
		}
		c, err := s.Condition(t.Context())
		if err != nil || c.At.Unix() < 1795000000 || len(c.Partitions) != 3 || c.Partitions[0].Nodes == 0 || c.Partitions[0].State != "UP" {
			t.Errorf("%+v %v", c, err)
		}
		users, err := s.AllAccounts(t.Context())
		lab := users["lab"]
		if err != nil || lab.Default != "research" || len(lab.Accounts) != 2 || lab.Accounts[0].Name != "research" || !lab.Accounts[0].Default ||
			len(lab.Accounts[0].QOS) != 3 || users["bob"].Default == "" {
			t.Errorf("%+v %v", users, err)
		}
		list, qos, err := s.Associations(t.Context(), "devcluster")
		tiny := slices.IndexFunc(qos, func(q slurm.QOS) bool { return q.Name == "tiny" })
		if err != nil || len(list) != 2 || list[0].Submit != nil || tiny < 0 || qos[tiny].Submit == nil || *qos[tiny].Submit != 2 {
			t.Errorf("%+v %+v %v", list, qos, err)
		}
	})
}

// What slurmrestd does not show is said to be so, never made up.
func TestNotShown(t *testing.T) {
	s := says(t, "v0.0.42", 200, queue())
	_, err := s.MessageTimeout(t.Context())
	for _, err := range []error{err, s.Accepts(t.Context(), plan.Resources{}, plan.Placement{})} {
		if !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != NotShown {
			t.Error(err)
		}
	}
	if parts, err := s.Partitions(t.Context()); !fault.Is(err, fault.Transport) {
		t.Errorf("an answer without partitions: %v %v", parts, err)
	}
}

// A node's state is written as sinfo writes it.
func TestNodeStates(t *testing.T) {
	for states, want := range map[string]string{
		"IDLE": "idle", "MIXED": "mixed", "ALLOCATED COMPLETING": "completing", "IDLE DRAIN": "drained", "MIXED DRAIN": "draining",
		"DOWN NOT_RESPONDING": "down*", "DOWN DRAIN": "drained", "IDLE POWERED_DOWN": "idle~", "IDLE PLANNED": "planned",
		"IDLE RESERVED": "reserved", "IDLE FAIL": "fail", "IDLE COMPLETING DRAIN": "draining", "IDLE MAINTENANCE": "maint", "": "unknown",
	} {
		if got := (node{State: strings.Fields(states)}).sinfo(); got != want {
			t.Errorf("%s: %s, want %s", states, got, want)
		}
	}
}

func TestHostnames(t *testing.T) {
	for list, want := range map[string]string{
		"n1": "n1", "n1,n2": "n1 n2", "n[1-3,7]": "n1 n2 n3 n7", "n[08-11],x,y-[1]": "n08 n09 n10 n11 x y-1",
		"": "", "n[1-": "", "n[3-1]": "", "n]1[": "", "n[1-2]x": "", "n1,": "", "n 1": "", "n[1-999999999]": "", "[1-3]": "", "n[]": "",
	} {
		names, err := (&Slurm{}).Hostnames(t.Context(), list)
		if got := strings.Join(names, " "); got != want || (err == nil) != (want != "") || err != nil && !fault.Is(err, fault.Validation) {
			t.Errorf("%q: %q %v", list, got, err)
		}
	}
}
