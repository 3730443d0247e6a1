package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slurmgate/ledger"
	"sync"
	"time"

	"slurmgate/app"
	"slurmgate/apptainer"
	"slurmgate/artifact"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/local"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/staging"
	far "slurmgate/staging/sftp"
	"slurmgate/worker"
)

// workerConnections bounds what the gateway has open to service workers; policy bounds their calls.
const workerConnections = 512

// staged are the phases in which a run depends on its workspace.
var staged = []run.Phase{run.Deferred, run.Submitting, run.Unconfirmed, run.Pending, run.InJob, run.Completing, run.Collecting,
	run.NeedsOperator, run.AheadOfLedger, run.OutputsLate}

// openSites opens every site of the gateway: each cluster, and this host. A site that cannot be opened delays nothing of the others, and
// is tried again; but with no cluster at all there is no gateway.
func (g *gateway) openSites(ctx context.Context) error {
	previous, err := g.app.Previous(ctx)
	if err != nil {
		return err
	}
	var sites []run.Site
	g.hosts = newHosts(g.app.Log)
	g.app.FarPlaces, g.app.PlaceScript = g.hosts, far.PlaceScript()
	folders := &workspaces{gateway: g, byDir: map[string]*workspace{}}
	for _, s := range g.app.Site.Clusters() {
		x := g.site(s, previous)
		if s.AsCaller() { // runs from before the cluster ran them as their callers are the service's
			c, err := g.hosts.slurmConfig(s)
			if err != nil {
				return err
			}
			x.Config.OwnUser = c.User
		}
		x.Parts.Connections = g.links(s)
		x.Open = func(ctx context.Context) (run.Parts, error) { return g.openCluster(ctx, s, folders) }
		sites = append(sites, x)
	}
	host := g.site(g.app.Site.LocalSite(), previous)
	host.Config.Placement, host.Config.OneNode, host.Config.Arrays = plan.Placement{}, true, run.Arrays{}
	host.Open = func(ctx context.Context) (run.Parts, error) { return g.openHost(ctx, folders) }
	g.app.Sites = run.NewSites(append(sites, host)...)
	g.app.Sites.ServeWorkers(run.Config{Secrets: g.app.Secrets, SubmitWait: submitWait}, run.Parts{Store: g.app.Ledger,
		Index: g.app.Ledger.Index(run.WorkerSite), Room: g.app.Quotas().Room, Waits: gate.Wait, Log: g.app.Log, Now: time.Now})
	g.app.Workers = worker.New(worker.Config{URLs: app.ServiceURLs(g.app.Domain), Connections: workerConnections})
	away := g.app.Sites.Open(ctx, g.app.Site.Names()...)
	for _, s := range g.app.Site.Clusters() {
		if err := away[s.Name]; err == nil || (s.FarSlurm() || s.OverREST()) && fault.Is(err, fault.Transport) {
			return nil // a network that is away is no reason not to start: the gateway waits for it
		}
	}
	return away[g.app.Site.Names()[0]]
}

