package retention

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// An erasure removes a leaked secret from everything that the gateway stores. The order is:
//
//   1. everything is searched, and redacted copies of logs and scripts are stored: nothing is lost if it stops here;
//   2. one transaction of the ledger redacts its rows, marks artifacts, records what remains to be removed, and appends the events
//      with the changed records and the hash that each had; from then on the secret is not needed any more;
//   3. objects and workspaces are removed, and the ledger's file is rewritten, as for every deletion (see [Deleter]).

// Erasure is one removal of a secret.
type Erasure struct {
	ID     string // ers_…
	By     string // principal's name
	Reason string
	HMAC   string // of the secret, with the ledger's own key: equal for equal secrets, and reveals nothing else
}

// Row is a row of the ledger that holds the secret, by its table and its key, e.g. tool_call_events looks/12.
type Row struct {
	Table, Key string // as reports name it: without the secret
	ID         []any  // the values of its key
}

// LeakedArtifact is an artifact whose bytes hold the secret.
type LeakedArtifact struct {
	ID        string
	SHA256    string
	SizeBytes int64
	Log       bool // a log or a script of the gateway itself: a redacted copy replaces it
}

// Leak lists all that holds a secret.
type Leak struct {
	Rows       []Row
	Documents  []string // payloads of the ledger, by checksum
	Objects    []string // of the store, by checksum
	Workspaces []string // runs
}

// Copy is a redacted log or script that replaces an artifact.
type Copy struct {
	Of        string // artifact id
	SHA256    string
	SizeBytes int64
}

// ErasedCount is the number of things of one kind that hold, or held, the secret.
type ErasedCount struct {
	What  string   `json:"what"`  // a table of the ledger, documents, objects, artifacts, logs redacted, workspaces
	Count int      `json:"count"` // in all
	Named []string `json:"named"` // the first of them
}

// EraseReport is the result of an erasure, or of its dry run.
type EraseReport struct {
	DryRun   bool          `json:"dry_run"`
	ID       string        `json:"erasure_id"` // "" for a dry run, and when nothing was found
	Found    []ErasedCount `json:"found"`
	InFlight []string      `json:"in_flight"` // runs that must end first
	Skipped  []Skipped     `json:"skipped"`   // could not be searched
	Pending  []Skipped     `json:"pending"`   // erased from the ledger, but not removed yet; the gateway tries again when it starts
	Left     int           `json:"left"`      // places that got the secret again while it was being erased
	Outside  []string      `json:"outside"`   // where copies may be that the gateway cannot reach
}

func (r *EraseReport) add(what string, names []string) {
	if len(names) == 0 {
		return
	}
	r.Found = append(r.Found, ErasedCount{what, len(names), names[:min(len(names), namedMost)]})
}

// Erase erases a secret, or with dry only searches for it. If runs in flight hold it, Erase fails with Conflict and
// code secret_in_flight. The report has what was found, also with an error.
func (p Deleter) Erase(ctx context.Context, e Erasure, s *Secret, dry bool) (r EraseReport, err error) {
	r = EraseReport{DryRun: dry, Found: []ErasedCount{}, InFlight: []string{}, Skipped: []Skipped{}, Pending: []Skipped{},
		Outside: []string{}}
	l, err := p.search(ctx, s, &r)
	if err != nil {
		return r, err
	}
	artifacts, err := p.Ledger.LeakedArtifacts(ctx, slices.Concat(l.Objects, l.Documents))
	if err != nil {
		return r, err
	}
	r.addFound(l, artifacts)
	flights, err := p.Ledger.InFlight(ctx, l)
	if err != nil {
		return r, err
	}
	r.InFlight = append(r.InFlight, flights...)
	if dry || len(r.Found) == 0 {
		return r, nil
	}
	if len(flights) > 0 {
		return r, InFlightFault(flights)
	}
	copies, err := p.copies(ctx, s, artifacts)
	if err != nil {
		return r, err
	}
	if err := p.Ledger.Erase(ctx, e, s, l, copies); err != nil {
		return r, err
	}
	r.ID = e.ID
	if r.Pending, err = p.finish(ctx, e.ID); err != nil {
		return r, err
	}
	again := EraseReport{}
	left, err := p.search(ctx, s, &again)
	r.Left = len(left.Rows) + len(left.Documents) + len(left.Objects) + len(left.Workspaces)
	if len(r.Pending) > 0 { // those in Pending are known to exist
		r.Left = len(left.Rows) + len(left.Documents)
	}
	return r, err
}

