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

// Site groups the verbs on a cluster that has no site file yet.
type Site struct {
	Init siteInitCmd `cmd:"" help:"Ask the cluster, and write a site file and a policy for it. Nothing is overwritten."`
}

type siteInitCmd struct{ app.SetupArgs }

// Run queries the cluster and writes the files. On a terminal it shows an unknown host key, and continues once the user
// has confirmed it.
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

// unknownKey returns the fingerprint in an error that is only about a host key that no known_hosts file has; empty for
// other errors.
func unknownKey(err error) string {
	problems := fault.ProblemsOf(err)
	if len(problems) != 1 || problems[0].Code != "SETUP-TRUST" {
		return ""
	}
	return regexp.MustCompile(`SHA256:[A-Za-z0-9+/]{43}`).FindString(problems[0].Msg)
}

func (c siteInitCmd) write(ctx context.Context, a *Shell) error {
	c.File = a.Site
	return ask(ctx, a, "site.init", c.SetupArgs, func(w io.Writer, r app.SetupAnswer) {
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
