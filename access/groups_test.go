package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/nss"
)

// directory is a user database that can hang and fail.
type directory struct {
	mu     sync.Mutex
	users  map[int]string
	groups map[string]int
	in     map[string][]int
	err    error
	hang   chan struct{} // look-ups wait until it is closed; nil: they do not wait
	asked  atomic.Int64  // requests for the groups of a user
	busy   atomic.Int64
	most   atomic.Int64
}

func (d *directory) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *directory) answer() error {
	d.mu.Lock()
	hang, err := d.hang, d.err
	d.mu.Unlock()
	if hang != nil {
		<-hang // ignores the context: a process may hang in the kernel
	}
	return err
}

func (d *directory) NameOf(_ context.Context, uid int) (string, error) {
	if err := d.answer(); err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users[uid] == "" {
		return "", fault.New(fault.NotFound, "no_user", "there is none")
	}
	return d.users[uid], nil
}

func (d *directory) User(_ context.Context, name string) (nss.User, error) {
	if err := d.answer(); err != nil {
		return nss.User{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, n := range d.users {
		if n == name {
			return nss.User{Name: name, UID: uid}, nil
		}
	}
	return nss.User{}, fault.New(fault.NotFound, "no_user", "there is none")
}

func (d *directory) GroupsOf(_ context.Context, user string) ([]int, error) {
	d.asked.Add(1)
	d.most.Store(max(d.most.Load(), d.busy.Add(1)))
	defer d.busy.Add(-1)
	if err := d.answer(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.in[user]), nil
}

func (d *directory) GroupID(_ context.Context, group string) (int, error) {
	if err := d.answer(); err != nil {
		return -1, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	gid, ok := d.groups[group]
	if !ok {
		return -1, fault.New(fault.NotFound, "no_group", "there is none")
	}
	return gid, nil
}

// campus has alice and carol in lab, alice in gpu, an entry for carol, and bob in neither group.
func campus(t *testing.T) (*Access, *directory) {
	t.Helper()
	d := &directory{users: map[int]string{1001: "alice", 1002: "bob", 1003: "carol"}, groups: map[string]int{"lab": 500, "gpu": 600},
		in: map[string][]int{"alice": {100, 500, 600}, "bob": {100}, "carol": {500}}}
	a := New(Config{Directory: d, NameOf: func(uid int) (string, error) { return d.users[uid], nil },
		Peers: map[int][]Grant{1003: {grantOf([]string{gate.CapGateway, gate.CapImport}, []string{"proj_own"},
			map[string]string{"proj_lab": "hers"})}},
		Groups: []GroupGrant{
			{"lab", 500, grantOf([]string{gate.CapGateway, gate.CapRead}, []string{"proj_lab"}, map[string]string{"proj_lab": "labs"})},
			{"gpu", 600, grantOf([]string{gate.CapSlurm}, []string{"proj_gpu"}, nil)},
			{"lab", 500, grantOf([]string{gate.CapMetrics}, []string{gate.All}, nil)}}})
	must(t, a.Enroll(t.Context(), &register{ids: map[string]string{}}))
	return a, d
}

// A member of several groups has the pairs of each grant and no others; the principal is the user, not the group.
func TestGroupGrantsDoNotMultiply(t *testing.T) {
	a, _ := campus(t)
	for uid, want := range map[int]map[string][]string{
		1001: {"proj_lab": {gate.CapGateway, gate.CapRead, gate.CapMetrics}, "proj_gpu": {gate.CapSlurm, gate.CapMetrics},
			"proj_own": {gate.CapMetrics}, gate.All: {gate.CapMetrics}},
		1003: {"proj_lab": {gate.CapGateway, gate.CapRead, gate.CapMetrics}, "proj_gpu": {gate.CapMetrics},
			"proj_own": {gate.CapGateway, gate.CapImport, gate.CapMetrics}, gate.All: {gate.CapMetrics}}} {
		p, err := a.Peer(uid)
		if err != nil || p.ID == "" || p.Method != gate.ByPeer || p.Owner {
			t.Fatal(p, err)
		}
		for project, capabilities := range want {
			for _, c := range gate.Capabilities() {
				if p.Rights.Can(c, project) != slices.Contains(capabilities, c) {
					t.Errorf("%s: %s on %s: %t", p.Name, c, project, p.Rights.Can(c, project))
				}
			}
		}
	}
	alice, _ := a.Peer(1001)
	carol, _ := a.Peer(1003)
	if alice.Name != "user:alice" || alice.Account("proj_lab") != "labs" || carol.Name != "user:carol" || carol.Account("proj_lab") != "hers" {
		t.Error(alice, carol)
	}
	for _, uid := range []int{1002, 4444} { // in no group with a grant, and without a name
		if !a.Knows(uid) {
			t.Error("turned away before its groups are known:", uid)
		}
		_, err := a.Peer(uid)
		wantUnauthenticated(t, fmt.Sprint(uid), err, "unauthenticated")
		wantUnauthenticated(t, fmt.Sprint(uid), a.Admit(t.Context(), uid), "unauthenticated")
		if a.Knows(uid) {
			t.Error("let in again:", uid)
		}
	}
}

// A group that a user gets or loses takes effect within a minute, and one look-up serves all calls until then.
func TestGroupsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := campus(t)
		alice, err := a.Peer(1001)
		must(t, err)
		for range 100 {
			if p, err := a.Peer(1001); err != nil || p.ID != alice.ID {
				t.Fatal(p, err)
			}
		}
		_, err = a.Peer(1002)
		wantUnauthenticated(t, "bob", err, "unauthenticated")
		if n := d.asked.Load(); n != 2 {
			t.Error("look-ups:", n)
		}
		d.set(func() { d.in = map[string][]int{"bob": {500}} })
		time.Sleep(memberFresh)
		_, err = a.Peer(1001)
		wantUnauthenticated(t, "alice, who left", err, "unauthenticated")
		if !a.Knows(1002) {
			t.Error("bob is still turned away")
		}
		bob, err := a.Peer(1002)
		if err != nil || bob.Name != "user:bob" || bob.ID == alice.ID || !bob.Can(gate.CapRead, "proj_lab") {
			t.Error(bob, err)
		}
		// The user id is given to another user, who is another principal.
		d.set(func() { d.users[1002] = "dora"; d.in["dora"] = []int{500} })
		time.Sleep(memberFresh)
		if dora, err := a.Peer(1002); err != nil || dora.Name != "user:dora" || dora.ID == bob.ID {
			t.Error(dora, err)
		}
		// The group is deleted, and its id is given to another group.
		d.set(func() { delete(d.groups, "lab") })
		time.Sleep(groupFresh)
		_, err = a.Peer(1002)
		wantUnauthenticated(t, "a member of another group", err, "unauthenticated")
		d.set(func() { d.groups["lab"] = 500 })
		time.Sleep(memberFresh)
		if _, err := a.Peer(1002); err != nil {
			t.Error(err)
		}
	})
}

