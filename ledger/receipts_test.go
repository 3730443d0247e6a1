package ledger

import (
	"crypto/ed25519"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/retention"
	"slurmgate/run"
)

// endedRun ends run i as given.
func endedRun(t testing.TB, l *Ledger, i int, change func(*run.Write)) run.View {
	return apply(t, l, insert(t, l, i), func(w *run.Write) {
		w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.Reason = run.Failed, run.Done, &t0, "tool_failed"
		change(w)
	})
}

// verified reads and checks a receipt.
func verified(t testing.TB, l *Ledger, runID string, attempt int) receipt.Statement {
	t.Helper()
	r, err := l.Receipt(t.Context(), runID, attempt)
	must(t, err)
	keys, err := l.ReceiptKeys(t.Context())
	must(t, err)
	v, err := receipt.VerifyEnvelope(r.Envelope, keys)
	must(t, err)
	if v.Statement.Predicate.RunID != runID || len(v.KeyIDs) != 1 || v.KeyIDs[0] != r.KeyID || string(v.Bytes) != string(r.Statement) {
		t.Errorf("the receipt is of run %s with the keys %q, want run %s and key %s; same bytes: %t",
			v.Statement.Predicate.RunID, v.KeyIDs, runID, r.KeyID, string(v.Bytes) == string(r.Statement))
	}
	return v.Statement
}

// Each end has a receipt, whatever the end; what has not ended has none, and an end without outputs is about its params.
//
// proves EXP-02
func TestReceiptForEachEnd(t *testing.T) {
	l := fresh(t)
	open := insert(t, l, 0)
	_, err := l.Receipt(t.Context(), open.Run.ID, 0)
	wantFault(t, err, fault.Conflict, "run_active")
	zero := 0
	for i, c := range []struct {
		state  run.State
		change func(*run.Write)
	}{
		{run.Failed, func(w *run.Write) {}},
		{run.Cancelled, func(w *run.Write) { w.Run.State, w.Run.CancelAt = run.Cancelled, &t0 }},
		{run.Succeeded, func(w *run.Write) { w.Run.State, w.Run.ExitCode = run.Succeeded, &zero }},
	} {
		v := endedRun(t, l, i+1, c.change)
		s := verified(t, l, v.Run.ID, 0)
		p := s.Predicate
		if p.End.State != string(c.state) || !p.End.RunEnded || p.Attempt != 1 || p.Gateway.ID != "gw-1" || p.SubjectIs != "params" ||
			len(s.Subject) != 1 || "sha256:"+s.Subject[0].Digest.SHA256 != v.Run.ParamsHash {
			t.Errorf("the receipt has the end %+v, attempt %d, gateway %s, subjects %+v (%s); want state %s, attempt 1, gw-1, the parameters", p.End,
				p.Attempt, p.Gateway.ID, s.Subject, p.SubjectIs, c.state)
		}
	}
	_, err = l.Receipt(t.Context(), open.Run.ID, 7)
	wantFault(t, err, fault.NotFound, "attempt_not_found")
	_, err = l.Receipt(t.Context(), "run_00000000000000000000000000", 0)
	wantFault(t, err, fault.NotFound, "run_not_found")
	must(t, l.Integrity(t.Context()))
}

// The database refuses an end without a receipt, a receipt without an end, a second one, and a change of one, past this program too.
//
// proves EXP-02
func TestReceiptsExistExactlyWithEnds(t *testing.T) {
	l := fresh(t)
	open, done := insert(t, l, 1), finish(t, l, insert(t, l, 2))
	db := rawDB(t, l)
	copied := "INSERT INTO receipts SELECT ?, ?, key_id, statement, signature FROM receipts WHERE run_id = '" + done.Run.ID + "'"
	for _, q := range []struct {
		text, want string
		args       []any
	}{
		{"UPDATE runs SET rev = rev + 1, state = 'failed', phase = 'done', finished_at = 1 WHERE run_id = ?", "ends with a receipt",
			[]any{open.Run.ID}},
		{copied, "never later", []any{done.Run.ID, 1}},
		{copied, "never later", []any{open.Run.ID, 2}},
		{"UPDATE receipts SET statement = 'x'", "never change", nil},
		{"DELETE FROM receipts", "never deleted", nil},
		{"DELETE FROM receipt_keys", "never deleted", nil},
		{"UPDATE receipt_keys SET public = zeroblob(32)", "never changed", nil},
	} {
		if _, err := db.Exec(q.text, q.args...); err == nil || !strings.Contains(err.Error(), q.want) {
			t.Errorf("%s: %v", q.text, err)
		}
	}
	verified(t, l, done.Run.ID, 1)
}

