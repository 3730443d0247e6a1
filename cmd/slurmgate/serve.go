package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"slurmgate/cli"
	"slurmgate/fault"
)

type serveCmd struct {
	NewLedger bool   `help:"Begin a new ledger although an earlier one is lost. It knows none of the earlier runs; what they left in runs_dir still keeps them from being executed again."`
	Check     bool   `help:"Only check the site file, the domain and the policy, as serve does before it starts."`
	LogFormat string `name:"log-format" help:"Form of the log on standard error: text, or json (one object a line)." enum:"text,json" default:"text" placeholder:"FORMAT"`
}

// misconfigured is the exit status of a gateway that cannot start as it is configured; EX_CONFIG of sysexits(3). A Go program that crashes
// has status 2, which is why this is not that of [fault.Validation]: systemd starts a gateway again after a crash only.
const misconfigured = 78

// Run serves the gateway until a signal stops it. It finishes the calls in progress; sbatch is never killed.
func (c serveCmd) Run(ctx context.Context, a *cli.Shell) (err error) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before anything that takes time: without it a HUP ends the process
	defer signal.Stop(hup)
	out := openLog(a.Err, c.LogFormat)
	log, level := out.log, &out.level
	a.Err = out.sayer(slog.LevelInfo)
	defer func() {
		if err != nil {
			a.Err = out.sayer(slog.LevelError)
		}
	}()
	set, err := readFiles(a.Site)
	if err != nil {
		return withStatus(err)
	}
	if c.Check {
		a.Say("slurmgate serve would start with %s: domain %s %s", a.Site, set.domain.ID(), set.domain.Version())
		return nil
	}
	collectSeldom()
	if most := limitMemory(); most > 0 {
		log.Info("memory is limited", "mib", most>>20)
	}
	how := toChange
	if c.NewLedger {
		how = anew
	}
	d := &daemon{Shell: a, log: log, level: level, systemd: findServiceManager(log)}
	if d.gateway, err = openGateway(ctx, set.site, how, log, level); err != nil {
		return withStatus(err)
	}
	return d.run(ctx, hup)
}

// withStatus gives the exit status misconfigured to an error that only a change of the configuration, or of the rights
// of this user, can remedy.
func withStatus(err error) error {
	switch fault.KindOf(err) {
	case fault.Validation, fault.NotFound, fault.Auth, fault.Capability, fault.Policy:
		return cli.WithStatus(misconfigured, err)
	}
	return err
}
