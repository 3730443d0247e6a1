package slurm

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"slurmgate/cached"
	"slurmgate/fault"
	"slurmgate/run"
)

// What users may charge is asked of slurmdbd for all users at once, whoever calls, and the answer is cached. While slurmdbd does not
// answer, its last answer counts for some hours: slurmctld goes on with what it knows then, too.
const (
	accountsFresh = 5 * time.Minute  // an answer
	accountsKept  = 12 * time.Hour   // an answer, while no newer one comes
	accountsRetry = 30 * time.Second // after a look-up
	accountsWait  = 10 * time.Second // callers, for a look-up in progress
	accountsLimit = 2 * time.Minute  // a look-up, its wait for the RPC budget included
)

// AccountBook is the cached answer about all users.
type AccountBook struct {
	all cached.Value[map[string]run.UserAccounts]
}

// AccountsOf returns what a user may charge on the cluster. If that is not known, it is a retryable Transport fault.
func (c *CLI) AccountsOf(ctx context.Context, user string) (run.UserAccounts, error) {
	users, err := c.accounts.Get(ctx, c.AllAccounts)
	return users[user], err
}

// AskAccounts asks for the accounts of all users.
type AskAccounts func(context.Context) (map[string]run.UserAccounts, error)

// Get returns the cached answer, or waits for a new one.
func (b *AccountBook) Get(ctx context.Context, ask AskAccounts) (map[string]run.UserAccounts, error) {
	rule := cached.Rule{Fresh: accountsFresh, Pause: accountsRetry, Limit: accountsLimit}
	known := b.all.Look(time.Now, rule, false, ask)
	if known.Busy != nil {
		known.Wait(ctx, accountsWait-time.Since(known.Began))
		known = b.all.Look(time.Now, rule, false, ask)
	}
	if !known.At.IsZero() && time.Since(known.At) < accountsKept {
		return known.Value, nil
	}
	return nil, unknownAccounts(cmp.Or(known.Err, error(fault.New(fault.Transport, "slurm_unreachable",
		fmt.Sprintf("no answer within %s", accountsWait)))))
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
func (c *CLI) AllAccounts(ctx context.Context) (map[string]run.UserAccounts, error) {
	users, err := c.Accounts(ctx, c.cfg.Cluster, "")
	if err == nil {
		err = c.seesUsers(ctx)
	}
	return RequireAccounts(users, c.cfg.Cluster, err)
}

// RequireAccounts holds that a cluster has associations: an answer without one is no answer.
func RequireAccounts(users map[string]run.UserAccounts, cluster string, err error) (map[string]run.UserAccounts, error) {
	if err == nil && len(users) == 0 {
		err = fault.New(fault.Transport, "no_associations", "slurmdbd lists no association of the cluster "+cluster).
			WithNext("check slurm.cluster in the site file; if slurmdbd.conf has PrivateData, give the gateway's user the admin level Operator")
	}
	if err != nil {
		return nil, err
	}
	return users, nil
}
