package access

import (
	"context"
	"fmt"
	"sync"

	"slurmgate/gate"
)

// Who a principal is: a user of this host is a user id together with its name, a token is its id, and an OpenID subject is issuer and
// subject. The ledger gives each of these one opaque id, which is read once and then kept in memory.

// Enroll gives the users of this host their ids. It is called once, before the first call.
func (a *Access) Enroll(ctx context.Context, ids gate.Principals) error {
	a.ids.from = ids
	var who []gate.Identity
	var uids []int
	for uid, p := range a.peers {
		name, err := nameOf(uid)
		if err != nil {
			name = "" // the id has no name
		}
		uids = append(uids, uid)
		who = append(who, gate.Identity{Method: gate.ByPeer, Subject: fmt.Sprint(uid, " ", name), Name: p.Name, Former: p.Name})
	}
	known, err := ids.Principals(ctx, who...)
	if err != nil {
		return err
	}
	for i, k := range known {
		p := a.peers[uids[i]]
		p.ID, p.Former = k.ID, k.Former
		a.peers[uids[i]] = p
	}
	return nil
}

// maxRemembered bounds the ids in memory. Beyond it all are read again.
const maxRemembered = 1 << 14

// identities remembers the ids of OpenID subjects.
type identities struct {
	from gate.Principals // nil: nobody gets an id
	mu   sync.RWMutex
	of   map[string]gate.Identity // by subject
}

// subject is the identity of an OpenID subject.
func (m *identities) subject(ctx context.Context, i gate.Identity) (gate.Identity, error) {
	if m.from == nil {
		return i, nil
	}
	m.mu.RLock()
	known, ok := m.of[i.Subject]
	m.mu.RUnlock()
	if ok {
		return known, nil
	}
	found, err := m.from.Principals(ctx, i)
	if err != nil {
		return i, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) >= maxRemembered {
		m.of = map[string]gate.Identity{}
	}
	m.of[i.Subject] = found[0]
	return found[0], nil
}