// InFlightFault returns the refusal of an erasure because of runs in flight.
func InFlightFault(runs []string) error {
	return fault.New(fault.Conflict, "secret_in_flight",
		fmt.Sprintf("%d runs in flight hold the secret, so nothing was erased: %s",
			len(runs), strings.Join(runs[:min(len(runs), 10)], ", "))).
		WithNext("cancel them, or wait until they end, then repeat the call").WithSteps(fault.Do("slurm.job.cancel", "run_id", runs[0]))
}

func (r *EraseReport) addFound(l Leak, artifacts []LeakedArtifact) {
	byTable := map[string][]string{}
	var tables []string
	for _, row := range l.Rows {
		if byTable[row.Table] == nil {
			tables = append(tables, row.Table)
		}
		byTable[row.Table] = append(byTable[row.Table], row.Key)
	}
	for _, t := range tables {
		r.add(t, byTable[t])
	}
	r.add("documents", l.Documents)
	r.add("objects", l.Objects)
	var gone, redacted []string
	for _, a := range artifacts {
		if a.Log {
			redacted = append(redacted, a.ID)
		} else {
			gone = append(gone, a.ID)
		}
	}
	r.add("artifacts", gone)
	r.add("logs and scripts", redacted)
	r.add("workspaces", l.Workspaces)
}

// search searches the ledger, the store and the workspaces for a secret.
func (p Deleter) search(ctx context.Context, s *Secret, r *EraseReport) (l Leak, err error) {
	if l.Rows, l.Documents, err = p.Ledger.Leaks(ctx, s); err != nil {
		return l, err
	}
	err = p.Store.Objects(ctx, func(sum string, _ int64, _ time.Time) error {
		found, whole, err := s.Search(ctx, func() (io.ReadCloser, error) { f, _, err := p.Store.Reader(ctx, sum); return f, err })
		switch {
		case ctx.Err() != nil:
			return err
		case err != nil && fault.Is(err, fault.NotFound):
			return nil // removed meanwhile
		case err != nil:
			r.skip(sum, fault.Prose(err))
		case found:
			l.Objects = append(l.Objects, sum)
		case !whole:
			r.skip(sum, "only a part of this gzip file could be inflated and searched")
		}
		return nil
	})
	if err != nil {
		return l, err
	}
	open, err := p.Ledger.OpenRuns(ctx)
	if err != nil {
		return l, err
	}
	for _, id := range open {
		if err := p.searchRun(ctx, s, id, &l, r); err != nil {
			return l, err
		}
	}
	for after := (Workspace{}); ; {
		list, err := p.Ledger.Workspaces(ctx, p.Now().Add(time.Hour), after, batch)
		if err != nil || len(list) == 0 {
			return l, err
		}
		for _, w := range list {
			if err := p.searchRun(ctx, s, w.RunID, &l, r); err != nil {
				return l, err
			}
		}
		after = list[len(list)-1]
	}
}

func (r *EraseReport) skip(name, why string) {
	if len(r.Skipped) < namedMost {
		r.Skipped = append(r.Skipped, Skipped{name, why})
	}
}

func (p Deleter) searchRun(ctx context.Context, s *Secret, runID string, l *Leak, r *EraseReport) error {
	err := p.Workspaces.EachFile(ctx, runID, func(open func() (io.ReadCloser, error)) (bool, error) {
		found, _, err := s.Search(ctx, open)
		if found {
			l.Workspaces = append(l.Workspaces, runID)
		}
		return !found, err
	})
	if err != nil && ctx.Err() == nil {
		r.skip("workspace of "+runID, fault.Prose(err))
		return nil
	}
	return err
}

// maxLog bounds a log that is redacted, in bytes: it is held in memory.
const maxLog = 64 << 20

// copies stores redacted logs and scripts. It does not replace those larger than maxLog.
func (p Deleter) copies(ctx context.Context, s *Secret, artifacts []LeakedArtifact) (out []Copy, err error) {
	for _, a := range artifacts {
		if !a.Log || a.SizeBytes > maxLog {
			continue
		}
		r, size, err := p.Store.Reader(ctx, a.SHA256)
		if err != nil {
			continue // damaged or gone: it is marked as erased anyway
		}
		data, err := io.ReadAll(io.LimitReader(r, size))
		r.Close()
		if err != nil {
			return nil, err
		}
		clean, _ := s.Redact(data)
		c := Copy{Of: a.ID}
		if c.SHA256, c.SizeBytes, err = p.Store.Put(ctx, strings.NewReader(string(clean)), int64(len(clean))); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
