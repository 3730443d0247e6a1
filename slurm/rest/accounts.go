package rest

import (
	"context"

	"slurmgate/run"
	"slurmgate/slurm"
)

// association decodes an association from slurmrestd.
type association struct {
	Account   string   `json:"account"`
	Cluster   string   `json:"cluster"`
	Partition string   `json:"partition"`
	User      string   `json:"user"`
	QOS       []string `json:"qos"`
	Default   bool     `json:"is_default"`
	Max       struct {
		Jobs struct {
			Submitted value `json:"total"` // MaxSubmitJobs
			Per       struct {
				Submitted value `json:"submitted"` // GrpSubmitJobs
			} `json:"per"`
		} `json:"jobs"`
	} `json:"max"`
}

// AccountsOf returns what a user may charge on the cluster. If that is not known, it is a retryable Transport fault.
func (s *Slurm) AccountsOf(ctx context.Context, user string) (run.UserAccounts, error) {
	users, err := s.accounts.Get(ctx, s.AllAccounts)
	return users[user], err
}

// AllAccounts asks slurmdbd what every user may charge on the cluster of the site file. It costs one RPC.
func (s *Slurm) AllAccounts(ctx context.Context) (map[string]run.UserAccounts, error) {
	users, err := s.Accounts(ctx, s.cfg.Cluster, "")
	return slurm.RequireAccounts(users, s.cfg.Cluster, err)
}

// Accounts implements [slurm.Source].
func (s *Slurm) Accounts(ctx context.Context, cluster, user string) (map[string]run.UserAccounts, error) {
	var all []association
	if _, err := look(ctx, s, rpcLook, "/slurmdb/{v}/associations/", "associations", &all); err != nil {
		return nil, noAccounting(err)
	}
	var rows []run.Association
	for _, a := range all {
		if (cluster == "" || slurm.SameCluster(a.Cluster, cluster)) && (user == "" || a.User == user) {
			rows = append(rows, run.Association{User: a.User, Account: a.Account, Default: a.Default, Partition: a.Partition, QOS: a.QOS,
				Submit: run.Least(a.Max.Jobs.Submitted.limit(), a.Max.Jobs.Per.Submitted.limit())})
		}
	}
	return run.ByUser(rows), nil
}

// quality decodes a QOS from slurmrestd. GrpSubmitJobs is shown since v0.0.41.
type quality struct {
	Name   string `json:"name"`
	Limits struct {
		Max struct {
			Jobs struct {
				Count value `json:"count"` // GrpSubmitJobs
				Per   struct {
					Account value `json:"account"` // MaxSubmitJobsPerAccount
					User    value `json:"user"`    // MaxSubmitJobsPerUser
				} `json:"per"`
			} `json:"jobs"`
		} `json:"max"`
	} `json:"limits"`
}

// QOS implements [slurm.Source].
func (s *Slurm) QOS(ctx context.Context) (list []run.QOS, err error) {
	var found []quality
	if _, err := look(ctx, s, rpcLook, "/slurmdb/{v}/qos/", "qos", &found); err != nil {
		return nil, err
	}
	for _, q := range found {
		per := q.Limits.Max.Jobs.Per
		list = append(list, run.QOS{Name: q.Name, Submit: run.Least(per.User.limit(), per.Account.limit(), q.Limits.Max.Jobs.Count.limit())})
	}
	return list, nil
}
