// Command slurmgate is the gateway and its command line.
//
// Every verb is a call of a registered tool through the gate. A verb reaches the gateway that holds the ledger through its socket; if
// none listens and the site is no service, the verb itself becomes the gateway while it runs, socket included, so that two shells never
// compete for the ledger.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"slurmgate/app"
	"slurmgate/cli"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/transport"
)

const about = "Turns a pinned tool, pinned inputs and declared outputs into exactly one Slurm job, and collects the outputs."

// commands is the command line; its fields are the verbs.
type commands struct {
	cli.Options `embed:""`

	cli.Verbs `embed:""`

	Serve   serveCmd   `cmd:"" help:"Run the gateway: watch runs and serve the socket until stopped."`
	MCP     mcpCmd     `cmd:"" name:"mcp" help:"Serve a chat assistant on standard input and output (MCP), as in: ssh HOST slurmgate mcp."`
	Signer  signerCmd  `cmd:"" help:"Issue the certificates that the gateway logs in with as the person who asked (slurm.run_as: caller). Runs under a separate user."`
	Adapter adapterCmd `cmd:"" help:"Serve the tools of another MCP server to the gateway, as a service worker."`

	cli.SiteVerbs `embed:""`

	Records recordCallsCmd `cmd:"" name:"record-calls" hidden:"" help:"Write the records on standard input, as the ledger's owner; root's image and doctor start it."`
	Look    lookCmd        `cmd:"" hidden:"" help:"Make the checks on standard input as this user; root's doctor and config check start it."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a process that cannot finish
	os.Exit(realMain(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// realMain runs one command line and returns the exit status.
func realMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	os.Unsetenv("SLURM_JWT") // no process that the gateway starts gets a token
	var c commands
	return cli.Main(ctx, about, &c, &c.Options, ports(), args, stdout, stderr)
}

// ports returns the parts of the program that the verbs use.
func ports() cli.Ports {
	build := built()
	return cli.Ports{Build: build, Images: func(progress func(stage string, done, of int64)) app.Images {
		return transport.Images{Progress: progress}
	}, Backup: backUp, Restore: restoreBackup, SiteGate: siteGate,
		Host: app.Host{LoadSite: loadSite, Images: transport.Images{}, Setup: setUp, Slurm: transport.Misfits, Early: early},
		Open: func(ctx context.Context, s *site.Site, look bool, log *slog.Logger) (cli.Gateway, error) {
			how := toChange
			if look {
				how = toLook
			}
			var g *gateway
			err := serviceDown(s)
			if err == nil {
				g, err = openGateway(ctx, s, how, log, nil)
			}
			if code := fault.CodeOf(err); look && os.Geteuid() == 0 && (code == "not_this_user" || code == cli.ServiceDown) {
				return openToLook(ctx, s, log)
			}
			if err != nil {
				return nil, err
			}
			return g, nil
		},
		Examine: examine,
		Checks:  doctor.Table,
	}
}
