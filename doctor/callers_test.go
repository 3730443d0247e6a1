package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/app"
	"slurmgate/policy"
	"slurmgate/site"
	"slurmgate/slurm"
)

// What callers may charge by Slurm's associations: whether they can be read, and what will be refused.
//
// proves OPS-02
func TestCallerAccounts(t *testing.T) {
	const known = "alice|teaching|alpha|teaching||\nalice|teaching|alpha|research||\nlab|research|alpha|research||\n"
	peer := func(user, group string, capabilities ...string) site.Peer {
		return site.Peer{User: user, Group: group, Capabilities: capabilities, Projects: []string{"*"}}
	}
	granted := peer("carol", "", "slurm")
	granted.Accounts = []site.Account{{Project: "*", Account: "research"}}
	for name, c := range map[string]struct {
		accounts string // slurm.accounts; associations when empty
		answer   string // of sacctmgr
		peers    []site.Peer
		def      string // slurm.default_account; research when empty
		allowed  []string
		lax      bool // Slurm enforces no associations
		want     app.CheckStatus
		found    string
	}{
		"not used": {accounts: "site", answer: "", want: app.CheckOK, found: "slurm.accounts: site"},
		"all is well": {answer: known, want: app.CheckOK, found: "2 users",
			peers: []site.Peer{peer("lab", "", "*"), granted, peer("dave", "", "read")}},
		"slurmdbd is down": {answer: "fail", want: app.CheckFault, found: "Connection refused"},
		"another cluster":  {answer: "alice|x|beta|x||\n", want: app.CheckFault, found: "no association of the cluster alpha"},
		"hidden":           {answer: "lab|research|alpha|research||\n", want: app.CheckWarning, found: "only the associations of lab"},
		"no such default": {answer: known, def: "other", want: app.CheckFault,
			found: "no user of the cluster alpha has an association with the account other"},
		"a stranger": {answer: known, peers: []site.Peer{peer("dave", "", "gateway", "slurm")}, want: app.CheckWarning,
			found: "access.peers lets dave start runs"},
		"the service lacks": {answer: known, peers: []site.Peer{peer("alice", "", "*")}, want: app.CheckWarning,
			found: "lab, to whom all jobs belong, has no association with the account teaching, which alice may charge"},
		"a group's member": {answer: known, peers: []site.Peer{peer("", "users", "slurm")}, want: app.CheckWarning,
			found: "account teaching, which alice"},
		"policy forbids it": {answer: known, peers: []site.Peer{peer("alice", "", "*")}, allowed: []string{"research"}, want: app.CheckOK,
			found: "2 users"},
		"nobody enforces": {answer: known, peers: []site.Peer{peer("alice", "", "*")}, lax: true, want: app.CheckOK, found: "2 users"},
	} {
		bin := t.TempDir()
		script := "cat <<'.'\n" + c.answer + ".\n"
		if c.answer == "fail" {
			script = "echo 'sacctmgr: error: Sending PersistInit msg: Connection refused' >&2; exit 1\n"
		}
		for program, text := range map[string]string{"sacctmgr": script, "scontrol": "echo 'ClusterName = alpha'\n"} {
			if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cli, err := slurm.NewCLI(slurm.Config{BinDir: bin, Cluster: "alpha", User: "lab", LocksDir: bin, RPCPerMinute: 6000})
		if err != nil {
			t.Fatal(err)
		}
		s := &site.Site{Slurm: site.Slurm{Accounts: "associations", Cluster: "alpha", DefaultAccount: "research"},
			Access: site.Access{Peers: c.peers}}
		if c.accounts != "" {
			s.Slurm.Accounts = c.accounts
		}
		if c.def != "" {
			s.Slurm.DefaultAccount = c.def
		}
		x := exam(s)
		x.Slurm, x.User.name, x.Policy = cli, "lab", &policy.Policy{}
		if c.allowed != nil {
			x.Policy.Slurm.Accounts = &c.allowed
		}
		x.Condition.Values = map[string]string{"AccountingStorageEnforce": "associations,limits"}
		if c.lax {
			x.Condition.Values["AccountingStorageEnforce"] = "none"
		}
		got := callerAccounts(t.Context(), x)
		if !slices.ContainsFunc(got, func(r Result) bool { return r.Status == c.want && strings.Contains(r.Found, c.found) }) || len(got) != 1 {
			t.Errorf("%s: %s", name, fmt.Sprint(got))
		}
	}
}
