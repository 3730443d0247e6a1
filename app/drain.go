package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
)

// drains are the operations with which an admin stops and starts new runs, and looks at the gateway as a whole.
func (g *Gateway) drains() []Operation {
	of := prop("site", `{"type":"string","minLength":1,"maxLength":64,"description":"only this site; all sites when absent"}`)
	return []Operation{{
		ID: "gateway.drain", Title: "Drain", Verb: "drain",
		Description: "Starts no new runs until the site is resumed, also after a restart of the gateway. New runs are refused, or wait with " +
			"queue=true; runs that were accepted and not yet sent wait. Jobs that Slurm has go on and are collected.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapAdmin, SiteWide: true, Needs: Engine,
		Faces: noChat,
		Input: object("", of, prop("reason", reasonSchema),
			prop("queue", `{"type":"boolean","description":"accept new runs and let them wait, instead of refusing them"}`)),
		Does: look(g, g.drain),
	}, {
		ID: "gateway.resume", Title: "Resume", Verb: "resume",
		Description: "Ends a drain: runs that waited are sent, and new runs are accepted.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapAdmin, SiteWide: true, Needs: Engine,
		Faces: noChat,
		Input: object("", of), Does: look(g, g.resume),
	}, {
		ID: "gateway.status", Title: "Status", Verb: "status",
		Description: "Shows the gateway as a whole: its runs by state, which sites are drained or away, and when Slurm last answered.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapAdmin, SiteWide: true, Needs: Engine,
		Faces: noChat,
		Input: object(""), Does: look(g, g.status),
	}}
}

// DrainArgs are the arguments of gateway.drain and gateway.resume.
type DrainArgs struct {
	Site   string `json:"site,omitzero"`
	Reason string `json:"reason,omitzero"`
	Queue  bool   `json:"queue,omitzero"`
}

// DrainAnswer is the answer of gateway.drain and gateway.resume.
type DrainAnswer struct {
	CallRunID
	Drains  []run.Drain      `json:"drains"`  // that last now
	Changed []string         `json:"changed"` // sites that this call drained or resumed
	Runs    map[string]int64 `json:"runs"`    // by state
}

func (g *Gateway) drain(ctx context.Context, c gate.Call, a DrainArgs) (DrainAnswer, any, error) {
	return g.changeDrains(ctx, a, func(site string) (bool, error) {
		return true, g.Ledger.SetDrain(ctx, run.Drain{Site: site, Queue: a.Queue, Reason: a.Reason, By: c.Caller.Name})
	})
}

func (g *Gateway) resume(ctx context.Context, c gate.Call, a DrainArgs) (DrainAnswer, any, error) {
	return g.changeDrains(ctx, a, func(site string) (bool, error) { return g.Ledger.Undrain(ctx, site, c.Caller.Name) })
}

// changeDrains changes the drains in the ledger and then in the engines. One call at a time: the engines get what the ledger has last.
func (g *Gateway) changeDrains(ctx context.Context, a DrainArgs, change func(site string) (bool, error)) (out DrainAnswer, params any,
	err error) {
	g.draining.Lock()
	defer g.draining.Unlock()
	sites := g.Sites.Names()
	if a.Site != "" {
		found := false
		for _, name := range sites {
			found = found || name == a.Site
		}
		if !found {
			return out, nil, fault.Invalid("there is no such site", fault.Problem{Code: "SITE-UNKNOWN", Field: "site",
				Rule: "a site of this gateway: " + strings.Join(sites, ", "), Msg: fmt.Sprintf("got %q", a.Site)})
		}
		sites = []string{a.Site}
	}
	out.Changed = []string{}
	for _, site := range sites {
		did, err := change(site)
		if err != nil {
			return out, nil, err
		}
		if did {
			out.Changed = append(out.Changed, site)
		}
	}
	if err := g.LoadDrains(ctx); err != nil {
		return out, nil, err
	}
	out.Drains = g.Sites.Drains()
	seq, err := g.Ledger.Newest(ctx)
	if err == nil {
		out.Runs, err = g.Ledger.Counts(ctx)
	}
	return out, map[string]any{"args": a, "ledger_seq": seq}, err
}

// LoadDrains makes the sites drained that the ledger says are.
func (g *Gateway) LoadDrains(ctx context.Context) error {
	drains, err := g.Ledger.Drains(ctx)
	if err == nil {
		g.Sites.SetDrains(drains)
	}
	return err
}

// SiteStatus is a site in the answer of gateway.status.
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
	Restored *time.Time       `json:"restored_at"` // the ledger, from a backup
	Backup   *time.Time       `json:"backup_at"`
	Runs     map[string]int64 `json:"runs"`
	Sites    []SiteStatus     `json:"sites"`
	Problem  *string          `json:"problem"` // of the ledger
}

func (g *Gateway) status(ctx context.Context, _ gate.Call, _ struct{}) (out StatusAnswer, params any, err error) {
	out = StatusAnswer{Gateway: g.Ledger.ID(), Ledger: g.Ledger.Path(), Schema: g.Ledger.Schema(), Sites: []SiteStatus{}}
	if out.Runs, err = g.Ledger.Counts(ctx); err != nil {
		return out, nil, err
	}
	if out.Restored, err = g.Ledger.LastRestore(ctx); err != nil {
		return out, nil, err
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
	seq, err := g.Ledger.Newest(ctx)
	return out, map[string]any{"ledger_seq": seq}, err
}
