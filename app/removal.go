package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/retention"
)

// removals are the operations that take away what somebody names: bytes that are no longer wanted, or may no longer be kept.
func (g *Gateway) removals() []Operation {
	reason := prop("reason", `{"type":"string","minLength":1,"maxLength":512,"description":"why, for the record"}`)
	dry := prop("dry_run", `{"type":"boolean","description":"report what would be removed, and remove nothing"}`)
	ids := func(of string) string {
		return `{"type":"array","minItems":1,"maxItems":200,"uniqueItems":true,"items":` + of + `}`
	}
	return []Operation{{
		ID: "artifact.remove", Title: "Remove artifacts", Verb: "artifact rm",
		Description: "Removes the bytes of artifacts. What they were, who removed them and why stays in the ledger, and its history still " +
			"verifies. Bytes that another artifact has too stay until that one is removed. Copies in workspaces of finished runs are listed; " +
			"with_runs removes those workspaces. An input of a run that is not over is not removed.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapOperate, Needs: Engine,
		Faces: noChat, Limit: time.Hour,
		Input: object("artifact_ids reason", prop("artifact_ids", ids(artifactSchema)), reason,
			prop("with_runs", `{"type":"boolean","description":"also remove the workspaces of finished runs that have copies"}`), dry),
		Does: look(g, g.removeArtifacts), DryRun: look(g, g.rehearseArtifacts),
	}, {
		ID: "run.remove", Title: "Remove runs", Verb: "runs rm",
		Description: "Removes what finished runs made: outputs and logs that no other run uses, scripts, workspaces. The runs stay in the " +
			"ledger as they ended, marked as removed: the same request finds them and submits nothing, and only a retry makes the outputs again.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapOperate, Needs: Engine,
		Faces: noChat, Limit: time.Hour,
		Input: object("run_ids reason", prop("run_ids", ids(runIDSchema)), reason, dry),
		Does:  look(g, g.removeRuns), DryRun: look(g, g.rehearseRuns),
	}}
}

// RemoveArtifactsArgs are the arguments of artifact.remove.
type RemoveArtifactsArgs struct {
	ArtifactIDs []string `json:"artifact_ids"`
	Reason      string   `json:"reason"`
	WithRuns    bool     `json:"with_runs,omitzero"`
	DryRun      bool     `json:"dry_run,omitzero"`
}

// RemoveRunsArgs are the arguments of run.remove.
type RemoveRunsArgs struct {
	RunIDs []string `json:"run_ids"`
	Reason string   `json:"reason"`
	DryRun bool     `json:"dry_run,omitzero"`
}

// RemovalAnswer is the answer of artifact.remove and run.remove.
type RemovalAnswer struct {
	CallRunID
	retention.RemovalReport
}

// Unchanged reports whether nothing was removed.
func (a RemovalAnswer) Unchanged() bool { return a.ID == "" }

func (g *Gateway) removeArtifacts(ctx context.Context, c gate.Call, a RemoveArtifactsArgs) (RemovalAnswer, any, error) {
	return g.remove(ctx, c, retention.Removal{Artifacts: a.ArtifactIDs, Reason: a.Reason, Copies: a.WithRuns}, a.DryRun)
}

func (g *Gateway) rehearseArtifacts(ctx context.Context, c gate.Call, a RemoveArtifactsArgs) (RemovalAnswer, any, error) {
	a.DryRun = true
	return g.removeArtifacts(ctx, c, a)
}

func (g *Gateway) removeRuns(ctx context.Context, c gate.Call, a RemoveRunsArgs) (RemovalAnswer, any, error) {
	return g.remove(ctx, c, retention.Removal{Runs: a.RunIDs, Reason: a.Reason}, a.DryRun)
}

func (g *Gateway) rehearseRuns(ctx context.Context, c gate.Call, a RemoveRunsArgs) (RemovalAnswer, any, error) {
	a.DryRun = true
	return g.removeRuns(ctx, c, a)
}

func (g *Gateway) remover() retention.Remover {
	return retention.Remover{Ledger: g.Ledger, Workspaces: g.Sites, Store: g.Store, Now: time.Now}
}

func (g *Gateway) remove(ctx context.Context, c gate.Call, r retention.Removal, dry bool) (out RemovalAnswer, params any, err error) {
	for _, ids := range [][]string{r.Artifacts, r.Runs} {
		for _, id := range ids { // whoever asked for a run may look at it, but not remove it
			project, err := g.Ledger.Owner(ctx, id)
			if err == nil && !c.Caller.CanAll(c.Needs, project) {
				err = fault.New(fault.Capability, "capability_denied", fmt.Sprintf("removing %s needs the capability %q on its project", id,
					gate.CapOperate)).WithNext("ask the administrator for a grant with this capability")
			}
			if err != nil {
				return out, nil, err
			}
		}
	}
	if !g.sweeping.TryLock() {
		return out, nil, fault.New(fault.Conflict, "gc_running", "a gc, an erasure or another removal is running").
			WithNext("wait until it has finished")
	}
	defer g.sweeping.Unlock()
	seq, err := g.Ledger.Newest(ctx)
	if err != nil {
		return out, nil, err
	}
	r.ID, r.By, r.ByID = "rmv_"+strings.ToLower(rand.Text()[:16]), c.Caller.Name, c.Caller.ID
	if out.RemovalReport, err = g.remover().Remove(ctx, r, dry); err != nil {
		return out, nil, err
	}
	out.Outside = []string{
		"backups of state_dir and artifact_dir, and snapshots of their filesystems and of runs_dir: erase them, or wait until they expire; a " +
			"ledger restored from one needs this removal again",
		"what callers fetched before, archives of runs, and files that were imported from a path",
		"params, labels and messages in the ledger: they are what the history proves. `slurmgate erase` takes a text out of them",
	}
	return out, map[string]any{"ledger_seq": seq, "artifact_ids": r.Artifacts, "run_ids": r.Runs, "with_runs": r.Copies, "dry_run": dry}, nil
}

// resumeRemovals finishes removals that an earlier gateway could not finish.
func (g *Gateway) resumeRemovals(ctx context.Context) {
	ids, err := g.Ledger.UnfinishedRemovals(ctx)
	if err == nil && len(ids) == 0 {
		return
	}
	g.sweeping.Lock()
	defer g.sweeping.Unlock()
	pending, err := g.remover().Resume(ctx, ids)
	for _, p := range pending {
		g.Log.Error("something removed is still there", "where", p.Name, "why", p.Why)
	}
	if err != nil && ctx.Err() == nil {
		g.Log.Error("removals could not be finished", "err", err)
	}
}
