package retention

import (
	"context"
	"fmt"
	"strings"

	"slurmgate/fault"
)

// A removal deletes the bytes of named artifacts and finished runs. Their descriptions stay in the ledger, so its
// history still verifies. The order is:
//
//   1. one transaction of the ledger marks the artifacts and the runs, deletes the answers to read calls about them, records what
//      remains to be removed, and appends the events with who removed what, and why;
//   2. objects that no artifact has any more and workspaces are removed, as for every deletion (see [Deleter]).

// Removal is a request to remove things.
type Removal struct {
	ID        string // rmv_…
	By, ByID  string // the principal's name and id
	Reason    string
	Artifacts []string // ids
	Runs      []string // ids, with data that only they have: outputs, logs, scripts, workspaces
	Copies    bool     // also remove the workspaces of finished runs that have copies of the artifacts
	Person    string   // the user for whom the principal stands, as in askings; "" for none
	// ForAll lists the ids that are removed for everyone who asked for them. For the others, the askings of the
	// principal and its person are withdrawn, and those without further askings are removed.
	ForAll []string
}

// Withdrawn names a thing that the principal no longer asks for, and that remains for others.
type Withdrawn struct {
	ID     string   `json:"id"`
	Askers []string `json:"askers"` // some of those who still ask for it
}

// Removed is one artifact whose bytes a removal deletes.
type Removed struct {
	ArtifactID string `json:"artifact_id"`
	Label      string `json:"label"`
	SHA256     string `json:"checksum_sha256"`
	SizeBytes  int64  `json:"size_bytes"`
	Others     int    `json:"others"` // artifacts with the same bytes, for which the bytes stay
}

// RemovalReport is the result of a removal, or of its dry run.
type RemovalReport struct {
	DryRun     bool        `json:"dry_run"`
	ID         string      `json:"removal_id"` // "" for a dry run, and if everything was removed before
	Artifacts  []Removed   `json:"artifacts"`
	Runs       []string    `json:"runs"`
	Workspaces []string    `json:"workspaces"` // of these runs
	Records    int         `json:"records"`    // answers to earlier calls in the ledger with parts of what is removed
	FreedBytes int64       `json:"freed_bytes"`
	Already    []string    `json:"already"` // ids of things removed before
	Withdrawn  []Withdrawn `json:"withdrawn"`
	Kept       []Skipped   `json:"kept"`    // data of the runs that others need
	Copies     []string    `json:"copies"`  // finished runs whose workspaces have and keep copies of the artifacts
	Pending    []Skipped   `json:"pending"` // not removed yet; the gateway tries again when it starts
	Outside    []string    `json:"outside"` // where copies may be that the gateway cannot reach
}

// InUseFault returns the refusal to remove an artifact that unfinished runs need.
func InUseFault(artifactID string, runs []string) error {
	return fault.New(fault.Conflict, "artifact_in_use", fmt.Sprintf("%s is an input of %d runs that are not over, so nothing was removed: %s",
		artifactID, len(runs), strings.Join(runs[:min(len(runs), 10)], ", "))).
		WithNext("wait until they end, or cancel them").WithSteps(fault.Do("slurm.job.cancel", "run_id", runs[0]))
}

// Remove executes a removal, or with dry reports what it would do.
func (p Deleter) Remove(ctx context.Context, r Removal, dry bool) (RemovalReport, error) {
	out, err := p.Ledger.Remove(ctx, r, dry)
	if err != nil || dry || out.ID == "" {
		return out, err
	}
	out.Pending, err = p.finish(ctx, r.ID)
	return out, err
}
