package access

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/nss"
)

// accounts is a user database with complete entries.
type accounts struct {
	directory
	records map[string]nss.User // by the requested name
}

func (d *accounts) User(_ context.Context, name string) (nss.User, error) {
	if err := d.answer(); err != nil {
		return nss.User{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := d.records[name]
	if !ok {
		return u, fault.New(fault.NotFound, "no_user", "this host has no user "+name)
	}
	return u, nil
}

// people returns a host with users of every kind.
func people() *accounts {
	d := &accounts{records: map[string]nss.User{}}
	d.users, d.in = map[int]string{}, map[string][]int{}
	d.groups = map[string]int{"users": 100, "sudo": 27, "docker": 999, "empty": 500}
	add := func(name string, uid, gid int, shell string, groups ...int) {
		d.records[name] = nss.User{Name: name, UID: uid, GID: gid, Home: "/home/" + name, Shell: shell}
		if d.users[uid] == "" { // the first line with a uid names it
			d.users[uid] = name
		}
		d.in[name] = append([]int{gid}, groups...)
	}
	add("root", 0, 0, "/bin/bash")
	add("toor", 0, 0, "/bin/bash")
	add("daemon", 1, 1, "/usr/sbin/nologin")
	add("svc", 1500, 1500, "/bin/bash")
	add("alice", 1001, 100, "/bin/bash")
	add("alice1", 1101, 100, "")
	add("alice@lab.example", 1201, 100, "/bin/zsh")
	add("twin", 1001, 100, "/bin/bash")
	add("sam", 1002, 100, "/bin/bash", 27)
	add("dora", 1003, 999, "/bin/bash") // docker is her primary group
	add("zero", 1004, 0, "/bin/bash")
	add("gone", 1005, 100, "/sbin/nologin")
	add("off", 1006, 100, "/bin/false")
	add("listed", 1007, 100, "/bin/bash")
	add("nobody", 65534, 65534, "/bin/sh")
	add("weird/name", 1008, 100, "/bin/bash")
	d.records["Alice"] = d.records["alice"] // another spelling, which the database treats as the same
	return d
}

var callerRules = UnixRules{MinUID: 1000, MaxUID: 59999, RefuseUsers: []string{"listed"},
	RefuseGroups: []string{"sudo", "docker", "nosuch"}}

func asToken(name string) gate.Principal {
	return gate.Principal{Name: "token:x", Method: gate.ByToken, UnixUser: name}
}

func asPeer(name string, uid int) gate.Principal {
	return gate.Principal{Name: "user:" + name, Method: gate.ByPeer, UnixUser: name, PeerUID: uid}
}

// Jobs run only as a person of this host: not as root under any name, system users, the gateway itself, users whom
// the site refuses by name or by group, users who share a user id or cannot log in, or deleted users.
//
// proves SITE-08
func TestUnixUsers(t *testing.T) {
	users := NewUnixUsers(people(), 1500, time.Now)
	for _, x := range []struct {
		who  gate.Principal
		want string // the user, or the code and a part of the message
		part string
	}{
		{asPeer("alice", 1001), "alice", ""},
		{asToken("alice"), "alice", ""},
		{asToken("Alice"), "alice", ""},
		{asToken("alice1"), "alice1", ""},
		{asToken("alice@lab.example"), "alice@lab.example", ""},
		{asToken(""), "no_unix_user", "token create --unix-user"},
		{gate.Principal{Name: "oidc:x#y", Method: gate.ByOIDC}, "no_unix_user", "access.oidc[].unix_user"},
		{gate.Principal{Name: "user:root", Method: gate.ByPeer, Owner: true}, "no_unix_user", "do not run as root"},
		{gate.Principal{Name: "user:#7", Method: gate.ByPeer, PeerUID: 7}, "no_unix_user", "no name"},
		{asPeer("alice", 1301), "unix_user_refused", "its user id is 1001, and the caller's is 1301"},
		{asToken("root"), "unix_user_refused", "root's"},
		{asToken("toor"), "unix_user_refused", "root's"},
		{asToken("daemon"), "unix_user_refused", "min_uid (1000)"},
		{asToken("nobody"), "unix_user_refused", "max_uid (59999)"},
		{asToken("svc"), "unix_user_refused", "gateway's own user"},
		{asToken("twin"), "unix_user_refused", "belongs to alice too"},
		{asToken("sam"), "unix_user_refused", "group sudo"},
		{asToken("dora"), "unix_user_refused", "group docker"},
		{asToken("zero"), "unix_user_refused", "root's group"},
		{asToken("gone"), "unix_user_refused", "/sbin/nologin"},
		{asToken("off"), "unix_user_refused", "/bin/false"},
		{asToken("listed"), "unix_user_refused", "refuse_users"},
		{asToken("carol"), "unix_user_refused", "no such user"},
		{asToken("1001"), "unix_user_refused", "begin with a letter"},
		{asToken("-alice"), "unix_user_refused", "begin with a letter"},
		{asToken("weird/name"), "unix_user_refused", "letters, digits and"},
		{asToken("alice:bob"), "unix_user_refused", "colon"},
		{asToken("alice\nbob"), "unix_user_refused", "control"},
		{asToken("alice bob"), "unix_user_refused", "letters, digits and"},
		{asToken(`LAB\alice`), "unix_user_refused", "letters, digits and"},
	} {
		got, err := users.Of(t.Context(), x.who, callerRules)
		if err != nil {
			got = fault.CodeOf(err)
			e, _ := errors.AsType[*fault.Error](err)
			if e == nil || e.Kind != fault.Policy || !strings.Contains(e.Msg+e.Next, x.part) {
				t.Errorf("Of(%s) with Unix user %q: %v, want %q in the message", x.who.Name, x.who.UnixUser, err, x.part)
			}
		}
		if got != x.want {
			t.Errorf("Of(%s) with Unix user %q = %s (%v), want %s", x.who.Name, x.who.UnixUser, got, err, x.want)
		}
	}
}

// While users cannot be looked up calls are refused with a retryable error; a change takes effect after a minute.
//
// proves SITE-08
func TestUnixUsersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := people()
		users := NewUnixUsers(from, 1500, time.Now)
		of := func() string {
			got, err := users.Of(t.Context(), asToken("alice"), callerRules)
			if err != nil {
				return fault.CodeOf(err)
			}
			return got
		}
		steps := []struct {
			change func()
			wait   time.Duration
			want   string
		}{
			{func() { from.err = errors.New("away") }, 0, "users_unknown"},
			{func() { from.err = nil }, memberRetry, "alice"},
			{func() { from.err = errors.New("away") }, memberFresh / 2, "alice"},
			{func() {}, memberFresh / 2, "users_unknown"}, // an old answer gives no right
			{func() { from.err = nil }, memberRetry, "alice"},
			{func() { from.in["alice"] = []int{100, 27} }, memberFresh, "unix_user_refused"},
			{func() { from.in["alice"] = []int{100} }, memberFresh, "alice"},
			{func() { from.groups["nosuch"] = 100 }, memberFresh, "unix_user_refused"},
			{func() { delete(from.groups, "nosuch") }, memberFresh, "alice"},
			{func() { delete(from.records, "alice") }, memberFresh, "unix_user_refused"},
		}
		for i, s := range steps {
			from.set(s.change)
			time.Sleep(s.wait)
			if got := of(); got != s.want {
				t.Errorf("step %d: %s, want %s", i, got, s.want)
			}
		}
		from.set(func() { from.hang = make(chan struct{}) })
		time.Sleep(memberFresh)
		_, err := users.Of(t.Context(), asToken("alice1"), callerRules)
		if fault.CodeOf(err) != "users_unknown" || !fault.KindOf(err).Retryable() || fault.RetryOf(err) == 0 {
			t.Errorf("a directory that hangs: %v", err)
		}
		close(from.hang)
		synctest.Wait()
	})
}

