package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

var (
	_ run.Store = (*Ledger)(nil)
	_ run.Index = Index{}
)

const viewColumns = `r.run_id, r.rev, r.tool_id, r.tool_name, r.tool_version, r.contract_version, r.pack_hash, r.policy_hash, r.params_hash, r.plan_hash,
 r.project_id, r.site, r.executed_as, r.actor, r.principal, r.principal_id, r.state, r.phase, r.reason, r.detail, r.attempt_n, r.warnings, r.exit_code, r.created_at, r.updated_at, r.finished_at,
 r.cancel_at, r.cancel_reason, r.result_json, r.log_artifact_id, r.script_artifact_id,
 a.token, a.array_task, a.created_at, a.placement, a.resources, a.slurm_state, a.slurm_why, a.slurm_exit, a.avoid, a.strengths, a.node, a.observed_at, a.started_at, a.ended_at, a.missed_at, a.ending, a.exit_code, a.usage,
 s.job_name, s.script_sha, s.created_at, s.cluster, s.job_id, s.submitted_at, s.sluid, s.array_name,
 (SELECT count(*) FROM sends k WHERE k.token = a.token),
 coalesce((SELECT x.removal_id FROM run_removals x WHERE x.run_id = r.run_id AND x.attempt_n = r.attempt_n), '')`

const viewFrom = ` FROM runs r JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n LEFT JOIN submissions s ON s.token = a.token `

func scanView(row scanner) (v run.View, err error) {
	r, a, s := &v.Run, &v.Attempt, &v.Submission
	err = row.Scan(&r.ID, &r.Rev, &r.ToolID, &r.ToolName, &r.ToolVersion, &r.ContractVersion, &r.PackHash, &r.PolicyHash, &r.ParamsHash,
		&r.PlanHash, &r.ProjectID, &r.Site, &r.ExecutedAs, &r.Actor, &r.Principal.Name, &r.Principal.ID, &r.State, &r.Phase, &r.Reason, &r.Detail,
		&r.AttemptN, into{&r.Warnings}, &r.ExitCode,
		into{&r.CreatedAt}, into{&r.UpdatedAt}, into{&r.FinishedAt}, into{&r.CancelAt}, &r.CancelReason, into{&r.ResultJSON},
		into{&r.LogArtifactID}, into{&r.ScriptArtifactID},
		into{&a.Token}, &a.ArrayTask, into{&a.CreatedAt}, into{&a.Placement}, into{&a.Resources}, &a.SlurmState,
		&a.SlurmWhy, &a.SlurmExit, into{&a.Avoid}, into{&a.Strengths}, &a.Node,
		into{&a.ObservedAt},
		into{&a.StartedAt}, into{&a.EndedAt}, into{&a.MissedAt}, &a.Ending, &a.ExitCode, into{&a.Usage},
		into{&s.JobName}, into{&s.ScriptSHA}, into{&s.CreatedAt}, into{&s.Cluster}, into{&s.JobID}, into{&s.SubmittedAt}, into{&s.SLUID},
		into{&s.Array},
		&v.Sends, &r.Removed)
	a.RunID, a.N, s.Token = r.ID, r.AttemptN, a.Token
	if s.Token == "" {
		*s = run.Submission{}
	}
	return v, err
}

// canonicalText is a column with the canonical JSON of a value; NULL for nil.
func canonicalText[T any](p *T) (sql.NullString, error) {
	if p == nil {
		return sql.NullString{}, nil
	}
	b, err := plan.Marshal(*p)
	return sql.NullString{String: string(b), Valid: true}, err
}

func view(ctx context.Context, q queryer, runID string) (run.View, error) {
	v, err := scanView(q.QueryRowContext(ctx, "SELECT "+viewColumns+viewFrom+"WHERE r.run_id = ?", runID))
	if errors.Is(err, sql.ErrNoRows) {
		return run.View{}, noRun(runID)
	}
	return v, storage(err)
}

// View reads a run with its current attempt and submission.
func (l *Ledger) View(ctx context.Context, runID string) (run.View, error) {
	return view(context.WithoutCancel(ctx), l.r, runID) // see [Ledger.one]
}

