package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
)

// drains returns the operations with which an admin stops and starts new runs and reads the state of the gateway.
func (g *Gateway) drains() []Operation {
	return []Operation{{
		ID: "gateway.drain", Title: "Drain", Verb: "drain",
		Description: "Starts no new runs until the site is resumed, also after a restart of the gateway. New runs are refused, or wait with " +
			"queue=true; runs that were accepted and not yet sent wait. Jobs that Slurm has go on and are collected.",
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Engine, Faces: noChat,
		Does: withProvenance(g, g.drain),
	}, {
		ID: "gateway.resume", Title: "Resume", Verb: "resume",
		Description: "Ends a drain: runs that waited are sent, and new runs are accepted.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Engine, Faces: noChat,
		Does: withProvenance(g, g.resume),
	}, {
		ID: "gateway.status", Title: "Status", Verb: "status",
		Description: "Shows the gateway as a whole: its runs by state, which sites are drained or away, and when Slurm last answered.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapAdmin, Needs: Engine,
		Faces: noChat,
		Does:  withProvenance(g, g.status),
	}}
}

// ResumeArgs are the arguments of gateway.resume.
type ResumeArgs struct {
	Site string `json:"site,omitzero" min:"1" max:"64" about:"only this site; all sites when absent" name:"site-name" help:"Only this site; default: all." placeholder:"NAME"`
}

// DrainArgs are the arguments of gateway.drain.
type DrainArgs struct {
	ResumeArgs
	Reason string `json:"reason,omitzero" max:"512" help:"Why, for those who ask for a run meanwhile." placeholder:"TEXT"`
	Queue  bool   `json:"queue,omitzero" about:"accept new runs and let them wait, instead of refusing them" help:"Accept new runs and let them wait, instead of refusing them."`
}

// DrainAnswer is the answer of gateway.drain and gateway.resume.
type DrainAnswer struct {
	CallRunID
	Drains  []run.Drain      `json:"drains"`  // the current ones
	Changed []string         `json:"changed"` // sites that this call drained or resumed
	Runs    map[string]int64 `json:"runs"`    // by state
}

func (g *Gateway) drain(ctx context.Context, c gate.Call, a DrainArgs) (DrainAnswer, error) {
	return g.changeDrains(ctx, a.ResumeArgs, func(site string) (bool, error) {
		return true, g.Ledger.SetDrain(ctx, run.Drain{Site: site, Queue: a.Queue, Reason: a.Reason, By: c.Caller.Name})
	})
}

func (g *Gateway) resume(ctx context.Context, c gate.Call, a ResumeArgs) (DrainAnswer, error) {
	return g.changeDrains(ctx, a, func(site string) (bool, error) { return g.Ledger.Undrain(ctx, site, c.Caller.Name) })
}

// changeDrains changes the drains in the ledger and then in the engines. The lock gives the engines the ledger's
// newest drains.
func (g *Gateway) changeDrains(ctx context.Context, a ResumeArgs, change func(site string) (bool, error)) (out DrainAnswer, err error) {
	g.draining.Lock()
	defer g.draining.Unlock()
	sites := g.Sites.Names()
	if a.Site != "" {
		found := false
		for _, name := range sites {
			found = found || name == a.Site
		}
		if !found {
			return out, fault.Invalid("there is no such site", fault.Problem{Code: "SITE-UNKNOWN", Field: "site",
				Rule: "a site of this gateway: " + strings.Join(sites, ", "), Msg: fmt.Sprintf("there is no site %q", a.Site)})
		}
		sites = []string{a.Site}
	}
	out.Changed = []string{}
	for _, site := range sites {
		did, err := change(site)
		if err != nil {
			return out, err
		}
		if did {
			out.Changed = append(out.Changed, site)
		}
	}
	if err := g.LoadDrains(ctx); err != nil {
		return out, err
	}
	out.Drains = g.Sites.Drains()
	out.Runs, err = g.Ledger.Counts(ctx)
	return out, err
}

// LoadDrains drains the sites that are drained in the ledger.
func (g *Gateway) LoadDrains(ctx context.Context) error {
	drains, err := g.Ledger.Drains(ctx)
	if err == nil {
		g.Sites.SetDrains(drains)
	}
	return err
}

// SiteStatus is the state of a site in the answer of gateway.status.
type SiteStatus struct {
	Site     string     `json:"site"`
	Answered *time.Time `json:"slurm_answered_at"` // last complete answer since the gateway started
	Problem  *string    `json:"problem"`           // why its runs wait
	Drain    *run.Drain `json:"drain"`
}

// StatusAnswer is the answer of gateway.status.
type StatusAnswer struct {
	CallRunID
	Gateway  string           `json:"gateway_id"`
	Ledger   string           `json:"ledger"`
	Schema   int              `json:"ledger_schema"`
	Restored *time.Time       `json:"restored_at"` // when the ledger was restored from a backup
	Backup   *time.Time       `json:"backup_at"`
	Runs     map[string]int64 `json:"runs"`
	Sites    []SiteStatus     `json:"sites"`
	Problem  *string          `json:"problem"` // of the ledger
}

func (g *Gateway) status(ctx context.Context, _ gate.Call, _ struct{}) (out StatusAnswer, err error) {
	out = StatusAnswer{Gateway: g.Ledger.ID(), Ledger: g.Ledger.Path(), Schema: g.Ledger.Schema(), Sites: []SiteStatus{}}
	if out.Runs, err = g.Ledger.Counts(ctx); err != nil {
		return out, err
	}
	if out.Restored, err = g.Ledger.LastRestore(ctx); err != nil {
		return out, err
	}
	if g.LastBackup != nil {
		out.Backup = g.LastBackup()
	}
	if err := g.Ledger.Stopped(); err != nil {
		out.Problem = new(fault.Prose(err))
	}
	drained := map[string]*run.Drain{}
	for _, d := range g.Sites.Drains() {
		drained[d.Site] = &d
	}
	for _, name := range g.Sites.Names() {
		s := SiteStatus{Site: name, Drain: drained[name]}
		if at, _ := g.Sites.Watched(name); !at.IsZero() {
			s.Answered = new(at.UTC())
		}
		if err := g.Sites.Away(name); err != nil && s.Drain == nil {
			s.Problem = new(fault.Prose(err))
		}
		out.Sites = append(out.Sites, s)
	}
	removed, err := g.RemovedSites(ctx)
	if err != nil {
		return out, err
	}
	out.Sites = append(out.Sites, removed...)
	return out, nil
}

// RemovedSites lists the sites with unfinished runs that the site file no longer has.
func (g *Gateway) RemovedSites(ctx context.Context) (list []SiteStatus, err error) {
	open, err := g.Ledger.OpenBySite(ctx, nil)
	known := append(g.Sites.Names(), run.WorkerSite)
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if slices.Contains(known, name) {
			continue
		}
		n := int64(0)
		for _, runs := range open[name] {
			n += runs
		}
		list = append(list, SiteStatus{Site: name, Problem: new(fmt.Sprintf("the site file no longer has this site, where %d runs have not "+
			"ended; add it again, under that name, and reload the gateway", n))})
	}
	return list, err
}
