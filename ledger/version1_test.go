package ledger

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/notify"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/retention"
	"slurmgate/run"
)

// The ledger of version 1 that is kept. Every later program opens it, so it is never made anew.
const version1 = "testdata/version1.db.gz"

var updates = flag.Bool("update", false, "make "+version1+" if it is missing")

// unpacked returns the path of a copy of the kept ledger.
func unpacked(t *testing.T) string {
	t.Helper()
	file, err := os.Open(version1)
	must(t, err)
	defer file.Close()
	from, err := gzip.NewReader(file)
	must(t, err)
	data, err := io.ReadAll(from)
	must(t, err)
	path := filepath.Join(t.TempDir(), "ledger.db")
	must(t, os.WriteFile(path, data, 0o600))
	return path
}

// declared lists what a ledger's file declares, without comments and line breaks.
func declared(t *testing.T, db *sql.DB) []string {
	t.Helper()
	comment, space := regexp.MustCompile(`--[^\n]*`), regexp.MustCompile(`\s+`)
	out, err := list(t.Context(), db, func(row scanner) (string, error) {
		text, err := column[string](row)
		return space.ReplaceAllLiteralString(comment.ReplaceAllLiteralString(text, ""), " "), err
	}, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name")
	must(t, err)
	return out
}

const schemaRemedy = "Never edit migrations/0001_schema.sql: put it back as it was released, and write the change as a file of its own, " +
	"migrations/0002_….sql (the next free number), which brings an older ledger to the new schema"

// A ledger that a gateway of version 1 left is opened by every later program: its schema becomes that of a new ledger, what it
// recorded still verifies, and every table reads. A schema that was changed without a migration fails here.
func TestLedgerOfVersion1(t *testing.T) {
	if *updates {
		makeVersion1(t)
	}
	path := unpacked(t)
	before, err := sql.Open("sqlite3", "file:"+path)
	must(t, err)
	tables, err := list(t.Context(), before, column[string], "SELECT name FROM sqlite_schema WHERE type = 'table'")
	must(t, err)
	for _, name := range tables {
		var n int
		must(t, before.QueryRow("SELECT count(*) FROM "+name).Scan(&n))
		if n == 0 || reads[name] == nil {
			t.Errorf("the kept ledger has %d rows in the table %s, read by reads: %t; want some, and a function that reads one", n, name,
				reads[name] != nil)
		}
	}
	must(t, before.Close())

	l, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatalf("Open of a ledger of version 1 fails: %v\n%s", err, schemaRemedy)
	}
	defer l.Close()
	if diff := cmp.Diff(declared(t, fresh(t).r), declared(t, l.r)); diff != "" {
		t.Errorf("once it is opened, a ledger of version 1 has another schema than a new ledger (-new, +kept):\n%s\n%s", diff, schemaRemedy)
	}
	must(t, l.Integrity(t.Context()))
	if n, err := l.VerifyEvents(t.Context()); err != nil || n == 0 {
		t.Errorf("VerifyEvents of a ledger of version 1 = %d, %v; want its events verified", n, err)
	}
	for _, name := range slices.Sorted(maps.Keys(reads)) {
		if got, err := reads[name](t.Context(), l); err != nil || !got {
			t.Errorf("what the kept ledger has in the table %s is read as %t, %v; want true", name, got, err)
		}
	}
}

// The things of the kept ledger by which it is read.
var (
	kept1  = newRun(1).Run // succeeded
	kept2  = newRun(2).Run // in an array
	open5  = newRun(5).Run // in the queue
	waits1 = waitsFor(`{"waits":1}`).Run
	alias2 = waitsFor(`{"waits":2}`).Run // became kept1
	token1 = fmt.Sprintf("%032x", 2)
	labBy  = run.Principal{Name: "user:lab", ID: "prn_lab"}
)

const (
	keptArray = "sg-array-000000000000000000000001"
	keptCall  = "00000100-0000-4000-8000-000000000000"
	keptToken = "tok_AAAAAAAAAAAAAAAA"
)

// erasedParams are the parameters of a run that had a secret.
var erasedParams = json.RawMessage(`{"secret":` + strconv.Quote(leaked) + `}`)