// UserOf is the Unix user of the cluster that a run is executed as; empty: the gateway's own. It never changes. NotFound when there is no
// such run.
func (l *Ledger) UserOf(ctx context.Context, runID string) (user string, err error) {
	err = l.one(ctx, "SELECT executed_as FROM runs WHERE run_id = ?", runID).Scan(&user)
	if errors.Is(err, sql.ErrNoRows) {
		return "", noRun(runID)
	}
	return user, storage(err)
}

// UsersBefore lists the users whose runs made what a run was made of, over all steps, itself left out.
func (l *Ledger) UsersBefore(ctx context.Context, runID string) ([]string, error) {
	return list(ctx, l.r, column[string], usersBefore, runID)
}

const usersBefore = `WITH RECURSIVE up(run_id) AS (SELECT ?1 UNION SELECT a.source FROM up
 JOIN run_inputs i ON i.run_id = up.run_id JOIN artifacts a ON a.artifact_id = i.artifact_id WHERE a.source <> 'import')
 SELECT DISTINCT r.executed_as FROM up JOIN runs r ON r.run_id = up.run_id WHERE r.executed_as <> '' AND r.run_id <> ?1 ORDER BY 1`

func noRun(runID string) error {
	return fault.New(fault.NotFound, "run_not_found", "there is no run "+runID).WithSteps(fault.Do("run.list"))
}

// Insert stores a new run, or returns the existing one (promise 2: a replay never resubmits). The writer serialises concurrent
// callers.
func (l *Ledger) Insert(ctx context.Context, n run.New) (v run.View, created bool, err error) {
	if len(n.Sought.PlanHashes) == 0 {
		n.Sought = run.Sought{RunID: n.Run.ID, PlanHashes: []string{n.Run.PlanHash}, PolicyHash: n.Run.PolicyHash,
			ExecutedAs: n.Run.ExecutedAs}
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		there, err := known(ctx, tx, n.Sought)
		if created = false; err == nil && there == "" {
			there = n.Run.ID
			if created, err = l.insert(ctx, tx, n); created && err == nil {
				err = l.admit(ctx, tx, n.Run, n.Admit)
			}
		}
		if err == nil && n.Waited != "" {
			err = l.started(ctx, tx, n.Waited, there)
		}
		switch {
		case err != nil:
			return err
		case created:
			v = l.inserted(n)
			return nil
		}
		v, err = view(ctx, tx, there)
		return err
	})
	return v, created && err == nil, err
}

// inserted is the view of a run that was just stored.
func (l *Ledger) inserted(n run.New) run.View {
	now := stored(l.now())
	v := run.View{Run: n.Run, Submission: n.Submission, Attempt: l.firstAttempt(n)}
	v.Attempt.CreatedAt, v.Attempt.StartedAt = now, optStored(v.Attempt.StartedAt)
	v.Run.Rev, v.Run.AttemptN, v.Run.CreatedAt, v.Run.UpdatedAt = 1, 1, now, now
	if v.Run.Warnings == nil {
		v.Run.Warnings = []string{}
	}
	if n.Submission.Token != "" {
		v.Submission.CreatedAt, v.Submission.SubmittedAt = stored(n.Submission.CreatedAt), optStored(n.Submission.SubmittedAt)
	}
	return v
}

// firstAttempt is the attempt that a new run comes with. One without a submission goes to no cluster and starts when it is stored.
func (l *Ledger) firstAttempt(n run.New) run.Attempt {
	a := run.Attempt{RunID: n.Run.ID, N: 1, Token: n.Submission.Token, CreatedAt: l.now(), Placement: n.Placement}
	if a.Token == "" {
		a.StartedAt = &a.CreatedAt
	}
	return a
}

