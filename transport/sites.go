// Package transport opens sites. Only this package decides how a cluster is reached: Slurm by its commands on this
// host, on a login node, or through slurmrestd; the folders on a shared filesystem or by SFTP; runs as the gateway or
// as their callers. Other packages use what it opens.
package transport

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"slurmgate/apptainer"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/local"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/staging"
)

// Config holds what a gateway provides for its sites.
type Config struct {
	Site      *site.Site
	Ledger    *ledger.Ledger
	Log       *slog.Logger
	Anew      bool                                       // the ledger is new, and replaces a lost one
	LocalRuns int                                        // greatest number of concurrent runs on this host
	Ended     func(runID string)                         // called when a process of this host has ended
	Unread    func(cluster, program string, records int) // called for records of Slurm's answers that could not be read
}

// Sites holds the sites of one gateway.
type Sites struct {
	Config
	Hosts *Hosts // login nodes, data hosts and slurmrestd

	slurms  sync.Map // name of a cluster that is open → its transport
	callers sync.Map // name of a cluster that is open and runs jobs as their callers → *callers
	free    sync.Map // name of a cluster whose folders are elsewhere → *cached.Value[doctor.Space]

	mu    sync.Mutex
	byDir map[string]*workspace
}

// New returns sites, none of which is open yet. The caller must close it.
func New(c Config) *Sites {
	return &Sites{Config: c, Hosts: newHosts(c.Log), byDir: map[string]*workspace{}}
}

// Close ends all connections.
func (x *Sites) Close() {
	x.callers.Range(func(_, c any) bool {
		c.(*callers).Users.Close()
		return true
	})
	x.Hosts.Close()
}

// Revoked ends the logins as a Unix user whose token was revoked; they are opened again if that is still allowed.
func (x *Sites) Revoked(user string) {
	x.callers.Range(func(_, c any) bool {
		c.(*callers).Drop(user, "a token that acts as "+user+" was revoked")
		return true
	})
}

// staged lists the phases in which a run depends on its workspace.
var staged = []run.Phase{run.Deferred, run.Submitting, run.Unconfirmed, run.Pending, run.InJob, run.Completing, run.Collecting,
	run.NeedsOperator, run.AheadOfLedger, run.OutputsLate}

// OpenCluster opens the ports of a cluster.
func (x *Sites) OpenCluster(ctx context.Context, s *site.Site) (p run.Parts, err error) {
	script := func(ctx context.Context, runID string, n int, name string, from, limit int64) (run.Part, error) {
		return p.Workspace.ReadControlFrom(ctx, runID, n, name, from, limit)
	}
	cli, err := x.Hosts.slurm(s, heard{x.unread(s.Name), x.harmless(s.Name)}, script)
	if err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			x.Hosts.leave(cli)
		}
	}()
	sacct, err := x.fitSlurm(ctx, s, cli)
	if err != nil {
		return p, err
	}
	if !s.FarFiles() { // the images of another host are compared by image list and doctor
		found, err := misfits(s)
		if err != nil {
			return p, err
		}
		for _, m := range found {
			x.Log.Warn("images.lock.yaml and the image store do not agree", "site", s.Name, "what", m.String())
		}
	}
	if err := sameArtifacts(s); err != nil {
		return p, err
	}
	var users *callers
	if s.AsCaller() {
		if users, err = x.openCallers(ctx, s, cli.(*slurm.CLI)); err != nil {
			return p, err
		}
	} else if p.Workspace, err = x.workspace(ctx, s); err != nil {
		return p, err
	}
	if p.Images, err = x.openImages(s); err != nil {
		return p, err
	}
	p.Renderer, p.Submitter, p.Queue, p.Canceller, p.Accounting = cli, cli, cli, cli, cli
	if users != nil {
		p.Workspace, p.Submitter, p.Canceller = users, users, users
	}
	if s.Slurm.Accounting == "none" || s.Slurm.Accounting == "auto" && !sacct {
		p.Accounting = run.NoAccounting{}
	}
	p.Pace, p.Budget = cli.Pace, cli.Budget
	p.Partitions = func(ctx context.Context) ([]run.Partition, error) { return slurm.Partitions(ctx, cli) }
	x.slurms.Store(s.Name, cli)
	return p, nil
}

