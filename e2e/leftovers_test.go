package e2e

import (
	"strings"
	"testing"
)

// What a run left when it used up its user's quota is removed as it ends, so that the user's next run has room, and a retry as well.
//
// short: success is proven
func TestLeftoversMakeRoom(t *testing.T) {
	t.Parallel()
	holdTight(t)
	s, _ := callerSite(t)
	s.serve()
	full := s.submitAs("tight", probePlan("pump"))
	l := s.wait(full.RunID)
	if l.State != "failed" || !strings.HasPrefix(l.why(), "runs_dir_full") {
		t.Fatalf("a run that fills its quota is %s for %q, want failed for runs_dir_full", l.State, l.why())
	}
	next := s.submitAs("tight", probePlan("write", "out/result", "there is room"))
	s.ends(next.RunID, "succeeded")
	if left := shell(t, "tight", `du -s -B1 --apparent-size "$1" | cut -f1`, s.callerRuns("tight")+"/"+full.RunID); len(left) > 4 {
		t.Errorf("%s bytes are left of the run that filled the quota, want some hundred at most", left)
	}
	if r := s.cli("runs", "show", full.RunID); !strings.Contains(string(r.stdout), "workspace  removed on ") {
		t.Errorf("the run is shown as\n%s\nwant its workspace as removed", r.stdout)
	}
}
