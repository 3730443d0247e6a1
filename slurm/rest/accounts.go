package rest

import (
	"context"

	"slurmgate/fault"
	"slurmgate/slurm"
)

// association is what the versions show of an association.
type association struct {
	Account   string `json:"account"`
	Cluster   string `json:"cluster"`
	Partition string `json:"partition"`
	User      string `json:"user"`
	QOS       words  `json:"qos"`
	Default   truth  `json:"is_default"`
	Max       struct {
		Jobs struct {
			Submitted value `json:"total"` // MaxSubmitJobs
			Per       struct {
				Submitted value `json:"submitted"` // GrpSubmitJobs
			} `json:"per"`
		} `json:"jobs"`
	} `json:"max"`
}

// truth is true, false, or a number up to v0.0.39.
type truth bool

// UnmarshalJSON implements json.Unmarshaler.
func (t *truth) UnmarshalJSON(text []byte) error {
	*t = string(text) == "true" || string(text) == "1"
	return nil
}

// AccountsOf returns what a user may charge on the cluster. If that is not known, it is a retryable Transport fault.
func (s *Slurm) AccountsOf(ctx context.Context, user string) (slurm.UserAccounts, error) {
	users, err := s.accounts.Get(ctx, s.AllAccounts)
	return users[user], err
}

// AllAccounts asks slurmdbd what every user may charge on the cluster of the site file. It costs one RPC.
func (s *Slurm) AllAccounts(ctx context.Context) (map[string]slurm.UserAccounts, error) {
	list, err := s.associations(ctx)
	if err != nil {
		return nil, err
	}
	users := map[string]slurm.UserAccounts{}
	for _, defaults := range []bool{true, false} { // the default account of a user first
		for _, a := range list {
			u := users[a.User]
			switch {
			case a.User == "" || a.Account == "":
				continue
			case defaults && bool(a.Default):
				u.Default = a.Account
			case !defaults:
				u.Add(a.Account, a.Partition, a.QOS)
			}
			users[a.User] = u
		}
	}
	if len(users) == 0 {
		return nil, fault.New(fault.Transport, "no_associations", "slurmdbd lists no association of the cluster "+s.cfg.Cluster).
			WithNext("check slurm.cluster in the site file; if slurmdbd.conf has PrivateData, give the gateway's user the admin level Operator")
	}
	return users, nil
}

// associations lists those of the site's cluster.
func (s *Slurm) associations(ctx context.Context) (list []association, err error) {
	var all []association
	if _, err := look(ctx, s, rpcLook, "/slurmdb/{v}/associations/", "associations", &all); err != nil {
		return nil, noAccounting(err)
	}
	for _, a := range all {
		if s.cfg.Cluster == "" || slurm.SameCluster(a.Cluster, s.cfg.Cluster) {
			list = append(list, a)
		}
	}
	return list, nil
}

// quality is what the versions show of a QOS. Only since v0.0.41 they show GrpSubmitJobs.
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

// Associations asks slurmdbd what the gateway's user may charge, and which QOS there are.
func (s *Slurm) Associations(ctx context.Context, cluster string) (list []slurm.Association, qos []slurm.QOS, err error) {
	all, err := s.associations(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range all {
		if a.User == s.cfg.User && (cluster == "" || slurm.SameCluster(a.Cluster, cluster)) {
			list = append(list, slurm.Association{Account: a.Account, Partition: a.Partition, QOS: a.QOS,
				Submit: least(a.Max.Jobs.Submitted, a.Max.Jobs.Per.Submitted)})
		}
	}
	member := "qos"
	var found []quality
	if v, err := s.client.negotiated(ctx); err != nil {
		return nil, nil, err
	} else if !v.nested {
		member = "QOS"
	}
	if _, err = look(ctx, s, rpcLook, "/slurmdb/{v}/qos/", member, &found); err != nil {
		return nil, nil, err
	}
	for _, q := range found {
		per := q.Limits.Max.Jobs.Per
		qos = append(qos, slurm.QOS{Name: q.Name, Submit: least(per.User, per.Account, q.Limits.Max.Jobs.Count)})
	}
	return list, qos, nil
}

// least is the smallest of some limits.
func least(limits ...value) (n *int) {
	for _, v := range limits {
		if l := v.limit(); l != nil && (n == nil || *l < *n) {
			n = l
		}
	}
	return n
}
