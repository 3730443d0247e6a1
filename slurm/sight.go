package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
)

// Fault codes for a cluster that hides the data of other users from the gateway's user. Its answers are clean and empty
// then, so a gateway that queries for all users must not conclude that a job is absent.
const (
	JobsHidden    = "jobs_hidden"    // squeue's
	RecordsHidden = "records_hidden" // sacct's
	UsersHidden   = "users_hidden"   // sacctmgr's: who may charge which account
)

const rpcDatabase = 1 // sacctmgr, to slurmdbd

// CheckSight makes sure that Slurm shows the gateway's user the jobs of all users, and with accounting their records
// and associations too. A gateway that queries for its own user alone always passes. It costs two RPCs to slurmctld and
// two to slurmdbd.
func (c *CLI) CheckSight(ctx context.Context, accounting bool) error {
	err := c.SeesAll(ctx)
	if err == nil && accounting {
		if err = c.seesRecords(ctx); err == nil {
			err = c.seesUsers(ctx)
		}
	}
	return err
}

// Hides reports whether err is the fault of a cluster that hides data from the gateway's user, and not of one that did
// not answer.
func Hides(err error) bool {
	return slices.Contains([]string{JobsHidden, RecordsHidden, UsersHidden}, fault.CodeOf(err))
}

// SeesAll asks slurmctld whether squeue shows this user the jobs of all users; run.Queue has the contract. It is asked each time: an
// administrator may change it while slurmctld runs (scontrol reconfigure).
func (c *CLI) SeesAll(ctx context.Context) error {
	if !c.cfg.AllUsers {
		return nil
	}
	config, err := c.Config(ctx, 0)
	if err != nil {
		return err
	}
	v := config.Values
	private, shown := v["PrivateData"]
	switch {
	case !shown:
		return fault.New(fault.Transport, "config_unreadable", "scontrol show config does not show PrivateData")
	case listed(private, "jobs"):
		return c.unlessOperator(ctx, config.Database(), c.hidden(JobsHidden,
			"PrivateData in slurm.conf has jobs, so squeue hides the jobs of other users from", "jobs", "slurm.conf"))
	case listed(v["MCSParameters"], "privatedata") && !slices.Contains([]string{"", "(null)", "none", "mcs/none"}, v["MCSPlugin"]):
		return c.unlessOperator(ctx, config.Database(), c.hidden(JobsHidden,
			"MCSParameters in slurm.conf has privatedata, so squeue hides the jobs of other users from", "privatedata", "slurm.conf"))
	}
	return nil
}

// seesRecords asks slurmdbd whether sacct shows this user the records of all users.
func (c *CLI) seesRecords(ctx context.Context) error {
	return c.database(ctx, "jobs", c.hidden(RecordsHidden,
		"PrivateData in slurmdbd.conf has jobs, so sacct hides the records of other users from", "jobs", "slurmdbd.conf"))
}

// seesUsers asks slurmdbd whether sacctmgr shows this user the associations of all users.
func (c *CLI) seesUsers(ctx context.Context) error {
	return c.database(ctx, "users", c.hidden(UsersHidden,
		"PrivateData in slurmdbd.conf has users, so sacctmgr hides the accounts of other users from", "users", "slurmdbd.conf"))
}

func (c *CLI) hidden(code, what, word, file string) *fault.Error {
	return fault.New(fault.Transport, code, what+" "+c.cfg.User+", the user the gateway looks as").WithNext(fmt.Sprintf(
		"remove %s from it in %s and reconfigure Slurm, or run: sacctmgr modify user %s set adminlevel=Operator", word, file, c.cfg.User))
}

func (c *CLI) database(ctx context.Context, word string, hidden *fault.Error) error {
	if !c.cfg.AllUsers {
		return nil
	}
	out, err := c.ask(ctx, rpcDatabase, answered, "sacctmgr", "show", "configuration")
	if err != nil {
		return err
	}
	private, shown := databaseValues(string(out.Stdout))["PrivateData"]
	switch {
	case !shown:
		return fault.New(fault.Transport, "config_unreadable", "sacctmgr show configuration does not show PrivateData of slurmdbd")
	case listed(private, word):
		return c.unlessOperator(ctx, true, hidden)
	}
	return nil
}

// databaseValues parses the configuration of slurmdbd itself: sacctmgr prints that of this host's slurm.conf first.
func databaseValues(text string) map[string]string {
	_, own, _ := strings.Cut(text, "SlurmDBD configuration:")
	return configValues(own)
}

// unlessOperator returns the fault hidden, unless the database gives this user an admin level that sees all data. A
// coordinator sees only the jobs of some accounts.
func (c *CLI) unlessOperator(ctx context.Context, database bool, hidden *fault.Error) error {
	if !database {
		return hidden
	}
	out, err := c.ask(ctx, rpcDatabase, answered, "sacctmgr", "--noheader", "--parsable2", "show", "user", c.cfg.User,
		"format=User,AdminLevel")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out.Stdout)) {
		user, level, _ := strings.Cut(strings.TrimSpace(line), "|")
		if user == c.cfg.User && (level == "Operator" || level == "Administrator") {
			return nil
		}
	}
	return hidden
}

// listed reports whether a value of slurm.conf such as "accounts,jobs" contains the word.
func listed(value, word string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == ';' }),
		func(w string) bool { return strings.EqualFold(w, word) })
}
