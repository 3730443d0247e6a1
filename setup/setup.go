// Package setup writes the first site file and the first policy of a cluster, from what the cluster says about itself.
//
// [Find] looks: at Slurm's partitions and the user's accounts, at the mounts of this host, and for Apptainer; with Asked.SSH it asks a
// login node for all of that. [Files] makes the text of both files from that, each choice with a comment that says where it comes from,
// and [Write] writes them and a copy of the domain, never over a file that exists. Both files are read by the packages that will read
// them later before one of them is written.
//
// Nouns: asked (what the admin said), found (what the host and Slurm say), choice.
package setup

import (
	"context"
	"errors"
	"slices"

	"slurmgate/fault"
	"slurmgate/run"
)

// Asked is what the admin said. Empty fields are found out.
type Asked struct {
	Site     string // the site file to write
	Shared   string // a folder on a filesystem that all nodes see under the same path
	StateDir string // on a local disk
	User     string // the gateway's
	Account  string // that jobs charge
	BinDir   string // of Slurm's commands
	Conf     string // slurm.conf
	Data     string // a folder that files are imported from
	Domain   string // a domain's folder, to be copied beside the site file

	SSH        string   // [user@]host[:port] of a login node; empty: Slurm's commands are on this host
	Jump       []string // hosts on the way to it, likewise
	Key        string   // private key file
	Agent      string   // socket of an SSH agent, instead of a key
	KnownHosts []string // files; none: the one beside the site file, and this host's
	Trust      []string // fingerprints of host keys that the admin has compared
	Files      string   // with SSH: sftp (the default), or shared where this host mounts the cluster's filesystem
}

// Found is what the host and Slurm say, with what the admin said in its place.
type Found struct {
	Asked
	Name       string       // of the site
	Release    string       // of sbatch, as printed, e.g. "slurm-wlm 24.11.5"
	Slurm      run.Snapshot // what Slurm says of itself
	Charged    run.Account  // the account of plans that name none
	QOS        []string     // of the user's accounts
	Filesystem string       // of Shared
	Mounts     []string     // of network filesystems
	State      string       // filesystem of StateDir
	Apptainer  string       // path, or
	Module     string       // the environment module it comes with
	ModuleInit string       // the file that defines "module"
	Version    string       // of Apptainer, as printed
	Partitions []Choice     // each with the reason to list it or not
	Charger    string       // the user whose jobs they are
	Login      *Login       // the login node; nil: this host
}

// Choice is a partition and why the policy allows it or not.
type Choice struct {
	run.Partition
	Allowed bool
	Why     string
}

// Default is the partition of plans that name none: Slurm's own default where it may be used, else the first that may.
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

// Find looks. What cannot be found out, and the admin has to say, is a Validation fault with a problem for each option.
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
