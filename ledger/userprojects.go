package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

var _ gate.UserProjects = (*Ledger)(nil)

// UserProject is a project of a user's own.
type UserProject struct {
	ID          string
	User        string // login name, or the name of a subject's principal
	N           int    // which of the people who had the name
	UID         *int   // nil: a subject
	PrincipalID string // whose request, or decision, began it
	BegunAt     time.Time
	EndedAt     *time.Time // when the name became another person's; nil: it is the project of the name's user
}

const userProjectColumns = "u.project_id, u.user, u.n, u.uid, u.principal_id, u.begun_at, u.ended_at FROM user_projects u"

func scanUserProject(row scanner) (p UserProject, err error) {
	err = row.Scan(&p.ID, &p.User, &p.N, &p.UID, &p.PrincipalID, into{&p.BegunAt}, into{&p.EndedAt})
	return p, err
}

// of reports whether the project is this user's.
func (p UserProject) of(u gate.ProjectUser) bool {
	if p.UID == nil || u.UID < 0 {
		return p.UID == nil && u.UID < 0 && p.PrincipalID == u.PrincipalID
	}
	return *p.UID == u.UID
}

// taken returns the fault of a user whose name's project is another user id's.
func (p UserProject) taken(u gate.ProjectUser) error {
	had, is := "an OpenID subject", "you are an OpenID subject"
	if p.UID != nil {
		had = fmt.Sprintf("user id %d", *p.UID)
	}
	if u.UID >= 0 {
		is = fmt.Sprintf("the user %s has user id %d now", u.Name, u.UID)
	}
	msg := fmt.Sprintf("the project of the user %s has belonged to %s since %s (%s), and %s: it is not known whether that is the same person",
		p.User, had, p.BegunAt.Format(time.DateOnly), p.PrincipalID, is)
	return fault.New(fault.Auth, "user_project_taken", msg).WithNext("ask the gateway's administrator to decide: slurmgate projects rebind " +
		p.User + " --same-person, or --another-person")
}

func userProjectNow(ctx context.Context, q queryer, user string) (UserProject, error) {
	p, err := scanUserProject(q.QueryRowContext(ctx, "SELECT "+userProjectColumns+" WHERE u.user = ? AND u.ended_at IS NULL", user))
	if errors.Is(err, sql.ErrNoRows) {
		return p, fault.New(fault.NotFound, "user_project_not_found", "the user "+user+" has no project yet").
			WithNext("list the projects").WithSteps(fault.Do("project.list"))
	}
	return p, storage(err)
}

// UserProject returns the id of a user's own project; gate.UserProjects has the contract.
func (l *Ledger) UserProject(ctx context.Context, u gate.ProjectUser) (string, error) {
	p, err := userProjectNow(context.WithoutCancel(ctx), l.r, u.Name)
	if fault.Is(err, fault.NotFound) {
		err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
			if p, err = userProjectNow(ctx, tx, u.Name); !fault.Is(err, fault.NotFound) {
				return err
			}
			p, err = l.beginUserProject(ctx, tx, u, 1)
			return err
		})
	}
	if err == nil && !p.of(u) {
		err = p.taken(u)
	}
	if err != nil {
		return "", err
	}
	return p.ID, nil
}

func (l *Ledger) beginUserProject(ctx context.Context, tx *sql.Conn, u gate.ProjectUser, n int) (UserProject, error) {
	p := UserProject{ID: plan.UserProjectID(u.Name, n), User: u.Name, N: n, PrincipalID: u.PrincipalID, BegunAt: stored(l.now())}
	if u.UID >= 0 {
		p.UID = &u.UID
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO user_projects VALUES (?,?,?,?,?,?,NULL)", p.ID, p.User, p.N, p.UID, p.PrincipalID,
		micros(p.BegunAt)); err != nil {
		return p, err
	}
	return p, l.appendEvent(ctx, tx, "", run.Event{Type: "user_project.begun", Data: p.data()})
}

func (p UserProject) data() map[string]any {
	return map[string]any{"project_id": p.ID, "user": p.User, "n": p.N, "uid": p.UID, "principal_id": p.PrincipalID}
}

// RebindUserProject decides whose the project of a user's name is, now that the name has another user id: the same
// person's, who keeps it, or another one's, for whom an empty one is begun. by is who decides and why. A user whose
// id is as before is a Conflict.
func (l *Ledger) RebindUserProject(ctx context.Context, u gate.ProjectUser, samePerson bool, by, why string) (p UserProject, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		if p, err = userProjectNow(ctx, tx, u.Name); err != nil {
			return err
		}
		if p.of(u) {
			return fault.New(fault.Conflict, "user_project_bound", fmt.Sprintf("the project of the user %s belongs to user id %d, which the user "+
				"has: there is nothing to decide", u.Name, u.UID))
		}
		data := map[string]any{"project_id": p.ID, "user": p.User, "was_uid": p.UID, "uid": u.UID, "same_person": samePerson, "by": by,
			"by_id": u.PrincipalID, "reason": why}
		if samePerson {
			_, err = tx.ExecContext(ctx, "UPDATE user_projects SET uid = ? WHERE project_id = ?", u.UID, p.ID)
			p.UID = &u.UID
		} else {
			_, err = tx.ExecContext(ctx, "UPDATE user_projects SET ended_at = ? WHERE project_id = ?", micros(l.now()), p.ID)
		}
		if err == nil {
			err = l.appendEvent(ctx, tx, "", run.Event{Type: "user_project.decided", Data: data})
		}
		if err == nil && !samePerson {
			p, err = l.beginUserProject(ctx, tx, u, p.N+1)
		}
		return err
	})
	return p, err
}

// UserProjects lists the projects of users among some projects (nil: all), by name, at most limit of them after one
// (empty: from the first), and returns how many there are.
func (l *Ledger) UserProjects(ctx context.Context, projects []string, after string, limit int) (out []UserProject, n int64, err error) {
	var w where
	if projects != nil {
		in, args := among("u.project_id", projects)
		w.add(in, args...)
	}
	if err := l.one(ctx, "SELECT count(*) FROM user_projects u WHERE "+w.String(), w.args...).Scan(&n); err != nil {
		return nil, 0, storage(err)
	}
	if after != "" {
		w.add("(u.user, u.n) > (SELECT a.user, a.n FROM user_projects a WHERE a.project_id = ?)", after)
	}
	out, err = list(context.WithoutCancel(ctx), l.r, scanUserProject, "SELECT "+userProjectColumns+" WHERE "+w.String()+
		" ORDER BY u.user, u.n LIMIT ?", append(w.args, limit)...)
	return out, n, err
}
