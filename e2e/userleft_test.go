package e2e

import (
	"strings"
	"testing"
)

// A user's account is removed. What the user's runs made stays and can be read, gc goes on for the others and says which runs it left and
// why, a run that waits for the account says so, and all of it goes on once the account is back.
//
// proves SITE-08
func TestUserHasLeft(t *testing.T) {
	t.Parallel()
	gone, stays := newUser(t), newUser(t)
	s, _ := callerSite(t, func(doc tree) {
		var peers []any
		for _, user := range []string{gone, stays} {
			peers = append(peers, tree{"user": user, "capabilities": []any{"gateway", "read", "import", "slurm"}, "projects": []any{"demo"}})
		}
		doc["access"] = tree{"peers": peers}
	})
	s.serve()
	runs := map[string]string{}
	for _, user := range []string{gone, stays} {
		runs[user] = s.submitAs(user, probePlan("write", "out/result", "made by "+user)).RunID
	}
	last := s.submitAs(gone, probePlan("sleep", "10")).RunID
	for user, id := range runs {
		if l := s.wait(id); l.State != "succeeded" {
			t.Fatalf("%s: %+v %s", user, l, l.why())
		}
	}
	until(t, patience, "job of "+last, func() bool { return s.story(last).SlurmState == "RUNNING" })
	shell(t, "root", `uid=$(id -u "$1"); devd user "$1" remove; pkill -KILL -u "$uid" -f "^sshd" || :`, gone)
	var l looked
	until(t, patience, "word about the account", func() bool {
		l = looked{}
		s.ok(&l, "get", last)
		return strings.Contains(l.why(), gone)
	})
	if l.State == "succeeded" || l.State == "failed" {
		t.Errorf("without the user's files the run ended: %+v %s", l, l.why())
	}
	var first, second swept
	s.ok(&first, "gc", "--workspaces-older-than", "0s")
	if first.Workspaces.Count != 1 || len(first.Kept) != 1 || first.Kept[0].Name != runs[gone] || !strings.Contains(first.Kept[0].Why, gone) {
		t.Errorf("%+v", first)
	}
	var c struct {
		Roles map[string]string `json:"artifacts_by_role"`
	}
	s.ok(&c, "collect", runs[gone])
	if got := strings.TrimSpace(string(s.bytesOf(c.Roles["result"]))); got != "made by "+gone {
		t.Errorf("%q of %v", got, c.Roles)
	}
	shell(t, "root", `devd user "$1" restore`, gone)
	s.wait(last)
	s.ok(&second, "gc", "--workspaces-older-than", "0s")
	if second.Workspaces.Count != 2 || len(second.Kept) != 0 {
		t.Errorf("%+v", second)
	}
}
