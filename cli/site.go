package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

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

	SSH        string   `name:"ssh" help:"Login node of a cluster elsewhere." placeholder:"[USER@]HOST[:PORT]"`
	Jump       []string `help:"Host to go through; several in their order." placeholder:"[USER@]HOST[:PORT]"`
	Key        string   `help:"Private key that the gateway logs in with." placeholder:"FILE" type:"path"`
	Agent      string   `help:"Socket of an SSH agent, instead of --key." placeholder:"SOCKET" type:"path"`
	KnownHosts []string `help:"Files with host keys. Default: known_hosts beside the site file, and /etc/ssh/ssh_known_hosts." placeholder:"FILE" type:"path"`
	Trust      []string `help:"Fingerprint of a host key that the cluster's admins publish; it is added to known_hosts." placeholder:"SHA256:…"`
	Files      string   `help:"How files reach the cluster: sftp, or shared if this host mounts its filesystem. Default: sftp." enum:",sftp,shared" default:"" placeholder:"HOW"`
}

// Run asks and writes. On a terminal it shows a host key that is not known yet, and goes on once somebody has compared it.
func (c siteInitCmd) Run(ctx context.Context, a *Shell) error {
	for {
		err := c.write(ctx, a)
		key := unknownKey(err)
		if key == "" || a.JSON || !a.tty || !isTerminal(os.Stdin) {
			return err
		}
		fmt.Fprintf(a.Err, "%s\nIs this the fingerprint that the cluster's admins publish? Type yes to add the key: ",
			fault.ProblemsOf(err)[0].Msg)
		line, _ := bufio.NewReader(StandardInput(ctx)).ReadString('\n')
		if strings.TrimSpace(line) != "yes" {
			return err
		}
		c.Trust = append(c.Trust, key)
	}
}

// unknownKey is the fingerprint in an error that is about nothing but a host key that no known_hosts file has.
func unknownKey(err error) string {
	problems := fault.ProblemsOf(err)
	if len(problems) != 1 || problems[0].Code != "SETUP-TRUST" {
		return ""
	}
	return regexp.MustCompile(`SHA256:[A-Za-z0-9+/]{43}`).FindString(problems[0].Msg)
}

func (c siteInitCmd) write(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "site.init", app.SetupArgs{File: a.Site, Shared: c.Shared, StateDir: c.StateDir, User: c.User, Account: c.Account,
		BinDir: c.BinDir, Conf: c.Conf, Domain: c.Domain, Data: c.Data, Print: c.Print, SSH: c.SSH, Jump: c.Jump, Key: c.Key, Agent: c.Agent,
		KnownHosts: c.KnownHosts, Trust: c.Trust, Files: c.Files}, func(w io.Writer, r app.SetupAnswer) {
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
