package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// ArtifactFilter selects artifacts. Empty fields select all.
type ArtifactFilter struct {
	ProjectID string
	Projects  []string // any of these; nil: all
	Type      string
	IDPrefix  string    // what the artifact's id begins with
	SHA256    string    // of the bytes
	Named     string    // what the label contains, in upper or lower case (of ASCII), or what is of a sample or tag, see filesOfRows
	AsOf      time.Time // created at or before; zero: no bound
	Cursor    string
	Limit     int // 1..500, 50 when 0
}

// where returns the filter as SQL, without the cursor's place: a snapshot covers all pages.
func (f ArtifactFilter) where() where {
	w := f.counted()
	w.add("a.removed_at IS NULL")
	w.is("a.sha256", f.SHA256)
	if f.Named != "" {
		w.add("(instr(lower(a.label), lower(?)) > 0 OR a.artifact_id IN (SELECT artifact_id FROM ("+filesOfRows+")))", f.Named, f.Named, f.Named)
	}
	if f.IDPrefix != "" {
		w.begins("a.artifact_id", f.IDPrefix)
	}
	if !f.AsOf.IsZero() {
		w.add("a.created_at <= ?", micros(f.AsOf))
	}
	return w
}

// counted returns the part of the filter that artifact_counts has columns for.
func (f ArtifactFilter) counted() (w where) {
	w.is("a.project_id", f.ProjectID)
	w.is("a.type", f.Type)
	if f.Projects != nil {
		cond, v := among("a.project_id", f.Projects)
		w.add(cond, v...)
	}
	return w
}

// count returns how many artifacts the filter selects. Those that were added after its time are few, and are counted
// one by one.
func (f ArtifactFilter) count(ctx context.Context, tx *sql.Tx) (n int64, err error) {
	if w := f.where(); f.SHA256+f.Named+f.IDPrefix != "" {
		err = tx.QueryRowContext(ctx, "SELECT count(*) FROM artifacts a WHERE "+w.String(), w.args...).Scan(&n)
		return n, err
	}
	w := f.counted()
	err = tx.QueryRowContext(ctx, "SELECT coalesce(sum(a.n), 0) FROM artifact_counts a WHERE "+w.String(), w.args...).Scan(&n)
	if err != nil || f.AsOf.IsZero() {
		return n, err
	}
	var later int64
	w.add("a.removed_at IS NULL AND a.created_at > ?", micros(f.AsOf))
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM artifacts a WHERE "+w.String(), w.args...).Scan(&later)
	return n - later, err
}

// filesOfRows are the inputs and outputs of the runs of rows of batches that have a sample or a tag: of the newest ones, because a tag may
// be that of a million.
const filesOfRows = `WITH m AS MATERIALIZED (SELECT run_id, sample FROM (SELECT run_id, sample FROM batch_rows WHERE sample = ? AND run_id IS NOT NULL
  ORDER BY run_at DESC LIMIT 2000)
 UNION SELECT t.run_id, w.sample FROM (SELECT batch_id, row_n, run_id FROM batch_tags WHERE tag = ? AND run_id IS NOT NULL ORDER BY run_at DESC LIMIT 2000) t
  JOIN batch_rows w ON (w.batch_id, w.row_n) = (t.batch_id, t.row_n))
 SELECT o.artifact_id, m.sample FROM m CROSS JOIN run_outputs o ON o.run_id = m.run_id WHERE o.relpath <> ''
 UNION SELECT i.artifact_id, m.sample FROM m CROSS JOIN run_inputs i ON i.run_id = m.run_id`

// SamplesOf returns the samples of artifacts, from rows that have a sample or a tag; "S1 and others" where there are
// several. Artifacts found by their label alone are absent.
func (l *Ledger) SamplesOf(ctx context.Context, named string, ids []string) (map[string]string, error) {
	in, args := among("artifact_id", ids)
	out := map[string]string{}
	_, err := list(ctx, l.r, func(row scanner) (none struct{}, err error) {
		var id, sample string
		err = row.Scan(&id, &sample)
		out[id] = sample
		return none, err
	}, "SELECT artifact_id, min(sample) || iif(count(DISTINCT sample) > 1, ' and others', '') FROM ("+filesOfRows+") WHERE "+in+
		" GROUP BY artifact_id", append([]any{named, named}, args...)...)
	return out, storage(err)
}

// Snapshot identifies the content of a list: the artifacts that the filter selects and that were created up to a time, and their number. No
// artifact is ever added with an earlier time, so the pair changes only when artifacts are removed.
type Snapshot struct {
	AsOf  time.Time // time of the newest selected artifact; zero without any
	Count int64
}

// ArtifactPage is one page of a snapshot, newest first. Cursor is empty on the last.
type ArtifactPage struct {
	Artifacts []run.Artifact
	Snapshot  Snapshot
	Cursor    string
}

// Artifacts returns one page of artifacts (ARC-05). The first page takes the snapshot and the cursor carries it, so that later pages
// do not show artifacts added meanwhile. A snapshot that has since lost artifacts to garbage collection is a Conflict fault with code
// snapshot_changed.
func (l *Ledger) Artifacts(ctx context.Context, f ArtifactFilter) (p ArtifactPage, err error) {
	var at, asOf, count int64 // where the page before ended, and its snapshot
	if f.Cursor != "" {
		if err := decodeCursor(f.Cursor, &at, &asOf, &count); err != nil {
			return p, err
		}
		if asOf <= 0 || at <= 0 || at > asOf || count <= 0 {
			return p, noCursor()
		}
		f.AsOf = time.UnixMicro(asOf).UTC()
	}
	where, limit := f.where(), pageLimit(f.Limit)
	err = l.snapshot(ctx, func(tx *sql.Tx) (err error) { // count and page are of the same moment
		p.Snapshot.Count, err = f.count(ctx, tx)
		switch {
		case err != nil:
			return err
		case f.Cursor != "" && p.Snapshot.Count != count:
			return fault.New(fault.Conflict, "snapshot_changed",
				fmt.Sprintf("the list had %d artifacts at its first page and has %d now: some were removed, or the filter changed", count,
					p.Snapshot.Count)).WithNext("list again without a cursor")
		case f.Cursor != "":
			p.Snapshot.AsOf = f.AsOf
			where.add("a.created_at < ?", at)
		}
		p.Artifacts, err = list(ctx, tx, scanArtifact, "SELECT "+artifactColumns+" FROM artifacts a WHERE "+where.String()+
			" ORDER BY a.created_at DESC LIMIT ?", append(where.args, limit+1)...)
		if len(p.Artifacts) > 0 && f.Cursor == "" {
			p.Snapshot.AsOf = p.Artifacts[0].CreatedAt // the newest
		}
		return err
	})
	if err != nil {
		return ArtifactPage{}, err
	}
	p.Artifacts, p.Cursor = page(p.Artifacts, limit, func(a run.Artifact) []any {
		return []any{micros(a.CreatedAt), micros(p.Snapshot.AsOf), p.Snapshot.Count}
	})
	return p, nil
}
