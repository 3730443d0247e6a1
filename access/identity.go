package access

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/nss"
)

// The identity of a user of this host is a user id together with its name, of a token its id, and of an OpenID
// subject issuer and subject. The ledger gives each of these one opaque id, which is read once and then stored in
// memory.

// Enroll gives the users of this host their ids. It is called once, before the first call.
func (a *Access) Enroll(ctx context.Context, ids gate.Principals) error {
	a.ids.from = ids
	if a.unnamed != nil {
		return a.unnamed
	}
	var who []gate.Identity
	var uids []int
	for uid := range a.peers {
		uids = append(uids, uid)
		who = append(who, identityOf(uid, a.names[uid].name))
	}
	known, err := ids.Principals(ctx, who...)
	if err != nil {
		return err
	}
	for i, k := range known {
		p := a.peers[uids[i]]
		p.ID = k.ID
		a.peers[uids[i]] = p
	}
	return nil
}

// PeerIdentity returns the identity of a user of this host.
func PeerIdentity(ctx context.Context, uid int) (gate.Identity, error) {
	return peerIdentity(uid, func(uid int) (string, error) { return nss.Host{}.NameOf(ctx, uid) })
}

func peerIdentity(uid int, nameOf func(int) (string, error)) (gate.Identity, error) {
	name, err := nameOf(uid)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return gate.Identity{}, err
	}
	return identityOf(uid, name), nil
}

// identityOf returns the identity of the user with an id and a name, "" for a user without a name.
func identityOf(uid int, name string) gate.Identity {
	called := cmp.Or(name, "#"+strconv.Itoa(uid))
	return gate.Identity{Method: gate.ByPeer, Subject: fmt.Sprint(uid, " ", name), Name: "user:" + shown(called)}
}

// maxRemembered bounds the ids in memory. Beyond it all are read again.
const maxRemembered = 1 << 14

// identities caches the ids of OpenID subjects.
type identities struct {
	from gate.Principals // nil: subjects get no ids
	mu   sync.RWMutex
	of   map[string]gate.Identity // by subject
}

// subject returns the identity of an OpenID subject with its id.
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

// nameCheck is how long the name of a user id is trusted without a new look-up.
const nameCheck = time.Minute

// login holds the name that a user id had when the gateway started. While the gateway runs, the user may be deleted
// and the id given to another.
type login struct {
	name    string
	mu      sync.Mutex
	checked time.Time
	other   bool
}

// same reports whether the user id still has the name. A user id without a name now, or a failed look-up, counts as
// the same.
func (l *login) same(now time.Time, lookup func() (string, error)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.checked) >= nameCheck {
		if name, err := lookup(); err == nil {
			l.other = name != l.name
		}
		l.checked = now
	}
	return !l.other
}

// shown escapes a name so that no two names look alike: everything but printable ASCII, and the backslash, as \u{…}.
func shown(name string) string {
	var out strings.Builder
	for _, r := range name {
		if r > ' ' && r <= unicode.MaxASCII && r != 0x7f && r != '\\' {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\u{%x}`, r)
		}
	}
	return out.String()
}