// insert writes the rows of a new run, or nothing if its row exists: policy and params, which are written first, then exist too.
func (l *Ledger) insert(ctx context.Context, tx *sql.Conn, n run.New) (created bool, err error) {
	r, now := n.Run, micros(l.now())
	warnings, err := warningsJSON(r.Warnings)
	if err != nil {
		return false, err
	}
	for _, doc := range []struct {
		into, hash string
		canonical  json.RawMessage
	}{{"policies (policy_hash, snapshot, created_at)", r.PolicyHash, n.Policy}, {"packs", r.PackHash, n.Pack},
		{"param_sets", r.ParamsHash, n.Params}} {
		if len(doc.canonical) == 0 {
			continue // a raw plan has no pack
		}
		made, err := update(ctx, tx, "INSERT OR IGNORE INTO "+doc.into+" VALUES (?,?,?)", doc.hash, string(doc.canonical), now)
		if err == nil && made == 0 && doc.into == "param_sets" {
			err = erasedFault(ctx, tx, doc.into, doc.hash, "the params of an earlier run")
		}
		if err != nil {
			return false, err
		}
	}
	rows, err := update(ctx, tx, `INSERT INTO runs (run_id, rev, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash,
 project_id, site, executed_as, actor, principal, principal_id, state, phase, reason, detail, attempt_n, warnings, created_at, updated_at, cancel_reason, result_json)
 VALUES (?,1,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,1,?,?,?,'',?) ON CONFLICT (run_id) DO NOTHING`,
		r.ID, r.ToolID, r.ToolName, r.ToolVersion, r.ContractVersion, r.PackHash, r.PolicyHash, r.ParamsHash, r.PlanHash,
		r.ProjectID, r.Site, r.ExecutedAs, r.Actor, r.Principal.Name, r.Principal.ID, r.State, r.Phase, r.Reason, r.Detail,
		warnings, now, now, optText(string(r.ResultJSON)))
	if err != nil || rows == 0 {
		return false, err
	}
	if n.Submission.Token != "" {
		if err := writeSubmission(ctx, tx, n.Submission); err != nil {
			return false, err
		}
	}
	if err := writeAttempt(ctx, tx, l.firstAttempt(n)); err != nil {
		return false, err
	}
	for _, in := range n.Inputs {
		if _, err := tx.ExecContext(ctx, "INSERT INTO run_inputs VALUES (?,?,?,?)", r.ID, in.Role, in.ArtifactID, in.Relpath); err != nil {
			if strings.Contains(err.Error(), "artifact_removed") { // after the call had checked it
				_, err := l.Artifact(ctx, in.ArtifactID)
				return false, cmp.Or(err, removedFault(in.ArtifactID))
			}
			return false, err
		}
	}
	if len(n.Names) > 0 {
		if err := l.nameOutputs(ctx, tx, r.ID, r.Principal, n.Names); err != nil {
			return false, err
		}
	}
	err = l.appendEvent(ctx, tx, r.ID, n.Event)
	return err == nil, err
}

// Params reads canonical params by their hash and verifies the hash.
func (l *Ledger) Params(ctx context.Context, paramsHash string) (json.RawMessage, error) {
	return l.document(ctx, "params", "param_sets", "SELECT params FROM param_sets WHERE params_hash = ?", paramsHash)
}

// Policy reads the policy snapshot of runs by its hash and verifies the hash.
func (l *Ledger) Policy(ctx context.Context, policyHash string) (json.RawMessage, error) {
	return l.document(ctx, "policy", "policies", "SELECT snapshot FROM policies WHERE policy_hash = ?", policyHash)
}

// Pack reads the definition of the pack that runs were planned with by its pack_hash, and verifies the hash. NotFound for a pack
// of runs older than the table: their ledger did not store it.
func (l *Ledger) Pack(ctx context.Context, packHash string) (json.RawMessage, error) {
	return l.document(ctx, "pack", "packs", "SELECT definition FROM packs WHERE pack_hash = ?", packHash)
}

// document reads canonical JSON that is stored under its hash.
func (l *Ledger) document(ctx context.Context, what, tbl, q, hash string) (json.RawMessage, error) {
	var s string
	err := l.one(ctx, q, hash).Scan(&s)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.NotFound, what+"_not_found", "the ledger has no "+what+" "+hash)
	}
	if err != nil {
		return nil, storage(err)
	}
	if plan.Hash([]byte(s)) != hash {
		if err := erasedFault(ctx, l.r, tbl, hash, "the "+what+" of this run"); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.Internal, "ledger_corrupt", "the stored "+what+" no longer has the hash "+hash)
	}
	return json.RawMessage(s), nil
}

func warningsJSON(w []string) (string, error) {
	if w == nil {
		w = []string{}
	}
	b, err := json.Marshal(w)
	return string(b), err
}
