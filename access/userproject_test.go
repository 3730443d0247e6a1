package access

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// books binds the names of users to user ids, and subjects to their principals, as the ledger does.
type books map[string]gate.ProjectUser

func (b books) UserProject(_ context.Context, u gate.ProjectUser) (string, error) {
	was, ok := b[u.Name]
	switch {
	case !ok:
		b[u.Name] = u
	case was.UID != u.UID || u.UID < 0 && was.PrincipalID != u.PrincipalID:
		return "", fault.New(fault.Auth, "user_project_taken", "it is another's")
	}
	return plan.UserProjectID(u.Name, 1), nil
}

// owning returns a grant on each user's own project, which charges an account, and on a shared project.
func owning(t *testing.T) Grant {
	t.Helper()
	g, err := NewGrant([]string{gate.CapGateway, gate.CapRead, gate.CapSlurm}, []string{plan.UserProject, "demo"},
		map[string]string{plan.UserProject: "own", "demo": "shared"})
	must(t, err)
	return g
}

// wantsOwn fails unless the principal has the user's own project, and no other user's.
func wantsOwn(t *testing.T, p gate.Principal, err error, user string) {
	t.Helper()
	if err != nil {
		t.Errorf("the caller is %s: %v", user, err)
		return
	}
	own, demo := plan.UserProjectID(user, 1), plan.ProjectID("demo")
	if p.UserProject != own || !p.Can(gate.CapSlurm, own) || p.Account(own) != "own" || p.Account(demo) != "shared" {
		t.Errorf("%s has the project %q with %v and accounts %v, want %s", p.Name, p.UserProject, p.Rights, p.Accounts, own)
	}
	for _, other := range []string{"alice", "bob", "carol"} {
		if id := plan.UserProjectID(other, 1); other != user && p.Sees(id) {
			t.Errorf("%s sees the project of %s", p.Name, other)
		}
	}
	for named, want := range map[string]string{"": own, plan.UserProject: own, own: own, "demo": demo} {
		if got, err := p.Project([]string{gate.CapSlurm}, named, "default"); err != nil || got != want {
			t.Errorf("Project(%q) of %s = %s, %v; want %s", named, p.Name, got, err, want)
		}
	}
}

// Each user of this host has its own project, through an entry or a group, and so has a token or a subject that
// stands for the user.
//
// proves OPS-04
func TestUserProjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := owning(t)
		d := &directory{users: map[int]string{1001: "alice", 1002: "bob", 1003: "carol"}, groups: map[string]int{"lab": 500},
			in: map[string][]int{"bob": {500}, "carol": {500}}}
		alices, secret := NewToken("ci", g, gate.Principal{}, time.Now().Add(time.Hour))
		alices.UnixUser = "alice"
		stray, unmapped := NewToken("stray", g, gate.Principal{}, time.Now().Add(time.Hour))
		a := New(Config{Directory: d, Projects: books{}, Peers: map[int][]Grant{1001: {g}}, Groups: []GroupGrant{{"lab", 500, g}},
			Tokens: shelf{alices.ID: alices, stray.ID: stray}})
		for uid, user := range d.users {
			p, err := a.Peer(uid)
			wantsOwn(t, p, err, user)
		}
		p, err := a.Bearer(t.Context(), secret)
		wantsOwn(t, p, err, "alice")
		_, err = a.Bearer(t.Context(), unmapped)
		wantUnauthenticated(t, "a token that stands for no user", err, "no_unix_user")
		if again, err := a.Again(t.Context(), p); err != nil || again.UserProject != p.UserProject {
			t.Errorf("Again(%s) = %+v, %v", p.Name, again, err)
		}

		// alice is deleted; later another person in the group gets the name, with another user id.
		d.set(func() { delete(d.users, 1001); d.users[2002] = "alice"; d.in["alice"] = []int{500} })
		time.Sleep(memberFresh)
		_, err = a.Peer(2002)
		wantUnauthenticated(t, "the name with another user id", err, "user_project_taken")
		_, err = a.Bearer(t.Context(), secret)
		wantUnauthenticated(t, "the token of the name", err, "user_project_taken")
		_, err = a.Again(t.Context(), p)
		wantUnauthenticated(t, "what the token left to do", err, "user_project_taken")

		d.set(func() { delete(d.users, 2002) })
		time.Sleep(memberFresh)
		_, err = a.Bearer(t.Context(), secret)
		wantUnauthenticated(t, "the token of a user who is gone", err, "unix_user_gone")
		d.set(func() { d.err = fault.New(fault.Transport, "directory_away", "it does not answer") })
		time.Sleep(memberFresh)
		if _, err = a.Bearer(t.Context(), secret); fault.CodeOf(err) != "users_unknown" || !fault.KindOf(err).Retryable() {
			t.Errorf("a token while the user database does not answer: %v, want users_unknown, retryable", err)
		}
	})
}

// A subject has the project of the Unix user that it is mapped to; a subject without a Unix user has a separate
// project.
func TestUserProjectsOfSubjects(t *testing.T) {
	issuer, now, book := newProvider(t), noon, books{}
	a := issuer.access(t, &now, "RS256")
	a.projects = book
	a.users = NewUnixUsers(&directory{users: map[int]string{1001: "alice"}}, -1, time.Now)
	a.issuers[0].Grants = []ClaimGrant{{Claim: "groups", Value: "lab", Grant: owning(t)}}
	a.issuers[0].UnixUsers = ClaimUsers{Claim: "sub", Users: map[string]string{"a.smith": "alice", "gone": "nobody_here"}}
	must(t, a.Enroll(t.Context(), &register{ids: map[string]string{}}))
	as := func(sub string) (gate.Principal, error) {
		return a.Bearer(t.Context(), issuer.token(t, "RS256", "r", issuer.rsa, issuer.claims(func(c map[string]any) { c["sub"] = sub })))
	}
	p, err := as("a.smith")
	wantsOwn(t, p, err, "alice")
	p, err = as("b.jones")
	wantsOwn(t, p, err, p.Name)
	if !strings.HasPrefix(p.Name, "oidc:") || book[p.Name].UID >= 0 {
		t.Errorf("the project of %s is bound to %+v, want the subject", p.Name, book[p.Name])
	}
	_, err = as("gone")
	wantUnauthenticated(t, "a subject whose Unix user does not exist", err, "unix_user_gone")
}

// A grant can name users' own projects only as {user}.
func TestGrantsOnUserProjects(t *testing.T) {
	for _, name := range []string{"{user:alice}", "{account}", plan.UserProjectID("alice", 1)} {
		if _, err := NewGrant([]string{gate.CapRead}, []string{name}, nil); !fault.Is(err, fault.Validation) {
			t.Errorf("NewGrant on %s: %v, want a refusal", name, err)
		}
		if _, err := NewGrant([]string{gate.CapRead}, []string{"demo"}, map[string]string{name: "x"}); !fault.Is(err, fault.Validation) {
			t.Errorf("NewGrant with an account of %s: %v, want a refusal", name, err)
		}
	}
	p := gate.Principal{Rights: gate.RightsOf([]string{gate.CapRead}, []string{plan.UserProject})}
	if _, err := p.Project([]string{gate.CapRead}, plan.UserProject, ""); fault.CodeOf(err) != "no_user_project" {
		t.Errorf("{user} of a principal without a project of its own: %v", err)
	}
}
