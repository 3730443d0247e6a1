package main

import (
	"context"
	"time"

	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	far "slurmgate/staging/sftp"
	"slurmgate/transport"
	"slurmgate/worker"
)

// workerConnections bounds what the gateway has open to service workers; policy bounds their calls.
const workerConnections = 512

// openSites opens every site of the gateway: each cluster, and this host. A site that cannot be opened delays nothing of the others, and
// is tried again; but with no cluster at all there is no gateway.
func (g *gateway) openSites(ctx context.Context) error {
	var sites []run.Site
	g.sites = transport.New(transport.Config{Site: g.app.Site, Ledger: g.app.Ledger, Log: g.app.Log, Anew: g.how == anew,
		LocalRuns: g.app.Policy.Local.MaxRunning, Unread: g.metrics.Unread,
		Ended: func(runID string) { g.app.Sites.Ended(context.Background(), runID) }})
	g.app.FarPlaces, g.app.PlaceScript = transport.Places{Sites: g.sites}, far.PlaceScript()
	g.app.Associations, g.app.ReadAs, g.app.FindAs = g.sites.Associations, g.sites.ReadAs, g.sites.FindAs
	for _, s := range g.app.Site.Clusters() {
		x := g.site(s)
		var err error
		if x.Config.OwnUser, err = g.sites.OwnUser(s); err != nil {
			return err
		}
		x.Parts.Connections = g.sites.Links(s)
		x.Open = func(ctx context.Context) (run.Parts, error) { return g.sites.OpenCluster(ctx, s) }
		sites = append(sites, x)
	}
	host := g.site(g.app.Site.LocalSite())
	host.Config.Placement, host.Config.OneNode, host.Config.Arrays = plan.Placement{}, true, run.Arrays{}
	host.Open = func(ctx context.Context) (run.Parts, error) { return g.sites.OpenHost(ctx) }
	g.app.Sites = run.NewSites(append(sites, host)...)
	g.app.Sites.ServeWorkers(run.Config{Secrets: g.app.Secrets, SubmitWait: submitWait}, run.Parts{Store: g.app.Ledger,
		Index: g.app.Ledger.Index(run.WorkerSite), Room: g.app.Quotas().Room, Waits: gate.Wait, Log: g.app.Log, Now: time.Now})
	removed, err := g.app.RemovedSites(ctx)
	if err != nil {
		return err
	}
	for _, s := range removed {
		g.app.Log.Warn("runs are on a site that was renamed or removed", "site", s.Site, "problem", *s.Problem)
	}
	g.app.Workers = worker.New(worker.Config{URLs: app.ServiceURLs(g.app.Domain), Connections: workerConnections})
	away := g.app.Sites.Open(ctx, g.app.Site.Names()...)
	for _, s := range g.app.Site.Clusters() {
		if err := away[s.Name]; err == nil || transport.OutOfReach(s, err) {
			return nil // a network that is away is no reason not to start: the gateway waits for it
		}
	}
	return away[g.app.Site.Names()[0]]
}

// site returns a site for its engine, before it is open.
func (g *gateway) site(s *site.Site) run.Site {
	p, caps := g.app.Policy, g.app.Caps()
	var warnings []string
	if s.Apptainer.Verify == slurm.VerifyImageOnly {
		warnings = append(warnings, "this site verifies only the image on the compute node, not the inputs (apptainer.verify: image_only)")
	}
	return run.Site{
		Config: run.Config{
			Workers: s.Budget.StagingWorkers + s.Budget.SendsInFlight, SendsAtOnce: s.Budget.SendsInFlight, SubmitWait: submitWait,
			Allowance: time.Duration(s.Slurm.VerifyAllowanceSeconds) * time.Second,
			Floor:     time.Duration(s.Watch.FloorSeconds) * time.Second, Ceiling: time.Duration(s.Watch.CeilingSeconds) * time.Second,
			OpenRuns: g.app.Site.Limits.OpenRunsPerProject, AbsenceGap: absenceGap, LateOutputs: lateOutputs, DeferBackoff: deferBackoff,
			OutputBytes: min(s.Storage.MaxOutputBytes, p.Limits.CollectBytes), LogBytes: p.Limits.LogBytes,
			Attempts: 1 + p.Retry.InfrastructureAttempts, ReuseAcross: p.EquivalentRuns == "reuse",
			SharesRuns: p.ExecutedAs.Shares, Warnings: warnings, Site: s.Name,
			Placement: app.SiteDefaults(s), InFlight: g.app.RunLimits(),
			ProjectInFlight: caps.ProjectInFlight, CallerInFlight: caps.CallerInFlight, Weight: caps.Weight,
			Secrets: g.app.Secrets, Program: far.PlaceScript(),
			Arrays: run.Arrays{Min: s.Slurm.Arrays.Min, Linger: time.Duration(s.Slurm.Arrays.LingerMS) * time.Millisecond},
		},
		Parts: run.Parts{Store: g.app.Ledger, Index: g.app.Ledger.Index(s.Name), Objects: g.app.Store,
			Place: g.app.Placing(s), Contracts: contracts{g.app.Domain.Packs(), g.app.Ledger.Pack}, Formats: formats{}, Room: g.room(s),
			Admit:   caps.Admit,
			Allowed: func(toolID string, p plan.Params) error { return g.app.StillAllowed(s, toolID, p) }, Waits: gate.Wait,
			Discard: g.app.Discard,
			Most: func(ctx context.Context, _ string, p plan.Params) (mem, time run.Ceiling) {
				return g.app.Most(ctx, s, p)
			},
			Watch: watch, Log: g.app.Log, Now: time.Now},
		Wrap: func(p run.Parts) run.Parts { return g.metrics.Wrap(s.Name, inject(p)) },
	}
}

// room refuses a new run while the disks of its site, or the quota of its project or caller, have no room for it.
func (g *gateway) room(s *site.Site) func(ctx context.Context, of run.Share) error {
	return func(ctx context.Context, of run.Share) error {
		if err := g.sites.Room(ctx, s); err != nil {
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
