package e2e

import (
	"strings"
	"testing"
)

// Where the site names a folder on the nodes' own disks, /tmp of the container is a private folder in it, which is
// removed when the job has ended, cancelled jobs too. A node without the folder is named as the fault, and doctor finds
// it before a run does.
func TestScratch(t *testing.T) {
	s := newSite(t, "probing")
	scratch := s.dir + "/scratch"
	s.replace("site.yaml", "slurm:", "slurm:\n  scratch: "+scratch)
	shell(t, "root", `mkdir -m 1777 "$1"`, scratch)
	s.serve()
	left := func() string {
		return strings.TrimSpace(shell(t, "root", `ls -A "$1" 2>&1`, scratch))
	}

	id := s.submit(probePlan("await", "/tmp/go", "out/result")).RunID
	s.started(id)
	folder := left()
	if !strings.HasPrefix(folder, "slurmgate.") || strings.Contains(folder, "\n") {
		t.Fatalf("in %s is %q", scratch, folder)
	}
	if mode := strings.TrimSpace(shell(t, "root", `stat -c '%a %U' "$1"/*`, scratch)); mode != "700 lab" {
		t.Errorf("the folder in scratch has mode and owner %s, want 700 lab", mode)
	}
	shell(t, "root", `cd "$1"/*/tmp && mkdir sub && touch sub/f && chown -R lab sub && chmod 0 sub && touch go`, scratch)
	s.mustEnd(id, "succeeded")
	gone := func(after string) {
		t.Helper()
		until(t, "an empty "+scratch+" after "+after, func() bool { return left() == "" })
	}
	gone("success")

	id = s.submit(probePlan("await", "/tmp/never", "out/result")).RunID
	s.started(id)
	s.ok(nil, "cancel", id)
	s.ends(id, "cancelled")
	gone("a cancel")

	shell(t, "root", `rmdir "$1"`, scratch)
	if l := s.wait(s.submit(probePlan("write", "out/result", "x")).RunID); l.State != "failed" ||
		!strings.HasPrefix(l.why(), "scratch_missing") {
		t.Errorf("without the scratch folder %v, want it failed as scratch_missing", l)
	}
	if status, found, remedy := s.examineNodes("--no-jobs").find("node_history"); status != "warning" ||
		!strings.Contains(found, "scratch_missing") {
		t.Errorf("node_history is %q: %s; next %s; want a warning about scratch_missing", status, found, remedy)
	}
}