// A refused end leaves no receipt: both are one transaction.
func TestRefusedEndHasNoReceipt(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	v.Run.State, v.Run.Phase, v.Run.FinishedAt, v.Run.Rev = run.Failed, run.Done, &t0, 9
	_, err := l.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.failed"}})
	wantFault(t, err, fault.Conflict, "stale_run")
	if list, err := l.Receipts(t.Context(), v.Run.ID); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	v = insert(t, l, 2)
	first := finish(t, l, v)
	v.Run.State, v.Run.Phase, v.Run.FinishedAt = run.Cancelled, run.Done, &t0 // by whom read it before
	_, err = l.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.cancelled"}})
	wantFault(t, err, fault.Conflict, "stale_run")
	if s := verified(t, l, first.Run.ID, 0); s.Predicate.End.State != "succeeded" {
		t.Errorf("the receipt has the state %s after a refused write, want succeeded", s.Predicate.End.State)
	}
}

// A rotated key signs no more, its secret is deleted, and its signatures still verify, byte by byte as before.
//
// proves EXP-02
func TestRotatedKeys(t *testing.T) {
	l := fresh(t)
	first := finish(t, l, insert(t, l, 1))
	before, err := l.Receipt(t.Context(), first.Run.ID, 0)
	must(t, err)
	k, err := l.RotateReceiptKey(t.Context(), "user:ada")
	must(t, err)
	keys, err := l.ReceiptKeys(t.Context())
	must(t, err)
	if len(keys) != 2 || keys[0].RetiredAt == nil || keys[1].RetiredAt != nil || keys[1].ID != k.ID || before.KeyID != keys[0].ID {
		t.Fatalf("%d keys: %+v; want 2, the first retired with id %s, the second in use with id %s", len(keys), keys,
			before.KeyID, k.ID)
	}
	second := finish(t, l, insert(t, l, 2))
	verified(t, l, second.Run.ID, 0)
	verified(t, l, first.Run.ID, 0)
	after, err := l.Receipt(t.Context(), first.Run.ID, 0)
	must(t, err)
	if string(before.Envelope) != string(after.Envelope) {
		t.Error("a rotation changed a receipt")
	}
	var secrets int
	must(t, l.r.QueryRow("SELECT count(secret) FROM receipt_keys").Scan(&secrets))
	if secrets != 1 {
		t.Error(secrets, "secret keys")
	}
	r, err := l.Receipt(t.Context(), second.Run.ID, 0)
	must(t, err)
	if _, err := receipt.VerifyEnvelope(r.Envelope, keys[:1]); fault.CodeOf(err) != "receipt_key_unknown" {
		t.Error(err)
	}
	must(t, l.Integrity(t.Context()))
	must(t, l.Close())
	again := openAt(t, l.Path())
	same, err := again.ReceiptKeys(t.Context())
	must(t, err)
	if len(same) != 2 || !same[1].Public.Equal(ed25519.PublicKey(k.Public)) {
		t.Errorf("%d keys after the ledger was opened again, want the same 2: %+v", len(same), same)
	}
}

