package ledger

import (
	"slices"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/retention"
	"slurmgate/run"
)

// What a run in flight needs is not removed, whatever the program does. Bytes that two artifacts have go with the last. A removed run is
// marked until its next attempt, and what is left to do is known until it is done.
func TestRemovals(t *testing.T) {
	l := fresh(t)
	a := artifact(1)
	same := a // the same bytes under another label
	same.Label = "another"
	id, err := plan.ArtifactID(same.ProjectID, same.SHA256, same.Type, same.Label)
	must(t, err)
	same.ID = id
	for _, x := range []run.Artifact{a, same} {
		_, _, err := l.AddArtifact(t.Context(), x)
		must(t, err)
	}
	n := newRun(1)
	n.Inputs = append(n.Inputs, linkTo(a.ID))
	_, _, err = l.Insert(t.Context(), n)
	must(t, err)
	ask := func(id string, artifacts []string, runs ...string) (retention.RemovalReport, error) {
		return l.Remove(t.Context(), retention.Removal{ID: "rmv_" + id, By: "user:x", Reason: "why", Artifacts: artifacts, Runs: runs}, false)
	}
	_, err = ask("1", []string{same.ID, a.ID})
	wantFault(t, err, fault.Conflict, "artifact_in_use")
	_, err = ask("1", nil, n.Run.ID)
	wantFault(t, err, fault.Conflict, "run_active")
	db := rawDB(t, l)
	for _, q := range []string{"INSERT INTO removals VALUES ('rmv_x','','','',1,1)", "UPDATE artifacts SET removed_at = 1, " +
		"removal = 'rmv_x' WHERE artifact_id = '" + a.ID + "'", "INSERT INTO run_removals VALUES ('" + n.Run.ID + "', 1, 'rmv_x')"} {
		if _, err := db.Exec(q); (err == nil) != (q[0] == 'I' && q[12] == 'r' && q[13] == 'e') {
			t.Errorf("%s: %v", q, err)
		}
	}
	if _, err := l.Artifact(t.Context(), same.ID); err != nil {
		t.Error("something of a refused removal was carried out:", err)
	}
	r, err := ask("2", []string{same.ID, same.ID})
	must(t, err)
	if len(r.Artifacts) != 1 || r.Artifacts[0].Others != 1 || r.FreedBytes != 0 || len(r.Already) != 1 {
		t.Errorf("%+v", r)
	}
	rest, err := l.Rest(t.Context(), "rmv_2")
	if err != nil || len(rest.Objects)+len(rest.Workspaces) != 0 || rest.Compact {
		t.Errorf("%+v %v", rest, err)
	}
	if ids, err := l.UnfinishedRemovals(t.Context()); err != nil || slices.Contains(ids, "rmv_2") {
		t.Error("a removal with nothing left to do is unfinished:", ids, err)
	}
	_, err = l.Artifact(t.Context(), same.ID)
	wantFault(t, err, fault.NotFound, RemovedByRequest)
	if _, created, err := l.AddArtifact(t.Context(), same); err != nil || !created {
		t.Error("the same bytes do not bring it back:", err)
	}
	must(t, l.Integrity(t.Context()))
	if _, err := l.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
}
