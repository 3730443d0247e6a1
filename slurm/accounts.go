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

// One query asks slurmdbd what all users may charge, and the answer is cached. While slurmdbd does not answer, the last
// answer counts for some hours, as slurmctld also continues with what it last knew.
const (
	accountsFresh = 5 * time.Minute  // an answer
	accountsKept  = 12 * time.Hour   // an answer, while no newer one comes
	accountsRetry = 30 * time.Second // between two queries
	accountsWait  = 10 * time.Second // for callers, while a query is in progress
	accountsLimit = 2 * time.Minute  // for a query, including its wait for the RPC budget
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
	if Hides(err) { // a retry does not help
		return err
	}
	return fault.Wrap(fault.Transport, "accounts_unknown", "the accounts of users cannot be looked up now", err).
		WithNext("try again in 30 seconds; the administrator checks that slurmdbd runs").WithRetry(int(accountsRetry / time.Second))
}

// AllAccounts asks the accounting database what every user may charge on the cluster of the site file. It costs one
// RPC, and a second one where runs are executed as several users, to check that their accounts are not hidden.
func (c *CLI) AllAccounts(ctx context.Context) (map[string]run.UserAccounts, error) {
	users, err := c.Accounts(ctx, c.cfg.Cluster, "")
	if err == nil {
		err = c.seesUsers(ctx)
	}
	return RequireAccounts(users, c.cfg.Cluster, err)
}

// RequireAccounts returns a Transport fault for an answer without associations, as every cluster has some, and
// otherwise users and err.
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
