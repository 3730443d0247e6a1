package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slurmgate/fault"
)

// sweep is one round.
type sweep struct {
	Parts
	policy Policy
	dry    bool
	now    time.Time
	r      Report
	away   map[owner]string // why a user's files cannot be reached now
}

// owner is a user of a cluster.
type owner struct{ site, user string }

// due returns the time before which items of a kind are due, and records it in the tally; false if they are kept for ever.
func (s *sweep) due(keep *time.Duration, t *Tally) (before time.Time, any bool) {
	if keep == nil {
		return time.Time{}, false
	}
	before = s.now.Add(-*keep)
	t.KeptSince = before.UTC().Format(time.RFC3339)
	return before, true
}

func (s *sweep) skip(name, why string) {
	if len(s.r.Kept) < namedMost {
		s.r.Kept = append(s.r.Kept, Skipped{name, why})
	}
}

// here reports whether an error concerns only one workspace, or one user's, and not the whole sweep. If a user's
// files cannot be reached – the account is gone, the folder or the host is away – that user's other workspaces wait
// for the next sweep, so that they do not delay others'.
func (s *sweep) here(ctx context.Context, w Workspace, err error) bool {
	if ctx.Err() == nil && w.User != "" {
		if f, ok := errors.AsType[*fault.Error](err); ok && (f.Kind == fault.Policy || f.Kind == fault.Transport) {
			if s.away == nil {
				s.away = map[owner]string{}
			}
			s.away[owner{w.Site, w.User}] = fault.Prose(err)
		}
		return true
	}
	return ctx.Err() == nil && fault.CodeOf(err) != "runs_dir_unavailable"
}

func (s *sweep) workspaces(ctx context.Context) error {
	before, any := s.due(s.policy.Workspaces, &s.r.Workspaces)
	if !any {
		return nil
	}
	for after := (Workspace{}); ; {
		list, err := s.Ledger.Workspaces(ctx, before, after, batch)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, w := range list {
			if err := s.workspace(ctx, w, before); err != nil {
				return err
			}
		}
		after = list[len(list)-1]
	}
}

func (s *sweep) workspace(ctx context.Context, w Workspace, before time.Time) error {
	if why, is := s.away[owner{w.Site, w.User}]; is {
		s.skip(w.RunID, fmt.Sprintf("the files of %s cannot be reached: %s", w.User, why))
		return nil
	}
	if s.dry {
		bytes, err := s.Workspaces.RunSize(ctx, w.RunID)
		switch {
		case err != nil && !s.here(ctx, w, err):
			return err
		case err != nil && w.User != "":
			s.skip(w.RunID, fault.Prose(err))
			return nil
		}
		s.r.Workspaces.add(w.RunID, bytes)
		return nil
	}
	freed, begun, err := Remove(ctx, s.Ledger, s.Workspaces, w, before)
	switch {
	case err != nil && !s.here(ctx, w, err):
		return err
	case err != nil:
		s.skip(w.RunID, err.Error())
		return nil
	case !begun:
		s.skip(w.RunID, "the run was retried")
		return nil
	}
	s.r.Workspaces.add(w.RunID, freed)
	return nil
}

// imports marks artifacts that no run refers to as removed, and removes their bytes if nothing else has them.
func (s *sweep) imports(ctx context.Context) error {
	since, any := s.due(s.policy.Imports, &s.r.Imports)
	if !any {
		return nil
	}
	if s.dry {
		list, err := s.Ledger.Unused(ctx, since, 1<<30)
		for _, a := range list {
			s.r.Imports.add(a.ID, a.SizeBytes)
		}
		return err
	}
	for {
		list, err := s.Ledger.MarkUnused(ctx, since, batch)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, a := range list {
			s.r.Imports.add(a.ID, a.SizeBytes)
			if err := s.object(ctx, a.SHA256, a.SizeBytes); err != nil {
				return err
			}
		}
	}
}

// objects removes bytes that no artifact has: of interrupted imports, of outputs whose run failed, of marks whose sweep was killed.
func (s *sweep) objects(ctx context.Context) error {
	before, _ := s.due(new(Orphans), &s.r.Bytes)
	var unknown Tally
	err := s.Store.Objects(ctx, func(sum string, size int64, stored time.Time) error {
		if !stored.Before(before) {
			return nil
		}
		if held, err := s.Ledger.Holds(ctx, sum); held || err != nil {
			return err
		}
		if stored.Before(s.policy.Restored) {
			unknown.add("", size)
			return nil
		}
		if s.dry {
			s.r.Bytes.add(sum, size)
			return nil
		}
		return s.object(ctx, sum, size)
	})
	if unknown.Count > 0 {
		s.skip(fmt.Sprintf("%d objects, %d bytes", unknown.Count, unknown.Bytes),
			"stored before this ledger was restored on "+s.policy.Restored.UTC().Format(time.RFC3339)+
				": they may be outputs of runs that it does not know. gc --before-restore removes them")
	}
	return err
}

// object removes one object if no artifact has it and it was not stored recently.
func (s *sweep) object(ctx context.Context, sum string, size int64) error {
	held := false
	gone, err := s.Store.Remove(ctx, sum, s.now.Add(-Orphans), func(remove func() error) (err error) {
		held, err = s.Ledger.Unheld(ctx, sum, remove)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		s.skip(sum, err.Error())
	case gone:
		s.r.Bytes.add(sum, size)
	case !held:
		s.skip(sum, "it was stored again during the sweep; the next sweep checks it")
	}
	return nil
}

// payloads removes documents that no artifact has. Age does not matter: a document enters the ledger together with its artifact.
func (s *sweep) payloads(ctx context.Context) error {
	return s.Ledger.DropPayloads(ctx, s.dry, s.r.Bytes.add)
}
