package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"slurmgate/access"
	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/toolpack"
)

// readOnlyGateway answers reads from a ledger whose gateway is not running, for root, who may read it but not be its gateway.
// Nothing is sent, watched, recorded or written: no file of the gateway's user becomes root's.
type readOnlyGateway struct {
	*gateway
	dir string // of its socket
}

// openToLook opens a site only for reads. The caller closes it.
func openToLook(ctx context.Context, s *site.Site, log *slog.Logger) (l *readOnlyGateway, err error) {
	g := &gateway{app: app.Gateway{Site: s, Log: log, Secrets: app.Scanner(s), Pictures: artifact.NewPictures(), Script: slurm.ScriptVersion}}
	g.app.LastBackup = func() *time.Time { return lastBackupAt(s) }
	g.app.Entry = func(from *gate.Gate, t gate.Tool) any { return httpapi.EntryOf(from, t) }
	l = &readOnlyGateway{gateway: g}
	defer func() {
		if err != nil {
			l.Close()
			l = nil
		}
	}()
	if g.app.Domain, g.app.Policy, err = app.ReadDomain(s.DomainDir, toolpack.AllowMissingImages); err != nil {
		return l, err
	}
	if g.app.Ledger, err = ledger.OpenToRead(ctx, ledgerFile(s)); err != nil {
		return l, err
	}
	if g.app.Store, err = artifact.OpenToRead(s.Gateway.ArtifactDir); err != nil {
		return l, err
	}
	g.app.Store.Consult(g.app.Ledger)
	g.openMetrics()
	g.app.Journal = func(gate.Journal, func(string) bool) gate.Journal { return noJournal{} }
	if err = g.closedSites(ctx); err != nil {
		return l, err
	}
	g.access = access.New(access.Config{})
	if err = g.app.OpenGate(ctx); err != nil {
		return l, err
	}
	if l.dir, err = os.MkdirTemp("", "slurmgate"); err != nil {
		return l, fault.Wrap(fault.Internal, "", "cannot make a folder for the socket", err)
	}
	face := httpapi.Config{Gate: g.app.Gate, Auth: g.access, Contents: contents{&g.app}, DomainID: g.app.Domain.ID(),
		Version: g.app.CatalogVersion,
		Events:  g.eventsAfter, Export: g.export, Log: log}
	g.server, err = httpapi.Listen(httpapi.SocketConfig{Path: l.Socket(), Mode: 0o600}, httpapi.Handler(face, nil), func() {}, log)
	return l, err
}

// closedSites opens the sites of a gateway that does not run: what only they know is not available.
func (g *gateway) closedSites(ctx context.Context) error {
	closed := func(context.Context) (run.Parts, error) {
		return run.Parts{}, fault.New(fault.Transport, "gateway_down", "the gateway is not running").
			WithNext("start it: systemctl start slurmgate")
	}
	var sites []run.Site
	for _, s := range append(g.app.Site.Clusters(), g.app.Site.LocalSite()) {
		x := g.site(s)
		x.Open = closed
		sites = append(sites, x)
	}
	g.app.Sites = run.NewSites(sites...)
	g.app.Sites.Open(ctx)
	return g.app.LoadDrains(ctx)
}

// Socket implements cli.Gateway: root's alone, and not where the gateway is found.
func (l *readOnlyGateway) Socket() string { return filepath.Join(l.dir, "s") }

// Notice returns a sentence about the source of the answers.
func (l *readOnlyGateway) Notice() string {
	return "the gateway is not running: this is the ledger as it was left. Slurm is not asked, and the call is not recorded"
}

// FinishWork implements cli.Gateway: there is no work.
func (l *readOnlyGateway) FinishWork(context.Context) error { return nil }

// CaughtUp implements cli.Gateway: Slurm is not asked.
func (l *readOnlyGateway) CaughtUp(context.Context) error { return nil }

// Close ends the reads.
func (l *readOnlyGateway) Close() {
	l.gateway.Close()
	if l.dir != "" {
		if err := os.RemoveAll(l.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.app.Log.Warn("a folder of this process could not be removed", "err", err)
		}
	}
}

// noJournal records nothing: the ledger is open for reading only.
type noJournal struct{}

// Record implements gate.Journal.
func (noJournal) Record(context.Context, []gate.Record) error { return nil }
