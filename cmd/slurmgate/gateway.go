package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"slurmgate/access"
	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/metrics"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/transport"
)

// How long this program waits.
const (
	submitWait   = 8 * time.Second  // a submit waits this long for its receipt; after that it answers "staging"
	absenceGap   = 60 * time.Second // least time before a job unknown to Slurm is given up; more if Slurm's MessageTimeout is long
	lateOutputs  = 90 * time.Second // a network filesystem may show a file with a delay
	deferBackoff = 5 * time.Second
	drainTime    = 45 * time.Second
	requestTime  = 10 * time.Second // for requests in progress, when one gateway makes room for the next; then they are cut
	stagingTime  = 2 * time.Second  // for runs being staged then; the next gateway does the rest
)

// gateway has all parts of one gateway.
type gateway struct {
	config  configuration
	how     start
	app     app.Gateway
	metrics *metrics.Metrics
	access  *access.Access
	sites   *transport.Sites

	lock   *ledger.Lock
	server *httpapi.Server
	port   *httpapi.Server // nil if the site has none
	stop   context.CancelFunc
	wait   func()
}

// openGateway takes the ledger's lock, reads the site's domain and policy, opens every part and starts. The caller closes it. level is that
// of log, which policy sets; nil for a log of the caller's own level.
func openGateway(ctx context.Context, s *site.Site, how start, log *slog.Logger, level *slog.LevelVar) (*gateway, error) {
	lock, err := lockState(ctx, s, how)
	if err != nil {
		return nil, err
	}
	set, err := readConfiguration(s)
	var g *gateway
	if err == nil {
		g, err = startGateway(ctx, set, how, log, level, &gateway{config: set, lock: lock})
	}
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return g, nil
}