// reads has, by table, a function that reads a row of it in the stored ledger.
var reads = map[string]func(ctx context.Context, l *Ledger) (bool, error){
	"gateway":  func(_ context.Context, l *Ledger) (bool, error) { return l.ID() == "gw_version1", nil },
	"gate_key": func(ctx context.Context, l *Ledger) (bool, error) { k, err := l.GateKey(ctx); return len(k) == 32, err },
	"policies": func(ctx context.Context, l *Ledger) (bool, error) {
		doc, err := l.Policy(ctx, kept1.PolicyHash)
		return len(doc) > 0, err
	},
	"param_sets": func(ctx context.Context, l *Ledger) (bool, error) {
		doc, err := l.Params(ctx, kept1.ParamsHash)
		return string(doc) == `{"i":1}`, err
	},
	"packs": func(ctx context.Context, l *Ledger) (bool, error) {
		doc, err := l.Pack(ctx, plan.Hash([]byte(`{"id":"t.x"}`)))
		return len(doc) > 0, err
	},
	"artifacts": func(ctx context.Context, l *Ledger) (bool, error) {
		a, err := l.Artifact(ctx, artifact(1).ID)
		return a.Label == "l", err
	},
	"runs":        ofKept(func(r RunRecord) bool { return r.Run.State == run.Succeeded && r.Run.ScriptArtifactID != "" }),
	"attempts":    ofKept(func(r RunRecord) bool { return len(r.Attempts) == 1 && r.Attempts[0].Ending == run.EndedOK }),
	"submissions": ofKept(func(r RunRecord) bool { return r.Submission.JobID == "42" }),
	"sends":       ofKept(func(r RunRecord) bool { return len(r.Sends) == 1 && r.Sends[0].Outcome == run.SendAccepted }),
	"run_inputs":  ofKept(func(r RunRecord) bool { return len(r.Inputs) == 1 }),
	"run_outputs": ofKept(func(r RunRecord) bool { return len(r.Outputs) == 1 && r.Outputs[0].ArtifactID == artifact(2).ID }),
	"events":      ofKept(func(r RunRecord) bool { return len(r.Events) > 2 }),
	"askings":     ofKept(func(r RunRecord) bool { return len(r.Askers) == 2 }),
	"job_usage":   ofKept(func(r RunRecord) bool { u := r.Used[token1]; return u != nil && u.ElapsedSeconds == 7 }),
	"workspace_removals": func(ctx context.Context, l *Ledger) (bool, error) {
		r, err := l.RunRecord(ctx, newRun(6).Run.ID)
		return r.GoneSince != nil, err
	},
	"run_removals": func(ctx context.Context, l *Ledger) (bool, error) {
		v, err := l.View(ctx, newRun(7).Run.ID)
		return v.Run.Removed == "rmv_a", err
	},
	"deletions": func(ctx context.Context, l *Ledger) (bool, error) {
		ids, err := l.Unfinished(ctx)
		return slices.Contains(ids, "rmv_a"), err
	},
	"deletion_items": func(ctx context.Context, l *Ledger) (bool, error) {
		r, err := l.Rest(ctx, "rmv_a")
		return len(r.Workspaces) == 1, err
	},
	"erased_documents": func(ctx context.Context, l *Ledger) (bool, error) {
		_, err := l.Params(ctx, plan.Hash(erasedParams))
		return fault.CodeOf(err) == "erased", nil
	},
	"waits": func(ctx context.Context, l *Ledger) (bool, error) {
		v, err := l.View(ctx, waits1.ID)
		return v.Waits() && string(v.Waiting.Args) == "{}", err
	},
	"waiting_inputs": func(ctx context.Context, l *Ledger) (bool, error) {
		v, err := l.View(ctx, waits1.ID)
		return len(v.WaitsFor()) == 1 && v.WaitsFor()[0].RunID == open5.ID, err
	},
	"waiting_artifacts": func(ctx context.Context, l *Ledger) (bool, error) { // it is kept for the run that waits
		list, err := l.Unused(ctx, time.Now().AddDate(1, 0, 0), 100)
		return !slices.ContainsFunc(list, func(a retention.Artifact) bool { return a.ID == artifact(3).ID }), err
	},
	"run_aliases": func(ctx context.Context, l *Ledger) (bool, error) {
		id, err := l.RunOf(ctx, alias2.ID)
		return id == kept1.ID, err
	},
	"arrays": func(ctx context.Context, l *Ledger) (bool, error) {
		a, err := l.Array(ctx, keptArray)
		return a.RunID == kept2.ID, err
	},
	"batches": func(ctx context.Context, l *Ledger) (bool, error) {
		b, err := l.BatchNamed(ctx, nil, "a")
		return b.ID == "batch_a", err
	},
	"batch_counts": func(ctx context.Context, l *Ledger) (bool, error) {
		b, err := l.Batch(ctx, "batch_a")
		return b.Counts["succeeded"] == 1, err
	},
	"batch_rows": func(ctx context.Context, l *Ledger) (bool, error) {
		rows, err := l.BatchRows(ctx, "batch_a", RowFilter{Limit: 9})
		return len(rows) == 1 && rows[0].RunID == kept1.ID, err
	},
	"batch_tags": func(ctx context.Context, l *Ledger) (bool, error) {
		p, err := l.List(ctx, Filter{Tag: "t"})
		return len(p.Runs) == 1, err
	},
	"run_counts": func(ctx context.Context, l *Ledger) (bool, error) {
		c, err := l.Counts(ctx)
		return c["succeeded"] > 0, err
	},
	"artifact_counts": func(ctx context.Context, l *Ledger) (bool, error) {
		p, err := l.Artifacts(ctx, ArtifactFilter{Type: "TEXT"})
		return p.Snapshot.Count > 0, err
	},
	"project_use": func(ctx context.Context, l *Ledger) (bool, error) {
		u, err := l.Use(ctx, project)
		return u.Artifacts > 0, err
	},
	"caller_use": func(ctx context.Context, l *Ledger) (bool, error) {
		u, err := l.CallerUse(ctx, "prn_lab")
		return u.Artifacts > 0, err
	},
	"spent": func(ctx context.Context, l *Ledger) (some bool, err error) { // the ledger reads only the present day and month
		err = l.one(ctx, "SELECT sum(runs) > 0 FROM spent").Scan(&some)
		return some, err
	},
	"notices": func(ctx context.Context, l *Ledger) (bool, error) {
		list, err := l.Notices(ctx, notify.Notice{RunID: open5.ID})
		return len(list) == 1, err
	},
	"call_chains": func(ctx context.Context, l *Ledger) (bool, error) {
		list, err := l.VerifyCalls(ctx)
		return len(list) == 3 && list[0].Kept > 0, err
	},
	"tool_call_events": func(ctx context.Context, l *Ledger) (bool, error) {
		e, _, _, err := l.Call(ctx, keptCall)
		return e.By == "prn_lab", err
	},
	"tool_payloads": func(ctx context.Context, l *Ledger) (bool, error) {
		_, payloads, _, err := l.Call(ctx, keptCall)
		return len(payloads) == 1, err
	},
	"call_runs": func(ctx context.Context, l *Ledger) (bool, error) {
		r, err := l.CallRun(ctx, "run_00000000000000000000000000", nil)
		return r.Calls == 1, err
	},
	"call_about": func(ctx context.Context, l *Ledger) (bool, error) {
		p, err := l.Calls(ctx, CallFilter{Run: kept1.ID})
		return len(p.Calls) == 1, err
	},
	"idempotency_keys": func(ctx context.Context, l *Ledger) (bool, error) {
		k, err := keptKey(ctx, l)
		return k.ToolID == "test.tool", err
	},
	"key_rights": func(ctx context.Context, l *Ledger) (bool, error) {
		k, err := keptKey(ctx, l)
		return k.Rights == "rights", err
	},
	"approvals": func(ctx context.Context, l *Ledger) (bool, error) {
		list, _, _, err := l.Approvals(ctx, nil, true)
		return len(list) == 1 && list[0].ToolID == "test.tool", err
	},
	"tokens": func(ctx context.Context, l *Ledger) (bool, error) {
		x, err := l.Token(ctx, keptToken)
		return x.Name == "bot", err
	},
	"principals": func(ctx context.Context, l *Ledger) (bool, error) {
		p, err := l.Principals(ctx, peer(1001, "ana"))
		if err != nil {
			return false, err
		}
		who, err := l.Identity(ctx, p[0].ID)
		return who.Name == "user:ana", err
	},
	"user_projects": func(ctx context.Context, l *Ledger) (bool, error) {
		_, n, err := l.UserProjects(ctx, nil, "", 9)
		return n == 1, err
	},
	"payloads": func(ctx context.Context, l *Ledger) (bool, error) {
		doc, err := l.Payload(ctx, payload(script(2)).SHA256)
		return string(doc) == string(script(2)), err
	},
	"payload_bases": func(ctx context.Context, l *Ledger) (bool, error) { // script 2 is stored as what differs from script 1
		doc, err := l.Payload(ctx, payload(script(1)).SHA256)
		return string(doc) == string(script(1)), err
	},
	"verified": func(ctx context.Context, l *Ledger) (bool, error) {
		list, err := l.Unverified(ctx, kept1.ID)
		return len(list) == 0, err
	},
	"restores": func(ctx context.Context, l *Ledger) (bool, error) {
		at, err := l.LastRestore(ctx)
		return at != nil, err
	},
	"drains": func(ctx context.Context, l *Ledger) (bool, error) { d, err := l.Drains(ctx); return len(d) == 1, err },
	"receipt_keys": func(ctx context.Context, l *Ledger) (bool, error) {
		k, err := l.ReceiptKeys(ctx)
		return len(k) == 1, err
	},
	"receipts": func(ctx context.Context, l *Ledger) (bool, error) {
		r, err := l.Receipt(ctx, kept1.ID, 1)
		return len(r.Envelope) > 0, err
	},
	"places": func(ctx context.Context, l *Ledger) (bool, error) {
		list, err := l.Places(ctx, artifact(3).SHA256)
		return len(list) == 1, err
	},
	"download_names": func(ctx context.Context, l *Ledger) (bool, error) {
		names, err := l.OutputNames(ctx, kept1.ID, labBy)
		return names["out"] == "report.txt", err
	},
	"directories": func(ctx context.Context, l *Ledger) (bool, error) {
		there, err := l.FilesInPlace(ctx, fmt.Sprintf("%064x", 1001))
		return there, err
	},
	"directory_files": func(ctx context.Context, l *Ledger) (bool, error) { return l.Holds(ctx, fmt.Sprintf("%064x", 1003)) },
	"reference_versions": func(ctx context.Context, l *Ledger) (bool, error) {
		list, err := l.ReferenceVersions(ctx, "genome")
		return len(list) == 1, err
	},
}

