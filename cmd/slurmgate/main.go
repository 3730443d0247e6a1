// Command slurmgate is the gateway and its command line.
//
// Every verb is a call of a registered tool through the gate. A verb reaches the gateway that holds the ledger through its socket; if
// there is none, the verb itself becomes the gateway while it runs, socket included, so that two shells never compete for the ledger.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slurmgate/app"
	"slurmgate/cli"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/site"
	"syscall"
)

const about = "Turns a pinned tool, pinned inputs and declared outputs into exactly one Slurm job, and collects the outputs."

// commands is the command line; the fields are the verbs.
type commands struct {
	cli.Options `embed:""`

	Run      cli.Run           `cmd:"" help:"Run a tool: import its input files and submit it; with --wait, wait and show the outputs. The exit status is 6 if the run failed or was cancelled, also without --wait."`
	Batch    cli.Batch         `cmd:"" help:"Run a tool over a sample sheet, and wait for, show, retry, cancel or collect all of it under one name."`
	Trace    cli.Trace         `cmd:"" help:"Show where an artifact came from: the runs, tools, versions and inputs that made it."`
	Submit   cli.Submit        `cmd:"" help:"Submit a complete plan (SlurmJobSpec v1), if policy allows it. The exit status is 6 if the run failed or was cancelled, also without --wait."`
	Get      cli.Get           `cmd:"" help:"Show the state of a run."`
	Wait     cli.Wait          `cmd:"" help:"Wait for a run to finish."`
	Collect  cli.Collect       `cmd:"" help:"Show whether a run is finished and list its outputs; with --to, copy them."`
	Again    cli.Recollect     `cmd:"" name:"recollect" help:"Retry collecting the outputs of a run that is blocked as outputs_late."`
	Logs     cli.Logs          `cmd:"" help:"Print the end of a run's log."`
	Cancel   cli.Cancel        `cmd:"" help:"Cancel a run. Takes effect immediately if the job has not started."`
	Retry    cli.Retry         `cmd:"" help:"Start a new attempt of a run that failed or was cancelled. The exit status is 6 if the attempt fails at once, also without --wait."`
	Adopt    cli.Adopt         `cmd:"" help:"Assign a Slurm job with the run's job name to a run in doubt."`
	Declare  cli.DeclareAbsent `cmd:"" name:"declare-absent" help:"End an attempt whose job cannot be found: no job of this attempt can execute any more."`
	Clear    cli.CancelAll     `cmd:"" name:"cancel-all" help:"Cancel all unfinished runs."`
	Runs     cli.Runs          `cmd:"" help:"List runs, show everything about one, or compare two."`
	Receipt  cli.Receipt       `cmd:"" help:"Print the signed receipt of a run that has ended: an in-toto Statement in a DSSE envelope."`
	Notify   cli.Notify        `cmd:"" help:"Tell a URL or a mail address when a run is over."`
	Keys     cli.Keys          `cmd:"" help:"List the public keys that receipts are signed with, or rotate the key that signs."`
	Artifact cli.Artifact      `cmd:"" help:"Import, list, preview, fetch and verify artifacts."`
	Ref      cli.Reference     `cmd:"" name:"reference" help:"Give names to reference data (genomes, indexes, databases), list and withdraw them."`
	Export   cli.Export        `cmd:"" help:"Write everything about a finished run into one archive: an RO-Crate with a signed receipt and a Nextflow module."`
	Verify   cli.Verify        `cmd:"" help:"Check an archive of a run, without a gateway: every file, the run's id, the history and the receipt."`
	Tool     cli.Tool          `cmd:"" help:"List and show tools; write and check toolpacks."`
	Domain   cli.Domain        `cmd:"" help:"Check a domain package."`
	Image    cli.Image         `cmd:"" help:"Add, list and verify images."`
	GC       cli.GC            `cmd:"" name:"gc" help:"Remove what is no longer needed, according to the site's retention settings."`
	Drain    cli.Drain         `cmd:"" help:"Start no new runs, for maintenance. Jobs that Slurm has go on and are collected; survives a restart."`
	Resume   cli.Resume        `cmd:"" help:"End a drain: runs that waited are sent, and new ones are accepted."`
	Status   cli.Status        `cmd:"" help:"Show the gateway as a whole: runs by state, drained sites, Slurm's last answer, the last backup."`
	Sites    cli.Sites         `cmd:"" help:"List the sites that runs can go to: ready, away, drained or paused, their unfinished runs, the budget that is left."`
	Backup   cli.Backup        `cmd:"" help:"Copy the ledger, the artifacts and the configuration into a folder, also while the gateway runs."`
	Restore  cli.Restore       `cmd:"" help:"Put a backup back where there is no ledger."`
	Erase    cli.Erase         `cmd:"" help:"Erase a leaked secret, given on standard input or in a file, from everything that the gateway stores."`
	Serve    serveCmd          `cmd:"" help:"Run the gateway: watch runs and serve the socket until stopped."`
	MCP      mcpCmd            `cmd:"" name:"mcp" help:"Serve a chat assistant on standard input and output (MCP), as in: ssh HOST slurmgate mcp."`
	Signer   signerCmd         `cmd:"" help:"Issue the certificates that the gateway logs in with as the person who asked (slurm.run_as: caller). Runs under a user of its own."`
	Adapter  adapterCmd        `cmd:"" help:"Serve the tools of another MCP server to the gateway, as a service worker."`
	Site     cli.Site          `cmd:"" name:"site" help:"Write the site file of a cluster."`
	Doctor   cli.Doctor        `cmd:"" help:"Check the site end to end."`
	Config   cli.Config        `cmd:"" help:"Check or show the site file."`
	Version  cli.Version       `cmd:"" help:"Print the version."`

	Token    cli.Token         `cmd:"" help:"Create, list and revoke bearer tokens for programs and people."`
	Approve  cli.Approve       `cmd:"" help:"Approve a call that needs a person's approval."`
	Deny     cli.Deny          `cmd:"" help:"Deny a call that needs a person's approval."`
	Asked    cli.Approvals     `cmd:"" name:"approvals" help:"List the calls that are waiting for approval."`
	Usage    cli.Usage         `cmd:"" help:"Add up what the jobs that ended in a month used, by project, account, caller and tool; as a table or as CSV."`
	Events   cli.Events        `cmd:"" help:"List, show and verify the records of all calls."`
	Complete cli.Completion    `cmd:"" name:"completion" help:"Print the completion script of a shell."`
	Records  recordCallsCmd    `cmd:"" name:"record-calls" hidden:"" help:"Write the records on standard input, as the ledger's owner; root's image and doctor start it."`
	Manual   cli.ManPages      `cmd:"" name:"man-pages" hidden:"" help:"Write the manual pages; used by the packages."`
	Look     lookCmd           `cmd:"" hidden:"" help:"Make the checks on standard input as this user; root's doctor and config check start it."`
	Words    cli.CompleteWords `cmd:"" name:"complete-words" hidden:"" help:"Print what may follow some words; used by the completion scripts."`
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

// ports are what the verbs use of the rest of the program.
func ports() cli.Ports {
	build := built()
	return cli.Ports{Build: build, Images: imagesOf, Backup: backUp, Restore: restoreBackup, SiteGate: siteGate,
		Host: app.Host{LoadSite: loadSite, Images: siteImages{}, Setup: setUp, Slurm: slurmMisfits, Early: early},
		Open: func(ctx context.Context, s *site.Site, look bool, log *slog.Logger) (cli.Gateway, error) {
			how := toChange
			if look {
				how = toLook
			}
			g, err := openGateway(ctx, s, how, log, nil)
			if look && os.Geteuid() == 0 && fault.CodeOf(err) == "not_this_user" {
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
