package gate

import (
	"slices"
	"time"
)

// Visible reports whether a tool exists for a caller: it is bound to the caller's transport, the caller has every capability it asks
// for, and policy allows it. Lists show what is visible; a call is decided anew.
func (g *Gate) Visible(who Caller, t Tool) bool {
	return t.Reachable(who.Transport) && g.allowed(who, t) == nil
}

// Offered are the tools that are visible to a caller, in order of id.
func (g *Gate) Offered(who Caller) []Tool {
	return slices.DeleteFunc(g.registry.List(), func(t Tool) bool { return !g.Visible(who, t) })
}

// Offer finds a tool by id. For one that the caller may not call it is the error that the call would get.
func (g *Gate) Offer(who Caller, id string) (Tool, error) {
	e, err := g.registry.reach(id, who.Transport)
	if err == nil {
		err = g.allowed(who, e.tool)
	}
	return e.tool, err
}

// Timeout is how long a call of the tool may take.
func (g *Gate) Timeout(t Tool) time.Duration { return g.timeout(t) }
