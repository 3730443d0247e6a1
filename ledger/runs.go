package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

var (
	_ run.Store = (*Ledger)(nil)
	_ run.Index = Index{}
)

const runColumns = `r.run_id, r.rev, r.tool_id, r.tool_name, r.tool_version, r.contract_version, r.pack_hash, r.policy_hash, r.params_hash, r.plan_hash,
 r.project_id, r.site, r.executed_as, r.actor, r.principal, r.principal_id, r.state, r.phase, r.reason, r.detail, r.attempt_n, r.warnings, r.exit_code, r.created_at, r.updated_at, r.finished_at,
 r.cancel_at, r.cancel_reason, r.result_json, r.log_artifact_id, r.script_artifact_id, `

const viewColumns = runColumns + `
 a.token, a.array_task, a.created_at, a.placement, a.resources, a.slurm_state, a.slurm_why, a.slurm_exit, a.slurm_partition, a.slurm_account, a.slurm_limit, a.avoid, a.strengths, a.node, a.observed_at, a.started_at, a.ended_at, a.missed_at, a.ending, a.exit_code, a.usage,
 s.job_name, s.script_sha, s.created_at, s.cluster, s.job_id, s.submitted_at, s.sluid, s.array_name,
 (SELECT count(*) FROM sends k WHERE k.token = a.token),
 coalesce((SELECT x.removal_id FROM run_removals x WHERE x.run_id = r.run_id AND x.attempt_n = r.attempt_n), ''),
 ` + deterministic

// deterministic is, for a failed run, whether its tool gives the same outputs each time.
const deterministic = `iif(r.state = 'failed',
 coalesce((SELECT p.definition ->> '$.deterministic' FROM packs p WHERE p.pack_hash = r.pack_hash), 0), 0)`

const viewFrom = ` FROM runs r JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n LEFT JOIN submissions s ON s.token = a.token `

// runFields returns the targets for a row's runColumns.
func runFields(r *run.Run) []any {
	return []any{&r.ID, &r.Rev, &r.ToolID, &r.ToolName, &r.ToolVersion, &r.ContractVersion, &r.PackHash, &r.PolicyHash, &r.ParamsHash,
		&r.PlanHash, &r.ProjectID, &r.Site, &r.ExecutedAs, &r.Actor, &r.Principal.Name, &r.Principal.ID, &r.State, &r.Phase, &r.Reason, &r.Detail,
		&r.AttemptN, into{&r.Warnings}, &r.ExitCode,
		into{&r.CreatedAt}, into{&r.UpdatedAt}, into{&r.FinishedAt}, into{&r.CancelAt}, &r.CancelReason, into{&r.ResultJSON},
		into{&r.LogArtifactID}, into{&r.ScriptArtifactID}}
}

func scanView(row scanner) (v run.View, err error) {
	r, a, s := &v.Run, &v.Attempt, &v.Submission
	err = row.Scan(append(runFields(r),
		into{&a.Token}, &a.ArrayTask, into{&a.CreatedAt}, into{&a.Placement}, into{&a.Resources}, &a.SlurmState,
		&a.SlurmWhy, &a.SlurmExit, &a.Partition, &a.Account, &a.Limit, into{&a.Avoid}, into{&a.Inputs}, &a.Node,
		into{&a.ObservedAt},
		into{&a.StartedAt}, into{&a.EndedAt}, into{&a.MissedAt}, &a.Ending, &a.ExitCode, into{&a.Usage},
		into{&s.JobName}, into{&s.ScriptSHA}, into{&s.CreatedAt}, into{&s.Cluster}, into{&s.JobID}, into{&s.SubmittedAt}, into{&s.SLUID},
		into{&s.Array},
		&v.Sends, &r.Removed, &v.Repeats)...)
	v.Repeats = v.Repeats && run.FailsAgain(a.Ending, r.Reason)
	a.RunID, a.N, s.Token = r.ID, r.AttemptN, a.Token
	if s.Token == "" {
		*s = run.Submission{}
	}
	return v, err
}

// canonicalText returns a column with the canonical JSON of a value; NULL for nil.
func canonicalText[T any](p *T) (sql.NullString, error) {
	if p == nil {
		return sql.NullString{}, nil
	}
	b, err := plan.Marshal(*p)
	return sql.NullString{String: string(b), Valid: true}, err
}

// elementsText returns a column with the JSON of a list or a map of n elements; NULL for none.
func elementsText(n int, of any) (sql.NullString, error) {
	if n == 0 {
		return sql.NullString{}, nil
	}
	b, err := json.Marshal(of)
	return sql.NullString{String: string(b), Valid: true}, err
}

func view(ctx context.Context, q queryer, runID string) (run.View, error) {
	v, err := scanView(q.QueryRowContext(ctx, "SELECT "+viewColumns+viewFrom+"WHERE r.run_id = ?", runID))
	if errors.Is(err, sql.ErrNoRows) {
		return viewWithoutAttempt(ctx, q, runID)
	}
	return v, storage(err)
}

