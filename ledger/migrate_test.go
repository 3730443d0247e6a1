package ledger

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// olderLedger makes a ledger as an earlier version left it: its schema, and a run that was sent.
func olderLedger(t *testing.T, schema int) (path string, v run.View, input run.Artifact) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ledger.db")
	db, err := sql.Open("sqlite3", "file:"+path+"?_foreign_keys=on")
	must(t, err)
	defer db.Close()
	exec := func(q string, args ...any) {
		t.Helper()
		if _, err := db.Exec(q, args...); err != nil {
			t.Fatalf("%v: %s", err, q)
		}
	}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	must(t, err)
	for _, name := range names[:schema] {
		text, err := migrations.ReadFile(name)
		must(t, err)
		exec(string(text))
	}
	exec(fmt.Sprintf("PRAGMA user_version = %d", schema))
	n := newRun(1)
	r, s := n.Run, n.Submission
	input = artifact(1)
	exec("INSERT INTO gateway VALUES ('gw-1', 1)")
	exec("INSERT INTO policies (policy_hash, snapshot, created_at) VALUES (?,?,1)", r.PolicyHash, string(n.Policy))
	exec("INSERT INTO param_sets VALUES (?,?,1)", r.ParamsHash, string(n.Params))
	exec("INSERT INTO artifacts (artifact_id, project_id, sha256, type, label, size_bytes, source, created_at) VALUES (?,?,?,?,?,?,?,1)",
		input.ID, input.ProjectID, input.SHA256, input.Type, input.Label, input.SizeBytes, input.Source)
	exec(`INSERT INTO runs (run_id, rev, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash, project_id, actor, state, phase, reason, detail,
 attempt_n, warnings, created_at, updated_at, cancel_reason, result_json) VALUES (?,1,?,?,?,?,'',?,?,?,?,'human','queued','pending','','',1,'[]',1,1,'','{}')`,
		r.ID, r.ToolID, r.ToolName, r.ToolVersion, r.ContractVersion, r.PolicyHash, r.ParamsHash, r.PlanHash, r.ProjectID)
	exec("INSERT INTO submissions (token, job_name, script_sha, created_at, cluster, job_id, sluid) VALUES "+
		"(?,?,'sha',1,'c','77','')", s.Token, s.JobName)
	exec("INSERT INTO attempts (run_id, n, token, created_at, slurm_state, slurm_why, node, ending) VALUES "+
		"(?,1,?,1,'PENDING','Priority','','')", r.ID, s.Token)
	exec("INSERT INTO sends VALUES (?,1,5,NULL,'deferred',1,'busy'), (?,2,7,8,'accepted',0,'77')", s.Token, s.Token)
	exec("INSERT INTO run_inputs VALUES (?,'reads',?,'in/x')", r.ID, input.ID)
	hash := eventHash(genesis, 1, 1, "run.created", r.ID, []byte("{}"))
	exec("INSERT INTO events VALUES (1,1,'run.created',?,'{}',?,?)", r.ID, genesis, hash)
	return path, run.View{Run: r, Submission: s}, input
}

// A ledger of any earlier schema comes to this one with all it holds, and every rule holds in it as in a new one.
func TestOlderLedgers(t *testing.T) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	must(t, err)
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("migrations/%04d_", i+1)) {
			t.Errorf("%s is schema %d: two migrations have one number, so their order depends on their names", name, i+1)
		}
	}
	for schema := 1; schema <= len(names); schema++ {
		path, old, input := olderLedger(t, schema)
		l := openAt(t, path)
		must(t, l.Integrity(t.Context()))
		v, err := l.View(t.Context(), old.Run.ID)
		if err != nil || v.Sends != 2 || v.Submission.JobID != "77" || v.Attempt.SlurmWhy != "Priority" {
			t.Errorf("schema %d: %+v %v", schema, v, err)
		}
		sends, err := l.Sends(t.Context(), old.Submission.Token)
		if err != nil || len(sends) != 2 || sends[0].Outcome != run.SendDeferred || sends[0].EndedAt != nil || sends[1].Text != "77" ||
			*sends[1].ExitCode != 0 || sends[1].EndedAt.UnixMicro() != 8 {
			t.Errorf("schema %d: %+v %v", schema, sends, err)
		}
		in, err := l.Inputs(t.Context(), old.Run.ID)
		if err != nil || len(in) != 1 || in[0].Role != "reads" || in[0].Relpath != "in/x" || in[0].Artifact.ID != input.ID {
			t.Errorf("schema %d: %+v %v", schema, in, err)
		}
		db := rawDB(t, l)
		for _, q := range []string{
			"INSERT INTO sends SELECT * FROM sends", "INSERT INTO sends SELECT token, 3, 1, NULL, 'maybe', NULL, '' FROM sends LIMIT 1",
			"INSERT INTO sends VALUES ('none',1,1,NULL,'',NULL,'')",
			"INSERT INTO sends SELECT token, 0, 1, NULL, '', NULL, '' FROM sends LIMIT 1", "INSERT INTO attempts SELECT * FROM attempts",
			"INSERT INTO attempts (run_id, n, token, array_task, created_at, slurm_state, slurm_why, node, ending) SELECT run_id, 5 + v, token, " +
				"1, 1, '', '', '', '' FROM attempts, (SELECT 0 v UNION SELECT 1)",
			"INSERT INTO attempts (run_id, n, created_at, slurm_state, slurm_why, node, ending) VALUES ('run_none', 1, 1, '', '', '', '')",
			"INSERT INTO run_inputs SELECT * FROM run_inputs", "INSERT INTO run_inputs SELECT run_id, role, 'art_none', 'in/y' FROM run_inputs",
			"INSERT INTO run_inputs SELECT 'run_none', role, artifact_id, 'in/y' FROM run_inputs", "UPDATE artifacts SET removed_at = 1",
			"UPDATE runs SET rev = rev + 1, tool_version = '9.9.9'", "UPDATE runs SET detail = 'x'", "DELETE FROM runs", "DELETE FROM artifacts",
			"DELETE FROM events",
		} {
			if _, err := db.Exec(q); err == nil {
				t.Errorf("schema %d: %s was done", schema, q)
			}
		}
		p := payload(script(1))
		id, err := plan.ArtifactID(project, p.SHA256, "TEXT", "slurm_script")
		must(t, err)
		apply(t, l, v, func(w *run.Write) {
			w.Payloads, w.Artifacts = []run.Payload{p}, []run.Artifact{{ID: id, ProjectID: project, SHA256: p.SHA256, Type: "TEXT",
				Label: "slurm_script", Source: v.Run.ID}}
		})
		if _, _, err := l.Insert(t.Context(), newRun(2)); err != nil {
			t.Error(err)
		}
		l.now = func() time.Time { return t0.Add(time.Hour) }
		if due, err := l.Unused(t.Context(), t0, 10); err != nil || len(due) != 0 {
			t.Error(due, err)
		}
		_, err = l.Payload(t.Context(), p.SHA256)
		must(t, err)
		must(t, l.Integrity(t.Context()))
		must(t, l.Close())
	}
}
