// Package retention removes data that is no longer needed: workspaces of finished runs, imported artifacts that no
// run refers to, and bytes without an artifact.
//
// Nouns: a policy sets how long each kind is kept; a sweep checks all kinds once, and removes what is due unless it
// is a dry run. These rules hold under every policy:
//
//   - what a run refers to is never removed: its inputs, outputs, logs and scripts, its row and its history;
//   - the workspace of an unfinished run is not touched, and a late job of a run whose workspace is gone executes nothing;
//   - the ledger records a removal before it happens, so a sweep that is killed leaves no dangling references; the next sweep
//     continues where it stopped.
package retention

import (
	"context"
	"fmt"
	"time"

	"slurmgate/fault"
)

// Policy sets how long things are kept. Nil means for ever.
type Policy struct {
	Workspaces *time.Duration // of finished runs, since the end
	Imports    *time.Duration // imported artifacts that no run refers to, since their last import; at least [LeastImports]
	// Restored is when the ledger was restored from a backup. Bytes stored earlier that no artifact has are kept:
	// they may be outputs of runs that this ledger does not know. Zero: never.
	Restored time.Time
}

const (
	// LeastImports is the shortest time for which an import waits for its run.
	LeastImports = 24 * time.Hour
	// Orphans is the age at which unreferenced bytes are removed: outputs enter the store before their run ends.
	Orphans = 24 * time.Hour

	batch     = 200
	namedMost = 100 // items named in a report
)

// Workspace is the folder of a finished run.
type Workspace struct {
	RunID      string
	AttemptN   int
	FinishedAt time.Time
	Tokens     map[int]string // of all its attempts
	Site, User string         // the owner of the folder; without a user the gateway's own
}

// Artifact is an imported artifact that no run refers to.
type Artifact struct {
	ID        string
	SHA256    string
	SizeBytes int64
}

// Ledger decides what is needed. Marks are durable and prevent any later reference to the item.
type Ledger interface {
	Removals
	// Unused lists artifacts that no run refers to and that were not imported since; MarkUnused marks them as removed.
	Unused(ctx context.Context, since time.Time, limit int) ([]Artifact, error)
	MarkUnused(ctx context.Context, since time.Time, limit int) ([]Artifact, error)
	// Holds reports whether an artifact that is not removed has these bytes.
	Holds(ctx context.Context, sha256 string) (bool, error)
	// Unheld calls remove if no artifact has these bytes, and prevents new artifacts with them meanwhile.
	Unheld(ctx context.Context, sha256 string, remove func() error) (held bool, err error)
	// DropPayloads removes the documents in the ledger that no artifact has, and calls f for each; a dry run only calls f.
	DropPayloads(ctx context.Context, dry bool, f func(sha256 string, sizeBytes int64)) error
}

// Workspaces accesses the runs' folders.
type Workspaces interface {
	RunRemover
	RunSize(ctx context.Context, runID string) (int64, error)
}

// Removals records the removal of workspaces.
type Removals interface {
	// Workspaces lists finished runs whose workspace still exists.
	Workspaces(ctx context.Context, before time.Time, after Workspace, limit int) ([]Workspace, error)
	// BeginRemoval records that the run's workspace is being removed, and reports whether it did: false if the run is no longer finished.
	BeginRemoval(ctx context.Context, w Workspace, before time.Time) (bool, error)
	EndRemoval(ctx context.Context, w Workspace, bytes int64) error
}

// RunRemover removes the workspaces of runs. It waits while a run is being staged, and leaves one file per attempt, so that no job of the
// run can start.
type RunRemover interface {
	RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (freed int64, err error)
}

// Remove removes the workspace of a run that finished before a time. begun is false if the run was retried.
func Remove(ctx context.Context, l Removals, r RunRemover, w Workspace, before time.Time) (freed int64, begun bool, err error) {
	freed, err = r.RemoveRun(ctx, w.RunID, w.Tokens, func() (bool, error) {
		var err error
		begun, err = l.BeginRemoval(ctx, w, before)
		return begun, err
	})
	if err == nil && begun {
		err = l.EndRemoval(ctx, w, freed)
	}
	return freed, begun, err
}

// Store accesses the bytes of artifacts.
type Store interface {
	// Objects calls f for every object.
	Objects(ctx context.Context, f func(sha256 string, size int64, stored time.Time) error) error
	// Remove removes an object last stored before a time if alone calls its argument; the object cannot be stored
	// meanwhile.
	Remove(ctx context.Context, sha256 string, before time.Time, alone func(remove func() error) error) (gone bool, err error)
}

// Tally counts what was removed of one kind.
type Tally struct {
	Count     int64    `json:"count"`
	Bytes     int64    `json:"bytes"`
	Named     []string `json:"named"`      // the first of them
	KeptSince string   `json:"kept_since"` // younger things are kept; "" for ever
}

func (t *Tally) add(name string, bytes int64) {
	t.Count++
	t.Bytes += bytes
	if name != "" && len(t.Named) < namedMost {
		t.Named = append(t.Named, name)
	}
}

// Skipped is something that was due but could not be removed.
type Skipped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Report is the result of a sweep, or of its dry run.
type Report struct {
	DryRun     bool      `json:"dry_run"`
	AsOf       time.Time `json:"as_of"`
	Workspaces Tally     `json:"workspaces"`
	Imports    Tally     `json:"imports"`
	Bytes      Tally     `json:"bytes"` // objects of the store, and documents in the ledger, that no artifact has
	Kept       []Skipped `json:"kept"`
}

// Parts holds what a sweep works with.
type Parts struct {
	Ledger     Ledger
	Workspaces Workspaces
	Store      Store
	Now        func() time.Time
}

// Sweep removes everything that is due, once. It reports what cannot be removed and leaves that for the next sweep;
// an error means that the ledger or a whole filesystem failed, or that the caller cancelled. The report covers the
// work until then.
func (p Parts) Sweep(ctx context.Context, policy Policy, dry bool) (Report, error) {
	s := &sweep{Parts: p, policy: policy, dry: dry, now: p.Now(), r: Report{DryRun: dry, AsOf: p.Now().UTC(), Kept: []Skipped{}}}
	for _, t := range []*Tally{&s.r.Workspaces, &s.r.Imports, &s.r.Bytes} {
		t.Named = []string{}
	}
	if policy.Imports != nil && *policy.Imports < LeastImports {
		return s.r, fault.New(fault.Validation, "retention_imports", fmt.Sprintf("imports must be kept for at least %s",
			LeastImports))
	}
	for _, step := range []func(context.Context) error{s.workspaces, s.imports, s.objects, s.payloads} {
		if err := step(ctx); err != nil {
			return s.r, err
		}
	}
	return s.r, nil
}
