package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

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