// While the directory fails users get no rights through groups, and all errors are retryable.
func TestDirectoryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := campus(t)
		if _, err := a.Peer(1001); err != nil {
			t.Fatal(err)
		}
		d.set(func() { d.err = errors.New("the server is down") })
		time.Sleep(memberFresh)
		for _, uid := range []int{1001, 1002, 1003} {
			p, err := a.Peer(uid)
			if !fault.Is(err, fault.Transport) || fault.CodeOf(err) != "groups_unknown" || fault.RetryOf(err) == 0 || len(p.Rights) != 0 {
				t.Errorf("%d: %+v %v", uid, p, err)
			}
			if !a.Knows(uid) {
				t.Error("turned away for ever:", uid)
			}
		}
		if p, err := a.Peer(0); err != nil || !p.Owner {
			t.Error("root:", p, err)
		}
		n := d.asked.Load()
		d.set(func() { d.err = nil })
		if _, err := a.Peer(1001); !fault.Is(err, fault.Transport) || d.asked.Load() != n {
			t.Error("a failure is looked up again at once:", err)
		}
		time.Sleep(memberRetry)
		if _, err := a.Peer(1001); err != nil {
			t.Error(err)
		}
	})
}

// A directory that hangs delays only the callers who need it, and them by a few seconds; it needs few processes.
func TestDirectoryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := campus(t)
		hang := make(chan struct{})
		d.set(func() {
			d.hang = hang
			for n := range 100 {
				d.users[2000+n] = fmt.Sprint("u", n)
			}
		})
		begin := time.Now()
		var waiting sync.WaitGroup
		for n := range 1000 {
			waiting.Go(func() {
				if err := a.Admit(t.Context(), 2000+n%100); !fault.Is(err, fault.Transport) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for uid := range 3000 { // as the listener does
			a.Knows(uid)
		}
		if p, err := a.Peer(0); err != nil || !p.Owner || time.Since(begin) != 0 {
			t.Error("root waits:", err, time.Since(begin))
		}
		waiting.Wait()
		if d := time.Since(begin); d != memberWait {
			t.Error("callers waited", d)
		}
		// A caller that leaves does not wait.
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begin = time.Now()
		if err := a.Admit(ctx, 2000); !fault.Is(err, fault.Transport) || time.Since(begin) != 0 {
			t.Error(err, time.Since(begin))
		}
		close(hang)
		synctest.Wait()
		if asked, most := d.asked.Load(), d.most.Load(); asked != 100 || most > maxLookups {
			t.Errorf("%d look-ups, %d at a time", asked, most)
		}
	})
}

// A request in progress ends when its caller has lost a right with a group; it continues while the directory fails.
func TestRequestsEndWithGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := campus(t)
		hold := func(uid int) context.Context {
			p, err := a.Peer(uid)
			must(t, err)
			ctx, stop := a.While(t.Context(), p)
			t.Cleanup(stop)
			return ctx
		}
		alice, carol, root := hold(1001), hold(1003), hold(0)
		d.set(func() { d.err = errors.New("the server is down") })
		time.Sleep(10 * time.Minute)
		if alice.Err() != nil {
			t.Fatal("ended by a failure:", context.Cause(alice))
		}
		d.set(func() { d.err, d.in["alice"], d.in["carol"] = nil, []int{100, 500}, []int{100, 500, 600} })
		left := time.Now()
		<-alice.Done()
		wantUnauthenticated(t, "alice", context.Cause(alice), "groups_changed")
		if took := time.Since(left); took > 2*memberFresh {
			t.Error("it ended after", took)
		}
		time.Sleep(time.Hour)
		if carol.Err() != nil || root.Err() != nil {
			t.Error("who lost nothing is cut off:", context.Cause(carol), context.Cause(root))
		}
	})
}

// The cache is bounded for any number of users.
func TestMembersAreBounded(t *testing.T) {
	a, d := campus(t)
	for uid := range maxMembers + 500 {
		_, _ = a.Peer(10000 + uid)
	}
	if n := len(a.members.users.known); n > maxMembers || len(a.members.uids) > 3 {
		t.Error(n, len(a.members.uids), d.asked.Load())
	}
}
