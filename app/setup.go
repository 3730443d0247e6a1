package app

import (
	"context"

	"slurmgate/gate"
)

// SetupArgs are the arguments of site.init. Setup finds the values of empty ones.
type SetupArgs struct {
	File     string `json:"file" kind:"path" kong:"-"` // the site file to write
	Shared   string `json:"shared,omitzero" kind:"path" help:"Folder on a filesystem that all nodes see under the same path." placeholder:"DIR" type:"path"`
	Domain   string `json:"domain,omitzero" kind:"path" help:"Domain to serve, of which a copy is made. Default: a new one without tools." placeholder:"DIR" type:"existingdir"`
	Data     string `json:"data,omitzero" kind:"path" help:"Folder that users may import files from." placeholder:"DIR" type:"existingdir"`
	User     string `json:"user,omitzero" max:"255" help:"User that the gateway runs as." placeholder:"NAME" default:"slurmgate"`
	Account  string `json:"account,omitzero" max:"255" help:"Slurm account that jobs charge. Default: the user's default account." placeholder:"NAME"`
	StateDir string `json:"state_dir,omitzero" kind:"path" help:"Folder for the ledger, on a local disk." placeholder:"DIR" default:"/var/lib/slurmgate" type:"path"`
	BinDir   string `json:"bin_dir,omitzero" kind:"path" help:"Folder of Slurm's commands, if they are not found." placeholder:"DIR" type:"path"`
	Conf     string `json:"conf,omitzero" kind:"path" help:"Path of slurm.conf, if Slurm's commands do not find it." placeholder:"FILE" type:"path"`
	Print    bool   `json:"print,omitzero" help:"Print both files and write nothing."`

	// For a remote cluster.
	SSH        string   `json:"ssh,omitzero" max:"255" name:"ssh" help:"Login node of a cluster elsewhere." placeholder:"[USER@]HOST[:PORT]"`
	Jump       []string `json:"jump,omitempty" max:"255" count:"-16" help:"Host to go through; several in their order." placeholder:"[USER@]HOST[:PORT]"`
	Key        string   `json:"key,omitzero" kind:"path" help:"Private key that the gateway logs in with." placeholder:"FILE" type:"path"`
	Agent      string   `json:"agent,omitzero" kind:"path" help:"Socket of an SSH agent, instead of --key." placeholder:"SOCKET" type:"path"`
	KnownHosts []string `json:"known_hosts,omitempty" kind:"path" count:"-16" help:"Files with host keys. Default: known_hosts next to the site file, and /etc/ssh/ssh_known_hosts." placeholder:"FILE" type:"path"`
	Trust      []string `json:"trust,omitempty" max:"255" count:"-16" help:"Fingerprint of a host key that the cluster's admins publish; it is added to known_hosts." placeholder:"SHA256:…"`
	Files      string   `json:"files,omitzero" enum:",sftp,shared" default:"" help:"How files reach the cluster: sftp, or shared if this host mounts its filesystem. Default: sftp." placeholder:"HOW"`
}

// SetupAnswer is the answer of site.init.
type SetupAnswer struct {
	File     string   `json:"file"`
	Domain   string   `json:"domain"` // its folder
	Written  bool     `json:"written"`
	Site     string   `json:"site"`     // text of the site file
	Policy   string   `json:"policy"`   // text of the domain's policies.yaml
	Commands []string `json:"commands"` // commands for root that make the folders
	Open     []string `json:"open"`     // decisions that the admin still has to make
}

// setup returns the operation that writes the first site file of a cluster.
func (h Host) setup() Operation {
	return Operation{
		ID: "site.init", Title: "Write a site file", Verb: "site init",
		Description: "Asks the cluster and writes a site file and a policy for it.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Files, Faces: shellOnly,
		Does: does(func(ctx context.Context, _ gate.Call, a SetupArgs) (SetupAnswer, error) { return h.Setup(ctx, a) }),
	}
}