// site is a site as its engine sees it before it is open.
func (g *gateway) site(s *site.Site, previous *run.Previous) run.Site {
	p, caps := g.app.Policy, g.app.Caps()
	var warnings []string
	if s.Apptainer.Verify == slurm.VerifyImageOnly {
		warnings = append(warnings, "this site verifies only the image on the compute node, not the inputs (apptainer.verify: image_only)")
	}
	return run.Site{
		Config: run.Config{
			Workers: s.Budget.StagingWorkers + s.Budget.SendsInFlight, SendsAtOnce: s.Budget.SendsInFlight, SubmitWait: submitWait,
			Floor: time.Duration(s.Watch.FloorSeconds) * time.Second, Ceiling: time.Duration(s.Watch.CeilingSeconds) * time.Second,
			OpenRuns: g.app.Site.Limits.OpenRunsPerProject, AbsenceGap: absenceGap, LateOutputs: lateOutputs, DeferBackoff: deferBackoff,
			OutputBytes: min(s.Storage.MaxOutputBytes, p.Limits.CollectBytes), LogBytes: p.Limits.LogBytes,
			Attempts: 1 + p.Retry.InfrastructureAttempts, ReuseAcross: p.EquivalentRuns == "reuse",
			SharesRuns: p.ExecutedAs.Shares, Warnings: warnings, Site: s.Name,
			Placement: app.SiteDefaults(s), Previous: previous, InFlight: g.app.RunLimits(),
			ProjectInFlight: caps.ProjectInFlight, CallerInFlight: caps.CallerInFlight, Weights: caps.Weights(),
			Secrets: g.app.Secrets, Program: far.PlaceScript(),
			Arrays: run.Arrays{Min: s.Slurm.Arrays.Min, Linger: time.Duration(s.Slurm.Arrays.LingerMS) * time.Millisecond},
		},
		Parts: run.Parts{Store: g.app.Ledger, Index: g.app.Ledger.Index(s.Name), Objects: g.app.Store,
			Place: g.app.Placing(s), Contracts: contracts{g.app.Domain.Packs(), g.app.Ledger.Pack}, Formats: formats{}, Room: g.room(s),
			Admit:   caps.Admit,
			Allowed: func(toolID string, p plan.Params) error { return g.app.StillAllowed(s, toolID, p) }, Waits: gate.Wait,
			Most: func(ctx context.Context, _ string, p plan.Params) (mem, time run.Ceiling) {
				return g.app.Most(ctx, s, p)
			},
			Watch: watch, Log: g.app.Log, Now: time.Now},
		Wrap: func(p run.Parts) run.Parts { return g.metrics.Wrap(s.Name, inject(p)) },
	}
}

// openCluster opens the ports of a cluster.
func (g *gateway) openCluster(ctx context.Context, s *site.Site, folders *workspaces) (p run.Parts, err error) {
	script := func(ctx context.Context, runID string, n int, name string, limit int64, tail bool) ([]byte, error) {
		return p.Workspace.ReadControl(ctx, runID, n, name, limit, tail)
	}
	cli, err := g.hosts.slurm(s, g.unread(s.Name), script)
	if err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			g.hosts.leave(cli)
		}
	}()
	sacct, err := g.fitSlurm(ctx, s, cli)
	if err != nil {
		return p, err
	}
	if !s.FarFiles() { // the images of another host are compared by image list and doctor
		found, err := misfits(s)
		if err != nil {
			return p, err
		}
		for _, m := range found {
			g.app.Log.Warn("images.lock.yaml and the image store do not agree", "site", s.Name, "what", m.String())
		}
	}
	if err := sameArtifacts(s); err != nil {
		return p, err
	}
	var users *callers
	if s.AsCaller() {
		if users, err = g.openCallers(ctx, s, cli.(*slurm.CLI)); err != nil {
			return p, err
		}
	} else if p.Workspace, err = folders.open(ctx, s); err != nil {
		return p, err
	}
	if p.Images, err = g.openImages(s); err != nil {
		return p, err
	}
	p.Renderer, p.Submitter, p.Queue, p.Canceller, p.Accounting = cli, cli, cli, cli, cli
	if users != nil {
		p.Workspace, p.Submitter, p.Canceller = users, users, users
	}
	if s.Slurm.Accounting == "none" || s.Slurm.Accounting == "auto" && !sacct {
		p.Accounting = run.NoAccounting{}
	}
	p.Pace, p.Budget, p.Partitions = cli.Pace, cli.Budget, cli.Partitions
	g.slurms.Store(s.Name, cli)
	return p, nil
}

