package ledger

import (
	"database/sql"
	"testing"

	"slurmgate/run"
)

// Whose turn a run waits for is known of runs too that are older than the column: the record of the first call that names the run says it.
func TestCallersOfOlderRuns(t *testing.T) {
	path, old, _ := olderLedger(t, 19)
	db, err := sql.Open("sqlite3", "file:"+path)
	must(t, err)
	for i, who := range []string{"prn_A", "prn_B"} {
		_, err := db.Exec(`INSERT INTO tool_call_events (chain, seq, at, tool_call_id, tool_id, principal, principal_id, ok, event, prev_hash, hash)
 VALUES ('effects', ?1, 1, 'c' || ?1, 't.x', 'user:' || ?2, ?2, 1, json_object('resources_touched', json_object('workspace_ids', json_array(?3))), '', '')`,
			i+1, who, old.Run.ID)
		must(t, err)
	}
	must(t, db.Close())
	l := openAt(t, path)
	v, err := l.View(t.Context(), old.Run.ID)
	if err != nil || v.Run.Principal != (run.Principal{Name: "user:prn_A", ID: "prn_A"}) {
		t.Errorf("%+v %v", v.Run.Principal, err)
	}
	if waiting, err := l.Index("").Waiting(t.Context(), "", 0, run.Pending); err != nil || len(waiting) != 1 || waiting[0].Caller != "prn_A" {
		t.Error(waiting, err)
	}
	if _, err := rawDB(t, l).Exec("UPDATE runs SET principal_id = 'prn_B'"); err == nil {
		t.Error("a run got another caller")
	}
}
