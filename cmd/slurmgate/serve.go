package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"slurmgate/fault"
	"slurmgate/policy"
	"slurmgate/site"
)

type serveCmd struct{}

// Run is the gateway until a signal stops it. It finishes the calls in progress; sbatch is never killed.
func (serveCmd) Run(ctx context.Context, a *app) error {
	s, err := site.Load(a.cli.Site, checkAccess)
	if err != nil {
		return err
	}
	log, level := newLog(a.err)
	g, err := openGateway(ctx, s, log, level)
	if err != nil {
		return err
	}
	a.say("slurmgate serves %s: domain %s %s, ledger %s, socket %s (pid %d)", s.Name, g.domain.ID(), g.domain.Version(), g.ledger.Path(),
		s.Gateway.Socket, os.Getpid())
	if g.port != nil {
		a.say("HTTP and MCP at http://%s, the latter at /mcp; every request needs a bearer token", g.port.Addr())
	}
	<-ctx.Done()
	a.say("stopping: refusing new calls, finishing those in progress")
	g.close()
	return nil
}

// newLog is the gateway's log, and its level: info until policy says otherwise.
func newLog(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	var level slog.LevelVar
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: &level})), &level
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

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check the site file and report every mistake."`
	Show  configShowCmd  `cmd:"" help:"Print the effective site file with all defaults."`
}

type configCheckCmd struct{}

// Run checks.
func (configCheckCmd) Run(ctx context.Context, a *app) error {
	var r configAnswer
	if err := a.local(ctx, configTool("config.check"), configArgs{a.cli.Site}, &r); err != nil {
		return err
	}
	return a.show(r, func(w writer) {
		for _, text := range r.Warnings {
			fmt.Fprintf(w, "warning: %s\n", text)
		}
		fmt.Fprintf(w, "%s is a valid site file for %s\n", r.File, r.Site)
		printNext(w, fault.Do("doctor"))
	})
}

type configShowCmd struct{}

// Run prints.
func (configShowCmd) Run(ctx context.Context, a *app) error {
	var r configAnswer
	if err := a.local(ctx, configTool("config.show"), configArgs{a.cli.Site}, &r); err != nil {
		return err
	}
	return a.show(r, func(w writer) { fmt.Fprint(w, r.Effective) })
}
