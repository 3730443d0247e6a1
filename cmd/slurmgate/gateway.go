package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"slurmgate/access"
	"slurmgate/app"
	"slurmgate/apptainer"
	"slurmgate/artifact"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/local"
	"slurmgate/metrics"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/staging"
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
	shared  *staging.Shared
	slurm   *slurm.CLI
	metrics *metrics.Metrics
	access  *access.Access

	lock   *ledger.Lock
	server *httpapi.Server
	port   *httpapi.Port // nil if the site has none
	stop   context.CancelFunc
	wait   func()
}

// openGateway takes the ledger's lock, opens every part (and fails if the domain breaks any rule) and starts. The caller closes it. level
// is that of log, which policy sets; nil for a log of the caller's own level.
func openGateway(ctx context.Context, s *site.Site, log *slog.Logger, level *slog.LevelVar) (g *gateway, err error) {
	g = &gateway{app: app.Gateway{Site: s, Log: log, Pictures: artifact.NewPictures(), Script: slurm.ScriptVersion}}
	g.app.Entry = func(from *gate.Gate, t gate.Tool) any { return httpapi.EntryOf(from, t) }
	defer func() {
		if err != nil {
			g.Close()
			g = nil
		}
	}()
	if g.lock, err = lockState(s.Gateway.StateDir); err != nil {
		return g, err
	}
	if g.app.Domain, g.app.Policy, err = app.ReadDomain(s.DomainDir); err != nil {
		return g, err
	}
	setLevel(log, level, g.app.Policy)
	for _, misfit := range app.Fits(g.app.Domain, g.app.Policy) {
		log.Warn("domain and policy do not fit", "what", misfit)
	}
	misfits, err := siteImages{}.Misfits(s)
	if err != nil {
		return g, err
	}
	for _, p := range misfits {
		log.Warn("images.lock.yaml and the image store do not agree", "what", p.String())
	}
	g.app.Policy.Import.Roots = app.ImportRoots(s, g.app.Policy)
	if err = g.app.Domain.Packs().CheckBinds(app.Offers(s)); err != nil {
		return g, err
	}
	if g.app.Ledger, err = openLedger(ctx, s); err != nil {
		return g, err
	}
	if g.app.Store, err = artifact.Open(s.Gateway.ArtifactDir); err != nil {
		return g, err
	}
	g.app.Ledger.CheckBytes(g.app.Store.Has)
	g.app.Store.Consult(g.app.Ledger)
	if g.app.Importer, err = artifact.NewImporter(g.app.Store, artifact.ImportPolicy{Roots: existing(g.app.Policy.Import.Roots, log),
		MaxBytes: g.app.Policy.Import.MaxBytes, Types: g.app.Domain.Types(),
		Full: s.Import.FullCheck, Own: []string{s.Gateway.StateDir, s.Gateway.ArtifactDir, s.Storage.RunsDir}}); err != nil {
		return g, err
	}
	g.openMetrics()
	if err = g.openEngine(ctx); err != nil {
		return g, err
	}
	if g.access, err = openAccess(s, g.app.Ledger); err != nil {
		return g, err
	}
	if err = g.app.OpenGate(ctx); err != nil {
		return g, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.stop = stop
	if g.wait, err = g.app.Engine.Start(running); err != nil {
		return g, err
	}
	go g.app.Tend(running)
	return g, g.serve()
}

// staged are the phases in which a run depends on its workspace.
var staged = []run.Phase{run.Deferred, run.Submitting, run.Unconfirmed, run.Pending, run.InJob, run.Completing, run.Collecting,
	run.NeedsOperator, run.AheadOfLedger, run.OutputsLate}

// openShared opens runs_dir. While workspaces must exist in it, it is not created again: an unmounted filesystem looks like an empty
// folder.
func (g *gateway) openShared(ctx context.Context) (*staging.Shared, error) {
	dir := g.app.Site.Storage.RunsDir
	open, err := g.app.Ledger.Index(g.app.Site.Name).Waiting(ctx, "", 1, staged...)
	if err != nil {
		return nil, err
	}
	if len(open) == 0 {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fault.Wrap(fault.Transport, "openGateway", "runs_dir_unavailable", "cannot create storage.runs_dir", err).
				WithNext("mount its filesystem, or create it, owned by the gateway's user, mode 0700")
		}
	}
	return staging.NewShared(staging.Config{RunsDir: dir, GatewayID: g.app.Ledger.ID(), Marked: len(open) > 0})
}