// View reads a run, by its id or an alias of it, with its current attempt and submission.
func (l *Ledger) View(ctx context.Context, runID string) (run.View, error) {
	return view(context.WithoutCancel(ctx), l.r, runID) // see [Ledger.one]
}

// UserOf returns the Unix user of the cluster that a run is executed as; "": the gateway's own. It never changes. An
// unknown run is NotFound.
func (l *Ledger) UserOf(ctx context.Context, runID string) (user string, err error) {
	err = l.one(ctx, "SELECT executed_as FROM runs WHERE run_id = ?", runID).Scan(&user)
	if errors.Is(err, sql.ErrNoRows) {
		return "", noRun(runID)
	}
	return user, storage(err)
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
	if n.Sought.PlanHash == "" {
		n.Sought = run.Sought{RunID: n.Run.ID, PlanHash: n.Run.PlanHash, PolicyHash: n.Run.PolicyHash,
			ExecutedAs: n.Run.ExecutedAs}
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		now := stored(l.now())
		there, err := known(ctx, tx, n.Sought)
		if created = false; err == nil && there == "" {
			there = n.Run.ID
			if created, err = l.insert(ctx, tx, n, now); created && err == nil {
				err = l.admit(ctx, tx, n.Run, n.Admit)
			}
		}
		if err == nil && n.Waited != nil {
			err = l.started(ctx, tx, *n.Waited, there)
		}
		if err == nil && n.Asking != nil {
			err = l.ask(ctx, tx, there, *n.Asking, nil, "")
		}
		if err == nil && n.Row != nil {
			err = rowIsRun(ctx, tx, *n.Row, there)
		}
		switch {
		case err != nil:
			return err
		case created:
			v = inserted(n, now)
			return nil
		}
		v, err = view(ctx, tx, there)
		return err
	})
	return v, created && err == nil, err
}

// inserted returns the view of a run that was just stored, with the stored times.
func inserted(n run.New, now time.Time) run.View {
	v := run.View{Run: n.Run, Submission: n.Submission, Attempt: firstAttempt(n, now)}
	v.Run.Rev, v.Run.AttemptN, v.Run.CreatedAt, v.Run.UpdatedAt = 1, 1, now, now
	if v.Run.Warnings == nil {
		v.Run.Warnings = []string{}
	}
	if n.Submission.Token != "" {
		v.Submission.CreatedAt, v.Submission.SubmittedAt = stored(n.Submission.CreatedAt), optStored(n.Submission.SubmittedAt)
	}
	return v
}

// firstAttempt returns the attempt of a new run. One without a submission needs no cluster and starts when it is
// stored.
func firstAttempt(n run.New, now time.Time) run.Attempt {
	a := run.Attempt{RunID: n.Run.ID, N: 1, Token: n.Submission.Token, CreatedAt: now, Placement: n.Placement}
	if a.Token == "" {
		a.StartedAt = &a.CreatedAt
	}
	return a
}

// insert writes the rows of a new run, or nothing if its row exists: policy and params, which are written first, then exist too.
func (l *Ledger) insert(ctx context.Context, tx *sql.Conn, n run.New, at time.Time) (created bool, err error) {
	r, now := n.Run, micros(at)
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
	if r.Phase != run.WaitingForInputs {
		if err := writeAttempt(ctx, tx, firstAttempt(n, at)); err != nil {
			return false, err
		}
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
	return params(context.WithoutCancel(ctx), l.r, paramsHash)
}

func params(ctx context.Context, q queryer, paramsHash string) (json.RawMessage, error) {
	return document(ctx, q, "params", "param_sets", "SELECT params FROM param_sets WHERE params_hash = ?", paramsHash)
}

// Policy reads the policy snapshot of runs by its hash and verifies the hash.
func (l *Ledger) Policy(ctx context.Context, policyHash string) (json.RawMessage, error) {
	return document(context.WithoutCancel(ctx), l.r, "policy", "policies", "SELECT snapshot FROM policies WHERE policy_hash = ?", policyHash)
}

// Pack returns the definition of the pack that runs were planned with by its pack_hash, and verifies the hash. An
// unknown hash is NotFound.
func (l *Ledger) Pack(ctx context.Context, packHash string) (json.RawMessage, error) {
	return document(context.WithoutCancel(ctx), l.r, "pack", "packs", "SELECT definition FROM packs WHERE pack_hash = ?", packHash)
}

// document reads canonical JSON that is stored under its hash.
func document(ctx context.Context, q queryer, what, tbl, query, hash string) (json.RawMessage, error) {
	var s string
	err := q.QueryRowContext(ctx, query, hash).Scan(&s)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.NotFound, what+"_not_found", "the ledger has no "+what+" "+hash)
	}
	if err != nil {
		return nil, storage(err)
	}
	if plan.Hash([]byte(s)) != hash {
		if err := erasedFault(ctx, q, tbl, hash, "the "+what+" of this run"); err != nil {
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
