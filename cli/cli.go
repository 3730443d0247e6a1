// Package cli has the verbs of the shell and what they print. Every verb is a call of a registered tool through the gate.
package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/site"
)

// Options holds the options of every verb.
type Options struct {
	Site    string `help:"Site file." env:"SLURMGATE_SITE" default:"/etc/slurmgate/site.yaml" placeholder:"FILE" type:"path"`
	JSON    bool   `name:"json" help:"Print one JSON object on standard output: the result, or {\"error\": …}."`
	Verbose bool   `short:"v" help:"Log what the gateway does to standard error."`
}

// Gateway is the gateway in this process.
type Gateway interface {
	// FinishWork waits until everything accepted has been sent to Slurm, deferred, or ended.
	FinishWork(ctx context.Context) error
	// CaughtUp waits until Slurm has been asked since the gateway was opened.
	CaughtUp(ctx context.Context) error
	// Socket returns where it is served.
	Socket() string
	Close()
}

// Ports holds what the verbs need from the rest of the program.
type Ports struct {
	Build Build
	Host  app.Host // without Examine, Backup and Restore
	// Open makes this process the gateway of a site; with look it creates nothing. A fault with code gateway_running:
	// another process is.
	Open func(ctx context.Context, s *site.Site, look bool, log *slog.Logger) (Gateway, error)
	// SiteGate makes a gate with the site's policy and its record, which was tried. The caller closes it.
	SiteGate func(ctx context.Context, a *Shell, s *site.Site, t gate.Tool) (*gate.Gate, gate.Caller, error)
	// Images returns the image stores; it calls progress for each stage of a pull, and for the copy to a cluster
	// elsewhere, in bytes.
	Images func(progress func(stage string, done, of int64)) app.Images
	// Backup and Restore copy the gateway's data of a site, and put it back; they call progress as they go.
	Backup  func(ctx context.Context, args app.BackupArgs, progress func(done, of, bytes int64)) (backup.Made, error)
	Restore func(ctx context.Context, args app.RestoreArgs, progress func(done, of, bytes int64)) (app.RestoreAnswer, error)
	// Examine checks a site. unrecorded is why the call is not recorded and therefore starts no job.
	Examine func(ctx context.Context, args app.DoctorArgs, unrecorded error, say func(format string, args ...any)) app.DoctorAnswer
	Checks  func() []app.CheckDoc // what Examine checks
}

// Shell holds what a verb works with.
type Shell struct {
	*Options
	Ports
	Out  io.Writer // results
	Err  io.Writer // progress and errors
	Log  *slog.Logger
	tty  bool // Err is a terminal
	look bool // the verb only reads

	session *Session // nil: not connected
}

// Main runs one command line and returns the exit status: 0, or that of the error's kind. verbs is the struct whose fields are the verbs,
// and options is in it.
func Main(ctx context.Context, about string, verbs any, options *Options, ports Ports, args []string, stdout, stderr io.Writer) int {
	exited := -1
	parser, err := kong.New(verbs, kong.Name("slurmgate"), kong.Description(about), kong.UsageOnError(), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(stderr, "slurmgate:", err)
		return fault.Internal.ExitCode()
	}
	a := &Shell{Options: options, Ports: ports, Out: stdout, Err: stderr, tty: isTerminal(stderr)}
	if err := checkWords(args); err != nil {
		a.JSON = slices.Contains(args, "--json")
		return a.fail(err)
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help
	}
	if err != nil {
		a.JSON = a.JSON || slices.Contains(args, "--json")
		return a.fail(fault.Wrap(fault.Validation, "usage", "", nearVerb(parser.Model.Node, args, err)).WithSteps(fault.Do("help")))
	}
	level := slog.LevelError
	if a.Verbose {
		level = slog.LevelInfo
	}
	a.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if err := checkPaths(kctx); err != nil {
		return a.fail(err)
	}
	a.look = isLook(kctx.Command())
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.Bind(parser)
	if err := a.carryOut(ctx, kctx); err != nil {
		return a.fail(err)
	}
	return 0
}

// isLook reports whether the command line is one of a verb that only reads.
func isLook(command string) bool {
	verb, _, _ := strings.Cut(command, " <")
	if verb == "wait" {
		return true
	}
	return slices.ContainsFunc(operations(), func(o app.Operation) bool {
		return (o.Verb == verb || o.Verb == verb+" list") && o.Effect == gate.Read
	})
}