// startGateway is the rest of openGateway. It takes over the lock and the addresses of the gateway before, which made
// room for this one, where they are the same. If there is an error they stay with the gateway before.
func startGateway(ctx context.Context, set configuration, how start, log *slog.Logger, level *slog.LevelVar, before *gateway) (
	g *gateway, err error) {
	s := set.site
	g = &gateway{config: set, how: how, app: app.Gateway{Site: s, Domain: set.domain, Policy: set.policy, Log: log, Secrets: app.Scanner(s),
		Pictures: artifact.NewPictures(), Script: slurm.ScriptVersion}}
	g.app.UnixUser = unixUserOf(s)
	g.app.LastBackup = func() *time.Time { return lastBackupAt(s) }
	g.app.Words = words()
	g.app.Entry = func(from *gate.Gate, t gate.Tool) any { return httpapi.EntryOf(from, t) }
	defer func() {
		if err != nil {
			g.abandon(before)
			g = nil
		}
	}()
	if before.config.site.Gateway.StateDir == s.Gateway.StateDir {
		g.lock = before.lock
	} else if g.lock, err = lockState(ctx, s, how); err != nil {
		return g, err
	}
	setLevel(log, level, g.app.Policy)
	for _, misfit := range app.Fits(g.app.Domain, g.app.Policy) {
		log.Warn("domain and policy do not fit", "what", misfit)
	}
	for _, absent := range app.NotServed(g.app.Domain) {
		log.Info(absent)
	}
	if g.app.Ledger, err = openLedger(ctx, s, how); err != nil {
		return g, err
	}
	if g.app.Store, err = artifact.Open(s.Gateway.ArtifactDir); err != nil {
		return g, err
	}
	g.app.Ledger.CheckBytes(g.app.Store.Has)
	g.app.Store.Consult(g.app.Ledger)
	own := append(transport.RunsDirs(s), s.Gateway.StateDir, s.Gateway.ArtifactDir)
	if g.app.Importer, err = artifact.NewImporter(g.app.Store, artifact.ImportPolicy{Roots: transport.Existing(set.roots, log),
		MaxBytes: g.app.Policy.Import.MaxBytes, Types: g.app.Domain.Types(),
		Full: s.Import.FullCheck, Own: own, Room: importRoom(s)}); err != nil {
		return g, err
	}
	if err = g.app.OpenPlaces(own, func(s *site.Site) *artifact.ImportPolicy { return transport.PlacesHere(s, log) }); err != nil {
		return g, err
	}
	g.openMetrics()
	if err = g.openSites(ctx); err != nil {
		return g, err
	}
	g.app.Again = func(ctx context.Context, p gate.Principal) (gate.Principal, error) { return g.access.Again(ctx, p) }
	if g.access, err = openAccess(ctx, s, g.app.Ledger); err != nil {
		return g, err
	}
	g.app.Revoked, g.app.Spill, g.app.ProjectUser, g.app.Person = g.revoked, s.Gateway.StateDir, g.access.ProjectUser, g.access.Person
	if err = g.app.OpenGate(ctx); err != nil {
		return g, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.stop = stop
	if err = g.app.LoadDrains(ctx); err != nil {
		return g, err
	}
	if g.wait, err = g.app.Sites.Start(running); err != nil {
		return g, err
	}
	g.app.StartLoop(running)
	go g.app.Tend(running)
	go g.app.SendNotices(running)
	go g.app.ResumeDeletions(running)
	return g, g.serve(before)
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

// FinishWork waits until everything accepted has been sent to Slurm, deferred, or ended. When ctx ends, the next gateway does the rest.
func (g *gateway) FinishWork(ctx context.Context) error {
	if err := g.app.BatchesSettled(ctx); err != nil {
		return err
	}
	return g.app.Sites.Settled(ctx)
}

// CaughtUp waits until Slurm has been asked since the gateway was opened.
func (g *gateway) CaughtUp(ctx context.Context) error { return g.app.Sites.CaughtUp(ctx) }

// Socket returns where the gateway is served on this host.
func (g *gateway) Socket() string { return g.app.Site.Gateway.Socket }

// Close refuses new calls, waits a limited time for calls in progress, and releases the lock last. Interrupted staging starts again with
// the next gateway; an sbatch continues and leaves its receipt.
func (g *gateway) Close() { g.abandon(&gateway{}) }

// abandon closes the gateway, except what before has too: the lock or an address.
func (g *gateway) abandon(before *gateway) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if g.app.Sites != nil {
		g.app.Sites.EndWaits()
	}
	if g.app.Gate != nil {
		g.app.Gate.EndChecks()
	}
	if err := errors.Join(g.leaveFaces(ctx, before), g.endWork(ctx), g.leaveLock(before)); err != nil {
		g.app.Log.Error("the gateway did not close cleanly", "err", err)
	}
}

// makeRoom ends the gateway's work, and leaves its lock and its addresses to the gateway that follows; new requests
// wait there. After an error no other gateway can be opened in this process.
func (g *gateway) makeRoom() error {
	g.atFaces((*httpapi.Server).AwaitTransfers)
	g.app.Sites.EndWaits()
	g.app.Gate.EndChecks()
	g.atFaces(func(face *httpapi.Server, ctx context.Context) {
		if err := face.Hold(ctx); err != nil {
			g.app.Log.Warn("requests in progress did not end in time", "err", err)
		}
	})
	ended := make(chan error, 1)
	go func() {
		ctx, stop := context.WithTimeout(context.Background(), stagingTime)
		defer stop()
		ended <- g.endWork(ctx)
	}()
	select {
	case err := <-ended:
		if err != nil {
			g.app.Log.Error("the gateway did not close cleanly", "err", err)
		}
		return nil
	case <-time.After(drainTime):
		return fault.New(fault.Transport, "work_hangs", "work in progress does not end: a filesystem or a command hangs")
	}
}

// atFaces calls f for the socket and the port, in parallel, and returns when both have returned. ctx ends after requestTime.
func (g *gateway) atFaces(f func(face *httpapi.Server, ctx context.Context)) {
	ctx, stop := context.WithTimeout(context.Background(), requestTime)
	defer stop()
	var faces sync.WaitGroup
	for _, face := range []*httpapi.Server{g.server, g.port} {
		if face != nil {
			faces.Go(func() { f(face, ctx) })
		}
	}
	faces.Wait()
}

// endWork ends everything behind the faces. Work in progress is finished until ctx ends, then it is left to the next gateway.
func (g *gateway) endWork(ctx context.Context) error {
	g.app.StopLoop() // its calls pass the gate
	if g.app.Sites != nil {
		g.app.Sites.StopWorkers()
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
	if g.sites != nil {
		g.sites.Close()
	}
	var errs []error
	if g.app.Store != nil {
		errs = append(errs, g.app.Store.Close())
	}
	if g.app.Ledger != nil {
		errs = append(errs, g.app.Ledger.Close())
	}
	return errors.Join(errs...)
}
