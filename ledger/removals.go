package ledger

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/retention"
	"slurmgate/run"
)

// errRehearsed ends the transaction of a dry run.
var errRehearsed = errors.New("a dry run")

// Remove carries out the ledger's part of a removal, see [retention.DeletionLedger].
func (l *Ledger) Remove(ctx context.Context, r retention.Removal, dry bool) (out retention.RemovalReport, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		x := removing{l: l, tx: tx, r: r, now: micros(l.now()), out: retention.RemovalReport{DryRun: dry, Artifacts: []retention.Removed{},
			Runs: []string{}, Workspaces: []string{}, Already: []string{}, Withdrawn: []retention.Withdrawn{},
			Kept: []retention.Skipped{}, Copies: []string{}, Pending: []retention.Skipped{}, Outside: []string{}}}
		err := x.carryOut(ctx)
		if out = x.out; err == nil && dry {
			out.ID, err = "", errRehearsed
		}
		return err
	})
	if errors.Is(err, errRehearsed) {
		err = nil
	}
	return out, err
}

// removing is the transaction of one removal.
type removing struct {
	l    *Ledger
	tx   *sql.Conn
	r    retention.Removal
	now  int64
	out  retention.RemovalReport
	sums []string // of the removed artifacts
}

func (x *removing) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return update(ctx, x.tx, query, args...)
}

func (x *removing) carryOut(ctx context.Context) error {
	if err := x.withdraw(ctx); err != nil {
		return err
	}
	if len(x.r.Artifacts)+len(x.r.Runs) == 0 {
		return nil
	}
	if err := beginDeletion(ctx, x.tx, x.r.ID, x.r.By, x.r.ByID, x.r.Reason, nil, x.now); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{x.runs, x.artifacts, x.workspaces, x.records, x.bytes} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if len(x.out.Artifacts)+len(x.out.Runs)+len(x.out.Workspaces) > 0 {
		x.out.ID = x.r.ID
	} else if len(x.out.Withdrawn) == 0 { // all of it was removed before
		return errRehearsed
	}
	return endDeletion(ctx, x.tx, x.r.ID, x.now)
}

// runs marks runs that are over.
func (x *removing) runs(ctx context.Context) error {
	for _, id := range x.r.Runs {
		v, err := view(ctx, x.tx, id)
		switch {
		case err != nil:
			return err
		case v.Run.Removed != "":
			x.out.Already = append(x.out.Already, id)
			continue
		}
		if _, err := x.exec(ctx, "INSERT INTO run_removals VALUES (?,?,?)", id, v.Run.AttemptN, x.r.ID); err != nil {
			return err
		}
		if err := x.say(ctx, "run.removed", map[string]any{"run_id": id, "attempt": v.Run.AttemptN}); err != nil {
			return err
		}
		x.out.Runs, x.out.Workspaces = append(x.out.Runs, id), append(x.out.Workspaces, id)
	}
	return nil
}

// had lists what a run made: outputs of all its attempts, log and script.
const had = `SELECT artifact_id FROM run_outputs WHERE run_id = ?1 UNION SELECT log_artifact_id FROM runs WHERE run_id = ?1 AND log_artifact_id IS NOT NULL
 UNION SELECT script_artifact_id FROM runs WHERE run_id = ?1 AND script_artifact_id IS NOT NULL`

// needs lists the runs that have an artifact and that were not removed.
const needs = `SELECT r.run_id FROM runs r WHERE (r.run_id IN (SELECT run_id FROM run_inputs WHERE artifact_id = ?1 UNION SELECT run_id FROM run_outputs
 WHERE artifact_id = ?1) OR r.log_artifact_id = ?1 OR r.script_artifact_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM run_removals x WHERE x.run_id = r.run_id AND x.attempt_n = r.attempt_n) ORDER BY r.run_id LIMIT 11`