// Concurrent calls share one look-up of a user.
func TestUnixUsersShareLookUps(t *testing.T) {
	from := people()
	users := NewUnixUsers(from, 1500, time.Now)
	done := make(chan string)
	for range 20 {
		go func() {
			got, _ := users.Of(t.Context(), asToken("alice"), callerRules)
			done <- got
		}()
	}
	for range 20 {
		if got := <-done; got != "alice" {
			t.Error(got)
		}
	}
	if n := from.asked.Load(); n != 1 {
		t.Errorf("%d look-ups", n)
	}
}

// A claim is mapped only through the table.
//
// proves SITE-08
func TestClaimUsers(t *testing.T) {
	table := ClaimUsers{Claim: "preferred_username", Users: map[string]string{"a.smith": "alice", "": "bob"}}
	mail := ClaimUsers{Claim: "email", Users: map[string]string{"a@lab.example": "alice"}}
	for _, x := range []struct {
		table ClaimUsers
		all   map[string]any
		want  string
	}{
		{table, map[string]any{"preferred_username": "a.smith"}, "alice"},
		{table, map[string]any{"preferred_username": "A.Smith"}, ""},
		{table, map[string]any{"preferred_username": "alice"}, ""},
		{table, map[string]any{"preferred_username": ""}, ""},
		{table, map[string]any{"preferred_username": []any{"a.smith"}}, ""},
		{table, map[string]any{"preferred_username": 7.0}, ""},
		{table, map[string]any{"sub": "a.smith"}, ""},
		{mail, map[string]any{"email": "a@lab.example"}, ""},
		{mail, map[string]any{"email": "a@lab.example", "email_verified": "true"}, ""},
		{mail, map[string]any{"email": "a@lab.example", "email_verified": true}, "alice"},
		{ClaimUsers{}, map[string]any{"": "x"}, ""},
	} {
		if got := x.table.of(claims{all: x.all}); got != x.want {
			t.Errorf("%v: %q, want %q", x.all, got, x.want)
		}
	}
}

func FuzzCheckUnixUser(f *testing.F) {
	for _, s := range []string{"alice", "alice@lab.example", "alice1", "1001", "-x", "a/b", "a:b", "a b", "a\x00", "é", "", "..", "{user}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckUnixUser(s) != "" {
			return
		}
		if s == "" || len(s) > 256 || strings.Trim(s, "0123456789") == "" || strings.HasPrefix(s, "-") || strings.HasPrefix(s, ".") ||
			strings.ContainsAny(s, "/:,|\\ %\"'$`{}*?\n\t\x00") || shown(s) != s {
			t.Errorf("%q is accepted", s)
		}
	})
}