// What an end rests on is in its receipt: outputs, inputs, image, hashes; and who could have forged it.
//
// proves EXP-02
func TestReceiptSaysWhatTheEndRestsOn(t *testing.T) {
	l := fresh(t)
	maker := newRun(1)
	maker.Run.ExecutedAs = "bob"
	made, _, err := l.Insert(t.Context(), maker)
	must(t, err)
	out := artifact(1)
	out.Source = made.Run.ID
	made = apply(t, l, made, func(w *run.Write) {
		zero := 0
		w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.ExitCode = run.Succeeded, run.Done, &t0, &zero
		w.Artifacts, w.Outputs = []run.Artifact{out}, []run.Link{{Role: "report", ArtifactID: out.ID, Relpath: "out/report.txt"}}
	})
	s := verified(t, l, made.Run.ID, 1)
	if len(s.Subject) != 1 || s.Subject[0].Name != "report/"+out.Label || s.Subject[0].Digest.SHA256 != out.SHA256 ||
		s.Predicate.Note == "" || strings.Join(s.Predicate.ForgeableBy, " ") != "bob" || s.Predicate.Execution.ExecutedAs != "bob" {
		t.Errorf("the receipt has the subjects %+v, note %q, forgeable by %q, executed as %q; want report/%s with %s, bob, bob", s.Subject,
			s.Predicate.Note, s.Predicate.ForgeableBy, s.Predicate.Execution.ExecutedAs, out.Label, out.SHA256)
	}
	user := newRun(2)
	user.Inputs = []run.Link{{Role: "reads", ArtifactID: out.ID, Relpath: "in/reads.txt"}}
	v, _, err := l.Insert(t.Context(), user)
	must(t, err)
	s = verified(t, l, finish(t, l, v).Run.ID, 1)
	deps, err := json.Marshal(s.Predicate.ResolvedDependencies)
	must(t, err)
	for _, want := range []string{out.SHA256, `"input/in/reads.txt"`, v.Run.PolicyHash[7:], v.Run.ParamsHash[7:], v.Run.PlanHash[7:],
		`"executedAs":"bob"`} {
		if !strings.Contains(string(deps), want) {
			t.Errorf("no %s in %s", want, deps)
		}
	}
	if strings.Join(s.Predicate.ForgeableBy, " ") != "bob" || !strings.HasPrefix(s.Predicate.Note, "Inputs were made by runs") {
		t.Errorf("the receipt is forgeable by %q with the note %q, want bob and a note about inputs",
			s.Predicate.ForgeableBy, s.Predicate.Note)
	}
}

// What a service worker answered is the subject, though it is no artifact: by the digest of its canonical JSON.
//
// proves EXP-02
func TestReceiptOfAnAnswer(t *testing.T) {
	l := fresh(t)
	zero := 0
	for i, c := range []struct{ site, result, is, hash string }{
		{run.WorkerSite, `{"output":{"pages":[1,2]},"state":"succeeded"}`, "outputs", plan.Hash([]byte(`{"pages":[1,2]}`))},
		{run.WorkerSite, `{"output":null,"state":"succeeded"}`, "params", ""},
		{"alpha", `{"output":{},"state":"succeeded"}`, "params", ""}, // a job without outputs
	} {
		v := endedRun(t, l, i, func(w *run.Write) {
			w.Run.State, w.Run.ExitCode, w.Run.ResultJSON, w.Run.Site = run.Succeeded, &zero, json.RawMessage(c.result), c.site
		})
		s := verified(t, l, v.Run.ID, 1)
		if s.Predicate.SubjectIs != c.is || c.hash != "" &&
			(s.Subject[0].Name != receipt.Answer || "sha256:"+s.Subject[0].Digest.SHA256 != c.hash) {
			t.Errorf("the receipt has the subjects %+v (%s), want %s %s", s.Subject, s.Predicate.SubjectIs, c.is, c.hash)
		}
	}
}

// An attempt after which policy opens another has its own receipt, and the run's end another.
//
// proves EXP-02
func TestReceiptOfAnAttempt(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	token := strings.Repeat("e", 32)
	v = apply(t, l, v, func(w *run.Write) {
		old := v.Attempt
		old.Ending, old.EndedAt = run.EndedNodeFail, &t0
		sub := run.Submission{Token: token, JobName: "sg-2", CreatedAt: t0}
		w.From = &v
		w.Run.AttemptN, w.Submission = 2, &sub
		w.Attempts = []run.Attempt{old, {RunID: v.Run.ID, N: 2, Token: token, CreatedAt: t0}}
	})
	_, err := l.Receipt(t.Context(), v.Run.ID, 0)
	wantFault(t, err, fault.Conflict, "run_active")
	p := verified(t, l, v.Run.ID, 1).Predicate
	if p.End.RunEnded || p.End.State != "failed" || p.End.Reason != "node_fail" || p.Attempt != 1 || p.Execution.JobName == "sg-2" {
		t.Errorf("the receipt has the end %+v, attempt %d, job %s; want attempt 1 failed with node_fail, the run not ended",
			p.End, p.Attempt, p.Execution.JobName)
	}
	finish(t, l, v)
	p = verified(t, l, v.Run.ID, 0).Predicate
	if !p.End.RunEnded || p.End.State != "succeeded" || p.Attempt != 2 || p.Execution.JobName != "sg-2" {
		t.Errorf("the receipt has the end %+v, attempt %d, job %s; want attempt 2 of sg-2 succeeded, the run ended", p.End,
			p.Attempt, p.Execution.JobName)
	}
	if list, err := l.Receipts(t.Context(), v.Run.ID); err != nil || len(list) != 2 || list[0].Attempt != 1 {
		t.Error(list, err)
	}
}