// artifacts marks the named artifacts, and what the runs made and no other run has.
func (x *removing) artifacts(ctx context.Context) error {
	for _, id := range x.r.Artifacts {
		flying, err := list(ctx, x.tx, column[string], "SELECT DISTINCT i.run_id FROM run_inputs i JOIN runs r ON r.run_id = i.run_id "+
			"WHERE i.artifact_id = ? AND r.phase <> 'done' ORDER BY i.run_id", id)
		if err == nil && len(flying) > 0 {
			err = retention.InUseFault(id, flying)
		}
		if err == nil {
			err = x.artifact(ctx, id, true)
		}
		if err != nil {
			return err
		}
	}
	for _, runID := range x.out.Runs {
		made, err := list(ctx, x.tx, column[string], had, runID)
		if err != nil {
			return err
		}
		for _, id := range made {
			others, err := list(ctx, x.tx, column[string], needs, id)
			if err == nil && len(others) > 0 {
				x.out.Kept = append(x.out.Kept, retention.Skipped{Name: id, Why: fmt.Sprintf("%s made it, and %s has it too", runID, others[0])})
				continue
			}
			var held []run.Asker
			if err == nil {
				held, err = x.othersAsk(ctx, id, slices.Contains(x.r.ForAll, runID))
			}
			if err == nil && len(held) > 0 {
				x.out.Kept = append(x.out.Kept, retention.Skipped{Name: id, Why: fmt.Sprintf("%s made it, and %s imported it too", runID,
					run.AskersText(held))})
				continue
			}
			if err == nil {
				err = x.artifact(ctx, id, false)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// artifact marks one artifact.
func (x *removing) artifact(ctx context.Context, id string, asked bool) error {
	a, err := scanArtifact(x.tx.QueryRowContext(ctx, "SELECT "+artifactColumns+" FROM artifacts a WHERE a.artifact_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+id).WithSteps(fault.Do("artifact.list"))
	}
	if err != nil {
		return err
	}
	n, err := x.exec(ctx, "UPDATE artifacts SET removed_at = ?, removal = ? WHERE artifact_id = ? AND removed_at IS NULL", x.now, x.r.ID, id)
	if err != nil {
		return err
	}
	if n == 0 {
		if asked {
			x.out.Already = append(x.out.Already, id)
		}
		return nil
	}
	if _, err := x.exec(ctx, "DELETE FROM places WHERE artifact_id = ?", id); err != nil { // the files are not ours to touch
		return err
	}
	x.out.Artifacts = append(x.out.Artifacts, retention.Removed{ArtifactID: id, Label: a.Label, SHA256: a.SHA256, SizeBytes: a.SizeBytes})
	if !slices.Contains(x.sums, a.SHA256) {
		x.sums = append(x.sums, a.SHA256)
	}
	return x.say(ctx, "artifact.removed", map[string]any{"artifact_id": id, "sha256": a.SHA256, "size_bytes": a.SizeBytes, "why": "asked"})
}

// workspaces finds the workspaces with copies of the removed artifacts.
func (x *removing) workspaces(ctx context.Context) error {
	for _, a := range x.out.Artifacts {
		copies, err := list(ctx, x.tx, column[string], `SELECT r.run_id FROM runs r LEFT JOIN workspace_removals w ON w.run_id = r.run_id AND w.attempt_n = r.attempt_n
 WHERE r.run_id IN (SELECT run_id FROM run_inputs WHERE artifact_id = ?1 UNION SELECT run_id FROM run_outputs WHERE artifact_id = ?1)
 AND w.removed_at IS NULL AND r.phase = 'done' AND r.site <> ?2 ORDER BY r.run_id`, a.ArtifactID, run.WorkerSite)
		if err != nil {
			return err
		}
		for _, id := range copies {
			held, err := x.othersAsk(ctx, id, slices.Contains(x.r.ForAll, a.ArtifactID))
			if err != nil {
				return err
			}
			switch {
			case slices.Contains(x.out.Workspaces, id), slices.Contains(x.out.Copies, id):
			case x.r.Copies && len(held) == 0:
				x.out.Workspaces = append(x.out.Workspaces, id)
			default:
				x.out.Copies = append(x.out.Copies, id)
			}
		}
	}
	return leftToDelete(ctx, x.tx, x.r.ID, retention.ItemWorkspace, x.out.Workspaces...)
}

// records deletes the answers of read-only calls about what is removed, and the texts that were imported as it. Their
// events keep the hashes.
func (x *removing) records(ctx context.Context) error {
	ids := slices.Clone(x.out.Runs)
	for _, a := range x.out.Artifacts {
		ids = append(ids, a.ArtifactID)
	}
	for _, id := range ids {
		if err := x.answers(ctx, id); err != nil {
			return err
		}
		n, err := x.exec(ctx, `DELETE FROM tool_payloads WHERE (chain = 'looks' AND kind = 'result' OR kind = 'args' AND (chain, seq) IN (
 SELECT chain, seq FROM tool_call_events WHERE tool_id = 'artifact.import')) AND (chain, seq) IN (
 SELECT chain, seq FROM tool_payloads p WHERE instr(p.payload_redacted, ?) > 0)`, id)
		if err != nil {
			return err
		}
		x.out.Records += int(n)
	}
	return nil
}

// answers marks the answers of read-only calls about what is removed that were too large for an envelope.
func (x *removing) answers(ctx context.Context, id string) error {
	refs, err := list(ctx, x.tx, column[string], `SELECT json_extract(e.event, '$.result_ref') FROM tool_payloads p JOIN tool_call_events e
 ON e.chain = p.chain AND e.seq = p.seq WHERE p.chain = 'looks' AND p.kind = 'args' AND instr(p.payload_redacted, ?) > 0
 AND json_extract(e.event, '$.result_ref') IS NOT NULL`, id)
	for _, ref := range refs {
		if err != nil {
			return err
		}
		if at := strings.LastIndex(ref, "art_"); at >= 0 {
			var own bool
			if err = x.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM artifacts WHERE artifact_id = ? AND source = 'result')", ref[at:]).
				Scan(&own); err == nil && own {
				err = x.artifact(ctx, ref[at:], false)
			}
		}
	}
	return err
}

// bytes finds the bytes that no artifact has any more: documents of the ledger go, objects are removed later.
func (x *removing) bytes(ctx context.Context) error {
	rewrite := x.out.Records > 0
	for _, sum := range x.sums {
		var others int
		err := x.tx.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM artifacts WHERE sha256 = ?1 AND removed_at IS NULL) + "+
			"(SELECT count(DISTINCT name) FROM reference_versions WHERE sha256 = ?1 AND NOT withdrawn)", sum).Scan(&others)
		if err != nil {
			return err
		}
		size := int64(0)
		for i := range x.out.Artifacts {
			if x.out.Artifacts[i].SHA256 == sum {
				x.out.Artifacts[i].Others, size = others, x.out.Artifacts[i].SizeBytes
			}
		}
		if others > 0 {
			continue
		}
		freed, is, err := x.directory(ctx, sum)
		if err != nil {
			return err
		}
		if is {
			size = freed
		}
		raw, err := hex.DecodeString(sum)
		if err != nil {
			return err
		}
		if _, err := x.exec(ctx, "DELETE FROM places WHERE sha256 = ?", sum); err != nil { // of a reference
			return err
		}
		n, err := x.exec(ctx, "DELETE FROM payloads WHERE sha256 = ?", raw)
		if err != nil {
			return err
		}
		x.out.FreedBytes += size
		if n > 0 {
			rewrite = true
		} else if err := leftToDelete(ctx, x.tx, x.r.ID, retention.ItemObject, sum); err != nil {
			return err
		}
	}
	if rewrite {
		return leftToDelete(ctx, x.tx, x.r.ID, retention.ItemLedger, "")
	}
	return nil
}

// directory finds the files of a directory that nothing else has, and forgets its list; no artifact has that list any more. freed is their
// size.
func (x *removing) directory(ctx context.Context, sum string) (freed int64, is bool, err error) {
	var id int64
	err = x.tx.QueryRowContext(ctx, "SELECT directory_id, list_bytes FROM directories WHERE sha256 = ?", sum).Scan(&id, &freed)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	const alone = ` FROM directory_files f WHERE f.directory_id = ?1 AND NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.sha256 = lower(hex(f.sha256))
 AND a.removed_at IS NULL)
 AND NOT EXISTS (SELECT 1 FROM reference_versions v WHERE v.sha256 = lower(hex(f.sha256)) AND NOT v.withdrawn)
 AND NOT EXISTS (SELECT 1 FROM directory_files o JOIN directories d ON d.directory_id = o.directory_id
 WHERE o.sha256 = f.sha256 AND o.directory_id <> ?1 AND ` + needed + `)`
	var files int64
	recent := x.l.recentLists()
	if err := x.tx.QueryRowContext(ctx, "SELECT coalesce(sum(f.size_bytes), 0)"+alone, id, recent).Scan(&files); err != nil {
		return 0, false, err
	}
	if _, err := x.exec(ctx, "INSERT INTO deletion_items SELECT ?3, ?4, lower(hex(f.sha256)), NULL"+alone+" ON CONFLICT DO NOTHING",
		id, recent, x.r.ID, retention.ItemObject); err != nil {
		return 0, false, err
	}
	_, err = x.exec(ctx, "DELETE FROM directories WHERE directory_id = ?", id)
	return freed + files, true, err
}

// say appends an event. It is no event of a run: those are one for each of its revisions.
func (x *removing) say(ctx context.Context, typ string, data map[string]any) error {
	data["removal_id"], data["principal"], data["reason"] = x.r.ID, x.r.By, x.r.Reason
	err := x.l.appendEvent(ctx, x.tx, "", run.Event{Type: typ, Data: data})
	return err
}

// RemovalOf returns who removed something, when and why, as a text.
func (l *Ledger) RemovalOf(ctx context.Context, id string) (text string, err error) {
	var by, reason string
	var at time.Time
	err = l.one(ctx, "SELECT principal, reason, begun_at FROM deletions WHERE deletion_id = ?", id).Scan(&by, &reason, into{&at})
	return fmt.Sprintf("%s removed it on %s: %s (%s)", by, at.Format("2006-01-02"), reason, id), storage(err)
}

// GoneInputs lists the inputs of a run whose bytes were removed.
func (l *Ledger) GoneInputs(ctx context.Context, runID string) ([]string, error) {
	return list(ctx, l.r, column[string], "SELECT DISTINCT a.artifact_id FROM run_inputs i JOIN artifacts a ON a.artifact_id = i.artifact_id "+
		"WHERE i.run_id = ? AND a.removed_at IS NOT NULL ORDER BY 1", runID)
}
