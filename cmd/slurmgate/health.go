package main

import (
	"context"
	"os"

	"slurmgate/fault"
	"slurmgate/metrics"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/staging"
)

// health returns the metrics of the gateway as a whole, at a scrape. What cannot be read is not shown.
func (g *gateway) health(ctx context.Context) metrics.Health {
	h := metrics.Health{Drained: map[string]bool{}, Budget: map[string]int{}, Stopped: g.app.Ledger.Stopped() != nil}
	oldest, err := g.app.Ledger.Oldest(ctx)
	if err != nil {
		g.app.Log.Warn("the metrics do not say how old waiting runs are", "err", err)
	}
	for _, o := range oldest {
		h.Oldest = append(h.Oldest, metrics.Oldest{Site: o.Site, Phase: string(o.Phase), Since: o.Since})
	}
	open, err := g.app.Ledger.OpenBySite(ctx, nil)
	if err != nil {
		g.app.Log.Warn("the metrics do not say how many runs each site has", "err", err)
	}
	for _, name := range g.app.Sites.Names() {
		h.Drained[name] = false
		h.Sites = append(h.Sites, g.siteHealth(name, open[name]))
	}
	for _, d := range g.app.Sites.Drains() {
		h.Drained[d.Site] = true
	}
	for _, s := range g.app.Site.Clusters() {
		h.Budget[s.Name] = s.Budget.RPCPerMinute
		h.Disks = append(h.Disks, g.disks(ctx, s)...)
	}
	if info, err := os.Stat(g.app.Ledger.Path()); err == nil {
		h.Ledger = info.Size()
	}
	if b := readBackupMark(g.app.Site.Gateway.StateDir); b != nil {
		h.Backup, h.Damaged = b.At, b.Damaged
	}
	return h
}

// siteHealth returns the metrics of a site. Runs of sites that the site file no longer has are not shown: such names
// have no bound.
func (g *gateway) siteHealth(name string, runs map[run.Phase]int64) metrics.Site {
	st, _ := g.app.Sites.State(name)
	silent := fault.CodeOf(st.Problem) == run.Unreachable || fault.CodeOf(st.Problem) == run.WrongCluster // slurmgate_slurm_up reports that
	out := metrics.Site{Name: name, Up: !st.Away || silent, Opened: st.Opened, Runs: map[string]int64{}}
	for _, p := range run.Unfinished() {
		out.Runs[string(p)] = runs[p]
	}
	if b := st.Budget; b != nil {
		out.Budget = &metrics.Budget{Left: b.Left, Total: b.Total}
		if b.Shared != nil && b.Shared.Problem == nil {
			out.Budget.SharedLeft = &b.Shared.Left
		}
	}
	for _, l := range st.Links {
		out.Links = append(out.Links, metrics.Link(l))
	}
	return out
}

func (g *gateway) disks(ctx context.Context, s *site.Site) (out []metrics.Disk) {
	reserve := int64(s.Storage.ReserveMB) << 20
	if free, known := g.sites.FreeForRuns(ctx, s); known {
		out = append(out, metrics.Disk{Site: s.Name, Folder: "runs_dir", Free: free, Reserve: reserve})
	}
	for folder, path := range map[string]string{"state_dir": s.Gateway.StateDir, "artifact_dir": s.Gateway.ArtifactDir} {
		if free, err := staging.Free(path); err == nil {
			out = append(out, metrics.Disk{Site: s.Name, Folder: folder, Free: free, Reserve: reserve})
		}
	}
	return out
}
