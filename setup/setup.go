// Package setup writes the first site file and the first policy of a cluster, from what it finds on the cluster.
//
// [Find] reads Slurm's partitions and the user's accounts and the mounts of this host, and searches for Apptainer;
// with Asked.SSH it does that on a login node. [Files] is the text of both files, each choice with a comment that
// gives its source, and [Write] writes them and a copy of the domain, never over a file that exists. Before either
// file is written, both are parsed by the packages that will read them later.
//
// Nouns: asked (the admin's options), found (the state of the host and of Slurm), choice.
package setup

import (
	"context"
	"errors"
	"slices"

	"slurmgate/fault"
	"slurmgate/run"
)

// Asked holds the admin's options. Find determines the values of empty fields.
type Asked struct {
	Site     string // the site file to write
	Shared   string // a folder on a filesystem that all nodes see under the same path
	StateDir string // on a local disk
	User     string // the gateway's
	Account  string // that jobs charge
	BinDir   string // of Slurm's commands
	Conf     string // slurm.conf
	Data     string // a folder that files are imported from
	Domain   string // a domain's folder, to be copied into the site file's folder

	SSH        string   // [user@]host[:port] of a login node; empty: Slurm's commands are on this host
	Jump       []string // hosts on the way to it, likewise
	Key        string   // private key file
	Agent      string   // files; none: the one in the site file's folder, and this host's
	KnownHosts []string // files; none: the one in the site file's folder, and this host's
	Trust      []string // fingerprints of host keys that the admin has compared
	Files      string   // with SSH: sftp (the default), or shared where this host mounts the cluster's filesystem
}

// Found is the state of the host and of Slurm, completed by the admin's options.
type Found struct {
	Asked
	Name       string       // of the site
	Release    string       // of sbatch, as printed, e.g. "slurm-wlm 24.11.5"
	Slurm      run.Snapshot // Slurm's configuration, partitions and accounts
	Charged    run.Account  // the account of plans that name none
	QOS        []string     // of the user's accounts
	Filesystem string       // of Shared
	Mounts     []string     // of network filesystems
	State      string       // filesystem of StateDir
	Apptainer  string       // path, or
	Module     string       // the environment module that provides it
	ModuleInit string       // the file that defines "module"
	Version    string       // of Apptainer, as printed
	Partitions []Choice     // each with the reason to list it or not
	Charger    string       // the user who owns the jobs
	Login      *Login       // the login node; nil: this host
}

// Choice is a partition and the reason why the policy lists it or not.
type Choice struct {
	run.Partition
	Allowed bool
	Why     string
}

// Default returns the partition of plans that name none: Slurm's default if it is allowed, else the first allowed
// one.
func (f Found) Default() run.Partition {
	allowed := f.allowed()
	if i := slices.IndexFunc(allowed, func(p run.Partition) bool { return p.Default }); i >= 0 {
		return allowed[i]
	}
	return allowed[0]
}

func (f Found) allowed() (list []run.Partition) {
	for _, c := range f.Partitions {
		if c.Allowed {
			list = append(list, c.Partition)
		}
	}
	return list
}

// Find reads the host and the cluster. If the admin must set options it returns a Validation fault with a problem for
// each.
func Find(ctx context.Context, a Asked) (f Found, err error) {
	f.Asked = a
	var problems []fault.Problem
	steps := []func(context.Context) error{f.people, f.cluster, f.account, f.choose, f.state, f.disks, f.runtime}
	if a.SSH != "" {
		steps = []func(context.Context) error{f.people, f.state, f.connect, f.farCluster, f.account, f.choose, f.farDisks, f.farRuntime}
		defer func() { f.Login.close() }()
	}
	for _, step := range steps {
		err := step(ctx)
		refused, ok := errors.AsType[*fault.Error](err)
		if err != nil && !(ok && refused.Kind == fault.Validation) {
			return f, err
		}
		if err != nil {
			problems = append(problems, refused.Problems...)
		}
	}
	if len(problems) > 0 {
		return f, fault.Invalid("the site file cannot be written yet", problems...)
	}
	return f, nil
}
