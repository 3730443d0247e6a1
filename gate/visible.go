package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Visible reports whether a tool exists for a caller: it is bound to the caller's transport, the caller has every
// capability it needs, and policy allows it. Lists show the visible tools; a call is decided anew.
func (g *Gate) Visible(who Caller, t Tool) bool {
	may := who.CanSomewhere(t.Capabilities...) && (!t.SiteWide || who.CanAll(t.Capabilities, All)) // else it would only make an error
	return may && t.Reachable(who.Transport) && g.allowed(who, t) == nil
}

// Offered returns the tools that are visible to a caller, in order of id.
func (g *Gate) Offered(who Caller) []Tool {
	var out []Tool
	for _, t := range g.registry.tools {
		if g.Visible(who, t) {
			out = append(out, t)
		}
	}
	return out
}

// Offer finds a tool by id. For a tool that the caller may not call it returns the error that the call would get.
func (g *Gate) Offer(who Caller, id string) (Tool, error) {
	e, err := g.registry.reach(id, who.Transport)
	if err == nil {
		err = g.allowed(who, e.tool)
	} else if offered := g.Offered(who); Sayable(id) {
		if near := NearTool(id, offered); near != "" {
			err = fault.New(fault.NotFound, "tool_not_found", fmt.Sprintf("no tool %q%s", id, plan.Suggestion(near))).
				WithSteps(fault.Do("tool.list"))
		}
	}
	return e.tool, err
}

// NearTool returns the id of the tool that a misspelt id most likely means: one of nearly its spelling, or the only
// one that has it as a part of its id, such as flagstat. "": no tool is near.
func NearTool(id string, tools []Tool) string {
	var ids []string
	var parts []string
	for _, t := range tools {
		if t.Name() == id {
			return t.ID
		}
		ids = append(ids, t.ID)
		if slices.Contains(strings.FieldsFunc(t.ID, func(r rune) bool { return r == '.' || r == '_' }), id) {
			parts = append(parts, t.ID)
		}
	}
	if near := plan.Nearest(strings.ReplaceAll(id, "_", "."), ids); near != "" {
		return near
	}
	if near := plan.Nearest(id, ids); near != "" {
		return near
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return ""
}

// Timeout returns how long a call of the tool may take.
func (g *Gate) Timeout(t Tool) time.Duration { return g.timeout(t) }