// openHost opens the ports of this host: processes in place of jobs, with the folders of the first cluster.
func (g *gateway) openHost(ctx context.Context, folders *workspaces) (p run.Parts, err error) {
	s := g.app.Site.LocalSite()
	if p.Workspace, err = folders.open(ctx, s); err != nil {
		return p, err
	}
	if p.Images, err = g.openImages(s); err != nil {
		return p, err
	}
	script := scriptConfig(s)
	script.Local = true
	p.Renderer = slurm.NewRenderer(script)
	host, err := local.New(local.Config{Dir: filepath.Join(s.Gateway.StateDir, "local"), Places: g.app.Policy.Local.MaxRunning, Log: g.app.Log,
		Ended: func(runID string) { g.app.Sites.Ended(context.Background(), runID) }})
	p.Submitter, p.Queue, p.Canceller, p.Accounting = host, host, host, run.NoAccounting{}
	return p, err
}

// workspaces opens each runs_dir once: this host uses that of the first cluster it shares a filesystem with.
type workspaces struct {
	*gateway
	mu    sync.Mutex
	byDir map[string]*workspace
}

type workspace struct {
	mu   sync.Mutex // held while the folder is being opened
	open run.Workspace
}

// runsDirOf names a runs_dir among those of all sites.
func runsDirOf(s *site.Site) string {
	if s.FarFiles() {
		return s.Storage.SFTP.Address() + s.Storage.SFTP.RunsDir
	}
	return s.Storage.RunsDir
}

// open opens the runs_dir of a site. While workspaces must exist in it, it is not created again: an unmounted filesystem looks like an
// empty folder.
func (w *workspaces) open(ctx context.Context, s *site.Site) (run.Workspace, error) {
	dir := runsDirOf(s)
	w.mu.Lock()
	one := w.byDir[dir]
	if one == nil {
		one = &workspace{}
		w.byDir[dir] = one
	}
	w.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.open != nil {
		return one.open, nil
	}
	used := false
	for _, c := range w.app.Site.All() {
		if runsDirOf(c) != dir {
			continue
		}
		waiting, err := w.app.Ledger.Index(c.Name).Waiting(ctx, "", 1, staged...)
		if err != nil {
			return nil, err
		}
		used = used || len(waiting) > 0
	}
	if err := w.ownRuns(ctx, s, used); err != nil {
		return nil, err
	}
	open := openShared
	if s.FarFiles() {
		open = w.hosts.farWorkspace
	}
	var err error
	one.open, err = open(ctx, s, w.app.Ledger.ID(), used)
	return one.open, err
}

// ownRuns refuses a runs_dir without a mark that has runs of another ledger. At the first start it is part of what says whether there was a
// ledger before; a cluster that was away then is checked here, before its folder is marked.
func (w *workspaces) ownRuns(ctx context.Context, s *site.Site, used bool) error {
	if used || w.how == anew {
		return nil
	}
	t := w.hosts.trace(ctx, s)
	if t.err != nil || t.runID == "" {
		return nil // a folder that cannot be read is reported when it is opened
	}
	if _, err := w.app.Ledger.View(ctx, t.runID); fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.New(fault.Conflict, "runs_dir_of_another_ledger", t.where+" contains runs that this gateway's ledger does not know ("+
		t.runID+"), so the ledger of an earlier gateway is lost, or the folder is another gateway's").
		WithNext("if the ledger is lost, restore a backup (slurmgate restore); otherwise give this gateway a runs_dir of its own")
}

// openShared opens a runs_dir that this host sees, and makes one that is not used yet.
func openShared(_ context.Context, s *site.Site, gatewayID string, used bool) (run.Workspace, error) {
	dir := s.Storage.RunsDir
	if !used {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fault.Wrap(fault.Transport, "runs_dir_unavailable", "cannot create storage.runs_dir", err).
				WithNext("mount its filesystem, or create it, owned by the gateway's user, mode 0700")
		}
	}
	shared, err := staging.NewShared(staging.Config{RunsDir: dir, GatewayID: gatewayID, Marked: used})
	if err != nil {
		return nil, err
	}
	return shared, nil
}

