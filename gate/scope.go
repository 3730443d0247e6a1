package gate

import (
	"context"
	"maps"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// scope refuses arguments that name a run or an artifact of a project on which the caller does not have what the tool
// needs, at any depth. To a caller without any right there, the thing does not exist, and the message is that for an
// unknown id. It also refuses such a project. What a handler lists it narrows itself, by [Call.Projects].
//
// For a dry run, a thing that an earlier dry run of the same principal would have stored exists too.
func (g *Gate) scope(ctx context.Context, who Caller, t Tool, args any, dry bool) error {
	if g.owners == nil || who.CanAll(t.Capabilities, All) {
		return nil
	}
	doc, _ := args.(map[string]any)
	if p, ok := doc["project_id"].(string); ok {
		if _, err := who.Project(t.Capabilities, p, ""); err != nil {
			return err
		}
	}
	if _, has := doc[t.Each]; has {
		doc = maps.Clone(doc)
		delete(doc, t.Each)
	}
	return look{g, who, t, dry && g.supposer != nil}.all(ctx, doc)
}

// look checks the arguments of one call for ids.
type look struct {
	*Gate
	who  Caller
	tool Tool
	dry  bool
}

func (l look) all(ctx context.Context, v any) error {
	switch v := v.(type) {
	case string:
		return l.one(ctx, v)
	case []any:
		for _, x := range v {
			if err := l.all(ctx, x); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, x := range v {
			if err := l.one(ctx, k); err != nil {
				return err
			}
			if err := l.all(ctx, x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l look) one(ctx context.Context, s string) error {
	id := strings.TrimPrefix(strings.TrimPrefix(s, "artifact:"), "//")
	if x, ok := plan.ParsePromise(id); ok { // an output of a run
		id = x.RunID
	}
	if !plan.IsRunID(id) && !plan.IsArtifactID(id) {
		return nil
	}
	// Only what the caller has a right on is answered from memory, so that timing does not reveal other ids.
	if seen := l.owners.OwnerSeen(id); seen != "" && l.who.CanAll(l.tool.Capabilities, seen) {
		return nil
	}
	project, err := l.owners.Owner(ctx, id)
	switch {
	case err != nil && !fault.Is(err, fault.NotFound):
		return err
	case err == nil && l.who.CanAll(l.tool.Capabilities, project):
		return nil
	case err == nil && l.who.Sees(project):
		return l.who.lacks(l.tool.Capabilities, project, l.tool.ID)
	}
	// An unknown id and another's take the same path from here, so that timing does not distinguish them.
	if plan.IsRunID(id) {
		asked, err := l.owners.Asked(ctx, l.who.Principal, id)
		if err != nil || asked {
			return err
		}
	}
	if l.dry {
		if project, ok := l.supposer.Supposed(l.who.Principal, id); ok && l.who.CanAll(l.tool.Capabilities, project) {
			return nil
		}
	}
	return notThere(id)
}

// notThere returns the one error for an unknown id and for another's.
func notThere(id string) error {
	if plan.IsRunID(id) {
		return fault.New(fault.NotFound, "run_not_found", "there is no run "+id).WithSteps(fault.Do("run.list"))
	}
	return fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+id).WithSteps(fault.Do("artifact.list"))
}