// ofKept reads the record of the run that succeeded.
func ofKept(is func(RunRecord) bool) func(context.Context, *Ledger) (bool, error) {
	return func(ctx context.Context, l *Ledger) (bool, error) {
		r, err := l.RunRecord(ctx, kept1.ID)
		return err == nil && is(r), err
	}
}

func keptKey(ctx context.Context, l *Ledger) (gate.Key, error) {
	return l.Key(ctx, gate.Principal{ID: "p"}, strings.Repeat("1", 64))
}

// makeVersion1 makes the stored ledger, with a row in every table. It is made once, so an existing one stays.
func makeVersion1(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll("testdata", 0o755))
	if _, err := os.Stat(version1); err == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := Open(t.Context(), path, Options{NewID: func() string { return "gw_version1" }})
	must(t, err)
	if l.schema != 1 {
		t.Fatalf("the schema is version %d: this program makes no ledger of version 1 any more", l.schema)
	}
	fillRuns(t, l)
	fillCalls(t, l)
	fillRest(t, l)
	must(t, l.Compact(t.Context()))
	must(t, l.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	must(t, err)
	_, err = w.Write(data)
	must(t, err)
	must(t, w.Close())
	must(t, os.WriteFile(version1, packed.Bytes(), 0o644))
}

