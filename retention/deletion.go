package retention

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// Deleter executes deletions: erasures of secrets and removals on request. One transaction of the ledger changes the
// records and lists what remains to be done outside of it. That follows; if a gateway is killed meanwhile, the next
// one continues at its start.
type Deleter struct {
	Ledger     DeletionLedger
	Workspaces DeletionWorkspaces
	Store      DeletionStore
	Now        func() time.Time
}

// DeletionLedger is the ledger's part.
type DeletionLedger interface {
	Removals
	// Leaks lists the rows and documents that hold the secret.
	Leaks(ctx context.Context, s *Secret) (rows []Row, documents []string, err error)
	// LeakedArtifacts lists the artifacts with these bytes.
	LeakedArtifacts(ctx context.Context, sums []string) ([]LeakedArtifact, error)
	// InFlight lists the unfinished runs that involve a part of the leak.
	InFlight(ctx context.Context, l Leak) (runIDs []string, err error)
	// OpenRuns lists the unfinished runs.
	OpenRuns(ctx context.Context) ([]string, error)
	// Erase is the transaction of an erasure. A run in flight is a Conflict with code secret_in_flight, and nothing changes.
	Erase(ctx context.Context, e Erasure, s *Secret, l Leak, copies []Copy) error
	// Remove is the transaction of a removal; a dry run reports what it would do. It fails with NotFound for things
	// that do not exist; with Conflict for an unfinished run, and for an artifact that such a run needs; with Policy
	// for things that the principal did not ask for. After an error nothing has changed.
	Remove(ctx context.Context, r Removal, dry bool) (RemovalReport, error)
	// EachUnheld calls remove with those of some bytes that no artifact has, and prevents new artifacts with them
	// meanwhile.
	EachUnheld(ctx context.Context, sums []string, remove func(free []string)) error
	// Unfinished lists deletions that are not complete.
	Unfinished(ctx context.Context) (ids []string, err error)
	Rest(ctx context.Context, id string) (Rest, error)
	// Done records that parts were done; the last one completes the deletion.
	Done(ctx context.Context, id, kind string, names ...string) error
	// Compact rewrites the ledger's file, so that no deleted data is left in it.
	Compact(ctx context.Context) error
}

// DeletionWorkspaces accesses the runs' folders.
type DeletionWorkspaces interface {
	RunRemover
	// EachFile calls f with every regular file of a run's workspace until f fails or returns false.
	EachFile(ctx context.Context, runID string, f func(open func() (io.ReadCloser, error)) (more bool, err error)) error
}

// DeletionStore accesses the bytes of artifacts.
type DeletionStore interface {
	Objects(ctx context.Context, f func(sha256 string, size int64, stored time.Time) error) error
	Reader(ctx context.Context, sha256 string) (io.ReadCloser, int64, error)
	Put(ctx context.Context, r io.Reader, limit int64) (sha256 string, size int64, err error)
	// Erase removes objects of any age. failed has the objects that may still exist, and why.
	Erase(ctx context.Context, sums ...string) (failed map[string]error)
}

// Rest lists the parts of a deletion that remain after the ledger's transaction.
type Rest struct {
	Objects    []string
	Workspaces []Workspace
	Compact    bool
}

// The kinds of parts of a deletion, see [DeletionLedger.Done].
const (
	ItemObject    = "object"
	ItemWorkspace = "workspace"
	ItemLedger    = "ledger"
)

// RemovalPrefix starts the ids of removals; other deletions are erasures.
const RemovalPrefix = "rmv_"

// Resume finishes interrupted deletions. It reports what cannot be removed now.
func (p Deleter) Resume(ctx context.Context) (pending []Skipped, err error) {
	ids, err := p.Ledger.Unfinished(ctx)
	for _, id := range ids {
		more, err := p.finish(ctx, id)
		pending = append(pending, more...)
		if err != nil {
			return pending, err
		}
	}
	return pending, err
}

// finish does the remaining parts of a deletion.
func (p Deleter) finish(ctx context.Context, id string) (pending []Skipped, err error) {
	rest, err := p.Ledger.Rest(ctx, id)
	if err != nil {
		return nil, err
	}
	pending = []Skipped{}
	// done records the parts of a kind that did not fail.
	done := func(kind string, failed map[string]error, names ...string) error {
		if ctx.Err() != nil {
			return fault.Wrap(fault.Canceled, "", "the deletion is continued when the gateway starts again", ctx.Err())
		}
		var gone []string
		for _, name := range names {
			if err := failed[name]; err != nil {
				pending = append(pending, Skipped{kind + " " + name, fault.Prose(err)})
			} else {
				gone = append(gone, name)
			}
		}
		if len(gone) == 0 {
			return nil
		}
		return p.Ledger.Done(ctx, id, kind, gone...)
	}
	for sums := range slices.Chunk(rest.Objects, deletedTogether) {
		if err := done(ItemObject, p.deleteObjects(ctx, id, sums), sums...); err != nil {
			return pending, err
		}
	}
	for _, w := range rest.Workspaces {
		if err := done(ItemWorkspace, map[string]error{w.RunID: p.removeWorkspace(ctx, w)}, w.RunID); err != nil {
			return pending, err
		}
	}
	if rest.Compact {
		err = done(ItemLedger, map[string]error{"": p.Ledger.Compact(ctx)}, "")
	}
	return pending, err
}

// deletedTogether is the number of objects that share a transaction and the syncs of their folders.
const deletedTogether = 256

// deleteObjects deletes objects: of an erasure all of them, of a removal those that no artifact has.
func (p Deleter) deleteObjects(ctx context.Context, id string, sums []string) (failed map[string]error) {
	if !strings.HasPrefix(id, RemovalPrefix) {
		return p.Store.Erase(ctx, sums...)
	}
	err := p.Ledger.EachUnheld(ctx, sums, func(free []string) { failed = p.Store.Erase(ctx, free...) })
	if err != nil {
		failed = map[string]error{}
		for _, sum := range sums {
			failed[sum] = err
		}
	}
	return failed
}

// removeWorkspace removes the folder of a finished run, as a sweep does.
func (p Deleter) removeWorkspace(ctx context.Context, w Workspace) error {
	_, begun, err := Remove(ctx, p.Ledger, p.Workspaces, w, p.Now().Add(time.Hour))
	if err == nil && !begun {
		return fault.New(fault.Conflict, "run_retried", "the run was retried; repeat the deletion when it has ended")
	}
	return err
}
