package e2e

import (
	"strings"
	"testing"
)

// A job that Slurm cancels because the Prolog failed on its node was not cancelled by a person: the next attempt uses
// another node, and the run reports why. (Not parallel: it changes the cluster's configuration, and Slurm drains the
// node.)
func TestNodeWhosePrologFailsIsAvoided(t *testing.T) {
	s := newSite(t, "probing")
	s.replace("domain/policies.yaml", "infrastructure_attempts: 0", "infrastructure_attempts: 1")
	s.serve()
	prolog := func(line string) {
		t.Helper()
		shell(t, "root", `devd set slurm.conf "Prolog$1"
			for n in {1..300}; do
				[[ $(scontrol show config | sed -n 's/^Prolog\(\[0\]\)\? *= *//p') == "$2" ]] && exit; sleep 0.1
			done; scontrol show config | grep ^Prolog >&2; exit 1`, line, strings.TrimPrefix(line, "="))
	}
	t.Cleanup(func() {
		prolog("")
		shell(t, "root", `for n in n1 n2; do scontrol update nodename=$n state=resume || true; done`)
		heal(t, "n1", "n2")
	})
	script := s.dir + "/prolog"
	shell(t, "root", `printf '#!/bin/sh\n[ "$SLURMD_NODENAME" != n1 ]\n' >"$1"; chmod 755 "$1"; scontrol update nodename=n2 state=drain reason=test`,
		script)
	prolog("=" + script)
	id := s.submit(probePlan("write", "out/result", "prolog")).RunID
	until(t, "the end of the first attempt", func() bool { return s.attempts(id)[0].Ending != "" })
	shell(t, "root", `scontrol update nodename=n2 state=resume`)
	l := s.wait(id)
	list := s.attempts(id)
	if l.State != "succeeded" || len(list) != 2 || list[0].Node != "n1" || list[0].Ending != "prolog_failed" || list[1].Node != "n2" ||
		len(list[1].Avoids) != 1 || list[1].Avoids[0].Node != "n1" {
		t.Errorf("the run is %s (%s) after the attempts %+v; want it succeeded on n2 after prolog_failed on n1", l.State, l.why(), list)
	}
}
