package ledger

import (
	"fmt"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// The user that a run is executed as is stored with it, listed, and never changes; runs of before have none.
//
// proves SITE-08
func TestExecutedAs(t *testing.T) {
	l, ctx := fresh(t), t.Context()
	own := insert(t, l, 1)
	n := newRun(2)
	n.Run.ExecutedAs = "alice@lab.example"
	v, created, err := l.Insert(ctx, n)
	if err != nil || !created || v.Run.ExecutedAs != "alice@lab.example" {
		t.Fatal(v.Run, created, err)
	}
	for id, want := range map[string]string{own.Run.ID: "", v.Run.ID: "alice@lab.example"} {
		got, err := l.View(ctx, id)
		user, userErr := l.UserOf(ctx, id)
		if err != nil || userErr != nil || got.Run.ExecutedAs != want || user != want {
			t.Errorf("%s: %q, %q, want %q (%v, %v)", id, got.Run.ExecutedAs, user, want, err, userErr)
		}
	}
	_, err = l.UserOf(ctx, "run_00000000000000000000000000")
	wantFault(t, err, fault.NotFound, "run_not_found")
	page, err := l.List(ctx, Filter{})
	must(t, err)
	for _, r := range page.Runs {
		if (r.ExecutedAs == "alice@lab.example") != (r.ID == v.Run.ID) || r.Reason != "" {
			t.Errorf("the run %s is listed as executed by %q with the reason %q", r.ID, r.ExecutedAs, r.Reason)
		}
	}
	db := rawDB(t, l)
	for _, q := range []string{"UPDATE runs SET executed_as = 'bob'", "UPDATE runs SET executed_as = '', rev = rev + 1"} {
		if _, err := db.Exec(q); err == nil || !strings.Contains(err.Error(), "never changes") {
			t.Error(q, err)
		}
	}
}

// The same plan for two users is two runs: no request is answered with another user's run, which is not even among
// the equivalent ones.
//
// proves SITE-08 ABI-18
func TestAnothersRunIsNotFound(t *testing.T) {
	l, ctx := fresh(t), t.Context()
	order := func(user, policy string) run.New {
		n := newRun(1)
		n.Run.ExecutedAs, n.Run.PolicyHash, n.Policy = user, plan.Hash([]byte(policy)), []byte(policy)
		n.Params = []byte(`{"i":1,"executed_as":"` + user + `"}`)
		id := plan.Identity{ToolName: "t_x", ContractVersion: "v1", PolicyHash: n.Run.PolicyHash, ParamsHash: plan.Hash(n.Params),
			AnyonesHash: n.Run.ParamsHash}
		n.Run.ID, n.Run.PlanHash, n.Run.ParamsHash = id.RunID(), id.PlanHash(), id.ParamsHash
		n.Submission.Token = plan.Hash([]byte(user + policy))[7:39]
		n.Submission.JobName = run.JobName(n.Run.ID, 1, n.Submission.Token)
		n.Sought = run.Sought{RunID: n.Run.ID, PlanHash: n.Run.PlanHash, PolicyHash: n.Run.PolicyHash, ExecutedAs: user}
		return n
	}
	for _, user := range []string{"alice", "bob", "carol"} {
		known, equivalent, err := l.Find(ctx, order(user, "{}").Sought)
		if err != nil || known != "" || len(equivalent) != 0 {
			t.Errorf("%s, before: %q %q %v", user, known, equivalent, err)
		}
		if _, created, err := l.Insert(ctx, order(user, "{}")); err != nil || !created {
			t.Errorf("%s has no run: %v", user, err)
		}
		if _, created, err := l.Insert(ctx, order(user, "{}")); err != nil || created {
			t.Errorf("%s has two runs: %v", user, err)
		}
	}
	now := order("alice", `{"version":2}`)
	known, equivalent, err := l.Find(ctx, now.Sought)
	if err != nil || known != "" || len(equivalent) != 1 || equivalent[0] != order("alice", "{}").Run.ID {
		t.Errorf("another policy: %q %q %v", known, equivalent, err)
	}
}

// A run lists the users whose runs made its inputs, over any number of steps.
//
// proves SITE-08
func TestUsersBefore(t *testing.T) {
	l, ctx := fresh(t), t.Context()
	before := ""
	for i, user := range []string{"alice", "", "bob"} {
		n := newRun(i)
		n.Run.ExecutedAs = user
		if before != "" {
			a := run.Artifact{ID: fmt.Sprintf("art_%026d", i), ProjectID: project, SHA256: strings.Repeat(fmt.Sprint(i), 64), Type: "TEXT",
				Label: "x", Source: before}
			_, _, err := l.AddArtifact(ctx, a)
			must(t, err)
			made, err := l.Artifact(ctx, a.ID)
			if want := []string{"", "alice", ""}[i]; err != nil || made.ExecutedAs != want {
				t.Errorf("an artifact of %s is made by %q, %v", before, made.ExecutedAs, err)
			}
			n.Inputs = []run.Link{{Role: "in", ArtifactID: a.ID, Relpath: "in/x"}}
		}
		v, _, err := l.Insert(ctx, n)
		must(t, err)
		r, err := l.RunRecord(ctx, v.Run.ID)
		if want := map[int]int{0: 0, 1: 1, 2: 1}[i]; err != nil || len(r.Users) != want || want == 1 && r.Users[0] != "alice" {
			t.Errorf("%d: %q %v", i, r.Users, err)
		}
		before = v.Run.ID
	}
}
