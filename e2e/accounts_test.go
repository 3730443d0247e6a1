package e2e

import (
	"slices"
	"strings"
	"testing"
)

// With slurm.accounts: associations a user of the host charges the accounts of its own associations in Slurm, and its DefaultAccount where
// a call names none. While slurmdbd is down its last answer counts; without any, a call is refused and may be repeated.
//
// proves OPS-02
func TestAccountsOfAssociations(t *testing.T) { // not parallel: slurmdbd is stopped
	shell(t, "root", `sacctmgr -i add account seminar cluster=devcluster
		sacctmgr -i add user alice account=seminar cluster=devcluster
		sacctmgr -i modify user alice where cluster=devcluster set defaultaccount=teaching`)
	t.Cleanup(func() {
		shell(t, "root", `sacctmgr -i modify user alice where cluster=devcluster set defaultaccount=research
			sacctmgr -i delete account seminar cluster=devcluster`)
	})
	s := newSite(t, "probing")
	s.replace("domain/policies.yaml", "  accounts_allowlist: [research, nobodys]\n", "")
	s.replace("site.yaml", "  transport: cli\n", "  transport: cli\n  accounts: associations\n  cluster: devcluster\n")
	s.replace("site.yaml", "domain_dir:", `  socket: `+s.dir+`/gw.sock
access:
  peers:
    - {user: alice, capabilities: [gateway, read, import, slurm], projects: [demo]}
    - {user: bob, capabilities: [gateway, read, import, slurm], projects: [demo]}
    - {user: nobody, capabilities: [gateway, read, import, slurm], projects: [demo]}
domain_dir:`)
	charged := func(runID string) string {
		t.Helper()
		return strings.TrimSpace(shell(t, "lab", `scontrol show job -o "$1" | grep -o ' Account=[^ ]*'`, s.story(runID).SlurmJobID))
	}
	run := func(user, word string) (a submitted) {
		t.Helper()
		s.user(user, nil, "run", "probe.words", "--param", "word="+word).object(t, &a)
		return a
	}
	plan := func(account, code string) []string {
		return []string{"submit", s.plan(s.set(probePlan("exit", code), "placement.account", account))}
	}
	d := s.serve()
	hers, his := run("alice", "hers"), run("bob", "his")
	if a, b := charged(hers.RunID), charged(his.RunID); a != "Account=teaching" || b != "Account=research" {
		t.Errorf("alice charged %s, bob %s", a, b)
	}
	if again := run("bob", "hers"); again.RunID != hers.RunID || !again.Replayed {
		t.Errorf("the account changed the run: %+v, not %s", again, hers.RunID)
	}
	var own submitted
	s.user("alice", nil, plan("research", "3")...).object(t, &own)
	if got := charged(own.RunID); got != "Account=research" {
		t.Errorf("a plan of alice's for research charged %s", got)
	}
	f := s.user("bob", nil, plan("teaching", "4")...).failure(t, 4)
	if f.Code != "account_denied" || f.Retryable || !strings.Contains(f.Message, "bob has no association with the Slurm account teaching") {
		t.Errorf("%+v", f)
	}
	if s.wait(own.RunID).State != "failed" { // with status 3
		t.Error("the run did not fail")
	}
	if f := s.user("bob", nil, "retry", hers.RunID, "--after-attempt", "1").failure(t, 4); f.Code != "account_denied" {
		t.Errorf("%+v", f)
	}
	if f := s.user("nobody", nil, "run", "probe.words", "--param", "word=x").failure(t, 4); f.Code != "no_association" ||
		!strings.Contains(f.Message, "sacctmgr add user nobody account=") {
		t.Errorf("%+v", f)
	}
	var token tokenAnswer
	s.ok(&token, "token", "create", "ci", "--capability", "gateway,read,slurm", "--project", "demo")
	var byToken submitted
	s.user("lab", []string{"SLURMGATE_TOKEN=" + token.Token}, "run", "probe.words", "--param", "word=token").object(t, &byToken)
	if got := charged(byToken.RunID); got != "Account=research" {
		t.Errorf("a token charged %s", got)
	}
	// She may charge seminar; the gateway's user, to whom all jobs belong, may not.
	var refused submitted
	s.user("alice", nil, plan("seminar", "5")...).object(t, &refused)
	if l := s.wait(refused.RunID); !strings.Contains(l.why(), "Jobs belong to the user lab") {
		t.Errorf("%s", l.why())
	}
	var found struct {
		Findings []struct{ Code, Status, Found, Remedy string }
	}
	s.cli("doctor", "--no-jobs", "--json").object(t, &found)
	i := slices.IndexFunc(found.Findings, func(f struct{ Code, Status, Found, Remedy string }) bool {
		return f.Code == "caller_accounts" && strings.Contains(f.Found, "lab, to whom all jobs belong, has no association with the account "+
			"seminar")
	})
	if i < 0 || found.Findings[i].Status != "warning" || !strings.Contains(found.Findings[i].Remedy, "sacctmgr add user lab account=seminar") {
		t.Errorf("%+v", found)
	}

	shell(t, "root", `devd stop slurmdbd`)
	t.Cleanup(func() { shell(t, "root", `devd start slurmdbd`) })
	if got := charged(run("alice", "while slurmdbd is down").RunID); got != "Account=teaching" {
		t.Errorf("from the last answer: %s", got)
	}
	d.signal("TERM")
	d.ended(t)
	s.serve()
	f = s.user("alice", nil, "run", "probe.words", "--param", "word=later").failure(t, 8)
	if f.Code != "accounts_unknown" || !f.Retryable || !strings.Contains(f.Message, "try again in 30 seconds") {
		t.Errorf("%+v", f)
	}
	if got := charged(s.ran("later").RunID); got != "Account=research" { // the gateway's own user
		t.Errorf("lab charged %s", got)
	}
}

// ran runs probe.words as the gateway's own user.
func (s *site) ran(word string) (a submitted) {
	s.t.Helper()
	s.ok(&a, "run", "probe.words", "--param", "word="+word)
	return a
}
