package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/httpapi"
	"slurmgate/run"
)

// daemon is `slurmgate serve`: a gateway, and after each reload the next one, in one process.
type daemon struct {
	*cli.Shell
	log     *slog.Logger
	level   *slog.LevelVar
	systemd *serviceManager
	gateway *gateway

	refused bool // the files were not loaded at the last reload
}

const (
	statusEvery = 15 * time.Second // between two reads of the gateway's state, at most
	overslept   = time.Minute      // for how long a watching loop may miss the end of its pause
	knockTime   = time.Minute      // for an answer at the socket
)

// run serves until ctx ends. A HUP makes it read its files again.
func (d *daemon) run(ctx context.Context, hup <-chan os.Signal) error {
	d.announce()
	d.systemd.notify("READY=1")
	go logChecks(ctx, d.log, d.gateway.app.Site)
	every := statusEvery
	if w := d.systemd.watchdog; w > 0 {
		every = min(every, w/4)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	looks, looking := make(chan error, 1), false
	look := func() {
		if looking {
			return
		}
		looking = true
		g := d.gateway
		go func() { looks <- g.alive(ctx) }()
	}
	look()
	for {
		select {
		case <-ctx.Done():
			d.systemd.notify("STOPPING=1", "STATUS=stopping: finishing the calls in progress")
			d.Say("stopping: refusing new calls, finishing those in progress")
			d.gateway.Close()
			return nil
		case <-hup:
			if err := d.reload(ctx); err != nil {
				return err
			}
		case <-tick.C:
			look()
		case err := <-looks:
			looking = false
			switch {
			case ctx.Err() != nil:
			case err != nil:
				d.log.Error("the gateway does not work", "err", err)
			default:
				d.systemd.notify("WATCHDOG=1")
				d.systemd.say(d.status(ctx))
			}
		}
	}
}

func (d *daemon) announce() {
	g := d.gateway
	d.Say("slurmgate %s serves %s: domain %s %s, ledger %s, socket %s (pid %d)", d.Build.Version, g.app.Site.Title(), g.app.Domain.ID(),
		g.app.Domain.Version(), g.app.Ledger.Path(), g.app.Site.Gateway.Socket, os.Getpid())
	if g.port != nil {
		d.Say("HTTP and MCP at http://%s, the latter at /mcp; every request needs a bearer token", g.port.Addr())
	}
}

// reload reads the site file, the domain and the policy. If all of them are right, another gateway with them takes the
// place of this one; else this one continues. After an error there is no gateway left.
func (d *daemon) reload(ctx context.Context) error {
	set, err := readFiles(d.Site)
	if err != nil {
		d.keep(err)
		return nil
	}
	began, before := time.Now(), d.gateway
	d.systemd.reloading()
	d.systemd.say("reloading: starting anew with the changed configuration")
	defer d.systemd.notify("READY=1")
	if err := before.makeRoom(); err != nil {
		return err
	}
	d.systemd.notify("WATCHDOG=1")
	next, err := startGateway(ctx, set, toChange, d.log, d.level, before)
	if err != nil && ctx.Err() == nil {
		d.keep(err)
		next, err = startGateway(ctx, before.config, toChange, d.log, d.level, before)
		set = before.config
	}
	if err != nil {
		before.leave(&gateway{})
		if ctx.Err() != nil {
			return nil // it was to stop anyway
		}
		return err
	}
	d.gateway = next
	before.leave(next)
	if set.site != before.config.site {
		d.refused = false
		d.log.Info("the configuration was loaded", "file", d.Site, "ms", time.Since(began).Milliseconds())
		d.announce()
		go logChecks(ctx, d.log, d.gateway.app.Site)
	}
	d.systemd.say(d.status(ctx))
	return nil
}

// keep reports why the files were not loaded.
func (d *daemon) keep(err error) {
	problems := fault.ProblemsOf(err)
	if len(problems) == 0 {
		d.log.Error("the configuration was not loaded; the gateway continues with the one before", "err", err)
	}
	for _, p := range problems {
		d.log.Error("the configuration was not loaded; the gateway continues with the one before", "mistake", p.String())
	}
	d.refused = true
	d.systemd.say(d.status(context.Background()))
}

// alive returns when the gateway works: its ledger answers, its watching loops turn, and a request at its socket is answered. It waits for
// a slow disk, and a Slurm or a filesystem that hangs is no concern of it.
func (g *gateway) alive(ctx context.Context) error {
	g.app.Ledger.Answers(ctx)
	if late := g.app.Sites.Overslept(); late > overslept {
		return fmt.Errorf("a watching loop is %s late", late.Round(time.Second))
	}
	ctx, stop := context.WithTimeout(ctx, knockTime)
	defer stop()
	if _, err := httpapi.Dial(ctx, g.app.Site.Gateway.Socket); fault.CodeOf(err) == "no_gateway" {
		return err
	}
	return nil // a refusal is an answer too
}

// status returns the line that systemctl status shows.
func (d *daemon) status(ctx context.Context) string {
	var parts []string
	if d.refused {
		parts = append(parts, "RELOAD FAILED, the configuration before it is in use; the journal has the mistakes")
	}
	g := d.gateway
	if counts, err := g.app.Ledger.Counts(ctx); err != nil {
		parts = append(parts, "the ledger cannot be read: "+fault.Prose(err))
	} else {
		parts = append(parts, fmt.Sprintf("%d runs queued, %d running, %d blocked", counts[string(run.Queued)], counts[string(run.Running)],
			counts[string(run.Blocked)]))
	}
	if err := g.app.Ledger.Stopped(); err != nil {
		parts = append(parts, fault.Prose(err))
	}
	for _, name := range g.app.Sites.Names() {
		if err := g.app.Sites.Away(name); err != nil {
			parts = append(parts, "site "+name+" is away: "+fault.Prose(err))
		}
	}
	return strings.Join(parts, "; ")
}

// leave gives up the addresses and the lock that the other gateway does not have.
func (g *gateway) leave(other *gateway) {
	ctx, stop := context.WithTimeout(context.Background(), drainTime)
	defer stop()
	if err := errors.Join(g.leaveFaces(ctx, other), g.leaveLock(other)); err != nil {
		g.app.Log.Error("the gateway did not close cleanly", "err", err)
	}
}

func (g *gateway) leaveFaces(ctx context.Context, other *gateway) error {
	var errs []error
	if g.port != nil && g.port != other.port {
		errs = append(errs, g.port.Shutdown(ctx))
	}
	if g.server != nil && g.server != other.server {
		errs = append(errs, g.server.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

func (g *gateway) leaveLock(other *gateway) error {
	if g.lock == nil || g.lock == other.lock {
		return nil
	}
	return g.lock.Release()
}
