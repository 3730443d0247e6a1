package app

import (
	"context"

	"slurmgate/gate"
	"slurmgate/plan"
)

// projectOf is the project of a call: the one it names, else the caller's own default. The caller has the tool's capabilities there.
func (g *Gateway) projectOf(c gate.Call, named string) (string, error) {
	return c.Project(named, g.Site.Gateway.DefaultProject)
}

// projectsListed narrows a list to what the caller may list: the project it names, else every one where it has the tool's capabilities.
// nil means every project.
func (g *Gateway) projectsListed(c gate.Call, named string) ([]string, error) {
	if named == "" {
		return c.Projects(), nil
	}
	id, err := g.projectOf(c, named)
	return []string{id}, err
}

// inputProject is the project of the first artifact, or output of a run, among a tool's arguments, or the caller's own if there is none.
// Looking up the inputs checks that all are of one project.
func (g *Gateway) inputProject(ctx context.Context, c gate.Call) (string, error) {
	id := firstInput(c.Value)
	if x, ok := plan.ParsePromise(id); ok {
		return owners{g.Ledger}.Owner(ctx, x.RunID)
	}
	if id != "" {
		a, err := g.artifactFor(ctx, c, id)
		return a.ProjectID, err
	}
	return g.projectOf(c, "")
}

func firstInput(v any) string {
	switch v := v.(type) {
	case string:
		if _, ok := plan.ParsePromise(v); ok || plan.IsArtifactID(v) {
			return v
		}
	case []any:
		for _, x := range v {
			if id := firstInput(x); id != "" {
				return id
			}
		}
	case map[string]any:
		for _, x := range v {
			if id := firstInput(x); id != "" {
				return id
			}
		}
	}
	return ""
}
