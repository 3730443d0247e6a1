// Command slurmgate is the gateway and its command line.
//
// Every verb is a call of a registered tool through the gate. A verb finds the gateway that holds the ledger
// by its socket; when there is none it becomes the gateway for as long as it runs, socket included, so that
// two shells never fight over the ledger.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"slurmgate/fault"
)

const about = "Turns a pinned tool, pinned inputs and declared outputs into exactly one Slurm job, and brings the outputs back."

// cli is the command line; the fields are the verbs.
type cli struct {
	Site    string `help:"Site file." env:"SLURMGATE_SITE" default:"/etc/slurmgate/site.yaml" placeholder:"FILE" type:"path"`
	JSON    bool   `name:"json" help:"Print one JSON object on standard output: the result, or {\"error\": …}."`
	Verbose bool   `short:"v" help:"Log what the gateway does to standard error."`

	Run      runCmd       `cmd:"" help:"Run a tool: import its input files, submit, and with --wait bring the outputs."`
	Submit   submitCmd    `cmd:"" help:"Submit a whole plan (SlurmJobSpec v1), where policy allows it."`
	Get      getCmd       `cmd:"" help:"Look at a run."`
	Wait     waitCmd      `cmd:"" help:"Wait for a run to finish."`
	Collect  collectCmd   `cmd:"" help:"Tell whether a run is finished and what it made; with --to, copy the outputs."`
	Again    recollectCmd `cmd:"" name:"recollect" help:"Collect the outputs of a run blocked as outputs_late again, now."`
	Logs     logsCmd      `cmd:"" help:"Print the end of a run's log."`
	Cancel   cancelCmd    `cmd:"" help:"Cancel a run. Before the job has started this is definite at once."`
	Retry    retryCmd     `cmd:"" help:"Open a new attempt of a run that failed or was cancelled."`
	Adopt    adoptCmd     `cmd:"" help:"Give a run in doubt the Slurm job that has its name."`
	Declare  absentCmd    `cmd:"" name:"declare-absent" help:"Settle a run whose job cannot be found: no job of this attempt can execute any more."`
	Clear    cancelAll    `cmd:"" name:"cancel-all" help:"Cancel every run that is not over."`
	Runs     runsCmd      `cmd:"" help:"List runs, or show one with its whole story."`
	Artifact artifactCmd  `cmd:"" help:"Import, list, look at and fetch artifacts."`
	Tool     toolCmd      `cmd:"" help:"List, show, check and start tools."`
	Domain   domainCmd    `cmd:"" help:"Check a domain package."`
	Image    imageCmd     `cmd:"" help:"Add, list and verify images."`
	GC       gcCmd        `cmd:"" name:"gc" help:"Remove what is no longer needed, as the site's retention says."`
	Serve    serveCmd     `cmd:"" help:"Be the gateway: watch, and serve the socket until told to stop."`
	MCP      mcpCmd       `cmd:"" name:"mcp" help:"Serve a chat assistant on standard input and output (MCP), as in: ssh HOST slurmgate mcp."`
	Doctor   doctorCmd    `cmd:"" help:"Check the site end to end."`
	Config   configCmd    `cmd:"" help:"Check or show the site file."`
	Version  versionCmd   `cmd:"" help:"Print the version."`

	Token    tokenCmd         `cmd:"" help:"Make, list and revoke bearer tokens for programs and people."`
	Approve  approveCmd       `cmd:"" help:"Approve a call that policy wants a person's word on."`
	Deny     denyCmd          `cmd:"" help:"Deny such a call."`
	Asked    approvals        `cmd:"" name:"approvals" help:"List the calls that wait for an approval."`
	Events   eventsCmd        `cmd:"" help:"List, show and verify the records of all calls."`
	Complete completeCmd      `cmd:"" name:"completion" help:"Print the completion script of a shell."`
	Words    completeWordsCmd `cmd:"" name:"complete-words" hidden:"" help:"What may follow some words; the completion scripts ask."`
}

// app is what a verb works with.
type app struct {
	cli *cli
	out io.Writer // results
	err io.Writer // progress and errors
	tty bool      // err is a terminal
	log *slog.Logger
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(realMain(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// realMain runs one command line and returns the exit status: 0, or that of the error's kind.
func realMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("slurmgate"), kong.Description(about), kong.UsageOnError(), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(stderr, "slurmgate:", err)
		return fault.Internal.ExitCode()
	}
	a := &app{cli: &c, out: stdout, err: stderr, tty: isTerminal(stderr)}
	kctx, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help
	}
	if err != nil {
		for _, s := range args {
			c.JSON = c.JSON || s == "--json"
		}
		return a.fail(fault.Wrap(fault.Validation, "slurmgate", "usage", "", err).WithNext("slurmgate --help"))
	}
	level := slog.LevelError
	if c.Verbose {
		level = slog.LevelInfo
	}
	a.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.Bind(parser)
	if err := kctx.Run(a); err != nil {
		return a.fail(err)
	}
	return 0
}

type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	return a.show(map[string]string{"version": version()}, func(w io.Writer) { fmt.Fprintln(w, "slurmgate", version()) })
}

func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "(devel)"
}
