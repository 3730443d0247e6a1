package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Reference is one version of a name that the site has given to bytes.
type Reference struct {
	Name        string
	SHA256      string
	Type        string
	Label       string
	SizeBytes   int64
	Description string
	Site        string   // where it was registered in place; empty: it is stored
	Path        string   // there
	Projects    []string // ids of those it is offered to, {user} for every user's own; nil: all
	By          string   // name of who added it
	At          time.Time
	Ended       *time.Time // another replaced it
}

// Source returns the source of the artifacts that represent a reference in a project.
func (r Reference) Source() string { return "reference " + r.Name }

// OfferedTo reports whether runs of a project may use the reference.
func (r Reference) OfferedTo(project string) bool {
	return r.Projects == nil || plan.InProjects(r.Projects, project)
}

const referenceColumns = "name, sha256, type, label, size_bytes, description, site, path, projects, principal, at, ended_at"

func scanReference(row scanner) (r Reference, err error) {
	var projects sql.NullString
	err = row.Scan(&r.Name, &r.SHA256, &r.Type, &r.Label, &r.SizeBytes, &r.Description, &r.Site, &r.Path, &projects, &r.By, into{&r.At},
		into{&r.Ended})
	if err == nil && projects.Valid {
		err = json.Unmarshal([]byte(projects.String), &r.Projects)
	}
	return r, err
}

// References lists the current version of every name, by name.
func (l *Ledger) References(ctx context.Context) ([]Reference, error) {
	return list(ctx, l.r, scanReference, "SELECT "+referenceColumns+" FROM reference_versions WHERE ended_at IS NULL ORDER BY name")
}

// ReferenceVersions lists the versions of a name that were not withdrawn, the current one first.
func (l *Ledger) ReferenceVersions(ctx context.Context, name string) ([]Reference, error) {
	return list(ctx, l.r, scanReference, "SELECT "+referenceColumns+
		" FROM reference_versions WHERE name = ? AND NOT withdrawn ORDER BY version DESC", name)
}

// NamesOf lists the versions of references that were recorded with these bytes and this type, the newest first.
func (l *Ledger) NamesOf(ctx context.Context, sha256, typ string) ([]Reference, error) {
	return list(ctx, l.r, scanReference, namesQuery, sha256, typ)
}

const namesQuery = "SELECT " + referenceColumns + " FROM reference_versions WHERE sha256 = ? AND type = ? ORDER BY version DESC"

// NameFor returns the name of the reference whose bytes an artifact of a project with this source has, or "".
// versions are those with its bytes, as [Ledger.NamesOf] returns them.
func NameFor(versions []Reference, project, source string) (name string) {
	for _, r := range versions {
		if r.OfferedTo(project) && (name == "" || r.Source() == source) {
			name = r.Name
		}
	}
	return name
}

// AddReference records a version of a name and reports whether it is a new one. Another content than the name has now needs replace.
func (l *Ledger) AddReference(ctx context.Context, r Reference, replace bool) (created bool, err error) {
	var projects any
	if r.Projects != nil {
		text, err := json.Marshal(r.Projects)
		if err != nil {
			return false, err
		}
		projects = string(text)
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		old, err := scanReference(tx.QueryRowContext(ctx, "SELECT "+referenceColumns+
			" FROM reference_versions WHERE name = ? AND ended_at IS NULL", r.Name))
		event := "reference.added"
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case old.same(r):
			return nil
		case !replace:
			return fault.New(fault.Conflict, "reference_exists", fmt.Sprintf("the reference %s exists and is something else: %s sha256:%s, "+
				"added by %s", r.Name, old.Type, old.SHA256, old.By)).
				WithNext("choose another name, or replace it (--replace, or replace: true): runs that used it keep what they had")
		default:
			event = "reference.replaced"
			if _, err := tx.ExecContext(ctx, "UPDATE reference_versions SET ended_at = ? WHERE name = ? AND ended_at IS NULL", micros(l.now()),
				r.Name); err != nil {
				return err
			}
		}
		if there, err := l.hasBytes(ctx, tx, r.SHA256); err != nil {
			return err
		} else if !there {
			return fault.New(fault.Transport, "artifact_bytes_missing", "the bytes of the reference are no longer there").WithNext("add it again")
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO reference_versions (name, sha256, type, label, size_bytes, description, site, path, projects,
 principal, at) VALUES (?,?,?,?,?,?,?,?,?,?,?)`, r.Name, r.SHA256, r.Type, r.Label, r.SizeBytes, r.Description, r.Site, r.Path, projects, r.By,
			micros(l.now())); err != nil {
			return err
		}
		created = true
		err = l.appendEvent(ctx, tx, "", run.Event{Type: event, Data: map[string]any{"name": r.Name, "sha256": r.SHA256, "type": r.Type,
			"size_bytes": r.SizeBytes, "site": r.Site, "path": r.Path, "projects": r.Projects, "by": r.By}})
		return err
	})
	return created, err
}

// same reports whether two versions say the same.
func (r Reference) same(o Reference) bool {
	return r.SHA256 == o.SHA256 && r.Type == o.Type && r.Label == o.Label && r.Description == o.Description && r.Site == o.Site &&
		r.Path == o.Path && (r.Projects == nil) == (o.Projects == nil) && slices.Equal(r.Projects, o.Projects)
}

// RemoveReference withdraws a name with all of its versions. It forgets the place of data used in place too, unless a
// run that has not ended needs it.
func (l *Ledger) RemoveReference(ctx context.Context, name, by string) (r Reference, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		r, err = scanReference(tx.QueryRowContext(ctx, "SELECT "+referenceColumns+
			" FROM reference_versions WHERE name = ? AND ended_at IS NULL", name))
		if err != nil {
			return err
		}
		now := micros(l.now())
		if _, err := tx.ExecContext(ctx, "UPDATE reference_versions SET withdrawn = 1, ended_at = coalesce(ended_at, ?) WHERE name = ?", now,
			name); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM places WHERE artifact_id = ''
 AND (site, path) IN (SELECT site, path FROM reference_versions WHERE name = ?)
 AND NOT EXISTS (SELECT 1 FROM reference_versions v WHERE v.sha256 = places.sha256 AND NOT v.withdrawn)
 AND NOT EXISTS (SELECT 1 FROM artifacts a JOIN run_inputs i ON i.artifact_id = a.artifact_id JOIN runs r ON r.run_id = i.run_id
  WHERE a.sha256 = places.sha256 AND a.removed_at IS NULL AND r.phase <> 'done')`, name); err != nil {
			return err
		}
		err := l.appendEvent(ctx, tx, "", run.Event{Type: "reference.removed", Data: map[string]any{"name": name, "sha256": r.SHA256,
			"by": by}})
		return err
	})
	return r, err
}
