package retention

import (
	"context"
	"fmt"
	"strings"

	"slurmgate/fault"
)

// A removal takes away the bytes of artifacts and of finished runs that somebody names. What they were stays in the ledger, so its history
// still verifies. It is carried out in this order:
//
//  1. one transaction of the ledger marks the artifacts and the runs, deletes the answers to looks at them, records what is still to be
//     removed, and appends the events that say who removed what, and why;
//  2. objects that no artifact has any more and workspaces are removed, as for every deletion (see [Deleter]).

// Removal is what somebody asks to be removed.
type Removal struct {
	ID        string // rmv_…
	By, ByID  string // the principal's name and id
	Reason    string
	Artifacts []string // ids
	Runs      []string // ids, with what only they have: outputs, logs, scripts, workspaces
	Copies    bool     // also remove the workspaces of finished runs that have copies of the artifacts
	Person    string   // for whom the principal stands, as askings have it; "" for none
	// ForAll are the ids that are removed for everyone who asked for them. Of the others, what the principal and its person asked for is
	// taken back, and they are removed if no one asks for them any more.
	ForAll []string
}

// Withdrawn names a thing that the principal no longer asks for, and that stays for others.
type Withdrawn struct {
	ID     string   `json:"id"`
	Askers []string `json:"askers"` // some of those who ask for it still
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
	DryRun     bool        `json:"dry_run"`
	ID         string      `json:"removal_id"` // "" for a dry run, and when everything was removed before
	Artifacts  []Removed   `json:"artifacts"`
	Runs       []string    `json:"runs"`
	Workspaces []string    `json:"workspaces"` // of these runs
	Records    int         `json:"records"`    // answers to earlier calls, with parts of what is removed, that the ledger had
	FreedBytes int64       `json:"freed_bytes"`
	Already    []string    `json:"already"` // ids of what was removed before
	Withdrawn  []Withdrawn `json:"withdrawn"`
	Kept       []Skipped   `json:"kept"`    // what the runs have, and others need
	Copies     []string    `json:"copies"`  // finished runs whose workspaces have copies of the artifacts, and still do
	Pending    []Skipped   `json:"pending"` // not removed yet; the gateway tries again when it starts
	Outside    []string    `json:"outside"` // where copies may be that the gateway cannot reach
}

// InUseFault refuses to remove an artifact.
func InUseFault(artifactID string, runs []string) error {
	return fault.New(fault.Conflict, "artifact_in_use", fmt.Sprintf("%s is an input of %d runs that are not over, so nothing was removed: %s",
		artifactID, len(runs), strings.Join(runs[:min(len(runs), 10)], ", "))).
		WithNext("wait until they end, or cancel them").WithSteps(fault.Do("slurm.job.cancel", "run_id", runs[0]))
}

// Remove carries out a removal, or finds out what it would do.
func (p Deleter) Remove(ctx context.Context, r Removal, dry bool) (RemovalReport, error) {
	out, err := p.Ledger.Remove(ctx, r, dry)
	if err != nil || dry || out.ID == "" {
		return out, err
	}
	out.Pending, err = p.finish(ctx, r.ID)
	return out, err
}
