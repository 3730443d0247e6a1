package access

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Users of this host may get rights through Unix groups. Membership is looked up when a user calls, never while a
// connection is accepted, and the answer is cached: a directory service that hangs delays only callers whose rights
// depend on it, and those are refused with a retryable error.
const (
	memberFresh = time.Minute      // after an answer, whether it found a group or not
	memberRetry = 5 * time.Second  // after a look-up that failed
	groupFresh  = 10 * time.Minute // the id of a group; one that does not exist is looked up again after memberFresh
	memberWait  = 5 * time.Second  // the wait of a caller for a look-up; then it is refused
	maxMembers  = 4096             // users in the cache
	maxLookups  = 8                // at a time
)

// Directory is the user database of this host. A user or group that does not exist is a NotFound fault; after any other error the answer
// is unknown.
type Directory interface {
	NameOf(ctx context.Context, uid int) (string, error)
	GroupsOf(ctx context.Context, user string) ([]int, error) // ids, the primary group among them
	GroupID(ctx context.Context, group string) (int, error)
}

// GroupGrant grants rights to every member of a Unix group.
type GroupGrant struct {
	Group string
	GID   int // when the site file was read
	Grant
}

// members determines the rights that users of this host have as members of groups.
type members struct {
	from   Directory
	now    func() time.Time
	grants []GroupGrant
	users  *answers[gate.Principal] // NotFound: without an entry, and in no group that has one

	mu     sync.Mutex // never held during a look-up
	groups map[string]groupID
	uids   map[string]int // of users that have had rights, by key of the principal
}

type groupID struct {
	gid     int // -1: the group does not exist
	checked time.Time
}

func newMembers(from Directory, now func() time.Time, grants []GroupGrant) *members {
	m := &members{from: from, now: now, grants: grants, users: newAnswers[gate.Principal](now, memberFresh),
		groups: map[string]groupID{}, uids: map[string]int{}}
	for _, g := range grants {
		m.groups[g.Group] = groupID{g.GID, now()}
	}
	return m
}

// excludes reports whether it is known that no group gives the user rights. It does not wait.
func (m *members) excludes(uid int) bool {
	if len(m.grants) == 0 {
		return true
	}
	known, err := m.users.cached(strconv.Itoa(uid))
	return known && fault.Is(err, fault.NotFound)
}

// finder returns the principal of a user with this name from the grants of its groups; NotFound if it has no grant.
type finder func(ctx context.Context, name string, groups []Grant) (gate.Principal, error)

// principal returns the user with the rights of its own entries and of its groups.
func (m *members) principal(ctx context.Context, uid int, find finder) (gate.Principal, error) {
	who, err := m.users.get(ctx, strconv.Itoa(uid), func(ctx context.Context) (who gate.Principal, err error) {
		name, grants, err := m.grantsOf(ctx, uid)
		if err == nil {
			who, err = find(ctx, name, grants)
		}
		if key := who.Key(); key != "" {
			m.mu.Lock()
			m.uids[key] = uid
			m.mu.Unlock()
		}
		return who, err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		err = unknownGroups(uid, err)
	}
	return who, err
}

// grantsOf returns the name of a user and the grants of all its groups. A user without a name is in no group.
func (m *members) grantsOf(ctx context.Context, uid int) (name string, out []Grant, err error) {
	name, err = m.from.NameOf(ctx, uid)
	var ids []int
	if err == nil {
		ids, err = m.from.GroupsOf(ctx, name)
	}
	if fault.Is(err, fault.NotFound) {
		return name, nil, nil
	}
	if err != nil {
		return name, nil, err
	}
	for _, g := range m.grants {
		if slices.Contains(ids, m.groupID(ctx, g.Group)) {
			out = append(out, g.Grant)
		}
	}
	return name, out, nil
}

// groupID returns the id of a group, -1 if it does not exist. While its directory does not answer, the last known id
// is returned.
func (m *members) groupID(ctx context.Context, group string) int {
	m.mu.Lock()
	g := m.groups[group]
	m.mu.Unlock()
	fresh := groupFresh
	if g.gid < 0 {
		fresh = memberFresh
	}
	if m.now().Sub(g.checked) < fresh {
		return g.gid
	}
	gid, err := m.from.GroupID(ctx, group)
	switch {
	case err == nil:
		g.gid = gid
	case fault.Is(err, fault.NotFound):
		g.gid = -1
	}
	g.checked = m.now()
	m.mu.Lock()
	m.groups[group] = g
	m.mu.Unlock()
	return g.gid
}

// uidOf returns the user whose principal has the key, if its rights depend on groups.
func (m *members) uidOf(key string) (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid, ok := m.uids[key]
	return uid, ok
}

func unknownGroups(uid int, err error) error {
	return fault.Wrap(fault.Transport, "groups_unknown", fmt.Sprintf("the groups of user id %d cannot be looked up now", uid),
		err).
		WithNext("try again in a few seconds").WithRetry(cmp.Or(fault.RetryOf(err), int(memberRetry/time.Second)))
}

// peerOf returns a finder that combines the grants of a user's own entries with, after them, those of its groups.
func (a *Access) peerOf(uid int) finder {
	return func(ctx context.Context, name string, groups []Grant) (gate.Principal, error) {
		own, listed := a.grants[uid]
		grants := slices.Concat(own, groups)
		if len(grants) == 0 {
			return gate.Principal{}, fault.New(fault.NotFound, "no_grant", "neither the user nor one of its groups has a grant")
		}
		who := identityOf(uid, name)
		if listed { // the identity is that of the start
			p := a.peers[uid]
			who.ID, who.Name = p.ID, p.Name
		} else {
			var err error
			if who, err = a.ids.subject(ctx, who); err != nil {
				return gate.Principal{}, err
			}
		}
		p := peerWith(uid, name, who.Name, grants...)
		p.ID = who.ID
		return p, nil
	}
}

// whileMember returns a context for a request of a user whose rights depend on groups. It ends once the user has lost
// one of them; while the directory does not answer the request continues.
func (a *Access) whileMember(ctx context.Context, uid int, p gate.Principal) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	ticks := make(chan *time.Timer, 1)
	timer := time.AfterFunc(memberFresh, func() {
		t := <-ticks
		now, err := a.peer(ctx, uid)
		if fault.Is(err, fault.Auth) || err == nil && !covers(now.Rights, p.Rights) {
			end(fault.New(fault.Auth, "groups_changed", p.Name+" has lost rights that one of its groups gave it").
				WithNext("repeat the request; if it is refused, ask the gateway's administrator about access.peers of the site file"))
		}
		ticks <- t
		if ctx.Err() == nil {
			t.Reset(memberFresh)
		}
	})
	ticks <- timer
	return ctx, func() {
		end(nil)
		timer.Stop()
	}
}

// covers reports whether rights include every pair of a capability and a project in others.
func covers(rights, others gate.Rights) bool {
	for _, g := range others {
		for _, project := range g.Projects {
			if slices.ContainsFunc(g.Capabilities, func(c string) bool { return !rights.Can(c, project) }) {
				return false
			}
		}
	}
	return true
}
