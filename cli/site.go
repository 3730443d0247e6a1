package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/fault"
)

// Site are the verbs on a cluster that has no site file yet.
type Site struct {
	Init siteInitCmd `cmd:"" help:"Ask the cluster, and write a site file and a policy for it. Nothing is overwritten."`
}

type siteInitCmd struct {
	Shared   string `help:"Folder on a filesystem that all nodes see under the same path." placeholder:"DIR" type:"path"`
	Domain   string `help:"Domain to serve, of which a copy is made. Default: a new one without tools." placeholder:"DIR" type:"existingdir"`
	Data     string `help:"Folder that users may import files from." placeholder:"DIR" type:"existingdir"`
	User     string `help:"User that the gateway runs as." placeholder:"NAME" default:"slurmgate"`
	Account  string `help:"Slurm account that jobs charge. Default: the user's default account." placeholder:"NAME"`
	StateDir string `help:"Folder for the ledger, on a local disk." placeholder:"DIR" default:"/var/lib/slurmgate" type:"path"`
	BinDir   string `help:"Folder of Slurm's commands, if they are not found." placeholder:"DIR" type:"path"`
	Conf     string `help:"Path of slurm.conf, if Slurm's commands do not find it." placeholder:"FILE" type:"path"`
	Print    bool   `help:"Print both files and write nothing."`
}

// Run asks and writes.
func (c siteInitCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "site.init", app.SetupArgs{File: a.Site, Shared: c.Shared, StateDir: c.StateDir, User: c.User, Account: c.Account,
		BinDir: c.BinDir, Conf: c.Conf, Domain: c.Domain, Data: c.Data, Print: c.Print}, func(w io.Writer, r app.SetupAnswer) {
		if !r.Written {
			fmt.Fprintf(w, "# --- %s\n%s\n# --- %s/policies.yaml\n%s", r.File, r.Site, r.Domain, r.Policy)
			return
		}
		fmt.Fprintf(w, "wrote %s\nwrote %s\n", r.File, r.Domain)
		printLines(w, "still to decide: ", r.Open)
		fmt.Fprintln(w, "now make the folders, as root:")
		printLines(w, "  ", r.Commands)
		printNext(w, fault.Do("config check"))
	})
}