// fillRuns makes runs in several states.
func fillRuns(t *testing.T, l *Ledger) {
	t.Helper()
	ctx := t.Context()
	for _, i := range []int{1, 3, 8} {
		a := artifact(i)
		a.Caller = labBy.ID
		_, _, err := l.AddArtifact(ctx, a)
		must(t, err)
	}
	n := newRun(1)
	n.Run.Principal, n.Pack, n.Names = labBy, json.RawMessage(`{"id":"t.x"}`), map[string]string{"out": "report.txt"}
	n.Run.PackHash, n.Asking = plan.Hash(n.Pack), &run.Asking{Principal: labBy}
	n.Inputs = []run.Link{{Role: "in", ArtifactID: artifact(1).ID, Relpath: "in/x"}}
	v, _, err := l.Insert(ctx, n)
	must(t, err)
	for i := range 3 {
		v, _ = keep(t, l, v, script(i))
	}
	made := artifact(2)
	made.Source = v.Run.ID
	v = apply(t, l, v, func(w *run.Write) {
		s := v.Submission
		s.JobID, s.Cluster, s.SubmittedAt = "42", "c", &t0
		w.Submission, w.Artifacts = &s, []run.Artifact{made}
		w.Send = &run.Send{Token: token1, K: 1, StartedAt: t0, EndedAt: &t0, Outcome: run.SendAccepted, Text: "42"}
		w.Outputs = []run.Link{{Role: "out", ArtifactID: made.ID, Relpath: "out/x"}}
	})
	v = finish(t, l, v)
	must(t, l.Measure(ctx, map[string]*run.Usage{token1: {ElapsedSeconds: 7, CPUSeconds: 3, AllocCPUs: 1}}))
	must(t, l.Verified(ctx, artifact(1).SHA256, "TEXT"))

	var list []run.Write
	for i := range 2 {
		from := insert(t, l, 2+i)
		to := from
		to.Submission.Array, to.Attempt.ArrayTask = keptArray, &i
		list = append(list, run.Write{Run: to.Run, Submission: &to.Submission, Attempts: []run.Attempt{to.Attempt}, From: &from,
			Event: run.Event{Type: "run.intent"}})
	}
	first := list[0]
	list[0].Array = &run.ArrayRow{Name: keptArray, RunID: first.Run.ID, N: 1, Token: first.Submission.Token, K: 1, Size: 2}
	_, err = l.ApplyAll(ctx, list)
	must(t, err)

	insert(t, l, 5)
	q := waitsFor(`{"waits":1}`, plan.Promise{RunID: open5.ID, Role: "out"})
	q.Artifacts = []string{artifact(3).ID}
	_, _, err = l.AddWaiting(ctx, q)
	must(t, err)
	was, _, err := l.AddWaiting(ctx, waitsFor(`{"waits":2}`, plan.Promise{RunID: v.Run.ID, Role: "out"}))
	must(t, err)
	must(t, l.StartWaiting(ctx, was.WaitRef(), v.Run.ID))
	finish(t, l, insert(t, l, 6))
	_, err = l.BeginRemoval(ctx, retention.Workspace{RunID: newRun(6).Run.ID, AttemptN: 1}, time.Now().Add(time.Hour))
	must(t, err)
	finish(t, l, insert(t, l, 7))
	_, err = l.Remove(ctx, retention.Removal{ID: "rmv_a", By: "user:x", Reason: "why", Runs: []string{newRun(7).Run.ID}}, false)
	must(t, err)

	_, _, err = l.NewBatch(ctx, Batch{ID: "batch_a", ProjectID: project, Name: "a", ToolID: "t.x", ToolVersion: "1.0.0", RowsHash: "h",
		Principal: labBy, Caller: json.RawMessage(`{}`)}, []BatchRow{{N: 2, Sample: "s", Tags: []string{"t"}, Args: json.RawMessage(`{}`)}})
	must(t, err)
	must(t, l.RowIsRun(ctx, run.RowRef{BatchID: "batch_a", N: 2}, v.Run.ID))
	_, err = l.AddNotice(ctx, notify.Notice{ID: "ntc_1", RunID: open5.ID, URL: "https://a/1", Origin: "https://a", By: "ana"}, 2)
	must(t, err)
}

