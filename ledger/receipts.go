package ledger

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Receipt is the signed receipt of one attempt's end.
type Receipt struct {
	RunID     string
	Attempt   int
	KeyID     string
	Statement json.RawMessage // the in-toto Statement
	Envelope  json.RawMessage // the DSSE envelope around it
}

// makeReceipts signs the receipts of the attempts that a write ends, after its event and before it changes the run's row: a receipt signs
// the history up to the end, and the database refuses an end without a receipt, and a receipt without an end.
func (l *Ledger) makeReceipts(ctx context.Context, tx *sql.Conn, w run.Write) error {
	var ends []int
	for _, a := range w.Attempts {
		if a.N < w.Run.AttemptN && a.Ending != "" { // policy opens another attempt
			ends = append(ends, a.N)
		}
	}
	if w.Run.Phase == run.Done {
		ends = append(ends, w.Run.AttemptN)
	}
	if len(ends) == 0 {
		return nil
	}
	var rev int64
	if err := tx.QueryRowContext(ctx, "SELECT rev FROM runs WHERE run_id = ?", w.Run.ID).Scan(&rev); err != nil || rev != w.Run.Rev {
		return cmp.Or(err, stale(w.Run)) // another write may have ended it
	}
	for _, n := range ends {
		if err := l.makeReceipt(ctx, tx, w, n); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) makeReceipt(ctx context.Context, tx *sql.Conn, w run.Write, attempt int) error {
	v, err := l.ending(ctx, tx, w, attempt)
	if err != nil {
		return err
	}
	outputs, p, err := l.facts(ctx, tx, v, w)
	if err != nil {
		return err
	}
	statement, err := receipt.Encode(outputs, p)
	if err != nil {
		return err
	}
	s, err := l.signer(ctx, tx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO receipts VALUES (?,?,?,?,?)", v.Run.ID, attempt, s.Key.ID, string(statement), s.Sign(statement))
	return err
}

func (l *Ledger) signer(ctx context.Context, q queryer) (receipt.Signer, error) {
	var secret []byte
	err := q.QueryRowContext(ctx, "SELECT secret FROM receipt_keys WHERE retired_at IS NULL").Scan(&secret)
	if err != nil {
		return receipt.Signer{}, err
	}
	return receipt.NewSigner(l.id, secret), nil
}

// Signer signs with the key that signs now.
func (l *Ledger) Signer(ctx context.Context) (receipt.Signer, error) {
	s, err := l.signer(context.WithoutCancel(ctx), l.r)
	return s, storage(err)
}

// ending returns the run as it ends, with the attempt and the submission that end.
func (l *Ledger) ending(ctx context.Context, tx *sql.Conn, w run.Write, attempt int) (v run.View, err error) {
	if w.From != nil && w.From.Run.AttemptN == attempt {
		v = *w.From
	} else if v, err = view(ctx, tx, w.Run.ID); err != nil {
		return v, err
	}
	v.Run = w.Run
	for _, a := range w.Attempts {
		if a.N == attempt {
			v.Attempt = a
		}
	}
	if w.Submission != nil && w.Submission.Token == v.Attempt.Token {
		v.Submission = *w.Submission
	}
	return v, nil
}

// facts returns what a receipt states about an attempt. Texts that a person wrote are in it only as labels, paths,
// samples and names of callers.
func (l *Ledger) facts(ctx context.Context, tx *sql.Conn, v run.View, w run.Write) (outputs []receipt.Resource, p receipt.Predicate,
	err error) {
	r, a, s, now := v.Run, v.Attempt, v.Submission, l.now()
	p = receipt.Predicate{RunID: r.ID, Attempt: a.N, ProjectID: r.ProjectID, Gateway: receipt.Gateway{ID: l.id},
		Tool: receipt.Tool{ID: r.ToolID, Name: r.ToolName, Version: r.ToolVersion, ContractVersion: r.ContractVersion},
		End: receipt.End{State: string(r.State), Reason: r.Reason, Ending: string(a.Ending), ExitCode: r.ExitCode,
			RunEnded: a.N == r.AttemptN},
		Execution: receipt.Execution{Site: r.Site, Cluster: s.Cluster, JobID: s.JobID, JobName: s.JobName, Node: a.Node,
			ExecutedAs: r.ExecutedAs, CreatedAt: receipt.Time(&a.CreatedAt), SubmittedAt: receipt.Time(s.SubmittedAt),
			StartedAt: receipt.Time(a.StartedAt), EndedAt: receipt.Time(a.EndedAt), RecordedAt: receipt.Time(&now)}}
	p.Caller = receipt.Caller{Name: r.Principal.Name, ID: r.Principal.ID, MadeAt: receipt.Time(&r.CreatedAt)}
	if err := recorded(ctx, tx, r.ID, a.N, &p); err != nil {
		return nil, p, err
	}
	if x := a.Resources; x != nil {
		p.Execution.Resources = &receipt.Resources{CPUs: x.CPUs, MemMB: x.MemMB, TimeLimitSeconds: x.TimeLimitSeconds}
	}
	if p.End.RunEnded {
		p.End.At = receipt.Time(r.FinishedAt)
	} else {
		p.End.State, p.End.Reason, p.End.ExitCode = string(run.Failed), string(a.Ending), a.ExitCode
		for _, log := range w.Artifacts {
			p.Byproducts = append(p.Byproducts, resource(log.Label, run.Output{Artifact: log}))
		}
	}
	rec, err := recordOf(ctx, tx, v)
	if err != nil {
		return nil, p, err
	}
	for _, o := range rec.Outputs {
		if plan.MadeByGateway(o.Role) {
			p.Byproducts = append(p.Byproducts, resource(o.Role, o))
		} else {
			outputs = append(outputs, resource(receipt.OutputName(o.Role, o.Artifact.Label), o))
		}
	}
	if r.Site == run.WorkerSite && len(outputs) == 0 && p.End.State == string(run.Succeeded) {
		if outputs, err = answered(r.ResultJSON); err != nil {
			return nil, p, err
		}
	}
	var image sql.NullString
	err = tx.QueryRowContext(ctx, `SELECT coalesce(params ->> '$.slurm.execution.container.image',
 params ->> '$.docker.execution.container.image') FROM param_sets WHERE params_hash = ?`, r.ParamsHash).Scan(&image)
	if err != nil {
		return nil, p, err
	}
	p.ResolvedDependencies = []receipt.Resource{receipt.Hashed(receipt.Image, image.String), receipt.Hashed(receipt.Params, r.ParamsHash),
		receipt.Hashed(receipt.Policy, r.PolicyHash), receipt.Hashed(receipt.Plan, r.PlanHash), receipt.Hashed(receipt.Pack, r.PackHash),
		receipt.Hashed(receipt.Script, s.ScriptSHA)}
	for _, in := range rec.Inputs {
		names, err := list(ctx, tx, scanReference, namesQuery, in.Artifact.SHA256, in.Artifact.Type)
		if err != nil {
			return nil, p, err
		}
		r := resource("input/"+in.Relpath, in)
		r.Annotations.Reference = NameFor(names, in.Artifact.ProjectID, in.Artifact.Source)
		if x := v.Attempt.Inputs[in.Relpath].Rests; x != nil {
			r.Annotations.InPlace = &receipt.InPlace{RestsOn: x.On, RegisteredBy: x.RegisteredBy, RegisteredAs: x.RegisteredAs,
				RegisteredAt: receipt.Time(&x.RegisteredAt)}
		}
		p.ResolvedDependencies = append(p.ResolvedDependencies, r)
	}
	p.ForgeableBy = rec.Users
	if r.ExecutedAs != "" && !slices.Contains(p.ForgeableBy, r.ExecutedAs) {
		p.ForgeableBy = append(p.ForgeableBy, r.ExecutedAs)
	}
	return outputs, p, nil
}

// recorded adds what the ledger has of a run's attempts up to one, its history, and the rows that it is of.
func recorded(ctx context.Context, tx *sql.Conn, runID string, attempt int, p *receipt.Predicate) (err error) {
	events, err := list(ctx, tx, func(row scanner) (e receipt.Event, err error) {
		err = row.Scan(&e.Seq, &e.At, &e.Type, &e.PrevHash, &e.Hash)
		return e, err
	}, "SELECT seq, at, type, prev_hash, hash FROM events WHERE run_id = ? ORDER BY seq", runID)
	if err != nil {
		return err
	}
	p.History = receipt.HistoryOf(events)
	if p.Rows, err = list(ctx, tx, func(row scanner) (w receipt.Row, err error) {
		err = row.Scan(&w.BatchID, &w.Row, &w.Sample)
		return w, err
	}, "SELECT batch_id, row_n, sample FROM batch_rows WHERE run_id = ? ORDER BY batch_id, row_n", runID); err != nil {
		return err
	}
	p.Exit, err = exitOf(ctx, tx, runID, attempt)
	return err
}

// exitOf returns the exit record of a run, up to one of its attempts.
func exitOf(ctx context.Context, q queryer, runID string, attempt int) (x receipt.Exit, err error) {
	x.Attempts, err = list(ctx, q, func(row scanner) (a receipt.Attempt, err error) {
		err = row.Scan(&a.Attempt, &a.Ending, &a.ExitCode, &a.JobName, &a.JobID, &a.Cluster, into{&a.Resources}, &a.SlurmState, &a.Node,
			into{&a.CreatedAt}, into{&a.StartedAt}, into{&a.EndedAt}, into{&a.Usage})
		return a, err
	}, `SELECT a.n, a.ending, a.exit_code, coalesce(s.job_name, ''), coalesce(s.job_id, ''), coalesce(s.cluster, ''), a.resources, a.slurm_state, a.node,
 a.created_at, a.started_at, a.ended_at, a.usage FROM attempts a LEFT JOIN submissions s ON s.token = a.token WHERE a.run_id = ? AND a.n <= ? ORDER BY a.n`,
		runID, attempt)
	return x, err
}

// Exit returns the exit record of a run, up to one of its attempts. Receipts have it as it was when they were made.
func (l *Ledger) Exit(ctx context.Context, runID string, attempt int) (receipt.Exit, error) {
	return exitOf(context.WithoutCancel(ctx), l.r, runID, attempt)
}

// answered returns the output of a run that is no artifact: a service worker's answer, which is in the run's result.
// It has the digest of its canonical JSON.
func answered(result json.RawMessage) ([]receipt.Resource, error) {
	if len(result) == 0 {
		return nil, nil // no success: the database refuses it
	}
	var r struct{ Output json.RawMessage }
	if err := json.Unmarshal(result, &r); err != nil || len(r.Output) == 0 || string(r.Output) == "null" {
		return nil, err
	}
	canonical, err := plan.Canonical(r.Output)
	size := int64(len(canonical))
	return []receipt.Resource{{Name: receipt.Answer, Digest: receipt.Hashed("", plan.Hash(canonical)).Digest,
		Annotations: receipt.Annotations{Type: "JSON", SizeBytes: &size}}}, err
}

// resource returns an artifact in the form of a receipt.
func resource(name string, o run.Output) receipt.Resource {
	a := o.Artifact
	return receipt.Resource{Name: name, Digest: receipt.Digest{SHA256: a.SHA256},
		Annotations: receipt.Annotations{Role: o.Role, Path: o.Relpath, Label: a.Label, Type: a.Type, SizeBytes: &a.SizeBytes,
			ArtifactID: a.ID, ExecutedAs: a.ExecutedAs}}
}

// Receipt returns the receipt of an attempt's end; attempt 0 is the run's newest. An attempt that has not ended yet
// is a Conflict; one without a receipt is NotFound, with the reason.
func (l *Ledger) Receipt(ctx context.Context, runID string, attempt int) (Receipt, error) {
	v, err := l.View(ctx, runID)
	if err != nil {
		return Receipt{}, err
	}
	n := cmp.Or(attempt, v.Run.AttemptN)
	r, err := scanReceipt(l.one(ctx, receiptsQuery+" AND attempt = ?", runID, n))
	if !errors.Is(err, sql.ErrNoRows) {
		return r, storage(err)
	}
	if err := erasedFault(ctx, l.r, "receipts", fmt.Sprint(runID, "/", n), "the receipt of this run"); err != nil {
		return Receipt{}, err
	}
	switch {
	case n < 1 || n > v.Run.AttemptN:
		return Receipt{}, fault.New(fault.NotFound, "attempt_not_found",
			fmt.Sprintf("run %s has no attempt %d; its newest is %d", runID, n, v.Run.AttemptN))
	case n == v.Run.AttemptN && !v.Run.State.Terminal():
		return Receipt{}, fault.New(fault.Conflict, "run_active",
			fmt.Sprintf("the run is %s (%s); its receipt is made when it ends", v.Run.State, v.Run.Phase)).
			WithSteps(fault.Do("slurm.job.collect", "run_id", runID))
	}
	return Receipt{}, fault.New(fault.NotFound, "receipt_missing", fmt.Sprintf(
		"attempt %d of run %s ended under a slurmgate that made no receipts; none is made later", n, runID))
}

// Receipts lists the receipts of a run, by attempt.
func (l *Ledger) Receipts(ctx context.Context, runID string) ([]Receipt, error) {
	return list(ctx, l.r, scanReceipt, receiptsQuery+" ORDER BY attempt", runID)
}

const receiptsQuery = "SELECT run_id, attempt, key_id, statement, signature FROM receipts WHERE run_id = ?"

func scanReceipt(row scanner) (r Receipt, err error) {
	var sig []byte
	if err = row.Scan(&r.RunID, &r.Attempt, &r.KeyID, into{&r.Statement}, &sig); err == nil {
		r.Envelope, err = receipt.Wrap(r.Statement, r.KeyID, sig)
	}
	return r, err
}

// ReceiptKeys lists the public keys of receipts, oldest first; the last one signs.
func (l *Ledger) ReceiptKeys(ctx context.Context) ([]receipt.Key, error) {
	return list(ctx, l.r, func(row scanner) (k receipt.Key, err error) {
		err = row.Scan(&k.ID, (*[]byte)(&k.Public), into{&k.CreatedAt}, into{&k.RetiredAt})
		return k, err
	}, "SELECT key_id, public, created_at, retired_at FROM receipt_keys ORDER BY retired_at IS NULL, created_at, key_id")
}

// ensureKey makes the first key.
func (l *Ledger) ensureKey(ctx context.Context) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		var there bool
		err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM receipt_keys WHERE retired_at IS NULL)").Scan(&there)
		if err == nil && !there {
			_, err = l.newKey(ctx, tx)
		}
		return err
	})
}

