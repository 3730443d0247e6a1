package access

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// A grant that names {user} applies to each user's own project. Whose project that is depends on the principal: a
// user of this host has one by login name and user id, and so has a token or a subject that is mapped to that user; a
// subject without a user has a separate one. The project is looked up at each request, so an administrator's decision
// takes effect immediately.

// withUserProject replaces {user} by the principal's own project. uid is that of its Unix user, or negative if the
// user database must be asked.
func (a *Access) withUserProject(ctx context.Context, p gate.Principal, uid int) (gate.Principal, error) {
	if !slices.ContainsFunc(p.Rights, func(g gate.Grant) bool { return slices.Contains(g.Projects, plan.UserProject) }) {
		return p, nil
	}
	id, err := a.userProjectOf(ctx, p, uid)
	if err != nil {
		return gate.Principal{}, err
	}
	p.UserProject, p.Rights, p.Accounts = id, slices.Clone(p.Rights), withAccount(p.Accounts, id)
	for i, g := range p.Rights {
		p.Rights[i].Projects = withProject(g.Projects, id)
	}
	return p, nil
}

// ForUser returns the grant with the id of a user's own project in place of {user}.
func (g Grant) ForUser(id string) Grant {
	g.Projects, g.Accounts = withProject(g.Projects, id), withAccount(g.Accounts, id)
	return g
}

func withProject(projects []string, id string) []string {
	out := slices.Clone(projects)
	for i, p := range out {
		if p == plan.UserProject {
			out[i] = id
		}
	}
	return out
}

func withAccount(accounts map[string]string, id string) map[string]string {
	account, ok := accounts[plan.UserProject]
	if !ok {
		return accounts
	}
	out := maps.Clone(accounts)
	delete(out, plan.UserProject)
	out[id] = account
	return out
}

// userProjectOf returns the id of the principal's own project.
func (a *Access) userProjectOf(ctx context.Context, p gate.Principal, uid int) (string, error) {
	owner := gate.ProjectUser{Name: p.UnixUser, UID: uid, PrincipalID: p.ID}
	switch {
	case a.projects == nil:
		return "", fault.New(fault.Internal, "", "this gateway has no projects of users")
	case p.UnixUser == "" && p.Method == gate.ByOIDC:
		owner = gate.ProjectUser{Name: p.Name, UID: -1, PrincipalID: p.ID}
	case p.UnixUser == "":
		return "", fault.New(fault.Auth, "no_unix_user", p.Name+" has no name in this host's user database, so it has no private project").
			WithNext("ask the gateway's administrator")
	case uid < 0:
		var err error
		if owner, err = a.ProjectUser(ctx, p.UnixUser); err != nil {
			return "", err
		}
		owner.PrincipalID = p.ID
	}
	return a.projects.UserProject(ctx, owner)
}

// ProjectUser looks up a user of this host who can have an own project. A user that does not exist is an Auth fault;
// while the user database does not answer, the fault is retryable.
func (a *Access) ProjectUser(ctx context.Context, name string) (gate.ProjectUser, error) {
	is, err := a.users.find(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound):
		return gate.ProjectUser{}, fault.New(fault.Auth, "unix_user_gone", fmt.Sprintf("this host has no user %s, so there is no user id that "+
			"a project of that user's own could belong to", shown(name))).WithNext("ask the gateway's administrator")
	case err != nil:
		return gate.ProjectUser{}, unknownUser(name, err)
	}
	return gate.ProjectUser{Name: is.user.Name, UID: is.user.UID}, nil
}

// Person returns the user of this host to whom a principal is mapped: user id and login name, as its identity has them. It is
// empty for the gateway's own user, and for a principal that is mapped to no user of this host. While the user database
// does not answer, the fault is retryable.
func (a *Access) Person(ctx context.Context, p gate.Principal) (string, error) {
	switch {
	case p.UnixUser == "":
		return "", nil
	case p.Method == gate.ByPeer:
		return fmt.Sprint(p.PeerUID, " ", p.UnixUser), nil
	}
	u, err := a.ProjectUser(ctx, p.UnixUser)
	if fault.Is(err, fault.Auth) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprint(u.UID, " ", u.Name), nil
}

// sameUserProject returns an Auth fault if the principal's own project is now another one, or another principal's.
func (a *Access) sameUserProject(ctx context.Context, p gate.Principal) error {
	if p.UserProject == "" {
		return nil
	}
	id, err := a.userProjectOf(ctx, p, -1)
	if err == nil && id != p.UserProject {
		err = fault.New(fault.Auth, "user_project_taken", "the project "+p.UserProject+" is no longer that of "+p.Name)
	}
	return err
}