// fillCalls makes records of calls and what binds calls to each other.
func fillCalls(t *testing.T, l *Ledger) {
	t.Helper()
	ctx := t.Context()
	r := aCall(gate.Effects, 100, t0)
	r.Runs = []string{kept1.ID}
	r.Provenance = &gate.Provenance{RunID: "run_00000000000000000000000000", Identity: json.RawMessage(`{"params":{"n":1}}`)}
	must(t, l.Record(ctx, []gate.Record{r, aCall(gate.Looks, 101, t0)}))
	must(t, l.Begin(ctx, &gate.Key{Principal: "p", KeyHash: strings.Repeat("1", 64), ToolID: "test.tool", Binding: strings.Repeat("2", 64),
		ToolCallID: "c", Rights: "rights"}, ""))
	_, err := l.Ask(ctx, gate.Question{Who: gate.Principal{Name: labBy.Name, ID: labBy.ID}, ToolID: "test.tool", ToolVersion: "1.0.0",
		Covers: gate.Coverage{ProjectID: project}, Binding: strings.Repeat("3", 64), ArgsHash: strings.Repeat("4", 64),
		Payload: json.RawMessage(`{}`), Expires: t0.AddDate(100, 0, 0)})
	must(t, err)
	must(t, l.AddToken(ctx, gate.Token{ID: keptToken, Name: "bot", SecretSHA256: strings.Repeat("a", 64), Capabilities: []string{"read"},
		Projects: []string{"*"}, Accounts: map[string]string{}, CreatedBy: labBy.Name, ExpiresAt: t0.AddDate(100, 0, 0)}))
	identified(t, l, peer(1001, "ana"))
	_, err = l.UserProject(ctx, gate.ProjectUser{Name: "alice", UID: 1001, PrincipalID: "prn_alice"})
	must(t, err)
}

