package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// removal is the answer of artifact rm and runs rm.
type removal struct {
	ID        string `json:"removal_id"`
	DryRun    bool   `json:"dry_run"`
	Artifacts []struct {
		ID     string `json:"artifact_id"`
		Others int    `json:"others"`
	}
	Runs, Workspaces, Already, Copies []string
	Kept, Pending                     []struct{ Name, Why string }
}

// A patient's data is in an input, an output, a log, a workspace, and in recorded answers. After runs rm and artifact
// rm no file of the gateway has any of it; the ledger records who removed what and why, and its history verifies. The
// same request finds the run as removed and submits nothing; a retry makes the output again once its input is there.
//
// short: operating it
func TestRemove(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	const pattern = "PATIENT-0815-ACGTTGCA"
	escaped := ""
	for _, c := range pattern {
		escaped += fmt.Sprintf(`\x%02x`, c)
	}
	file := s.file("patient.txt", pattern+" one\n")
	in := s.import1(file)
	must(t, os.Remove(host(file))) // the caller's own
	doc := probePlan("print", escaped+`\n`)
	doc["io"].(tree)["inputs"] = []any{tree{"role": "table", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256,
		"dest_relpath": "in/patient.txt"}}
	r := s.submit(doc)
	s.mustEnd(r.RunID, "succeeded")
	for _, args := range [][]string{{"logs", r.RunID, "--stream", "stdout"}, {"artifact", "preview", in.ArtifactID}} {
		if res := s.cli(args...); !strings.Contains(string(res.stdout), pattern) {
			t.Fatalf("before the removal %v, want the patient's data in it", res)
		}
	}
	where := func() []string {
		return strings.Fields(shell(t, "root", `grep -rlaF -e "$1" "$2" "$3" || true`, pattern, s.dir, "/home/lab/"+strings.TrimPrefix(s.dir,
			"/shared/")))
	}
	if n := len(where()); n < 5 {
		t.Fatalf("it is in %d files only: %v", n, where())
	}

	var dry, got, again removal
	s.ok(&dry, "runs", "rm", r.RunID, "--reason", "consent withdrawn", "--dry-run")
	if !dry.DryRun || dry.ID != "" || len(dry.Runs) != 1 || len(dry.Artifacts) < 2 || len(where()) < 5 {
		t.Errorf("runs rm --dry-run returned %+v, want one run, its artifacts, and nothing removed", dry)
	}
	if s.ok(&got, "artifact", "rm", in.ArtifactID, "--reason", "consent withdrawn"); len(got.Copies) != 1 || got.Copies[0] != r.RunID ||
		len(got.Workspaces)+len(got.Pending) != 0 {
		t.Errorf("artifact rm returned %+v, want the copy in run %s named", got, r.RunID)
	}
	if s.ok(&got, "runs", "rm", r.RunID, "--reason", "consent withdrawn"); len(got.Workspaces) != 1 || len(got.Pending) != 0 ||
		!strings.HasPrefix(got.ID, "rmv_") {
		t.Errorf("runs rm returned %+v, want one workspace removed and an id", got)
	}
	if left := where(); len(left) > 0 {
		t.Errorf("it is still in %v", left)
	}
	if s.ok(&again, "runs", "rm", r.RunID, "--reason", "again"); again.ID != "" || len(again.Already) != 1 {
		t.Errorf("the second runs rm returned %+v, want nothing but that it was removed already", again)
	}
	if f := s.fails(3, "artifact", "get", in.ArtifactID); f.Code != "artifact_removed_by_request" ||
		!strings.Contains(f.Message, "consent withdrawn") {
		t.Errorf("artifact get of what was removed fails with %v, want artifact_removed_by_request with the reason",
			f)
	}

	var asked struct {
		submitted
		Removed string
	}
	if s.ok(&asked, "submit", s.plan(doc)); asked.RunID != r.RunID || !asked.Replayed || asked.Removed != got.ID {
		t.Errorf("the same request gives %v, removed by %q; want a replay, removed by %s", asked.submitted,
			asked.Removed, got.ID)
	}
	var shown struct{ Attempts []attempt }
	if s.ok(&shown, "runs", "show", r.RunID); len(shown.Attempts) != 1 {
		t.Errorf("the same request left the attempts %+v, want one", shown.Attempts)
	}
	var v struct{ OK bool }
	if s.ok(&v, "events", "verify"); !v.OK {
		t.Errorf("events verify after a removal returned %+v, want whole chains", v)
	}
	s.ok(nil, "artifact", "verify", "--all")
	if f := s.fails(5, "retry", r.RunID, "--after-attempt", "1"); f.Code != "inputs_removed" || !strings.Contains(f.Message, in.ArtifactID) {
		t.Errorf("retry without its input fails with %v, want inputs_removed that names it", f)
	}
	if back := s.import1(s.file("patient.txt", pattern+" one\n")); back.ArtifactID != in.ArtifactID {
		t.Errorf("the same bytes, imported again, are %s, want %s", back.ArtifactID, in.ArtifactID)
	}
	s.ok(nil, "retry", r.RunID, "--after-attempt", "1")
	s.ends(r.RunID, "succeeded")
	var now struct{ Removed string }
	if s.ok(&now, "collect", r.RunID); now.Removed != "" {
		t.Errorf("after a retry collect reports removed by %q, want nothing removed", now.Removed)
	}
}
