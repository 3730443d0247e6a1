package rest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
)

// The recorded answers of all versions show the same cluster.
func TestSurvey(t *testing.T) {
	onEach(t, func(t *testing.T, s *Slurm, _ *slurm.CLI, _, version string) {
		parts, err := slurm.Partitions(t.Context(), s)
		if err != nil || len(parts) != 3 {
			t.Fatalf("the partitions are %+v %v, want three", parts, err)
		}
		for _, p := range parts {
			want := fmt.Sprint(map[string][]any{"main": {true, 86400, 8, 8000, 0}, "short": {true, 600, 8, 8000, 0},
				"big": {true, 0, 256, 2200000, 16}}[p.Name])
			if got := fmt.Sprint([]any{p.Up(), p.MaxSeconds, p.CPUs, p.MemMB, p.GPUs}); got != want {
				t.Errorf("%s: %s, want %s", p.Name, got, want)
			}
			if shown := version == "v0.0.45"; p.Default != (shown && p.Name == "main") {
				t.Errorf("%s is default: %v", p.Name, p.Default)
			}
		}
		nodes, err := s.Nodes(t.Context())
		big := slices.IndexFunc(nodes, func(n run.Node) bool { return n.Name == "big1" })
		if err != nil || len(nodes) != 5 || big < 0 || !cmp.Equal(nodes[big], run.Node{Name: "big1", Partition: "big", State: "down*",
			Reason: "has no slurmd by design", CPUs: 256, MemMB: 2200000, GPUs: 16, GPUTypes: []string{"a100"}}) {
			t.Errorf("the nodes are %+v %v, want five with big1 down", nodes, err)
		}
		if archs, err := s.Archs(t.Context()); err != nil || strings.Join(archs, " ") != "amd64" {
			t.Errorf("Archs gives %q %v, want amd64", archs, err)
		}
		if c, err := s.Config(t.Context(), 0); err != nil || c.Clock.Unix() < 1795000000 || !c.Database() {
			t.Errorf("the configuration is %+v %v, want slurmctld's clock and slurmdbd", c, err)
		}
		users, err := s.AllAccounts(t.Context())
		lab := users["lab"]
		if err != nil || lab.Default != "research" || len(lab.Accounts) != 2 || lab.Accounts[0].Name != "research" ||
			len(lab.Accounts[0].QOS) != 3 || users["bob"].Default == "" {
			t.Errorf("the accounts are %+v %v, want lab's and bob's", users, err)
		}
		if own, err := s.Accounts(t.Context(), "devcluster", "lab"); err != nil || len(own) != 1 || !cmp.Equal(own["lab"], lab) {
			t.Errorf("the accounts of lab alone are %+v %v, want %+v", own, err, lab)
		}
		qos, err := s.QOS(t.Context())
		tiny := slices.IndexFunc(qos, func(q run.QOS) bool { return q.Name == "tiny" })
		if err != nil || lab.Accounts[0].Submit != nil || tiny < 0 || qos[tiny].Submit == nil || *qos[tiny].Submit != 2 {
			t.Errorf("the limits are %+v and %+v %v, want no limit of lab and the QOS tiny with two jobs", lab, qos, err)
		}
	})
}

// The nodes that take no jobs, with the reason and its time, in both forms of a time.
func TestUnusable(t *testing.T) {
	for _, since := range []string{`1795843601`, `{"set":true,"infinite":false,"number":1795843601}`} {
		s := says(t, "v0.0.42", 200, `{"nodes":[{"name":"n1","partitions":["main"],"state":["IDLE","DRAIN"],"reason":"Prolog error",`+
			`"reason_changed_at":`+since+`},{"name":"n2","partitions":["main"],"state":["IDLE"],"reason":""}],"errors":[],`+testMeta+`}`)
		got, err := s.Unusable(t.Context())
		if n1 := got["n1"]; err != nil || len(got) != 1 || n1.State != "drained" || n1.Why != "Prolog error" || n1.Since == nil ||
			n1.Since.Unix() != 1795843601 {
			t.Errorf("with the time %s Unusable gives %+v %v, want n1 alone, drained for \"Prolog error\" since then",
				since, got, err)
		}
	}
}

// Data that slurmrestd does not show is a fault, never made up.
func TestNotShown(t *testing.T) {
	s := says(t, "v0.0.42", 200, queue())
	_, err := s.MessageTimeout(t.Context())
	for _, err := range []error{err, s.Accepts(t.Context(), plan.Resources{}, plan.Placement{})} {
		if !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != NotShown {
			t.Error(err)
		}
	}
	if parts, err := slurm.Partitions(t.Context(), s); !fault.Is(err, fault.Transport) {
		t.Errorf("an answer without partitions: %v %v", parts, err)
	}
}

// A node's state has the form of sinfo.
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
			t.Errorf("Hostnames(%q) = %q, %v, want %q, or a validation fault if that is empty", list, got, err, want)
		}
	}
}
