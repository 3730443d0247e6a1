package gate

import "time"

// Visible reports whether a tool exists for a caller: it is bound to the caller's transport, the caller has every capability it asks
// for, and policy allows it. Lists show what is visible; a call is decided anew.
func (g *Gate) Visible(who Caller, t Tool) bool {
	return t.Reachable(who.Transport) && g.allowed(who, t) == nil
}

// Timeout is how long a call of the tool may take.
func (g *Gate) Timeout(t Tool) time.Duration { return g.timeout(t) }
