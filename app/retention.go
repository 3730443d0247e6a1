package app

import (
	"context"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/retention"
)

// retention returns the operations that maintain what the gateway stores. They read the whole store and see every
// project.
func (g *Gateway) retention() []Operation {
	return []Operation{{
		ID: "gateway.gc", Title: "Remove what is no longer needed", Verb: "gc",
		Description: "Removes workspaces of finished runs, imports that no run used, and bytes that no artifact refers to, according to the " +
			"site's retention settings. What a run refers to is never removed.",
		Destructive: true,
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapAdmin,
		Needs: Engine,
		Acts:  ActsOnAnyRun,
		Faces: noChat,
		Limit: 12 * time.Hour,
		Does:  withProvenance(g, g.gc), DryRun: withProvenance(g, g.rehearseGC),
	}}
}

// GCArgs are the arguments of gateway.gc.
type GCArgs struct {
	DryRun     bool   `json:"dry_run,omitzero" about:"report what would be removed, and remove nothing"`
	Before     bool   `json:"before_restore,omitzero" about:"also remove bytes that were stored before this ledger was restored from a backup and that no artifact has: they may be outputs of runs that it does not know"`
	Workspaces *int64 `json:"workspaces_older_than_seconds,omitzero" min:"0" max:"315360000" about:"instead of the site's retention.workspace_days"`
}

// GCAnswer is the answer of gateway.gc.
type GCAnswer struct {
	CallRunID
	Snapshot gcSnapshot `json:"snapshot"`
	retention.Report
}

// gcSnapshot is the state in which a sweep ran: the ledger up to its newest event, the settings, and what was due
// then.
type gcSnapshot struct {
	LedgerSeq     int64   `json:"ledger_seq"`
	WorkspaceDays int     `json:"workspace_days"` // 0: for ever
	ImportDays    int     `json:"import_days"`    // 0: for ever
	Workspaces    gcFound `json:"workspaces"`
	Imports       gcFound `json:"imports"`
	Objects       gcFound `json:"objects"` // without an artifact
	Kept          int     `json:"kept"`    // due, but could not be removed
}

type gcFound struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

func foundOf(t retention.Tally) gcFound { return gcFound{t.Count, t.Bytes} }

// gc sweeps once. Only one sweep runs at a time: a second one would only interfere.
func (g *Gateway) gc(ctx context.Context, c gate.Call, a GCArgs) (out GCAnswer, err error) {
	if !g.sweeping.TryLock() {
		return out, fault.New(fault.Conflict, "gc_running", "another gc is already running").
			WithNext("wait until it has finished")
	}
	defer g.sweeping.Unlock()
	policy := retention.Policy{Workspaces: keepDays(g.Site.Retention.WorkspaceDays), Imports: keepDays(g.Site.Retention.ImportDays)}
	if a.Workspaces != nil {
		policy.Workspaces = new(time.Duration(*a.Workspaces) * time.Second)
	}
	restored, err := g.Ledger.LastRestore(ctx)
	if err != nil {
		return out, err
	}
	if restored != nil && !a.Before {
		policy.Restored = *restored
	}
	seq, err := g.Ledger.Newest(ctx)
	if err != nil {
		return out, err
	}
	r, err := retention.Parts{Ledger: g.Ledger, Workspaces: g.Sites, Store: g.Store, Now: time.Now}.Sweep(ctx, policy, a.DryRun)
	if err != nil {
		return out, err
	}
	if !a.DryRun && g.Store != nil {
		if _, _, err := g.Store.DropPartials(time.Now().Add(-artifact.PartialAge)); err != nil {
			return out, err
		}
	}
	snapshot := gcSnapshot{seq, g.Site.Retention.WorkspaceDays, g.Site.Retention.ImportDays, foundOf(r.Workspaces), foundOf(r.Imports),
		foundOf(r.Bytes), len(r.Kept)}
	out = GCAnswer{Snapshot: snapshot, Report: r}
	out.Params = map[string]any{"args": c.Value, "snapshot": snapshot} // without the time
	return out, nil
}

// Discard removes the workspace of a run that has ended, as gc does, without waiting until it is due.
func (g *Gateway) Discard(ctx context.Context, runID string) error {
	list, err := g.Ledger.Workspace(ctx, runID)
	if err != nil || len(list) == 0 {
		return err
	}
	_, _, err = retention.Remove(ctx, g.Ledger, g.Sites, list[0], time.Now().Add(time.Hour))
	return err
}

// rehearseGC runs gc as a dry run.
func (g *Gateway) rehearseGC(ctx context.Context, c gate.Call, a GCArgs) (GCAnswer, error) {
	a.DryRun = true
	return g.gc(ctx, c, a)
}

// keepDays returns n days as a duration; nil, for n = 0, means for ever.
func keepDays(n int) *time.Duration {
	if n == 0 {
		return nil
	}
	return new(time.Duration(n) * 24 * time.Hour)
}