// sameArtifacts refuses a storage.bind_artifacts that is another folder on this host. One that is not here may be on the nodes: doctor
// looks there.
func sameArtifacts(s *site.Site) error {
	if s.FarFiles() || s.Storage.BindArtifacts == "" {
		return nil
	}
	seen, err := os.Stat(s.Storage.BindArtifacts)
	if err != nil {
		return nil
	}
	if own, err := os.Stat(s.Gateway.ArtifactDir); err != nil || os.SameFile(own, seen) {
		return nil
	}
	return fault.New(fault.Validation, "bind_artifacts", "storage.bind_artifacts "+s.Storage.BindArtifacts+
		" is another folder than gateway.artifact_dir "+s.Gateway.ArtifactDir).
		WithNext("name the folder by which the nodes see gateway.artifact_dir, or remove the line: inputs are then copied")
}

func (g *gateway) openImages(s *site.Site) (run.Images, error) {
	c := apptainer.Config{NoMount: s.Apptainer.NoMount, GPU: apptainer.GPU(s.Apptainer.GPU), Seccomp: s.Apptainer.Seccomp}
	for _, b := range s.Apptainer.Binds {
		c.Binds = append(c.Binds, apptainer.Bind{Name: b.Name, Source: b.Source, Target: b.Target})
	}
	if s.FarFiles() {
		store, err := g.hosts.farStore(s)
		return apptainer.FarImages{FarStore: store, Runtime: apptainer.NewRuntime(c)}, err
	}
	store, err := apptainer.OpenStore(s.Storage.ImageStore)
	if err != nil {
		return nil, err
	}
	if s.Name == site.Local {
		store.Archs = []string{runtime.GOARCH} // the nodes of a cluster may be others: image add and doctor ask them
	}
	return apptainer.Images{Store: store, Runtime: apptainer.NewRuntime(c)}, nil
}

func scriptConfig(s *site.Site) slurm.ScriptConfig {
	c := slurm.ScriptConfig{Runtime: slurm.Runtime{Path: s.Apptainer.Path}, Verify: s.Apptainer.Verify, GraceSeconds: s.Slurm.GraceSeconds,
		VerifyAllowanceSeconds: s.Slurm.VerifyAllowanceSeconds, Scratch: s.Slurm.Scratch}
	if m := s.Apptainer.Module; m != nil {
		c.Runtime = slurm.Runtime{ModuleInit: m.Init, Modules: m.Load}
	}
	return c
}

// room refuses a new run while the disks of its site, or the quota of its project or caller, have no room for it.
func (g *gateway) room(s *site.Site) func(ctx context.Context, of run.Share) error {
	return func(ctx context.Context, of run.Share) error {
		if err := doctor.Room(s); err != nil {
			return err
		}
		if err := g.farRoom(ctx, s); err != nil {
			return err
		}
		return g.app.Quotas().Room(ctx, of)
	}
}

// nodeFaults reads from the ledger which faults of nodes a cluster's runs met.
func nodeFaults(ctx context.Context, s *site.Site, since time.Time) (out []doctor.NodeFault, err error) {
	l, err := ledger.OpenToRead(ctx, ledgerFile(s))
	if fault.CodeOf(err) == "no_ledger" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	list, err := l.NodeFaults(ctx, since)
	for _, f := range list {
		if f.Site == s.Name {
			out = append(out, doctor.NodeFault{Node: f.Node, Fault: string(f.Fault), Count: f.Count, Last: f.Last, RunID: f.RunID})
		}
	}
	return out, err
}

// watch counts the bytes that are copied for a run.
func watch(ctx context.Context) (context.Context, func() (done, skipped int64)) {
	p := &artifact.Progress{}
	return artifact.Watched(ctx, p), func() (int64, int64) {
		done, _ := p.Bytes()
		return done, p.Skipped()
	}
}
