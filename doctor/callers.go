package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/gate"
	"slurmgate/run"
	"slurmgate/site"
)

// mostListed bounds how many names one finding lists.
const mostListed = 10

func callerAccountsCheck() Check {
	return Check{
		Code:   "caller_accounts",
		Proves: "With slurm.accounts: associations, they can be read, and the gateway's user has the accounts that callers may charge.",
		Where:  Slurmctld, Cluster: true, Needs: []string{slurmCondition}, Look: callerAccounts,
		Remedy: "start slurmdbd; sacctmgr add user NAME account=ACCOUNT",
	}
}

// callerAccounts judges what callers may charge where Slurm's associations decide it.
func callerAccounts(ctx context.Context, x *Exam) (results []Result) {
	c := x.Cluster.Slurm
	if c.Accounts != site.AccountsByAssociations {
		return ok("not used (slurm.accounts: %s)", c.Accounts)
	}
	users, err := x.Slurm.AllAccounts(ctx)
	if err != nil {
		return failed("start slurmdbd, and let "+x.User.name+" read associations: sacctmgr show user withassoc", err)
	}
	if users := slices.Collect(maps.Keys(users)); len(users) == 1 && users[0] == x.User.name {
		return warning("if slurmdbd.conf has PrivateData: sacctmgr modify user "+x.User.name+" set AdminLevel=Operator",
			"sacctmgr shows only the associations of %s: every other user is refused", x.User.name)
	}
	if !anyoneHas(users, c.DefaultAccount) {
		results = append(results, bad("correct slurm.default_account, or: sacctmgr add account "+c.DefaultAccount,
			"no user of the cluster %s has an association with the account %s, which is slurm.default_account", c.Cluster, c.DefaultAccount)...)
	}
	callers, strangers := x.chargingCallers(users)
	if len(strangers) > 0 {
		results = append(results, warning("sacctmgr add user "+strangers[0]+" account=ACCOUNT",
			"access.peers lets %s start runs, but Slurm has no association for them on the cluster %s: their runs are refused",
			someOf(strangers), c.Cluster)...)
	}
	if !x.config().Enforces() {
		callers = nil // Slurm accepts any account from the gateway's user
	}
	if x.Users {
		callers = nil // their jobs are their own
	}
	lacks := names{}
	for _, user := range slices.Sorted(maps.Keys(callers)) {
		for _, a := range callers[user].Accounts {
			if users[x.User.name].Account(a.Name) != nil ||
				x.Policy != nil && x.Policy.Slurm.Accounts != nil && !slices.Contains(*x.Policy.Slurm.Accounts, a.Name) {
				continue
			}
			lacks.add(user, a.Name)
		}
	}
	for i, account := range slices.Sorted(maps.Keys(lacks)) {
		if i == mostListed {
			results = append(results, warning("", "%s more", plural(len(lacks)-mostListed, "such account"))...)
			break
		}
		results = append(results, warning("sacctmgr add user "+x.User.name+" account="+account,
			"%s, to whom all jobs belong, has no association with the account %s, which %s may charge: Slurm refuses those runs", x.User.name,
			account, someOf(lacks[account]))...)
	}
	if len(results) == 0 {
		return ok("%s with associations", plural(len(users), "user"))
	}
	return results
}

// chargingCallers returns the users who may start runs and charge what Slurm lets them, and those of them without an
// association. It does not read the members of groups: with a group in access.peers every user with associations may be
// one.
func (x *Exam) chargingCallers(users map[string]run.UserAccounts) (callers map[string]run.UserAccounts, strangers []string) {
	callers = map[string]run.UserAccounts{}
	for _, p := range x.Site.Access.Peers {
		if !gate.RightsOf(p.Capabilities, []string{gate.All}).Can(gate.CapSlurm, gate.All) {
			continue
		}
		switch u, has := users[p.User]; {
		case p.Group != "":
			maps.Copy(callers, users)
		case p.User == x.User.name || p.User == "root" || len(p.Accounts) > 0:
		case has:
			callers[p.User] = u
		case !slices.Contains(strangers, p.User):
			strangers = append(strangers, p.User)
		}
	}
	return callers, strangers
}

func anyoneHas(users map[string]run.UserAccounts, account string) bool {
	for _, u := range users {
		if u.Account(account) != nil {
			return true
		}
	}
	return false
}

// someOf lists names, and how many more there are.
func someOf(list []string) string {
	if len(list) <= mostListed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:mostListed], ", "), len(list)-mostListed)
}
