package app

import (
	"context"
	"maps"
	"slices"

	"slurmgate/gate"
	"slurmgate/plan"
)

// projectOf returns the project of a call: the one it names, else the caller's own default. The caller has the tool's
// capabilities there.
func (g *Gateway) projectOf(c gate.Call, named string) (string, error) {
	return c.Project(named, g.Site.Gateway.DefaultProject)
}

// projectsListed returns the projects that the caller may list: the project it names, else all projects where it has
// the tool's capabilities. nil means every project.
func (g *Gateway) projectsListed(c gate.Call, named string) ([]string, error) {
	if named == "" {
		return c.Projects(), nil
	}
	id, err := g.projectOf(c, named)
	return []string{id}, err
}

// inputProject returns the project of the first artifact, or output of a run, among a call's inputs, or the caller's
// own if it has none. params are the arguments that are inputs, in their order; texts in other arguments are
// ignored.
func (g *Gateway) inputProject(ctx context.Context, c gate.Call, params []string) (string, error) {
	args, _ := c.Value.(map[string]any)
	for _, name := range params {
		id := firstInput(args[name])
		if x, ok := plan.ParsePromise(id); ok {
			return owners{g.Ledger}.Owner(ctx, x.RunID)
		}
		if id != "" {
			a, err := g.artifactFor(ctx, c, id)
			return a.ProjectID, err
		}
	}
	return g.projectOf(c, "")
}

// firstInput returns the first artifact or output of a run in the value of an argument, in the order of lists and of
// the names of members.
func firstInput(v any) string {
	var parts []any
	switch v := v.(type) {
	case string:
		if _, ok := plan.ParsePromise(v); ok || plan.IsArtifactID(v) {
			return v
		}
	case []any:
		parts = v
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, v[name])
		}
	}
	for _, x := range parts {
		if id := firstInput(x); id != "" {
			return id
		}
	}
	return ""
}
