package ledger

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// ArtifactFilter selects artifacts. Empty fields select all.
type ArtifactFilter struct {
	ProjectID string
	Projects  []string // any of these; nil: all
	Type      string
	AsOf      time.Time // created at or before; zero: no bound
	Cursor    string
	Limit     int // 1..500, 50 when 0
}

// conditions returns the filter as SQL, without the cursor's position: a snapshot covers all pages.
func (f ArtifactFilter) conditions() (where string, args []any) {
	conds := []string{"a.removed_at IS NULL"}
	if f.ProjectID != "" {
		conds, args = append(conds, "a.project_id = ?"), append(args, f.ProjectID)
	}
	if f.Projects != nil {
		cond, v := among("a.project_id", f.Projects)
		conds, args = append(conds, cond), append(args, v...)
	}
	if f.Type != "" {
		conds, args = append(conds, "a.type = ?"), append(args, f.Type)
	}
	if !f.AsOf.IsZero() {
		conds, args = append(conds, "a.created_at <= ?"), append(args, micros(f.AsOf))
	}
	return strings.Join(conds, " AND "), args
}

// Snapshot identifies the content of a list: the artifacts that the filter selects and that were created up to a time, and their number. No
// artifact is ever added with an earlier time, so the pair changes only when artifacts are removed.
type Snapshot struct {
	AsOf  time.Time // time of the newest selected artifact; zero when there is none
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
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, 500)
	var from place
	if f.Cursor != "" {
		if from, err = decodePlace(f.Cursor); err != nil {
			return p, err
		}
		f.AsOf = time.UnixMicro(from.asOf)
	}
	// One read transaction: count and page are from the same moment.
	tx, err := l.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return p, storage(err)
	}
	defer tx.Rollback()
	where, args := f.conditions()
	var newest sql.NullInt64
	if err := tx.QueryRowContext(ctx, "SELECT max(a.created_at), count(*) FROM artifacts a WHERE "+where, args...).
		Scan(&newest, &p.Snapshot.Count); err != nil {
		return p, storage(err)
	}
	if at := optTime(newest); at != nil {
		p.Snapshot.AsOf = *at
	}
	if f.Cursor != "" {
		if p.Snapshot.Count != from.count {
			return p, fault.New(fault.Conflict, "ledger.Artifacts", "snapshot_changed",
				fmt.Sprintf("the list had %d artifacts at its first page and has %d now: some were removed, or the filter changed", from.count,
					p.Snapshot.Count)).
				WithNext("list again without a cursor")
		}
		p.Snapshot.AsOf = time.UnixMicro(from.asOf).UTC()
		where, args = where+" AND a.created_at < ?", append(args, from.at)
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+artifactColumns+" FROM artifacts a WHERE "+where+fmt.Sprintf(
		" ORDER BY a.created_at DESC LIMIT %d", f.Limit+1), args...)
	if err != nil {
		return p, storage(err)
	}
	defer rows.Close()
	for rows.Next() {
		a, err := scanArtifact(rows)
		if err != nil {
			return p, storage(err)
		}
		p.Artifacts = append(p.Artifacts, a)
	}
	if len(p.Artifacts) > f.Limit {
		p.Artifacts = p.Artifacts[:f.Limit]
		p.Cursor = place{at: micros(p.Artifacts[f.Limit-1].CreatedAt), asOf: micros(p.Snapshot.AsOf), count: p.Snapshot.Count}.encode()
	}
	return p, storage(rows.Err())
}

// place is where a page of artifacts ended, and its snapshot. Times are microseconds.
type place struct{ at, asOf, count int64 }

func (p place) encode() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %d", p.at, p.asOf, p.count))
}

func decodePlace(s string) (place, error) {
	var p place
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%d %d %d", &p.at, &p.asOf, &p.count)
	}
	if err != nil || p.encode() != s || p.asOf <= 0 || p.at <= 0 || p.at > p.asOf || p.count <= 0 {
		return place{}, fault.Invalid("ledger.Artifacts", "", fault.Problem{Code: "LIST-CURSOR", Field: "cursor",
			Rule: "a cursor of an earlier page",
			Msg:  "it is not a cursor", Hint: "leave the cursor out to start from the beginning"})
	}
	return p, nil
}
