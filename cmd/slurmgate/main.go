// Command slurmgate is the gateway and its command line.
//
// Every verb is a call of a registered tool through the gate. A verb reaches the gateway that holds the ledger through its socket; if
// there is none, the verb itself becomes the gateway while it runs, socket included, so that two shells never compete for the ledger.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"slurmgate/fault"
)

const about = "Turns a pinned tool, pinned inputs and declared outputs into exactly one Slurm job, and collects the outputs."

// cli is the command line; the fields are the verbs.
type cli struct {
	Site    string `help:"Site file." env:"SLURMGATE_SITE" default:"/etc/slurmgate/site.yaml" placeholder:"FILE" type:"path"`
	JSON    bool   `name:"json" help:"Print one JSON object on standard output: the result, or {\"error\": …}."`
	Verbose bool   `short:"v" help:"Log what the gateway does to standard error."`

	Run      runCmd       `cmd:"" help:"Run a tool: import its input files and submit it; with --wait, wait and show the outputs. The exit status is 6 if the run failed or was cancelled, also without --wait."`
	Submit   submitCmd    `cmd:"" help:"Submit a complete plan (SlurmJobSpec v1), if policy allows it. The exit status is 6 if the run failed or was cancelled, also without --wait."`
	Get      getCmd       `cmd:"" help:"Show the state of a run."`
	Wait     waitCmd      `cmd:"" help:"Wait for a run to finish."`
	Collect  collectCmd   `cmd:"" help:"Show whether a run is finished and list its outputs; with --to, copy them."`
	Again    recollectCmd `cmd:"" name:"recollect" help:"Retry collecting the outputs of a run that is blocked as outputs_late."`
	Logs     logsCmd      `cmd:"" help:"Print the end of a run's log."`
	Cancel   cancelCmd    `cmd:"" help:"Cancel a run. Takes effect immediately if the job has not started."`
	Retry    retryCmd     `cmd:"" help:"Start a new attempt of a run that failed or was cancelled. The exit status is 6 if the attempt fails at once, also without --wait."`
	Adopt    adoptCmd     `cmd:"" help:"Assign a Slurm job with the run's job name to a run in doubt."`
	Declare  absentCmd    `cmd:"" name:"declare-absent" help:"End an attempt whose job cannot be found: no job of this attempt can execute any more."`
	Clear    cancelAll    `cmd:"" name:"cancel-all" help:"Cancel all unfinished runs."`
	Runs     runsCmd      `cmd:"" help:"List runs, show everything about one, or compare two."`
	Artifact artifactCmd  `cmd:"" help:"Import, list, preview, fetch and verify artifacts."`
	Tool     toolCmd      `cmd:"" help:"List and show tools; write and check toolpacks."`
	Domain   domainCmd    `cmd:"" help:"Check a domain package."`
	Image    imageCmd     `cmd:"" help:"Add, list and verify images."`
	GC       gcCmd        `cmd:"" name:"gc" help:"Remove what is no longer needed, according to the site's retention settings."`
	Serve    serveCmd     `cmd:"" help:"Run the gateway: watch runs and serve the socket until stopped."`
	MCP      mcpCmd       `cmd:"" name:"mcp" help:"Serve a chat assistant on standard input and output (MCP), as in: ssh HOST slurmgate mcp."`
	Doctor   doctorCmd    `cmd:"" help:"Check the site end to end."`
	Config   configCmd    `cmd:"" help:"Check or show the site file."`
	Version  versionCmd   `cmd:"" help:"Print the version."`

	Token    tokenCmd         `cmd:"" help:"Create, list and revoke bearer tokens for programs and people."`
	Approve  approveCmd       `cmd:"" help:"Approve a call that needs a person's approval."`
	Deny     denyCmd          `cmd:"" help:"Deny a call that needs a person's approval."`
	Asked    approvals        `cmd:"" name:"approvals" help:"List the calls that are waiting for approval."`
	Events   eventsCmd        `cmd:"" help:"List, show and verify the records of all calls."`
	Complete completeCmd      `cmd:"" name:"completion" help:"Print the completion script of a shell."`
	Records  recordCallsCmd   `cmd:"" name:"record-calls" hidden:"" help:"Write the records on standard input, as the ledger's owner; root's image and doctor start it."`
	Words    completeWordsCmd `cmd:"" name:"complete-words" hidden:"" help:"Print what may follow some words; used by the completion scripts."`
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
	context.AfterFunc(ctx, stop) // a second signal ends a process that cannot finish
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
	if err := checkWords(args); err != nil {
		c.JSON = slices.Contains(args, "--json")
		return a.fail(err)
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help
	}
	if err != nil {
		c.JSON = c.JSON || slices.Contains(args, "--json")
		return a.fail(fault.Wrap(fault.Validation, "slurmgate", "usage", "", err).WithSteps(fault.Do("help")))
	}
	level := slog.LevelError
	if c.Verbose {
		level = slog.LevelInfo
	}
	a.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if err := checkPaths(kctx); err != nil {
		return a.fail(err)
	}
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
