package retention

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
)

// A removal takes away the bytes of artifacts and of finished runs that somebody names. What they were stays in the ledger, so its history
// still verifies. It is carried out in this order:
//
//  1. one transaction of the ledger marks the artifacts and the runs, deletes the answers to looks at them, records what is still to be
//     removed, and appends the events that say who removed what, and why;
//  2. objects and workspaces are removed. A gateway that is killed here continues when it starts.

// Removal is what somebody asks to be removed.
type Removal struct {
	ID        string // rmv_…
	By, ByID  string // the principal's name and id
	Reason    string
	Artifacts []string // ids
	Runs      []string // ids, with what only they have: outputs, logs, scripts, workspaces
	Copies    bool     // also remove the workspaces of finished runs that have copies of the artifacts
}

// Removed is one artifact that a removal takes away.
type Removed struct {
	ArtifactID string `json:"artifact_id"`
	Label      string `json:"label"`
	SHA256     string `json:"checksum_sha256"`
	SizeBytes  int64  `json:"size_bytes"`
	Others     int    `json:"others"` // artifacts that have the same bytes, for which the bytes stay
}

// RemovalReport is what a removal did, or would do.
type RemovalReport struct {
	DryRun     bool      `json:"dry_run"`
	ID         string    `json:"removal_id"` // "" for a dry run, and when everything was removed before
	Artifacts  []Removed `json:"artifacts"`
	Runs       []string  `json:"runs"`
	Workspaces []string  `json:"workspaces"` // of these runs
	Records    int       `json:"records"`    // answers to earlier calls, with parts of what is removed, that the ledger had
	FreedBytes int64     `json:"freed_bytes"`
	Already    []string  `json:"already"` // ids of what was removed before
	Kept       []Skipped `json:"kept"`    // what the runs have, and others need
	Copies     []string  `json:"copies"`  // finished runs whose workspaces have copies of the artifacts, and still do
	Pending    []Skipped `json:"pending"` // not removed yet; the gateway tries again when it starts
	Outside    []string  `json:"outside"` // where copies may be that the gateway cannot reach
}

// RemovalLedger is the ledger's part.
type RemovalLedger interface {
	EraseLedger
	// Remove carries out step 1; a dry run finds out what that would do. NotFound for what there is not; a Conflict for a run that is not
	// over, and for an artifact that such a run needs. Then nothing changes.
	Remove(ctx context.Context, r Removal, dry bool) (RemovalReport, error)
	// EachUnheld calls remove with those of some bytes that no artifact has, and prevents any from getting them meanwhile.
	EachUnheld(ctx context.Context, sums []string, remove func(free []string)) error
}

// InUseFault refuses to remove an artifact.
func InUseFault(artifactID string, runs []string) error {
	return fault.New(fault.Conflict, "artifact_in_use", fmt.Sprintf("%s is an input of %d runs that are not over, so nothing was removed: %s",
		artifactID, len(runs), strings.Join(runs[:min(len(runs), 10)], ", "))).
		WithNext("wait until they end, or cancel them").WithSteps(fault.Do("slurm.job.cancel", "run_id", runs[0]))
}

// Remover carries out removals.
type Remover struct {
	Ledger     RemovalLedger
	Workspaces EraseWorkspaces
	Store      EraseStore
	Now        func() time.Time
}

// Remove carries out a removal, or finds out what it would do.
func (p Remover) Remove(ctx context.Context, r Removal, dry bool) (RemovalReport, error) {
	out, err := p.Ledger.Remove(ctx, r, dry)
	if err != nil || dry || out.ID == "" {
		return out, err
	}
	out.Pending, err = p.finish(ctx, r.ID)
	return out, err
}

// Resume finishes removals that were cut short. What cannot be removed now is reported.
func (p Remover) Resume(ctx context.Context, ids []string) (pending []Skipped, err error) {
	for _, id := range ids {
		more, err := p.finish(ctx, id)
		pending = append(pending, more...)
		if err != nil {
			return pending, err
		}
	}
	return pending, nil
}

// finish carries out step 2, as an erasure does, but for bytes that an artifact has.
func (p Remover) finish(ctx context.Context, id string) ([]Skipped, error) {
	return Eraser{Ledger: p.Ledger, Workspaces: p.Workspaces, Store: unheldStore{p.Store, p.Ledger}, Now: p.Now}.finish(ctx, id)
}

// unheldStore erases objects only if no artifact has them.
type unheldStore struct {
	EraseStore
	ledger RemovalLedger
}

// Erase implements [EraseStore].
func (s unheldStore) Erase(ctx context.Context, sums ...string) (failed map[string]error) {
	err := s.ledger.EachUnheld(ctx, sums, func(free []string) { failed = s.EraseStore.Erase(ctx, free...) })
	if err != nil {
		failed = map[string]error{}
		for _, sum := range sums {
			failed[sum] = err
		}
	}
	return failed
}
