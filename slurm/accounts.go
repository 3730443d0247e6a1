package slurm

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
)

// What users may charge is asked of slurmdbd for all users at once, whoever calls, and the answer is cached. While slurmdbd does not
// answer, its last answer counts for some hours: slurmctld goes on with what it knows then, too.
const (
	accountsFresh = 5 * time.Minute  // an answer
	accountsKept  = 12 * time.Hour   // an answer, while no newer one comes
	accountsRetry = 30 * time.Second // after a look-up that failed
	accountsWait  = 10 * time.Second // callers, for a look-up in progress
	accountsLimit = 2 * time.Minute  // a look-up, its wait for the RPC budget included
)

const rpcAccounts = 1 // to slurmdbd

// UserAccounts is what one user may charge on the cluster. (sacctmgr(1))
type UserAccounts struct {
	Default  string    // the account of jobs that name none; empty: the user has none
	Accounts []Account // the default first; none: the user has no association
}

// AccountBook is the cached answer about all users.
type AccountBook struct {
	mu    sync.Mutex
	users map[string]UserAccounts // nil: not known yet
	read  time.Time               // when they were asked for
	err   error                   // of the last look-up, if it failed
	next  time.Time               // not before then a look-up follows one that failed
	began time.Time               // of the look-up in progress
	busy  chan struct{}           // closed at its end; nil: there is none
}

// AccountsOf returns what a user may charge on the cluster. If that is not known, it is a retryable Transport fault.
func (c *CLI) AccountsOf(ctx context.Context, user string) (UserAccounts, error) {
	users, err := c.accounts.Get(ctx, c.AllAccounts)
	return users[user], err
}

// AskAccounts asks for the accounts of all users.
type AskAccounts func(context.Context) (map[string]UserAccounts, error)

// Get returns the cached answer, or waits for a new one.
func (b *AccountBook) Get(ctx context.Context, ask AskAccounts) (map[string]UserAccounts, error) {
	b.mu.Lock()
	now := time.Now()
	if b.users != nil && now.Sub(b.read) < accountsFresh {
		defer b.mu.Unlock()
		return b.users, nil
	}
	if b.busy == nil && !now.Before(b.next) {
		b.busy, b.began = make(chan struct{}), now
		go b.lookUp(ask)
	}
	busy, wait := b.busy, accountsWait-now.Sub(b.began)
	b.mu.Unlock()
	if busy != nil && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-busy:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users != nil && time.Since(b.read) < accountsKept {
		return b.users, nil
	}
	err := cmp.Or(b.err, error(fault.New(fault.Transport, "slurm_unreachable",
		fmt.Sprintf("no answer within %s", accountsWait))))
	return nil, unknownAccounts(err)
}

// lookUp runs apart from its callers: one that leaves does not end it for the others.
func (b *AccountBook) lookUp(ask AskAccounts) {
	ctx, stop := context.WithTimeout(context.Background(), accountsLimit)
	defer stop()
	asked := time.Now()
	users, err := ask(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err = err; err == nil {
		b.users, b.read = users, asked
	} else {
		b.next = time.Now().Add(accountsRetry)
	}
	close(b.busy)
	b.busy = nil
}

func unknownAccounts(err error) error {
	if Hides(err) { // which no second try mends
		return err
	}
	return fault.Wrap(fault.Transport, "accounts_unknown", "the accounts of users cannot be looked up now", err).
		WithNext("try again in 30 seconds; the administrator checks that slurmdbd runs").WithRetry(int(accountsRetry / time.Second))
}

// AllAccounts asks the accounting database what every user may charge on the cluster of the site file. It costs one RPC, and another where
// runs are executed as several users: their accounts may be hidden.
func (c *CLI) AllAccounts(ctx context.Context) (map[string]UserAccounts, error) {
	out, err := c.ask(ctx, rpcAccounts, clean, "sacctmgr", "--noheader", "--parsable2", "show", "user", "withassoc",
		"cluster="+c.cfg.Cluster, "format=User,DefaultAccount,Cluster,Account,Partition,QOS")
	if err != nil {
		return nil, err
	}
	users, odd, example := userAccounts(string(out.Stdout), c.cfg.Cluster)
	c.reportUnread("sacctmgr", odd, "a line does not have six fields", example)
	if err := c.seesUsers(ctx); err != nil {
		return nil, err
	}
	if len(users) == 0 {
		return nil, fault.New(fault.Transport, "no_associations", "sacctmgr lists no association of the cluster "+c.cfg.Cluster).
			WithNext("check slurm.cluster in the site file; if slurmdbd.conf has PrivateData, give the gateway's user the admin level Operator")
	}
	return users, nil
}

// userAccounts reads User|DefaultAccount|Cluster|Account|Partition|QOS, a line for each association; users without one have a line with
// empty fields. Lines in another form are counted and skipped.
func userAccounts(text, cluster string) (users map[string]UserAccounts, odd int, example string) {
	defaults, lines := map[string]string{}, map[string]*strings.Builder{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		f := strings.Split(line, "|")
		switch {
		case line == "":
			continue
		case len(f) != 6 || f[0] == "":
			if odd++; odd == 1 {
				example = line
			}
			continue
		case f[3] == "" || !SameCluster(f[2], cluster):
			continue
		}
		if lines[f[0]] == nil {
			lines[f[0]] = &strings.Builder{}
		}
		defaults[f[0]] = cmp.Or(defaults[f[0]], f[1])
		fmt.Fprintf(lines[f[0]], "%s|%s|%s\n", f[3], f[4], f[5])
	}
	users = map[string]UserAccounts{}
	for user, text := range lines {
		users[user] = UserAccounts{defaults[user], associations(text.String(), defaults[user])}
	}
	return users, odd, example
}
