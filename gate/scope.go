package gate

import (
	"context"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// scope refuses arguments that name a run or an artifact of a project the caller does not see, wherever in them the name stands: to
// the caller there is no such thing, and the words are those for a thing that never was. It also refuses such a project. What a
// handler lists it narrows itself, by [Principal.Filter].
//
// To a dry run that exists too which a dry run has supposed for the same principal.
func (g *Gate) scope(ctx context.Context, who Caller, args any, dry bool) error {
	if slices.Contains(who.Projects, All) || g.owners == nil {
		return nil
	}
	doc, _ := args.(map[string]any)
	if p, ok := doc["project_id"].(string); ok {
		if _, err := who.Project(p, ""); err != nil {
			return err
		}
	}
	return g.visible(ctx, who, doc, dry && g.supposer != nil)
}

func (g *Gate) visible(ctx context.Context, who Caller, v any, dry bool) error {
	switch v := v.(type) {
	case string:
		return g.visibleID(ctx, who, v, dry)
	case []any:
		for _, x := range v {
			if err := g.visible(ctx, who, x, dry); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, x := range v {
			if err := g.visibleID(ctx, who, k, dry); err != nil {
				return err
			}
			if err := g.visible(ctx, who, x, dry); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Gate) visibleID(ctx context.Context, who Caller, s string, dry bool) error {
	id := strings.TrimPrefix(strings.TrimPrefix(s, "artifact:"), "//")
	if !plan.IsRunID(id) && !plan.IsArtifactID(id) {
		return nil
	}
	project, err := g.owners.Owner(ctx, id)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err == nil && who.Sees(project) {
		return nil
	}
	if fault.Is(err, fault.NotFound) && plan.IsRunID(id) {
		asked, err := g.owners.Asked(ctx, who.Name, id)
		if err != nil || asked {
			return err
		}
	}
	if dry && fault.Is(err, fault.NotFound) {
		if project, ok := g.supposer.Supposed(who.Principal, id); ok && who.Sees(project) {
			return nil
		}
	}
	return notThere(id)
}

// notThere is the one answer for what does not exist and for what is another's.
func notThere(id string) error {
	if plan.IsRunID(id) {
		return fault.New(fault.NotFound, "gate.scope", "run_not_found", "there is no run "+id).WithSteps(fault.Do("run.list"))
	}
	return fault.New(fault.NotFound, "gate.scope", "artifact_not_found", "there is no artifact "+id).WithSteps(fault.Do("artifact.list"))
}
