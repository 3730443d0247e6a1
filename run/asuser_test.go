package run_test

import (
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// as returns the order of the tests, executed as a user.
func as(user string) run.Order { return order(func(p *plan.Params) { p.ExecutedAs = user }) }

// Two users who submit the same order get a run each, whose answers name the user and not the other's run.
//
// proves SITE-08
func TestTwoUsersTwoRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		ids := map[string]bool{}
		for _, user := range []string{"", "alice", "bob"} {
			first, again := l.submit(as(user)), l.submit(as(user))
			if first.Replayed || !again.Replayed || again.RunID != first.RunID || first.ExecutedAs != user || again.ExecutedAs != user ||
				len(first.EquivalentRuns)+len(again.EquivalentRuns) != 0 {
				t.Errorf("the order of user %q is answered %+v, and again %+v; want a new run as that user, then a replay of it",
					user, first, again)
			}
			got, err := l.engine.Get(t.Context(), first.RunID, 0)
			if err != nil || got.ExecutedAs != user || ids[first.RunID] {
				t.Errorf("Get of the run of %q gives %+v %v, want a new run executed as that user", user, got, err)
			}
			ids[first.RunID] = true
			v := w.until(first.RunID, in(run.Pending))
			if v.Run.ExecutedAs != user || strings.Contains(string(v.Run.ResultJSON), "executed_as") != (user != "") {
				t.Errorf("the run of %q is executed as %q with the result %s, want that user, named in the result if not the gateway's",
					user, v.Run.ExecutedAs, v.Run.ResultJSON)
			}
		}
		if w.count("Send") != 3 || !slices.Equal([]string{"gateway", "alice", "bob"}, []string{w.jobs[0].User, w.jobs[1].User, w.jobs[2].User}) {
			t.Errorf("the runs of three users were sent %d times as %d jobs, want one job each as gateway, alice and bob",
				w.count("Send"), len(w.jobs))
		}
	})
}

// A run is executed as a user with a valid name, and a docker plan only as the gateway's own user.
func TestNoSuchUser(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		for _, user := range []string{"1000", "../bob", "-u"} {
			w.input(as(user))
			if _, err := l.engine.Submit(t.Context(), as(user)); !fault.Is(err, fault.Validation) {
				t.Errorf("Submit as %q gives %v, want a validation fault", user, err)
			}
		}
		docker := as("alice")
		docker.Params.Docker = true
		if _, err := l.engine.Submit(t.Context(), docker); fault.CodeOf(err) != "docker_as_user" {
			t.Error(err)
		}
		if len(w.jobs) != 0 {
			t.Errorf("the refused orders gave %d jobs, want 0", len(w.jobs))
		}
	})
}

// In a project that policy names, a request is answered with another user's run that is in flight or succeeded, and the
// answer names that user. In another project the run is not disclosed, and the gateway's own request is never answered
// with it.
//
// proves SITE-08
func TestSharedRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		shared := true
		w.cfg.SharesRuns = func(id string) bool { return id == project && shared }
		l := w.life()
		alice := l.submit(as("alice"))
		bob := l.submit(as("bob"))
		if bob.RunID != alice.RunID || !bob.Replayed || bob.ExecutedAs != "alice" || len(bob.Warnings) != 1 ||
			!strings.Contains(bob.Warnings[0], "of user alice") {
			t.Errorf("bob is answered %+v, want alice's run with a warning that it is hers", bob)
		}
		if again := l.submit(as("alice")); len(again.Warnings) != 0 || again.RunID != alice.RunID {
			t.Errorf("alice is answered %+v, want her own run without a warning", again)
		}
		if own := l.submit(as("")); own.RunID == alice.RunID || own.Replayed || len(own.EquivalentRuns) != 0 {
			t.Errorf("the gateway's own user is answered %+v, want a run of its own", own)
		}
		shared = false
		if bob = l.submit(as("bob")); bob.RunID == alice.RunID || bob.Replayed || len(bob.EquivalentRuns)+len(bob.Warnings) != 0 {
			t.Errorf("bob is answered %+v where runs are not shared, want a run of his own", bob)
		}
		shared = true
		w.with(func() { w.exitFile(w.jobs[0], 3, "tool_failed"); w.start(w.jobs[0]); w.end(w.jobs[0], "FAILED", 3) })
		w.until(alice.RunID, done)
		if carol := l.submit(as("carol")); carol.RunID == alice.RunID {
			t.Errorf("carol is answered %+v, alice's failed run; want another run", carol)
		}
		if bob = l.submit(as("bob")); bob.ExecutedAs != "bob" {
			t.Errorf("bob is answered %+v, want a run executed as bob", bob)
		}
	})
}