// OpenHost opens the ports of this host: processes instead of jobs, with the folders of the first cluster.
func (x *Sites) OpenHost(ctx context.Context) (p run.Parts, err error) {
	s := x.Site.LocalSite()
	if p.Workspace, err = x.workspace(ctx, s); err != nil {
		return p, err
	}
	if p.Images, err = x.openImages(s); err != nil {
		return p, err
	}
	script := scriptConfig(s)
	script.Local = true
	p.Renderer = slurm.NewRenderer(script)
	host, err := local.New(local.Config{Dir: filepath.Join(s.Gateway.StateDir, "local"), Places: x.Config.LocalRuns, Log: x.Log,
		Ended: x.Config.Ended})
	p.Submitter, p.Queue, p.Canceller, p.Accounting = host, host, host, run.NoAccounting{}
	return p, err
}

type workspace struct {
	mu   sync.Mutex // held while the folder is being opened
	open run.Workspace
}

// runsDirOf returns a key that identifies a site's runs_dir among those of all sites.
func runsDirOf(s *site.Site) string {
	if s.FarFiles() {
		return s.Storage.SFTP.Address() + s.Storage.SFTP.RunsDir
	}
	return s.Storage.RunsDir
}

// workspace opens the runs_dir of a site, once: this host uses that of the first cluster it shares a filesystem with. While workspaces must
// exist in it, it is not created again: an unmounted filesystem looks like an empty folder.
func (x *Sites) workspace(ctx context.Context, s *site.Site) (run.Workspace, error) {
	dir := runsDirOf(s)
	x.mu.Lock()
	one := x.byDir[dir]
	if one == nil {
		one = &workspace{}
		x.byDir[dir] = one
	}
	x.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.open != nil {
		return one.open, nil
	}
	used := false
	for _, c := range x.Site.All() {
		if runsDirOf(c) != dir {
			continue
		}
		waiting, err := x.Ledger.Index(c.Name).Waiting(ctx, "", 1, staged...)
		if err != nil {
			return nil, err
		}
		used = used || len(waiting) > 0
	}
	if err := x.ownRuns(ctx, s, used); err != nil {
		return nil, err
	}
	open := openShared
	if s.FarFiles() {
		open = x.Hosts.farWorkspace
	}
	var err error
	one.open, err = open(ctx, s, x.Ledger.ID(), used)
	return one.open, err
}

// ownRuns returns a fault for a runs_dir without a mark that has runs of another ledger. At the first start the same
// check shows whether there was a ledger before; a cluster that was unreachable then is checked here, before its folder
// is marked.
func (x *Sites) ownRuns(ctx context.Context, s *site.Site, used bool) error {
	if used || x.Anew {
		return nil
	}
	t := x.Hosts.trace(ctx, s)
	if t.err != nil || t.runID == "" {
		return nil // a folder that cannot be read is reported when it is opened
	}
	return x.knows(ctx, t.runID, t.where, "give this gateway its own runs_dir")
}

// knows returns a fault for a folder with a run that the ledger does not know; otherwise is the next step if that
// ledger is not lost.
func (x *Sites) knows(ctx context.Context, runID, where, otherwise string) error {
	if _, err := x.Ledger.View(ctx, runID); fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.New(fault.Conflict, "runs_dir_of_another_ledger", where+" contains runs that this gateway's ledger does not know ("+
		fault.Clip(runID)+"), so the ledger of an earlier gateway is lost, or the folder is another gateway's").
		WithNext("if the ledger is lost, restore a backup (slurmgate restore); otherwise " + otherwise)
}

// openShared opens a runs_dir that this host sees. Unless it is used already, it creates a missing one.
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

// sameArtifacts returns a fault for a storage.bind_artifacts that is another folder on this host. One that is missing
// here may be on the nodes: doctor checks there.
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

func (x *Sites) openImages(s *site.Site) (run.Images, error) {
	c := apptainer.Config{NoMount: s.Apptainer.NoMount, GPU: apptainer.GPU(s.Apptainer.GPU), Seccomp: s.Apptainer.Seccomp}
	for _, b := range s.Apptainer.Binds {
		c.Binds = append(c.Binds, apptainer.Bind{Name: b.Name, Source: b.Source, Target: b.Target})
	}
	if s.FarFiles() {
		store, err := x.Hosts.farStore(s)
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