// fillRest makes what belongs to no run and to no call, and erases a secret.
func fillRest(t *testing.T, l *Ledger) {
	t.Helper()
	ctx, of := t.Context(), func(n int) string { return fmt.Sprintf("%064x", n) }
	must(t, l.AddDirectory(ctx, run.Directory{SHA256: of(1001), ListBytes: 100, InPlace: true,
		Files: []tree.File{{SHA256: of(1004), Size: 10, Path: "x"}}}))
	must(t, l.AddDirectory(ctx, run.Directory{SHA256: of(1002), ListBytes: 100, Files: []tree.File{{SHA256: of(1003), Size: 10, Path: "x"}}}))
	for _, n := range []int{1001, 1002} {
		a := artifact(n)
		a.Type, a.SizeBytes, a.SHA256 = plan.Directory, 10, of(n)
		a.ID = fmt.Sprintf("art_%026d", n)
		_, _, err := l.AddArtifact(ctx, a)
		must(t, err)
	}
	must(t, l.AddPlace(ctx, Place{ArtifactID: artifact(3).ID, Caller: labBy.ID, Principal: labBy.Name, Site: "c", Path: "/data/x",
		SHA256: artifact(3).SHA256, State: "1 2", At: t0}))
	_, err := l.AddReference(ctx, Reference{Name: "genome", SHA256: of(7), Type: "TEXT", Label: "g", SizeBytes: 5, By: "admin"}, false)
	must(t, err)
	must(t, l.SetDrain(ctx, run.Drain{Site: "c", Reason: "maintenance", By: "user:boss", Since: t0}))
	must(t, l.Restored(ctx, &t0, "/backup"))

	n := newRun(9)
	n.Params, n.Run.ParamsHash = erasedParams, plan.Hash(erasedParams)
	v, _, err := l.Insert(ctx, n)
	must(t, err)
	finish(t, l, v)
	s := secretOf(t)
	rows, documents, err := l.Leaks(ctx, s)
	must(t, err)
	must(t, l.Erase(ctx, anErasure("ers_a"), s, retention.Leak{Rows: rows, Documents: documents}, nil))
}
