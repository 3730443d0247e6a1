package ledger

import (
	"strings"
	"sync"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// A user's own project is created once and is the same for all credentials of the user. A name that returns with
// another user id is refused, and the refusal names the earlier user of the project and the next step.
//
// proves OPS-04
func TestUserProjectIsBoundToTheUserID(t *testing.T) {
	l := fresh(t)
	alice := gate.ProjectUser{Name: "alice", UID: 1001, PrincipalID: "prn_A"}
	ids := make(chan string, 20)
	var all sync.WaitGroup
	for range cap(ids) {
		all.Go(func() {
			id, err := l.UserProject(t.Context(), alice)
			must(t, err)
			ids <- id
		})
	}
	all.Wait()
	close(ids)
	for id := range ids {
		if id != plan.UserProjectID("alice", 1) {
			t.Errorf("UserProject(alice) = %s, want %s", id, plan.UserProjectID("alice", 1))
		}
	}
	if id, err := l.UserProject(t.Context(), gate.ProjectUser{Name: "alice", UID: 1001, PrincipalID: "prn_token"}); err != nil ||
		id != plan.UserProjectID("alice", 1) {
		t.Errorf("UserProject(alice by a token) = %s, %v", id, err)
	}
	for _, who := range []gate.ProjectUser{{Name: "alice", UID: 2002, PrincipalID: "prn_B"}, {Name: "alice", UID: -1, PrincipalID: "prn_A"}} {
		_, err := l.UserProject(t.Context(), who)
		wantFault(t, err, fault.Auth, "user_project_taken")
		for _, want := range []string{"user id 1001", "prn_A", "slurmgate projects rebind alice"} {
			if !strings.Contains(fault.Prose(err), want) {
				t.Errorf("the refusal of %+v is %q, want %q in it", who, fault.Prose(err), want)
			}
		}
	}
	subject := gate.ProjectUser{Name: "oidc:https://a#x", UID: -1, PrincipalID: "prn_X"}
	first, err := l.UserProject(t.Context(), subject)
	must(t, err)
	if again, err := l.UserProject(t.Context(), subject); err != nil || again != first {
		t.Errorf("UserProject(subject) = %s, then %s, %v", first, again, err)
	}
	if list, n, err := l.UserProjects(t.Context(), nil, "", 10); err != nil || n != 2 || len(list) != 2 {
		t.Errorf("UserProjects = %v, %d, %v; want two", list, n, err)
	}
	for _, q := range []string{"DELETE FROM user_projects", "UPDATE user_projects SET user = 'bob'",
		"UPDATE user_projects SET principal_id = 'x'"} {
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database lets pass: %s", q)
		}
	}
}

// An administrator decides whose the project is: the same person keeps it, another one gets an empty one. The
// decision is in the history and is made once, and waiting for it gives no access to the earlier project.
func TestUserProjectIsRebound(t *testing.T) {
	l := fresh(t)
	user := func(uid int) gate.ProjectUser {
		return gate.ProjectUser{Name: "alice", UID: uid, PrincipalID: "prn_boss"}
	}
	first, err := l.UserProject(t.Context(), user(1001))
	must(t, err)
	_, err = l.RebindUserProject(t.Context(), user(1001), true, "user:boss", "")
	wantFault(t, err, fault.Conflict, "user_project_bound")
	kept, err := l.RebindUserProject(t.Context(), user(2002), true, "user:boss", "moved to LDAP")
	must(t, err)
	if id, err := l.UserProject(t.Context(), user(2002)); err != nil || id != first || kept.ID != first {
		t.Errorf("the same person has %s, %v; want %s", id, err, first)
	}
	_, err = l.UserProject(t.Context(), user(1001))
	wantFault(t, err, fault.Auth, "user_project_taken")

	other, err := l.RebindUserProject(t.Context(), user(3003), false, "user:boss", "left")
	must(t, err)
	if id, err := l.UserProject(t.Context(), user(3003)); err != nil || id == first || id != other.ID || id != plan.UserProjectID("alice", 2) {
		t.Errorf("another person has %s, %v; want a new project", id, err)
	}
	_, err = l.RebindUserProject(t.Context(), gate.ProjectUser{Name: "bob", UID: 5}, true, "user:boss", "")
	wantFault(t, err, fault.NotFound, "user_project_not_found")
	list, n, err := l.UserProjects(t.Context(), nil, "", 10)
	if err != nil || n != 2 || list[0].EndedAt == nil || list[1].EndedAt != nil || *list[1].UID != 3003 {
		t.Errorf("UserProjects returned %d of %d, %v: %+v; want the ended one and a new one of user id 3003", len(list), n,
			err, list)
	}
	events, err := l.EventsAfter(t.Context(), 0, 100, "")
	must(t, err)
	var types []string
	for _, e := range events {
		if strings.HasPrefix(e.Type, "user_project") {
			types = append(types, e.Type)
		}
	}
	if got := strings.Join(types, " "); got != "user_project.begun user_project.decided user_project.decided user_project.begun" {
		t.Errorf("the history has %q", got)
	}
	must(t, l.Integrity(t.Context()))
}
