package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/signer"
)

type signerCmd struct {
	Config    string `help:"The signer's configuration." default:"/etc/slurmgate/signer.yaml" type:"path" placeholder:"FILE"`
	Check     bool   `help:"Only check the configuration, the CA's key and the log, as the signer does before it starts."`
	PublicKey bool   `help:"Only print the CA's line for the file that TrustedUserCAKeys of sshd names."`
	LogFormat string `name:"log-format" help:"Form of the log on standard error: text, or json (one object a line)." enum:"text,json" default:"text" placeholder:"FORMAT"`
}

// Run serves the signer until a signal stops it. It answers the requests that arrived by then.
func (c signerCmd) Run(ctx context.Context, a *cli.Shell) (err error) {
	out := openLog(a.Err, c.LogFormat)
	a.Err = out.sayer(slog.LevelInfo)
	defer func() {
		if err != nil {
			a.Err = out.sayer(slog.LevelError)
		}
	}()
	config, err := signer.Load(c.Config)
	if err != nil {
		return withStatus(err)
	}
	callers, err := config.Callers(ctx, nss.Host{})
	if fault.CodeOf(err) == signer.IsRoot {
		return withStatus(err) // and as root every other check would mislead
	}
	// Other processes of this user must not read the key from this one's memory, nor may a core file have it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fault.Wrap(fault.Internal, "dumpable", "this process cannot be closed to debuggers", err)
	}
	server, failed := signer.New(ctx, config, nss.Host{}, callers, out.log)
	if err := errors.Join(err, failed); err != nil {
		return withStatus(err)
	}
	switch {
	case c.PublicKey:
		_, err := fmt.Fprintln(a.Out, server.PublicKey())
		return err
	case c.Check:
		a.Say("slurmgate signer would start with %s", c.Config)
		return nil
	}
	l, err := config.Listen(ctx, nss.Host{})
	if err != nil {
		return withStatus(err)
	}
	systemd := findServiceManager(out.log)
	systemd.notify("READY=1")
	a.Say("slurmgate %s signs certificates: socket %s, log %s, CA %s", a.Build.Version, config.Socket, config.Log, server.PublicKey())
	defer systemd.notify("STOPPING=1")
	return server.Serve(ctx, l)
}
