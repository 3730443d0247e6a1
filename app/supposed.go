package app

import (
	"context"
	"maps"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// A dry run of an import stores nothing, and a dry run of a tool that takes the file as an input is a separate later
// call. In between, the gateway stores what the import would have created: only for the calling principal, for a
// limited time, in memory. Only dry runs see it.

const (
	supposeTime = 10 * time.Minute
	supposeMost = 4096 // for all principals together; beyond that all are deleted
)

type supposed struct {
	mu    sync.Mutex
	known map[[2]string]supposition // by principal and artifact id
}

type supposition struct {
	artifact run.Artifact
	at       time.Time
}

// add stores an artifact for a principal.
func (s *supposed) add(principal string, a run.Artifact, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(_ [2]string, v supposition) bool { return now.Sub(v.at) > supposeTime })
	if s.known == nil || len(s.known) >= supposeMost {
		s.known = map[[2]string]supposition{}
	}
	s.known[[2]string{principal, a.ID}] = supposition{a, now}
}

// find returns a stored artifact.
func (s *supposed) find(principal, id string, now time.Time) (run.Artifact, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.known[[2]string{principal, id}]
	return v.artifact, ok && now.Sub(v.at) <= supposeTime
}

// Supposed implements gate.Supposer.
func (g *Gateway) Supposed(who gate.Principal, id string) (projectID string, ok bool) {
	a, ok := g.supposed.find(who.Key(), id, time.Now())
	return a.ProjectID, ok
}

// artifactFor reads an artifact for a call. A dry run also finds what an earlier dry run of an import would have created.
func (g *Gateway) artifactFor(ctx context.Context, c gate.Call, id string) (run.Artifact, error) {
	a, err := g.Ledger.Artifact(ctx, id)
	if fault.CodeOf(err) == ledger.RemovedByRequest {
		return a, nil // the run that used it is still found; a new one is refused
	}
	if c.Request.DryRun && fault.Is(err, fault.NotFound) {
		if s, ok := g.supposed.find(c.Caller.Key(), id, time.Now()); ok {
			return s, nil
		}
	}
	return a, err
}

// ImportPreview is what an import would create. Its id stands for the artifact in other dry runs of the caller.
type ImportPreview struct{ ImportAnswer }

// rehearseImport returns what an import would create, and stores nothing.
func (g *Gateway) rehearseImport(ctx context.Context, c gate.Call, a ImportArgs) (out ImportPreview, err error) {
	var doc run.Artifact
	if a.FileID != "" {
		err = g.importFound(ctx, c, a, func(a ImportArgs) (err error) {
			out, err = g.rehearseImport(ctx, c, a)
			return err
		})
		return out, err
	}
	if a.InPlace {
		doc, err = g.register(ctx, c, a, true)
	} else {
		doc, err = g.bringIn(ctx, c, a, g.Importer.Rehearsal())
	}
	if err != nil {
		return out, err
	}
	stored, err := g.Ledger.Artifact(ctx, doc.ID)
	switch {
	case err == nil:
		doc = stored
	case fault.Is(err, fault.NotFound):
		doc.CreatedAt, out.Created, err = time.Now().UTC(), true, nil
		g.supposed.add(c.Caller.Key(), doc, doc.CreatedAt)
	}
	out.ArtifactDoc = docOf(doc)
	out.Params = map[string]any{"artifact_id": doc.ID}
	return out, err
}