func (g *gateway) openEngine(ctx context.Context) error {
	s, p := g.app.Site, g.app.Policy
	shared, err := g.openShared(ctx)
	if err != nil {
		return err
	}
	g.shared, g.app.Workspaces = shared, shared
	images, err := openImages(s)
	if err != nil {
		return err
	}
	if g.slurm, err = openSlurm(s); err != nil {
		return err
	}
	var warnings []string
	if s.Apptainer.Verify == slurm.VerifyImageOnly {
		warnings = append(warnings, "this site verifies only the image on the compute node, not the inputs (apptainer.verify: image_only)")
	}
	here, err := local.New(local.Config{Dir: filepath.Join(s.Gateway.StateDir, "local"), Places: p.Local.MaxRunning, Log: g.app.Log,
		Ended: func(runID string) { g.app.Engine.Ended(context.Background(), runID) }})
	if err != nil {
		return err
	}
	previous, err := g.app.Previous(ctx)
	if err != nil {
		return err
	}
	docker := scriptConfig(s)
	docker.Local = true
	both := backends{g.slurm, here, slurm.NewRenderer(docker)}
	g.app.Engine = run.NewEngine(run.Config{
		Workers: s.Budget.StagingWorkers + s.Budget.SendsInFlight, SendsAtOnce: s.Budget.SendsInFlight, SubmitWait: submitWait,
		Floor: time.Duration(s.Watch.FloorSeconds) * time.Second, Ceiling: time.Duration(s.Watch.CeilingSeconds) * time.Second,
		AbsenceGap: absenceGap, LateOutputs: lateOutputs, DeferBackoff: deferBackoff,
		OutputBytes: min(s.Storage.MaxOutputBytes, p.Limits.CollectBytes), LogBytes: p.Limits.LogBytes,
		Attempts: 1 + p.Retry.InfrastructureAttempts, ReuseAcross: p.EquivalentRuns == "reuse", Warnings: warnings, Site: s.Name,
		Placement: app.SiteDefaults(s), Previous: previous, InFlight: g.app.RunLimits(),
	}, g.metrics.Wrap(inject(run.Parts{Store: g.app.Ledger, Index: g.app.Ledger.Index(s.Name), Renderer: both, Submitter: both, Queue: both,
		Accounting: accounting(s, g.slurm),
		Canceller:  both, Workspace: shared, Images: images, Objects: g.app.Store,
		Contracts: newContracts(g.app.Domain.Packs(), g.app.Ledger.Pack), Formats: formats{}, Room: func() error { return doctor.Room(s) },
		Allowed: g.app.StillAllowed, Log: g.app.Log, Now: time.Now})))
	return nil
}

// accounting is none if the site has no sacct or does not want it asked.
func accounting(s *site.Site, cli *slurm.CLI) run.Accounting {
	_, err := os.Stat(filepath.Join(s.Slurm.BinDir, "sacct"))
	if s.Slurm.Accounting == "none" || s.Slurm.Accounting == "auto" && errors.Is(err, os.ErrNotExist) {
		return run.NoAccounting{}
	}
	return cli
}

func openImages(s *site.Site) (apptainer.Images, error) {
	store, err := apptainer.OpenStore(s.Storage.ImageStore)
	if err != nil {
		return apptainer.Images{}, err
	}
	c := apptainer.Config{NoMount: s.Apptainer.NoMount, GPU: apptainer.GPU(s.Apptainer.GPU)}
	for _, b := range s.Apptainer.Binds {
		c.Binds = append(c.Binds, apptainer.Bind{Name: b.Name, Source: b.Source, Target: b.Target})
	}
	return apptainer.Images{Store: store, Runtime: apptainer.NewRuntime(c)}, nil
}

func scriptConfig(s *site.Site) slurm.ScriptConfig {
	c := slurm.ScriptConfig{Runtime: slurm.Runtime{Path: s.Apptainer.Path}, Verify: s.Apptainer.Verify, GraceSeconds: s.Slurm.GraceSeconds,
		VerifyAllowanceSeconds: s.Slurm.VerifyAllowanceSeconds}
	if m := s.Apptainer.Module; m != nil {
		c.Runtime = slurm.Runtime{ModuleInit: m.Init, Modules: m.Load}
	}
	return c
}

func openSlurm(s *site.Site) (*slurm.CLI, error) {
	me, err := user.Current()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "openSlurm", "", "the user of this process has no name", err)
	}
	c := slurm.Config{BinDir: s.Slurm.BinDir, Conf: s.Slurm.Conf, User: me.Username, LocksDir: filepath.Join(s.Gateway.StateDir, "locks"),
		Script: scriptConfig(s),
		Budget: slurm.BudgetConfig{RPCPerMinute: s.Budget.RPCPerMinute, SendsInFlight: s.Budget.SendsInFlight}}
	return slurm.NewCLI(c)
}

// existing drops import roots that are not there: an unmounted filesystem is no reason not to start.
func existing(roots []string, log *slog.Logger) []string {
	var out []string
	for _, r := range roots {
		if st, err := os.Stat(r); err == nil && st.IsDir() {
			out = append(out, r)
		} else {
			log.Warn("an import root is not a folder here; nothing is imported from it", "root", r)
		}
	}
	return out
}

// FinishWork waits until everything accepted has been sent to Slurm, deferred, or ended. When ctx ends, the next gateway does the rest.
func (g *gateway) FinishWork(ctx context.Context) error { return g.app.Engine.Settled(ctx) }

// CaughtUp waits until Slurm has been asked since the gateway was opened.
func (g *gateway) CaughtUp(ctx context.Context) error { return g.app.Engine.CaughtUp(ctx) }

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