// A receipt with an erased secret in a label is removed, since a signed text cannot be redacted, and the error names
// the erasure. No other receipt changes.
//
// proves EXP-02
func TestErasedReceipt(t *testing.T) {
	l := fresh(t)
	const secret = "Zu9-kPq4-never-to-be-said"
	leaky := artifact(1)
	leaky.Label = secret
	zero := 0
	ends := func(i int, a run.Artifact) run.View {
		return endedRun(t, l, i, func(w *run.Write) {
			w.Run.State, w.Run.ExitCode = run.Succeeded, &zero
			w.Artifacts, w.Outputs = []run.Artifact{a}, []run.Link{{Role: "report", ArtifactID: a.ID, Relpath: "out/report.txt"}}
		})
	}
	held, other := ends(1, leaky), ends(2, artifact(2))
	s, err := retention.NewSecret([]byte(secret), "ers_a")
	must(t, err)
	rows, documents, err := l.Leaks(t.Context(), s)
	must(t, err)
	must(t, l.Erase(t.Context(), anErasure("ers_a"), s, retention.Leak{Rows: rows, Documents: documents}, nil))
	_, err = l.Receipt(t.Context(), held.Run.ID, 0)
	wantFault(t, err, fault.Conflict, "erased")
	verified(t, l, other.Run.ID, 0)
	rows, _, err = l.Leaks(t.Context(), s)
	if err != nil || len(rows) > 0 {
		t.Error(rows, err)
	}
	must(t, l.Integrity(t.Context()))
}

// A receipt signs who asked for the run, the rows that it is of, the exit record of every attempt, and each event up to the end, the
// end's own included. A row that finds the run later changes nothing.
//
// proves EXP-02
func TestReceiptSignsTheRecord(t *testing.T) {
	l := fresh(t)
	n := newRun(1)
	n.Run.Principal = run.Principal{Name: "user:ann", ID: "prn_1"}
	v, _, err := l.Insert(t.Context(), n)
	must(t, err)
	aBatch := func(id string) {
		_, _, err := l.NewBatch(t.Context(), Batch{ID: id, ProjectID: v.Run.ProjectID, Name: id, ToolID: "t", Caller: []byte("{}")},
			[]BatchRow{{N: 2, Sample: "tumor", Args: []byte("{}")}})
		must(t, err)
		must(t, l.RowIsRun(t.Context(), run.RowRef{BatchID: id, N: 2}, v.Run.ID))
	}
	aBatch("batch_a")
	zero := 0
	v = apply(t, l, v, func(w *run.Write) {
		a := v.Attempt
		a.Ending, a.EndedAt, a.ExitCode, a.Node, a.SlurmState, a.Usage = run.EndedToolFailed, &t0, &zero, "n7", "COMPLETED", []byte(`{"max_rss_kb":5}`)
		w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.ExitCode, w.Attempts = run.Failed, run.Done, &t0, &zero, []run.Attempt{a}
	})
	aBatch("batch_b")
	p := verified(t, l, v.Run.ID, 0).Predicate
	if p.Caller.Name != "user:ann" || p.Caller.ID != "prn_1" || p.Caller.MadeAt != receipt.Time(&v.Run.CreatedAt) {
		t.Errorf("caller %+v; want user:ann, prn_1, %s", p.Caller, receipt.Time(&v.Run.CreatedAt))
	}
	if want := []receipt.Row{{BatchID: "batch_a", Row: 2, Sample: "tumor"}}; !slices.Equal(p.Rows, want) {
		t.Errorf("rows %+v; want %+v", p.Rows, want)
	}
	want, err := l.Exit(t.Context(), v.Run.ID, 1)
	must(t, err)
	if len(p.Exit.Attempts) != 1 || !reflect.DeepEqual(p.Exit, want) || p.Exit.Attempts[0].Node != "n7" {
		t.Errorf("exit record %+v; want %+v, of node n7", p.Exit, want)
	}
	history, err := l.History(t.Context(), v.Run.ID, 1<<40)
	must(t, err)
	var events []receipt.Event
	for _, e := range history {
		events = append(events, receipt.Event{Seq: e.Seq, At: e.At.UnixMicro(), Type: e.Type, PrevHash: e.Prev, Hash: e.Hash})
	}
	if got := receipt.HistoryOf(events); got != p.History || got.Events < 2 {
		t.Errorf("history %+v; want %+v, of at least 2 events", p.History, got)
	}
}
