package slurm

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

// asked is the output of sacctmgr on a real cluster (24.11), with an association for two partitions.
const askedAccounts = `alice|research|devcluster|research||normal,quick||
alice|research|devcluster|teaching||normal,quick||
alice|foreign|other|foreign||normal||
bob|research|devcluster|research||normal||
bob|research|devcluster|teaching|main|normal|7|
bob|research|devcluster|teaching|short|normal|9|5
carol|||||||
lab|research|devcluster|research||normal,quick,tiny||
`

// Users have the accounts of this cluster only; an unreadable line loses no other line.
func TestUserAccounts(t *testing.T) {
	rows, odd, example := associations(askedAccounts+"half a li\n", "DevCluster")
	users := run.ByUser(rows)
	if odd != 1 || example != "half a li" || len(users) != 3 {
		t.Errorf("%d odd lines (%q), users %v", odd, example, users)
	}
	own := func(accounts ...run.Account) run.UserAccounts {
		accounts[0].Name = "research"
		return run.UserAccounts{Default: "research", Accounts: accounts}
	}
	both, normal := []string{"normal", "quick"}, []string{"normal"}
	for user, want := range map[string]run.UserAccounts{"alice": own(run.Account{QOS: both}, run.Account{Name: "teaching", QOS: both}),
		"bob": own(run.Account{QOS: normal}, run.Account{Name: "teaching", Partitions: []string{"main", "short"}, QOS: normal, Submit: new(5)}),
		"lab": own(run.Account{QOS: []string{"normal", "quick", "tiny"}})} {
		if d := cmp.Diff(want, users[user]); d != "" {
			t.Errorf("the accounts of %s differ (-want +got):\n%s", user, d)
		}
	}
	rows, _, _ = associations(askedAccounts, "other")
	if users := run.ByUser(rows); len(users) != 1 || users["alice"].Default != "foreign" || len(users["alice"].Accounts) != 1 {
		t.Errorf("the accounts of the other cluster are %v, want one of alice", users)
	}
	rows, _, _ = associations("u|b|c|a|p|q|||\nu|b|c|a|p|q||\nu|b|c|b||q||\nu|b|c|a||r||\n", "c")
	if u := run.ByUser(rows)["u"]; fmt.Sprint(u) != "{b [{b [] [q] <nil>} {a [] [q r] <nil>}]}" || u.Account("a").Partitions != nil {
		t.Errorf("the default account is %q and the accounts are %v; want b and [b a], a without partitions", u.Default, u.Accounts)
	}
}

// One query serves all callers for five minutes. While slurmdbd does not answer, its last answer counts for a limited
// time; a failed query is not repeated immediately, and callers do not wait long for one that hangs.
func TestAccountsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := fakeCLI(t)
		c.cfg.Cluster = "devcluster"
		r.answer("scontrol show config", config("devcluster"))
		down := Output{Stderr: "sacctmgr: error: Sending PersistInit msg: Connection refused\n", Exit: 1}
		up := Output{Stdout: []byte(askedAccounts)}
		asked := func(want int) {
			t.Helper()
			if got := r.count("sacctmgr"); got != want {
				t.Errorf("sacctmgr was called %d times, want %d", got, want)
			}
		}
		unknown := func() {
			t.Helper()
			_, err := c.AccountsOf(t.Context(), "alice")
			if fault.CodeOf(err) != "accounts_unknown" || !fault.Is(err, fault.Transport) || fault.RetryOf(err) == 0 ||
				!strings.Contains(err.Error(), "Connection refused") || !strings.Contains(err.Error(), "try again") {
				t.Errorf("AccountsOf gives %v, want a retryable accounts_unknown with the cause and what to do", err)
			}
		}
		known := func() {
			t.Helper()
			if u, err := c.AccountsOf(t.Context(), "alice"); err != nil || u.Default != "research" || len(u.Accounts) != 2 {
				t.Errorf("AccountsOf(alice) gives the default %q of %d accounts, %v; want research of two", u.Default, len(u.Accounts), err)
			}
		}
		r.answer("sacctmgr", down)
		unknown()
		unknown()
		asked(1)
		time.Sleep(accountsRetry)
		r.answer("sacctmgr", up)
		var all sync.WaitGroup
		for range 20 {
			all.Go(known)
		}
		all.Wait()
		asked(2)
		time.Sleep(accountsFresh - time.Second)
		known()
		asked(2)
		time.Sleep(time.Second)
		r.answer("sacctmgr", down)
		known()
		known()
		asked(3)
		time.Sleep(accountsKept - accountsFresh - time.Second)
		known()
		asked(4)
		time.Sleep(accountsRetry)
		unknown()
		asked(5)
		if r.count("scontrol") != 1 {
			t.Errorf("slurmctld was asked %d times for its name after slurmdbd failed", r.count("scontrol"))
		}
		time.Sleep(accountsRetry)
		r.answer("sacctmgr", up)
		known()
	})
}

func TestAccountsOfASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan map[string]run.UserAccounts)
		ask := func(ctx context.Context) (map[string]run.UserAccounts, error) {
			select {
			case a := <-answers:
				return a, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		var b AccountBook
		began := time.Now()
		for range 2 {
			if _, err := b.Get(t.Context(), ask); fault.CodeOf(err) != "accounts_unknown" || time.Since(began) != accountsWait {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		}
		answers <- map[string]run.UserAccounts{"alice": {Default: "a"}}
		synctest.Wait()
		time.Sleep(accountsFresh)
		began = time.Now()
		for range 3 {
			if users, err := b.Get(t.Context(), ask); users["alice"].Default != "a" || err != nil || time.Since(began) != accountsWait {
				t.Errorf("after %s: %v %v", time.Since(began), users, err)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if users, err := b.Get(gone, ask); users == nil || err != nil {
			t.Errorf("Get for a caller that left gives %v %v, want the cached users", users, err)
		}
		answers <- map[string]run.UserAccounts{"alice": {Default: "b"}}
		synctest.Wait()
		if users, err := b.Get(t.Context(), ask); users["alice"].Default != "b" || err != nil {
			t.Errorf("Get after the answer gives %v %v, want b as alice's default", users, err)
		}
	})
}

// An answer without an association of the cluster is an error: slurmdbd may hide them, or slurm.cluster is wrong.
func TestNoAssociations(t *testing.T) {
	c, r := fakeCLI(t)
	c.cfg.Cluster = "devcluster"
	r.answer("scontrol show config", config("devcluster"))
	r.answer("sacctmgr", Output{Stdout: []byte("alice|||||||\nbob|||||||\n")})
	if _, err := c.AllAccounts(t.Context()); fault.CodeOf(err) != "no_associations" || !strings.Contains(err.Error(), "PrivateData") {
		t.Error(err)
	}
}
