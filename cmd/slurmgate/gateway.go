package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"slurmgate/access"
	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/metrics"
	"slurmgate/site"
	"slurmgate/slurm"
)

// How long this program waits.
const (
	submitWait   = 8 * time.Second  // a submit waits this long for its receipt; after that it answers "staging"
	absenceGap   = 60 * time.Second // least time before a job unknown to Slurm is given up; more if Slurm's MessageTimeout is long
	lateOutputs  = 90 * time.Second // a network filesystem may show a file with a delay
	deferBackoff = 5 * time.Second
	drainTime    = 45 * time.Second
)

// gateway has all parts of one gateway.
type gateway struct {
	app     app.Gateway
	metrics *metrics.Metrics
	access  *access.Access

	lock   *ledger.Lock
	server *httpapi.Server
	port   *httpapi.Server // nil if the site has none
	stop   context.CancelFunc
	wait   func()
}

// openGateway takes the ledger's lock, opens every part (and fails if the domain breaks any rule) and starts. The caller closes it. level
// is that of log, which policy sets; nil for a log of the caller's own level.
func openGateway(ctx context.Context, s *site.Site, how start, log *slog.Logger, level *slog.LevelVar) (g *gateway, err error) {
	g = &gateway{app: app.Gateway{Site: s, Log: log, Secrets: app.Scanner(s), Pictures: artifact.NewPictures(), Script: slurm.ScriptVersion}}
	g.app.Entry = func(from *gate.Gate, t gate.Tool) any { return httpapi.EntryOf(from, t) }
	defer func() {
		if err != nil {
			g.Close()
			g = nil
		}
	}()
	if g.lock, err = lockState(s, how); err != nil {
		return g, err
	}
	if g.app.Domain, g.app.Policy, err = app.ReadDomain(s.DomainDir); err != nil {
		return g, err
	}
	setLevel(log, level, g.app.Policy)
	for _, misfit := range app.Fits(g.app.Domain, g.app.Policy) {
		log.Warn("domain and policy do not fit", "what", misfit)
	}
	if err = g.app.Policy.CheckSites(s.Names()); err != nil {
		return g, err
	}
	roots := app.ImportRoots(s, g.app.Policy)
	g.app.Policy.Import.Roots = nil
	for _, r := range roots {
		g.app.Policy.Import.Roots = append(g.app.Policy.Import.Roots, r.Path)
	}
	if err = g.app.Domain.Packs().CheckBinds(app.Offers(s)); err != nil {
		return g, err
	}
	if g.app.Ledger, err = openLedger(ctx, s, how); err != nil {
		return g, err
	}
	if g.app.Store, err = artifact.Open(s.Gateway.ArtifactDir); err != nil {
		return g, err
	}
	g.app.Ledger.CheckBytes(g.app.Store.Has)
	g.app.Store.Consult(g.app.Ledger)
	own := []string{s.Gateway.StateDir, s.Gateway.ArtifactDir}
	for _, c := range s.Clusters() {
		own = append(own, c.Storage.RunsDir)
	}
	if g.app.Importer, err = artifact.NewImporter(g.app.Store, artifact.ImportPolicy{Roots: existing(roots, log),
		MaxBytes: g.app.Policy.Import.MaxBytes, Types: g.app.Domain.Types(),
		Full: s.Import.FullCheck, Own: own, Room: importRoom(s)}); err != nil {
		return g, err
	}
	g.openMetrics()
	if err = g.openSites(ctx); err != nil {
		return g, err
	}
	if g.access, err = openAccess(ctx, s, g.app.Ledger); err != nil {
		return g, err
	}
	g.app.Revoked = g.access.Revoked
	if err = g.app.OpenGate(ctx); err != nil {
		return g, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.stop = stop
	if g.wait, err = g.app.Sites.Start(running); err != nil {
		return g, err
	}
	go g.app.Tend(running)
	go g.app.ResumeErasures(running)
	return g, g.serve()
}

// importRoom keeps the reserve free on the disks that imports fill: the store's, and the ledger's. Of several clusters the largest reserve
// counts.
func importRoom(s *site.Site) *artifact.Room {
	reserve := 0
	for _, c := range s.Clusters() {
		reserve = max(reserve, c.Storage.ReserveMB)
	}
	return artifact.NewRoom(int64(reserve)<<20, artifact.Disk{Field: "gateway.artifact_dir", Folder: s.Gateway.ArtifactDir},
		artifact.Disk{Field: "gateway.state_dir", Folder: s.Gateway.StateDir})
}

// existing drops import roots that are not there: an unmounted filesystem is no reason not to start.
func existing(roots []site.Root, log *slog.Logger) []artifact.Root {
	var out []artifact.Root
	for _, r := range roots {
		if st, err := os.Stat(r.Path); err != nil || !st.IsDir() {
			log.Warn("an import root is not a folder here; nothing is imported from it", "root", r.Path)
			continue
		}
		if r.Projects == nil {
			log.Warn("an import root has no projects", "what", site.PlainRoot(r.Path))
		}
		out = append(out, artifact.Root{Folder: r.Path, Projects: r.ProjectIDs()})
	}
	return out
}

// FinishWork waits until everything accepted has been sent to Slurm, deferred, or ended. When ctx ends, the next gateway does the rest.
func (g *gateway) FinishWork(ctx context.Context) error { return g.app.Sites.Settled(ctx) }

// CaughtUp waits until Slurm has been asked since the gateway was opened.
func (g *gateway) CaughtUp(ctx context.Context) error { return g.app.Sites.CaughtUp(ctx) }

// Socket is where the gateway is served on this host.
func (g *gateway) Socket() string { return g.app.Site.Gateway.Socket }

// Close refuses new calls, waits a limited time for calls in progress, and releases the lock last. Interrupted staging starts again with
// the next gateway; an sbatch continues and leaves its receipt.
func (g *gateway) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var errs []error
	if g.port != nil {
		errs = append(errs, g.port.Shutdown(ctx))
	}
	if g.server != nil {
		errs = append(errs, g.server.Shutdown(ctx))
	}
	if g.app.Gate != nil {
		g.app.Gate.Close()
	}
	if g.wait != nil {
		_ = g.FinishWork(ctx) // being interrupted is no failure
	}
	if g.stop != nil {
		g.stop()
	}
	if g.wait != nil {
		g.wait()
	}
	if g.app.Store != nil {
		errs = append(errs, g.app.Store.Close())
	}
	if g.app.Ledger != nil {
		errs = append(errs, g.app.Ledger.Close())
	}
	if g.lock != nil {
		errs = append(errs, g.lock.Release())
	}
	if err := errors.Join(errs...); err != nil {
		g.app.Log.Error("the gateway did not close cleanly", "err", err)
	}
}
