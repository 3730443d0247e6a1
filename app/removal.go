package app

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/retention"
)

// removals returns the operations that remove named data: bytes that are no longer wanted, or may no longer be
// stored.
func (g *Gateway) removals() []Operation {
	return []Operation{{
		ID: "artifact.remove", Title: "Remove artifacts", Verb: "artifact rm",
		Description: "Removes the bytes of artifacts that you imported, or that runs of yours made; what others imported too, or asked for, " +
			"stays for them. What they were, who removed them and why stays in the ledger, and its history still verifies. Bytes that another artifact has too stay until that one is removed. Copies in workspaces of finished runs are listed; " +
			"with_runs removes those workspaces. An input of a run that is not over is not removed.",
		Destructive: true,
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapRead, Needs: Engine,
		Acts:  ActsForAskers,
		Faces: noChat, Limit: time.Hour,
		Does: withProvenance(g, g.removeArtifacts), DryRun: withProvenance(g, g.rehearseArtifacts),
	}, {
		ID: "run.remove", Title: "Remove runs", Verb: "runs rm",
		Description: "Removes what finished runs made that you asked for: outputs and logs that no other run uses, scripts, workspaces. A run " +
			"that others asked for too stays for them. The runs stay in the ledger as they ended, marked as removed: the same request finds them " +
			"and submits nothing, and only a retry makes the outputs again.",
		Destructive: true,
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapRead, Needs: Engine,
		Acts:  ActsForAskers,
		Faces: noChat, Limit: time.Hour,
		Does: withProvenance(g, g.removeRuns), DryRun: withProvenance(g, g.rehearseRuns),
	}}
}

// RemovalArgs are the arguments of every removal.
type RemovalArgs struct {
	Reason string `json:"reason" min:"1" max:"512" about:"why, for the record" required:"" help:"Why, for the record." placeholder:"TEXT"`
	ForAll bool   `json:"for_all,omitzero" about:"also for all others who asked for it (needs operate)" name:"everyone" help:"Remove it for everyone who asked for it. Needs operate."`
	DryRun bool   `json:"dry_run,omitzero" about:"report what would be removed, and remove nothing" help:"Show what would be removed, and remove nothing."`
}

// RemoveArtifactsArgs are the arguments of artifact.remove.
type RemoveArtifactsArgs struct {
	ArtifactIDs []string `json:"artifact_ids" ids:"artifact" count:"1-200" set:""`
	WithRuns    bool     `json:"with_runs,omitzero" about:"also remove the workspaces of finished runs that have copies"`
	RemovalArgs
}

// RemoveRunsArgs are the arguments of run.remove.
type RemoveRunsArgs struct {
	RunIDs []string `json:"run_ids" ids:"run" count:"1-200" set:""`
	RemovalArgs
}

// RemovalAnswer is the answer of artifact.remove and run.remove.
type RemovalAnswer struct {
	CallRunID
	retention.RemovalReport
}

// Unchanged reports whether the call removed and withdrew nothing.
func (a RemovalAnswer) Unchanged() bool { return a.ID == "" && (a.DryRun || len(a.Withdrawn) == 0) }

func (g *Gateway) removeArtifacts(ctx context.Context, c gate.Call, a RemoveArtifactsArgs) (RemovalAnswer, error) {
	return g.remove(ctx, c, retention.Removal{Artifacts: a.ArtifactIDs, Reason: a.Reason, Copies: a.WithRuns}, a.ForAll, a.DryRun)
}

func (g *Gateway) rehearseArtifacts(ctx context.Context, c gate.Call, a RemoveArtifactsArgs) (RemovalAnswer, error) {
	a.DryRun = true
	return g.removeArtifacts(ctx, c, a)
}

func (g *Gateway) removeRuns(ctx context.Context, c gate.Call, a RemoveRunsArgs) (RemovalAnswer, error) {
	return g.remove(ctx, c, retention.Removal{Runs: a.RunIDs, Reason: a.Reason}, a.ForAll, a.DryRun)
}

func (g *Gateway) rehearseRuns(ctx context.Context, c gate.Call, a RemoveRunsArgs) (RemovalAnswer, error) {
	a.DryRun = true
	return g.removeRuns(ctx, c, a)
}

func (g *Gateway) remove(ctx context.Context, c gate.Call, r retention.Removal, forAll, dry bool) (out RemovalAnswer,
	err error) {
	for _, ids := range [][]string{r.Artifacts, r.Runs} {
		for _, id := range ids {
			project, err := g.Ledger.Owner(ctx, id)
			if err != nil {
				return out, err
			}
			by, err := g.withdrawal(ctx, c, id, project, Whose{ForAll: forAll})
			if err == nil && !by.All && !c.Caller.Can(gate.CapImport, project) && !c.Caller.Can(gate.CapSlurm, project) {
				err = fault.New(fault.Capability, "capability_denied", "removing "+id+" needs the capability \"import\" or \"slurm\" on its project").
					WithNext("use credentials that may do more than read")
			}
			if err != nil {
				return out, err
			}
			if r.Person = by.Of.Person; by.All {
				r.ForAll = append(r.ForAll, id)
			}
		}
	}
	if !g.sweeping.TryLock() {
		return out, fault.New(fault.Conflict, "gc_running", "a gc, an erasure or another removal is running").
			WithNext("wait until it has finished")
	}
	defer g.sweeping.Unlock()
	r.ID, r.By, r.ByID = retention.RemovalPrefix+strings.ToLower(rand.Text()[:16]), c.Caller.Name, c.Caller.ID
	if out.RemovalReport, err = g.deleter().Remove(ctx, r, dry); err != nil {
		return out, err
	}
	out.Outside = []string{
		"backups of state_dir and artifact_dir, and snapshots of their filesystems and of runs_dir: erase them, or wait until they expire; a " +
			"ledger restored from one needs this removal again",
		"what callers fetched before, archives of runs, and files that were imported from a path",
		"params, labels and messages in the ledger: they are what the history proves. `slurmgate erase` takes a text out of them",
	}
	return out, nil
}
