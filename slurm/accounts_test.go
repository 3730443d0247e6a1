package slurm

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
)

// asked is what sacctmgr of a real cluster says (24.11), with an association for two partitions.
const askedAccounts = `alice|research|devcluster|research||normal,quick
alice|research|devcluster|teaching||normal,quick
alice|foreign|other|foreign||normal
bob|research|devcluster|research||normal
bob|research|devcluster|teaching|main|normal
bob|research|devcluster|teaching|short|normal
carol|||||
lab|research|devcluster|research||normal,quick,tiny
`

// Users have the accounts of this cluster alone; a line that cannot be read costs no other one.
func TestUserAccounts(t *testing.T) {
	users, odd, example := userAccounts(askedAccounts+"half a li\n", "DevCluster")
	if odd != 1 || example != "half a li" || len(users) != 3 {
		t.Errorf("%d odd lines (%q), users %v", odd, example, users)
	}
	for user, want := range map[string]string{"alice": "{research [{research true [] [normal quick]} {teaching false [] [normal quick]}]}",
		"bob":   "{research [{research true [] [normal]} {teaching false [main short] [normal]}]}",
		"carol": "{ []}"} {
		if got := fmt.Sprint(users[user]); got != want {
			t.Errorf("%s: %s", user, got)
		}
	}
	if users, _, _ := userAccounts(askedAccounts, "other"); fmt.Sprint(users) != "map[alice:{foreign [{foreign true [] [normal]}]}]" {
		t.Error(users)
	}
}

func FuzzUserAccounts(f *testing.F) {
	f.Add(askedAccounts, "devcluster")
	f.Add("a|b|c|d|e|f|g\n||||||\n|||\n", "c")
	f.Fuzz(func(t *testing.T, text, cluster string) {
		users, _, _ := userAccounts(text, cluster)
		for user, u := range users {
			if user == "" || len(u.Accounts) == 0 {
				t.Errorf("%q: %+v", user, u)
			}
			for _, a := range u.Accounts {
				if a.Name == "" {
					t.Errorf("%q: %+v", user, u)
				}
			}
		}
	})
}

// One look-up serves all callers for five minutes. While slurmdbd does not answer, its last answer counts, but not for ever; a look-up that
// fails is not repeated at once, and callers do not wait long for one that hangs.
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
				t.Errorf("%v", err)
			}
		}
		known := func() {
			t.Helper()
			if u, err := c.AccountsOf(t.Context(), "alice"); err != nil || u.Default != "research" || len(u.Accounts) != 2 {
				t.Errorf("%+v %v", u, err)
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
			t.Errorf("slurmctld was asked %d times for its name: what fails is slurmdbd", r.count("scontrol"))
		}
		time.Sleep(accountsRetry)
		r.answer("sacctmgr", up)
		known()
	})
}

func TestAccountsOfASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan map[string]UserAccounts)
		ask := func(ctx context.Context) (map[string]UserAccounts, error) {
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
		answers <- map[string]UserAccounts{"alice": {Default: "a"}}
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
			t.Error(users, err)
		}
		answers <- map[string]UserAccounts{"alice": {Default: "b"}}
		synctest.Wait()
		if users, err := b.Get(t.Context(), ask); users["alice"].Default != "b" || err != nil {
			t.Error(users, err)
		}
	})
}

// An answer that names no association of the cluster is no answer: slurmdbd may hide them, or slurm.cluster is wrong.
func TestNoAssociations(t *testing.T) {
	c, r := fakeCLI(t)
	c.cfg.Cluster = "devcluster"
	r.answer("scontrol show config", config("devcluster"))
	r.answer("sacctmgr", Output{Stdout: []byte("alice|||||\nbob|||||\n")})
	if _, err := c.AllAccounts(t.Context()); fault.CodeOf(err) != "no_associations" || !strings.Contains(err.Error(), "PrivateData") {
		t.Error(err)
	}
}
