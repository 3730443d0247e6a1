package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"slurmgate/cli"
	"slurmgate/policy"
	"slurmgate/secrets"
	"slurmgate/visible"
)

type serveCmd struct {
	NewLedger bool `help:"Begin a new ledger although an earlier one is lost. It knows none of the earlier runs; what they left in runs_dir still keeps them from being executed again."`
}

// Run is the gateway until a signal stops it. It finishes the calls in progress; sbatch is never killed.
func (c serveCmd) Run(ctx context.Context, a *cli.Shell) error {
	s, err := loadSite(a.Site)
	if err != nil {
		return err
	}
	log, level := newLog(a.Err)
	if most := limitMemory(); most > 0 {
		log.Info("memory is limited", "mib", most>>20)
	}
	how := toChange
	if c.NewLedger {
		how = anew
	}
	g, err := openGateway(ctx, s, how, log, level)
	if err != nil {
		return err
	}
	a.Say("slurmgate %s serves %s: domain %s %s, ledger %s, socket %s (pid %d)", a.Build.Version, s.Title(), g.app.Domain.ID(),
		g.app.Domain.Version(), g.app.Ledger.Path(), s.Gateway.Socket, os.Getpid())
	if g.port != nil {
		a.Say("HTTP and MCP at http://%s, the latter at /mcp; every request needs a bearer token", g.port.Addr())
	}
	<-ctx.Done()
	a.Say("stopping: refusing new calls, finishing those in progress")
	g.Close()
	return nil
}

// newLog is the gateway's log, and its level: info until policy says otherwise.
func newLog(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	var level slog.LevelVar
	return slog.New(slog.NewTextHandler(visible.Writer(w), &slog.HandlerOptions{Level: &level, ReplaceAttr: withoutSecrets})), &level
}

// withoutSecrets takes secrets out of the words of jobs, callers and commands that are logged.
func withoutSecrets(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(secrets.Default().Redact(v))
	case error:
		a.Value = slog.StringValue(secrets.Default().Redact(v.Error()))
	}
	return a
}

// setLevel makes the log as detailed as policy says (logging.level), if it has a level to set.
func setLevel(log *slog.Logger, level *slog.LevelVar, p *policy.Policy) {
	if level == nil {
		return
	}
	if err := level.UnmarshalText([]byte(p.Logging.Level)); err != nil {
		log.Error("policy's logging.level cannot be used", "err", err) // its reader accepts only levels that can
	}
}
