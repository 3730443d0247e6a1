package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/access"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// projects returns the operations on projects: those that callers share, and those of single users.
func (g *Gateway) projects() []Operation {
	return []Operation{{
		ID: "project.list", Title: "List projects", Verb: "projects list",
		Description: "Lists the projects that the caller may read: its own, which no one else has, and those that several callers share, each " +
			"with its members and what it keeps. All who may read a project can read everything in it.",
		Chat:   gate.Chat{Has: true},
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.listProjects),
	}, {
		ID: "project.rebind", Title: "Decide whose project it is", Verb: "projects rebind",
		Description: "Decides whose the project of a user's own is, after the user's name came back with another user id: the same person's, " +
			"who keeps it, or another person's, who gets an empty one. Until then the user is refused.",
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.rebindProject),
	}}
}

// ProjectMember is one that has rights on a project.
type ProjectMember struct {
	Who          string   `json:"who" help:"user:NAME, group:NAME, token:NAME, or a claim of an OpenID provider"`
	Capabilities []string `json:"capabilities"`
}

// ProjectRow is a project in a list.
type ProjectRow struct {
	ProjectID string          `json:"project_id"`
	Name      *string         `json:"name" help:"null: known by its id alone, or a user's own"`
	User      *string         `json:"user" help:"whose own it is; null: callers share it"`
	UID       *int            `json:"uid" help:"the user id that it is bound to"`
	Default   bool            `json:"default" help:"calls of this caller that name no project are about it"`
	Members   []ProjectMember `json:"members" help:"besides that user, and those with rights on all projects"`
	More      int             `json:"more_members"`
	Artifacts int64           `json:"artifacts"`
	Bytes     int64           `json:"bytes"`
	OpenRuns  int64           `json:"open_runs"`
	BegunAt   *time.Time      `json:"begun_at"` // of a user's project
	EndedAt   *time.Time      `json:"ended_at"` // when another person got the user's name
}

// ProjectList is the answer of project.list.
type ProjectList struct {
	CallRunID
	Listed
	Everywhere []ProjectMember `json:"everywhere" help:"who has rights on all projects"`
	Projects   []ProjectRow    `json:"projects"`
	Cursor     *string         `json:"cursor"`
}

// ProjectListArgs are the arguments of project.list.
type ProjectListArgs struct {
	Limit  int    `json:"limit,omitzero" min:"1" max:"200" default:"50" help:"Maximum number of users' projects to list (1 to 200)."`
	Cursor string `json:"cursor,omitzero" max:"256" help:"Continue after an earlier page." placeholder:"CURSOR"`
}

// maxMembers bounds the members of one project that a list names.
const maxMembers = 50

// listProjects lists shared projects, which the site file and tokens name, on the first page, and after them those of
// users.
func (g *Gateway) listProjects(ctx context.Context, c gate.Call, a ProjectListArgs) (out ProjectList, err error) {
	of, err := g.membership(ctx)
	if err != nil {
		return out, err
	}
	seen := c.Projects()
	out.Projects, out.Everywhere = []ProjectRow{}, of.members[gate.All]
	for _, id := range of.shared(seen) {
		out.Total++
		if a.Cursor == "" {
			row := ProjectRow{ProjectID: id}
			if name := of.names[id]; name != "" {
				row.Name = &name
			}
			out.Projects = append(out.Projects, row)
		}
	}
	limit := cmp.Or(a.Limit, 50)
	users, n, err := g.Ledger.UserProjects(ctx, seen, a.Cursor, limit)
	out.Total, out.TotalExact = out.Total+n, true
	for _, u := range users {
		out.Projects = append(out.Projects, ProjectRow{ProjectID: u.ID, User: &u.User, UID: u.UID, BegunAt: &u.BegunAt, EndedAt: u.EndedAt})
	}
	if len(users) == limit {
		out.Cursor = known(users[limit-1].ID)
	}
	first, _ := g.projectOf(c, "")
	for i := range out.Projects {
		if err == nil {
			err = g.describe(ctx, &out.Projects[i], of, first)
		}
	}
	return out, err
}

// describe adds to a row what the project stores and its members.
func (g *Gateway) describe(ctx context.Context, row *ProjectRow, of membership, first string) error {
	row.Default = row.ProjectID == first
	row.Members = append([]ProjectMember{}, of.members[row.ProjectID]...)
	if row.User != nil && row.EndedAt == nil {
		row.Members = append(row.Members, of.tokens[*row.User]...)
	}
	row.More = max(0, len(row.Members)-maxMembers)
	row.Members = row.Members[:len(row.Members)-row.More]
	use, err := g.Ledger.Use(ctx, row.ProjectID)
	if err != nil {
		return err
	}
	row.Artifacts, row.Bytes = use.Artifacts, use.Bytes
	row.OpenRuns, err = g.Ledger.Index("").Open(ctx, row.ProjectID)
	return err
}

// membership maps projects to those that have rights on them, by the site file and by valid tokens.
type membership struct {
	names   map[string]string          // of projects, by id
	members map[string][]ProjectMember // by project id; * is every project
	tokens  map[string][]ProjectMember // on the projects of users, by Unix user
}

