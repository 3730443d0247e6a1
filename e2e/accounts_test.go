package e2e

import (
	"strings"
	"testing"
)

// With slurm.accounts: associations a user of the host charges the accounts of its own associations in Slurm, and its DefaultAccount where
// a call names none. While slurmdbd is down its last answer counts; without any, a call is refused and may be repeated.
//
// proves OPS-02
func TestAccountsOfAssociations(t *testing.T) { // not parallel: slurmdbd is stopped
	shell(t, "root", `sacctmgr -i modify user alice where cluster=devcluster set defaultaccount=teaching`)
	t.Cleanup(func() {
		shell(t, "root", `sacctmgr -i modify user alice where cluster=devcluster set defaultaccount=research`)
	})
	s := newSite(t, "probing")
	s.replace("domain/policies.yaml", "  accounts_allowlist: [research, nobodys]\n", "")
	s.replace("site.yaml", "  transport: cli\n", "  transport: cli\n  accounts: associations\n  cluster: devcluster\n")
	s.replace("site.yaml", "domain_dir:", `  socket: `+s.dir+`/gw.sock
access:
  peers:
    - {user: alice, capabilities: [gateway, read, import, slurm], projects: [demo]}
    - {user: bob, capabilities: [gateway, read, import, slurm], projects: [demo]}
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
		t.Errorf("bob asks for alice's run and gets %s (replayed %v), want %s: the account is no part of its identity", again.RunID,
			again.Replayed, hers.RunID)
	}
	var own submitted
	s.user("alice", nil, plan("research", "3")...).object(t, &own)
	if got := charged(own.RunID); got != "Account=research" {
		t.Errorf("a plan of alice's for research charged %s", got)
	}
	f := s.user("bob", nil, plan("teaching", "4")...).failure(t, 4)
	if f.Code != "account_denied" || f.Retryable || !strings.Contains(f.Message, "bob has no association with the Slurm account teaching") {
		t.Errorf("a plan of bob's for teaching is refused with %s (%s), want account_denied, and what bob lacks", f.Code, f.Message)
	}
	if f := s.user("bob", nil, "retry", hers.RunID, "--after-attempt", "1").failure(t, 4); f.Code != "account_denied" {
		t.Errorf("a retry of alice's run by bob is refused with %s, want account_denied", f.Code)
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
		t.Errorf("without an answer of slurmdbd a call is refused with %s (%s), want accounts_unknown, to be tried again", f.Code, f.Message)
	}
}