func (l *Ledger) newKey(ctx context.Context, tx *sql.Conn) (k receipt.Key, err error) {
	public, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return k, err
	}
	k = receipt.Key{ID: receipt.KeyID(public), Public: public, CreatedAt: stored(l.now())}
	_, err = tx.ExecContext(ctx, "INSERT INTO receipt_keys VALUES (?,?,?,?,NULL)", k.ID, []byte(public), []byte(secret), micros(l.now()))
	return k, err
}

// RotateReceiptKey retires the key that signs and makes a new one, in one transaction. The old secret is overwritten in the database.
func (l *Ledger) RotateReceiptKey(ctx context.Context, by string) (k receipt.Key, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		if _, err := tx.ExecContext(ctx, "PRAGMA secure_delete = ON"); err != nil {
			return err
		}
		var old string
		err := tx.QueryRowContext(ctx, "UPDATE receipt_keys SET secret = NULL, retired_at = ? WHERE retired_at IS NULL RETURNING key_id",
			micros(l.now())).Scan(&old)
		if err == nil {
			k, err = l.newKey(ctx, tx)
		}
		if err != nil {
			return err
		}
		err = l.appendEvent(ctx, tx, "", run.Event{Type: "receipt_key.rotated", Data: map[string]any{"key_id": k.ID, "retired": old,
			"principal": by}})
		return err
	})
	return k, err
}
