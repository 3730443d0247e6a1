package access

import (
	"context"
	"sync"
	"time"

	"slurmgate/gate"
)

// sessions holds the requests in progress of callers whose credentials can end meanwhile, by token. Only this process
// revokes tokens of its ledger, so its memory is enough.
type sessions struct {
	mu      sync.Mutex
	open    map[string]map[*context.CancelCauseFunc]struct{} // by key of the principal
	revoked map[string]bool                                  // since the start; closes the gap between finding a token valid and joining
}

// While returns a context for a request of the principal. It ends, with an Auth fault as its cause, when the principal's credentials
// expire or are revoked, or when a user of this host has left a group that gave it rights. The caller calls stop when the request is done.
func (a *Access) While(ctx context.Context, p gate.Principal) (_ context.Context, stop func()) {
	if uid, ok := a.members.uidOf(p.Key()); ok && p.Method == gate.ByPeer {
		return a.whileMember(ctx, uid, p)
	}
	if p.Method != gate.ByToken && p.Method != gate.ByOIDC {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	expires := p.Expires
	if p.Method == gate.ByOIDC {
		expires = expires.Add(leeway) // until then its calls are accepted
	}
	timer := time.AfterFunc(expires.Sub(a.now()), func() { end(expired()) })
	leave := func() {}
	if p.Method == gate.ByToken {
		leave = a.sessions.join(p.Key(), &end)
	}
	return ctx, func() {
		timer.Stop()
		leave()
		end(nil)
	}
}

func (s *sessions) join(key string, end *context.CancelCauseFunc) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked[key] {
		(*end)(unknownToken())
		return func() {}
	}
	if s.open == nil {
		s.open = map[string]map[*context.CancelCauseFunc]struct{}{}
	}
	if s.open[key] == nil {
		s.open[key] = map[*context.CancelCauseFunc]struct{}{}
	}
	s.open[key][end] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open[key], end)
		if len(s.open[key]) == 0 {
			delete(s.open, key)
		}
	}
}

// Revoked ends the requests in progress of a token that was revoked.
func (a *Access) Revoked(p gate.Principal) {
	s := &a.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked == nil {
		s.revoked = map[string]bool{}
	}
	s.revoked[p.Key()] = true
	for end := range s.open[p.Key()] {
		(*end)(unknownToken())
	}
	delete(s.open, p.Key())
}