func (g *Gateway) membership(ctx context.Context) (of membership, err error) {
	of = membership{names: map[string]string{}, members: map[string][]ProjectMember{gate.All: {}}, tokens: map[string][]ProjectMember{}}
	of.name(g.Site.Gateway.DefaultProject)
	for _, p := range g.Site.Access.Peers {
		who := "user:" + p.User
		if p.Group != "" {
			who = "group:" + p.Group
		}
		of.add(p.Projects, ProjectMember{who, p.Capabilities})
	}
	for _, o := range g.Site.Access.OIDC {
		for _, w := range o.Grants {
			of.add(w.Projects, ProjectMember{"oidc:" + o.Issuer + " " + w.Claim + "=" + w.Value, w.Capabilities})
		}
	}
	for _, p := range g.Site.Limits.Projects {
		of.name(p.Project)
	}
	tokens, snapshot, err := g.Ledger.Tokens(ctx)
	for _, t := range tokens {
		if snapshot.State(t) != "valid" {
			continue
		}
		who := ProjectMember{access.TokenPrincipal(t.Name), t.Capabilities}
		of.add(t.Projects, who)
		if slices.Contains(t.Projects, plan.UserProject) {
			of.tokens[t.UnixUser] = append(of.tokens[t.UnixUser], who)
		}
	}
	return of, err
}

// name stores the name of a shared project.
func (of membership) name(project string) {
	if project == gate.All || project == plan.UserProject {
		return
	}
	id := plan.ProjectOf(project)
	if of.members[id] == nil {
		of.members[id] = []ProjectMember{}
	}
	if id != project {
		of.names[id] = project
	}
}

// add adds a member to projects, which are named as in the site file.
func (of membership) add(projects []string, who ProjectMember) {
	for _, p := range projects {
		of.name(p)
		switch p {
		case plan.UserProject:
		case gate.All:
			of.members[p] = append(of.members[p], who)
		default:
			of.members[plan.ProjectOf(p)] = append(of.members[plan.ProjectOf(p)], who)
		}
	}
}

// shared lists the ids of shared projects, sorted by name, only those in seen unless that is nil.
func (of membership) shared(seen []string) []string {
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(of.members)), func(id string) bool {
		return id == gate.All || seen != nil && !slices.Contains(seen, id)
	})
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(cmp.Or(of.names[a], a), cmp.Or(of.names[b], b)) })
	return ids
}

// RebindArgs are the arguments of project.rebind.
type RebindArgs struct {
	User       string `json:"user" min:"1" max:"256" about:"the login name"`
	SamePerson bool   `json:"same_person" about:"true: it is the same person; false: another one"`
	Reason     string `json:"reason,omitzero" max:"512"`
}

// Rebound is the answer of project.rebind.
type Rebound struct {
	CallRunID
	ProjectID string `json:"project_id"` // the project that the user has from now on
	User      string `json:"user"`
	UID       int    `json:"uid"`
	Message   string `json:"message"`
}

func (g *Gateway) rebindProject(ctx context.Context, c gate.Call, a RebindArgs) (out Rebound, err error) {
	u, err := g.ProjectUser(ctx, a.User)
	if fault.Is(err, fault.Auth) { // not the caller: the given user does not exist
		err = fault.New(fault.NotFound, "no_user", "this host has no user "+a.User).WithNext("check the login name").
			WithSteps(fault.Do("project.list"))
	}
	if err != nil {
		return out, err
	}
	u.PrincipalID = c.Caller.ID
	p, err := g.Ledger.RebindUserProject(ctx, u, a.SamePerson, c.Caller.Name, a.Reason)
	if err != nil {
		return out, err
	}
	out = Rebound{ProjectID: p.ID, User: u.Name, UID: u.UID, Message: "the user keeps the project"}
	if !a.SamePerson {
		out.Message = "the user has a new, empty project; what was in the one before stays there, for those with rights on all projects"
	}
	return out, nil
}

// userGrant returns a grant as a token of a user has it now: with the id of the user's own project in place of
// {user}.
func (g *Gateway) userGrant(ctx context.Context, c gate.Call, grant access.Grant, user string) (access.Grant, error) {
	if !slices.Contains(grant.Projects, plan.UserProject) {
		return grant, nil
	}
	if user == "" {
		return grant, fault.Invalid("the token cannot be created", fault.Problem{Code: "TOKEN-USER-PROJECT", Field: "unix_user",
			Rule: "a Unix user, where projects has " + plan.UserProject, Msg: "it is missing, so it is not known whose own project is meant",
			Hint: "name the user, or name another project"})
	}
	u, err := g.ProjectUser(ctx, user)
	if fault.Is(err, fault.Auth) {
		err = fault.Invalid("the token cannot be created", fault.Problem{Code: "TOKEN-USER-PROJECT", Field: "unix_user",
			Rule: "a user of this host, where projects has " + plan.UserProject, Msg: fault.First(err)})
	}
	if err != nil {
		return grant, err
	}
	u.PrincipalID = c.Caller.ID
	id, err := g.Ledger.UserProject(ctx, u)
	if err != nil {
		return grant, err
	}
	return grant.ForUser(id), nil
}
