package main

import (
	"context"
	"os"

	"slurmgate/metrics"
	"slurmgate/site"
	"slurmgate/staging"
)

// health is what the metrics say about the gateway as a whole, at a scrape. What cannot be read is not shown.
func (g *gateway) health(ctx context.Context) metrics.Health {
	h := metrics.Health{Drained: map[string]bool{}, Budget: map[string]int{}, Stopped: g.app.Ledger.Stopped() != nil}
	oldest, err := g.app.Ledger.Oldest(ctx)
	if err != nil {
		g.app.Log.Warn("the metrics do not say how old waiting runs are", "err", err)
	}
	for _, o := range oldest {
		h.Oldest = append(h.Oldest, metrics.Oldest{Site: o.Site, Phase: string(o.Phase), Since: o.Since})
	}
	for _, name := range g.app.Sites.Names() {
		h.Drained[name] = false
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

func (g *gateway) disks(ctx context.Context, s *site.Site) (out []metrics.Disk) {
	reserve := int64(s.Storage.ReserveMB) << 20
	local := map[string]string{"state_dir": s.Gateway.StateDir, "artifact_dir": s.Gateway.ArtifactDir}
	if !s.FarFiles() {
		local["runs_dir"] = s.Storage.RunsDir
	} else if free, ok := g.spaceOf(ctx, s); ok {
		out = append(out, metrics.Disk{Site: s.Name, Folder: "runs_dir", Free: free.Bytes, Reserve: reserve})
	}
	for folder, path := range local {
		if free, err := staging.Free(path); err == nil {
			out = append(out, metrics.Disk{Site: s.Name, Folder: folder, Free: free, Reserve: reserve})
		}
	}
	return out
}
