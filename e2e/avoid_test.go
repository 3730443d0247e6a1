package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// whole plans a job that fills a node, so that two of them run on two.
func (s *site) whole(argv ...string) tree {
	return s.set(probePlan(argv...), "resources.mem_mb", 5000)
}

type attempt struct {
	Node, Ending string
	Avoids       []struct{ Node, Fault string }
}

// attempts reads the attempts of a run.
func (s *site) attempts(id string) []attempt {
	s.t.Helper()
	var shown struct{ Attempts []attempt }
	must(s.t, json.Unmarshal(s.cli("runs", "show", id, "--json").stdout, &shown))
	return shown.Attempts
}

// A fault that only a run meets ends it with the fault's own name, and with the node's. The test is not parallel.
//
// proves OPS-02
func TestRunsNameFaultsOfNodes(t *testing.T) {
	s := newSite(t, "probing", func(f *siteFile) { f.ImageStore = f.Dir + "/images" })
	s.ok(nil, "image", "add", "probe", world.dir+"/probe.sif")
	s.serve()
	t.Cleanup(func() { heal(t, "n1", "n2") })
	n := 0
	for _, round := range [][2]nodeFault{{
		{"no image store", `mount -t tmpfs -o mode=755 t $1/images`, "image_missing", ""},
		{"image unreadable", `cp $1/images/$2.sif $3/sif; chmod 0 $3/sif; mount --bind $3/sif $1/images/$2.sif`, "image_unreadable", ""},
	}, {
		{"no Apptainer", `mount --bind /dev/null /usr/bin/apptainer`, "runtime_missing", ""},
		{"Apptainer too old", `cat >$3/old <<'X'
#!/bin/sh
echo 'Error for command "exec": unknown flag: --no-eval' >&2
exit 1
X
			chmod 755 $3/old; mount --bind $3/old /usr/bin/apptainer`, "runtime_too_old", ""},
	}, {
		{"starter not executable", `touch $3/starter; mount --bind $3/starter ` + starter, "runtime_broken", ""},
		{"no user namespaces", `CHROOT`, "no_user_namespaces", ""},
	}, {
		{"runs_dir read-only", `mount --bind $1/runs $1/runs; mount -o remount,bind,ro $1/runs`, "control_unwritable", ""},
		{"runs_dir another filesystem", `mount -t tmpfs -o mode=1777 t $1/runs`, "runs_dir_missing", ""},
	}} {
		for i, f := range round {
			s.plant(fmt.Sprintf("n%d", i+1), f)
		}
		seen := map[string]string{}
		for i := range round {
			node, other := fmt.Sprintf("n%d", i+1), fmt.Sprintf("n%d", 2-i)
			shell(t, "root", `scontrol update nodename="$1" state=drain reason=test`, other)
			n++
			id := s.submit(probePlan("write", "out/result", fmt.Sprint(n))).RunID
			l := s.wait(id)
			shell(t, "root", `scontrol update nodename="$1" state=resume`, other)
			seen[node] = strings.SplitN(l.why(), ":", 2)[0]
			if at := s.attempts(id)[0]; l.State != "failed" || at.Node != node || !strings.Contains(l.why(), node) {
				t.Errorf("%s on %s: %s", l.State, at.Node, l.why())
			}
		}
		for i, f := range round {
			if node := fmt.Sprintf("n%d", i+1); seen[node] != f.code {
				t.Errorf("%s on %s ended as %q, not as %s", f.name, node, seen[node], f.code)
			}
		}
		heal(t, "n1", "n2")
	}
}

// The attempt after a node's fault does not use that node; the run reports so while it runs and afterwards, and doctor
// names the node.
//
// proves OPS-02
func TestNodeAtFaultIsAvoided(t *testing.T) {
	s := newSite(t, "probing", func(f *siteFile) { f.ImageStore = f.Dir + "/images" })
	s.replace("domain/policies.yaml", "infrastructure_attempts: 0", "infrastructure_attempts: 1")
	s.ok(nil, "image", "add", "probe", world.dir+"/probe.sif")
	s.serve()
	t.Cleanup(func() { heal(t, "n1", "n2") })
	s.plant("n1", nodeFault{name: "no image store", plant: `mount -t tmpfs -o mode=755 t $1/images`})
	one, two := s.submit(s.whole("write", "out/result", "a")).RunID, s.submit(s.whole("write", "out/result", "b")).RunID
	avoided := 0
	for _, id := range []string{one, two} {
		s.ends(id, "succeeded")
		list := s.attempts(id)
		if len(list) < 2 {
			continue
		}
		avoided++
		first, second := list[0], list[1]
		if first.Node != "n1" || first.Ending != "image_missing" || second.Node != "n2" || len(second.Avoids) != 1 ||
			second.Avoids[0].Node != "n1" || second.Avoids[0].Fault != "image_missing" {
			t.Errorf("the attempts are %+v, want image_missing on n1 and one that avoids n1 on n2", list)
		}
	}
	if avoided == 0 { // the second run may start on n1 too, when the first has ended there
		t.Error("no run met the fault")
	}
	e := s.examineNodes("--no-jobs")
	if status, found, remedy := e.find("node_history"); status != "warning" || !strings.Contains(found, "n1") || !strings.Contains(found,
		"image_missing") ||
		!strings.Contains(remedy, "--node n1") {
		t.Errorf("node_history is %q: %s; next %s; want a warning about n1 and how to examine it", status, found,
			remedy)
	}
}
