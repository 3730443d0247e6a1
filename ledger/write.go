package ledger

import (
	"context"
	"database/sql"
	"slices"

	"slurmgate/fault"
	"slurmgate/run"
)

// Apply carries out one transition: compare-and-swap on the revision, the new values, the event, and the receipt of an attempt that ends.
func (l *Ledger) Apply(ctx context.Context, w run.Write) (run.View, error) {
	views, err := l.ApplyAll(ctx, []run.Write{w})
	if err != nil {
		return run.View{}, err
	}
	return views[0], nil
}

// ApplyAll carries out several transitions, all of them or none; run.Store has the contract.
func (l *Ledger) ApplyAll(ctx context.Context, list []run.Write) ([]run.View, error) {
	payloads := make([][]packed, len(list))
	for i, w := range list {
		for _, p := range w.Payloads {
			small, err := l.pack(ctx, p)
			if err != nil {
				return nil, err
			}
			payloads[i] = append(payloads[i], small)
		}
	}
	views := make([]run.View, len(list))
	err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) (err error) {
		for i, w := range list {
			if views[i], err = l.apply(ctx, tx, w, payloads[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return views, nil
}

// apply carries out one transition within a transaction.
func (l *Ledger) apply(ctx context.Context, tx *sql.Conn, w run.Write, payloads []packed) (v run.View, err error) {
	// Payloads, artifacts and submission come first: rows below refer to them.
	for _, p := range payloads {
		if err := writePayload(ctx, tx, p); err != nil {
			return v, err
		}
	}
	for _, a := range w.Artifacts {
		here := slices.ContainsFunc(w.Payloads, func(p run.Payload) bool { return p.SHA256 == a.SHA256 })
		a.Caller = run.ShareOf(w.Run).Caller
		if _, err := l.addArtifact(ctx, tx, a, here); err != nil {
			return v, err
		}
	}
	if w.Array != nil {
		if err := l.writeArray(ctx, tx, *w.Array); err != nil {
			return v, err
		}
	}
	if w.Submission != nil {
		if err := changeSubmission(ctx, tx, *w.Submission); err != nil {
			return v, err
		}
	}
	if w.Send != nil {
		if err := writeSend(ctx, tx, *w.Send); err != nil {
			return v, err
		}
	}
	for _, a := range w.Attempts {
		if err := changeAttempt(ctx, tx, a); err != nil {
			return v, err
		}
	}
	for _, o := range w.Outputs {
		if _, err := tx.ExecContext(ctx, "INSERT INTO run_outputs VALUES (?,?,?,?,?)", w.Run.ID, o.Role, o.ArtifactID, o.Relpath,
			w.Run.AttemptN); err != nil {
			return v, err
		}
	}
	if err := l.admit(ctx, tx, w.Run, w.Admit); err != nil {
		return v, err
	}
	if w.Asking != nil {
		if err := l.ask(ctx, tx, w.Run.ID, *w.Asking, w.Caller, ""); err != nil {
			return v, err
		}
	}
	if w.From != nil && w.From.Waiting != nil {
		return l.applyWaiting(ctx, tx, w)
	}
	if w.Row != nil {
		if err := openRow(ctx, tx, *w.Row); err != nil {
			return v, err
		}
	}
	if err := l.appendEvent(ctx, tx, w.Run.ID, w.Event); err != nil {
		return v, err
	}
	if err := l.makeReceipts(ctx, tx, w); err != nil {
		return v, err
	}
	if err := l.swapRun(ctx, tx, w.Run); err != nil {
		return v, err
	}
	if f := w.From; f != nil && f.Run.AttemptN == w.Run.AttemptN && (w.Submission == nil || w.Submission.Token == f.Submission.Token) {
		return l.after(w), nil
	}
	return view(ctx, tx, w.Run.ID)
}

// after returns the view of a run after a write that was based on an earlier view. The revision was compared, and
// nothing of a run changes without a new revision: what the write does not replace is unchanged. It saves a query of
// 16 µs, three times for each run.
func (l *Ledger) after(w run.Write) run.View {
	v := run.View{Run: w.Run, Attempt: w.From.Attempt, Submission: w.From.Submission, Sends: w.From.Sends}
	v.Run.Rev++
	v.Run.UpdatedAt = stored(l.now())
	v.Run.FinishedAt, v.Run.CancelAt = optStored(w.Run.FinishedAt), optStored(w.Run.CancelAt)
	if v.Run.Warnings == nil {
		v.Run.Warnings = []string{}
	}
	for _, a := range w.Attempts {
		if a.N == w.Run.AttemptN {
			v.Attempt = a
			v.Attempt.ObservedAt, v.Attempt.StartedAt, v.Attempt.EndedAt, v.Attempt.MissedAt = optStored(a.ObservedAt), optStored(a.StartedAt),
				optStored(a.EndedAt), optStored(a.MissedAt)
			v.Attempt.CreatedAt = w.From.Attempt.CreatedAt
		}
	}
	if w.Submission != nil {
		v.Submission = *w.Submission
		v.Submission.SubmittedAt, v.Submission.CreatedAt = optStored(w.Submission.SubmittedAt), w.From.Submission.CreatedAt
	}
	if w.Send != nil {
		v.Sends = max(v.Sends, w.Send.K)
	}
	return v
}

// SQLite rewrites each index of a column that an UPDATE sets, changed or not. So the columns with an index are set only where they change:
// a statement without them has them in its condition, and where it finds no row the one with all of them is next.

// swapRun writes the mutable columns if the row still has the revision that was read.
func (l *Ledger) swapRun(ctx context.Context, tx *sql.Conn, r run.Run) error {
	warnings, err := warningsJSON(r.Warnings)
	if err != nil {
		return err
	}
	args := []any{r.Phase, r.Reason, r.Detail, r.AttemptN, warnings, r.ExitCode, micros(l.now()), optMicros(r.FinishedAt),
		optMicros(r.CancelAt), r.CancelReason, optText(string(r.ResultJSON)), optText(r.LogArtifactID), optText(r.ScriptArtifactID),
		r.State, r.ID, r.Rev}
	const columns = `UPDATE runs SET rev = rev + 1, phase = ?, reason = ?, detail = ?, attempt_n = ?, warnings = ?, exit_code = ?,
 updated_at = ?, finished_at = ?, cancel_at = ?, cancel_reason = ?, result_json = ?`
	n, err := update(ctx, tx, columns+" WHERE log_artifact_id IS ? AND script_artifact_id IS ? AND state = ? AND run_id = ? AND rev = ?",
		args...)
	if err == nil && n == 0 {
		n, err = update(ctx, tx, columns+", log_artifact_id = ?, script_artifact_id = ?, state = ? WHERE run_id = ? AND rev = ?", args...)
	}
	if err == nil && n != 1 {
		err = stale(r)
	}
	return err
}

// stale returns the fault for a write that is based on an older revision of a run.
func stale(r run.Run) error {
	return fault.New(fault.Conflict, "stale_run", "run "+r.ID+" was changed concurrently")
}

// changeAttempt writes an attempt that may be there already.
func changeAttempt(ctx context.Context, tx *sql.Conn, a run.Attempt) error {
	strengths, err := elementsText(len(a.Inputs), a.Inputs)
	if err != nil {
		return err
	}
	n, err := update(ctx, tx, `UPDATE attempts SET strengths = ?, slurm_state = ?, slurm_why = ?, slurm_exit = ?, slurm_partition = ?, slurm_account = ?, slurm_limit = ?, node = ?,
 observed_at = ?, started_at = ?, missed_at = ?, exit_code = ?, usage = ?
 WHERE run_id = ? AND n = ? AND token IS ? AND array_task IS ? AND ended_at IS ? AND ending = ?`,
		strengths, a.SlurmState, a.SlurmWhy, a.SlurmExit, a.Partition, a.Account, a.Limit, a.Node,
		optMicros(a.ObservedAt), optMicros(a.StartedAt), optMicros(a.MissedAt),
		a.ExitCode, optText(string(a.Usage)), a.RunID, a.N, optText(a.Token), a.ArrayTask, optMicros(a.EndedAt), a.Ending)
	if err != nil || n > 0 {
		return err
	}
	return writeAttempt(ctx, tx, a)
}

func writeAttempt(ctx context.Context, tx *sql.Conn, a run.Attempt) error {
	placement, err := canonicalText(a.Placement)
	if err != nil {
		return err
	}
	resources, err := canonicalText(a.Resources)
	if err != nil {
		return err
	}
	avoid, err := elementsText(len(a.Avoid), a.Avoid)
	if err != nil {
		return err
	}
	strengths, err := elementsText(len(a.Inputs), a.Inputs)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO attempts (run_id, n, token, array_task, created_at, placement, resources, slurm_state, slurm_why, slurm_exit, slurm_partition, slurm_account, slurm_limit, avoid, strengths, node, observed_at, started_at, ended_at, missed_at, ending, exit_code, usage)
 VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (run_id, n) DO UPDATE SET token = excluded.token, array_task = excluded.array_task, strengths = excluded.strengths,
 slurm_state = excluded.slurm_state, slurm_why = excluded.slurm_why, slurm_exit = excluded.slurm_exit, slurm_partition = excluded.slurm_partition, slurm_account = excluded.slurm_account, slurm_limit = excluded.slurm_limit, node = excluded.node, observed_at = excluded.observed_at, started_at = excluded.started_at,
 ended_at = excluded.ended_at, missed_at = excluded.missed_at, ending = excluded.ending, exit_code = excluded.exit_code, usage = excluded.usage`,
		a.RunID, a.N, optText(a.Token), a.ArrayTask, micros(a.CreatedAt), placement, resources, a.SlurmState, a.SlurmWhy,
		a.SlurmExit, a.Partition, a.Account, a.Limit, avoid, strengths, a.Node,
		optMicros(a.ObservedAt),
		optMicros(a.StartedAt),
		optMicros(a.EndedAt), optMicros(a.MissedAt), a.Ending, a.ExitCode, optText(string(a.Usage)))
	return err
}

// changeSubmission writes a submission that may be there already.
func changeSubmission(ctx context.Context, tx *sql.Conn, s run.Submission) error {
	n, err := update(ctx, tx, `UPDATE submissions SET script_sha = ?, cluster = ?, job_id = ?, submitted_at = ?, sluid = ?
 WHERE token = ? AND array_name IS ?`,
		s.ScriptSHA, s.Cluster, s.JobID, optMicros(s.SubmittedAt), s.SLUID, s.Token, optText(s.Array))
	if err != nil || n > 0 {
		return err
	}
	return writeSubmission(ctx, tx, s)
}

func writeSubmission(ctx context.Context, tx *sql.Conn, s run.Submission) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO submissions (token, job_name, script_sha, created_at, cluster, job_id, submitted_at, sluid, array_name) VALUES (?,?,?,?,?,?,?,?,?)
 ON CONFLICT (token) DO UPDATE SET script_sha = excluded.script_sha, cluster = excluded.cluster, job_id = excluded.job_id, submitted_at = excluded.submitted_at, sluid = excluded.sluid,
 array_name = excluded.array_name`,
		s.Token, s.JobName, s.ScriptSHA, micros(s.CreatedAt), s.Cluster, s.JobID, optMicros(s.SubmittedAt), s.SLUID, optText(s.Array))
	return err
}

func writeSend(ctx context.Context, tx *sql.Conn, s run.Send) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO sends (token, k, started_at, ended_at, outcome, exit_code, text) VALUES (?,?,?,?,?,?,?)
 ON CONFLICT (token, k) DO UPDATE SET ended_at = excluded.ended_at, outcome = excluded.outcome, exit_code = excluded.exit_code, text = excluded.text`,
		s.Token, s.K, micros(s.StartedAt), optMicros(s.EndedAt), s.Outcome, s.ExitCode, s.Text)
	return err
}
