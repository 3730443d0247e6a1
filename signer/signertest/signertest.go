// Package signertest is a signer for tests: the real one, in the process of the test, with users of the test's choice.
package signertest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/signer"
)

// Signer is a signer that answers this process.
type Signer struct {
	signer.Client
	CA    string // line for TrustedUserCAKeys
	Log   string // file with a line for each certificate
	Users *Users

	t   *testing.T
	key string // file
}

// Start starts a signer for some users. more is added to its configuration, such as "minutes: 1\n".
func Start(t *testing.T, more string, users ...nss.User) *Signer {
	t.Helper()
	dir := t.TempDir()
	s := &Signer{Client: signer.Client{Socket: filepath.Join(dir, "s")}, Log: filepath.Join(dir, "log"), Users: NewUsers(users...), t: t}
	s.key = filepath.Join(dir, "ca")
	must(t, os.WriteFile(s.key, NewKey(t), 0o600))
	s.CA = s.Serve(s.Config(more), os.Getuid())
	return s
}

// Config is a configuration with more lines; those about the key, the socket and the log take the place of the test's own.
func (s *Signer) Config(more string) signer.Config {
	s.t.Helper()
	text := "gateway_users: [gateway]\nsource_addresses: [127.0.0.1, '::1']\n" + more
	for name, value := range map[string]string{"ca": "{key: " + s.key + "}", "socket": s.Socket, "log": s.Log} {
		if !strings.Contains("\n"+text, "\n"+name+": ") {
			text += name + ": " + value + "\n"
		}
	}
	config, err := signer.Parse("signer.yaml", []byte(text))
	must(s.t, err)
	return config
}

// Serve starts another server, which answers the users with these ids, and returns its CA's line.
func (s *Signer) Serve(config signer.Config, uids ...int) (ca string) {
	s.t.Helper()
	server, err := signer.New(s.t.Context(), config, s.Users, uids, slog.New(slog.DiscardHandler))
	must(s.t, err)
	l, err := config.Listen(s.t.Context(), s.Users)
	must(s.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	s.t.Cleanup(func() {
		stop()
		must(s.t, <-ended)
	})
	return server.PublicKey()
}

// NewKey makes a private key, in the form of its file.
func NewKey(t *testing.T) []byte {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(t, err)
	return pem.EncodeToMemory(block)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Users is a directory of users and groups that a test changes at any time.
type Users struct {
	mu     sync.Mutex
	users  []nss.User
	groups map[string]int   // name → id
	member map[string][]int // user → ids of groups
	away   error
}

// NewUsers makes a directory.
func NewUsers(users ...nss.User) *Users {
	return &Users{users: users, groups: map[string]int{}, member: map[string][]int{}}
}

// Join makes users members of a group.
func (d *Users) Join(group string, gid int, users ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.groups[group] = gid
	for _, u := range users {
		d.member[u] = append(d.member[u], gid)
	}
}

// Remove removes a user.
func (d *Users) Remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, u := range d.users {
		if u.Name == name {
			d.users = append(d.users[:i:i], d.users[i+1:]...)
			return
		}
	}
}

// Fail makes every look-up fail; nil ends that.
func (d *Users) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = err
}

func (d *Users) find(what string, is func(nss.User) bool) (nss.User, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away != nil {
		return nss.User{}, d.away
	}
	for _, u := range d.users {
		if is(u) {
			return u, nil
		}
	}
	return nss.User{}, fault.New(fault.NotFound, "no_user", "there is no user "+what)
}

// User implements signer.Directory.
func (d *Users) User(_ context.Context, name string) (nss.User, error) {
	return d.find(name, func(u nss.User) bool { return u.Name == name })
}

// UserOf implements signer.Directory.
func (d *Users) UserOf(_ context.Context, uid int) (nss.User, error) {
	return d.find(strconv.Itoa(uid), func(u nss.User) bool { return u.UID == uid })
}

// Users implements signer.Directory.
func (d *Users) Users(ctx context.Context, names ...string) (map[string]nss.User, error) {
	found := map[string]nss.User{}
	for _, name := range names {
		u, err := d.User(ctx, name)
		switch {
		case err == nil:
			found[name] = u
		case !fault.Is(err, fault.NotFound):
			return nil, err
		}
	}
	return found, nil
}

// GroupID implements signer.Directory.
func (d *Users) GroupID(_ context.Context, name string) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gid, ok := d.groups[name]
	switch {
	case d.away != nil:
		return -1, d.away
	case !ok:
		return -1, fault.New(fault.NotFound, "no_group", "there is no group "+name)
	}
	return gid, nil
}

// GroupsOf implements signer.Directory.
func (d *Users) GroupsOf(ctx context.Context, name string) ([]int, error) {
	u, err := d.User(ctx, name)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]int{u.GID}, d.member[name]...), nil
}
