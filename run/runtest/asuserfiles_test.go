//go:build !cluster

package runtest_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/asuser"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/staging"
)

// The workspaces of two users behind one router, held to the suite of all workspaces, for a run of each.
//
// proves SITE-08
func TestAsUserWorkspaces(t *testing.T) {
	for _, owner := range []string{"alice", "bob"} {
		t.Run(owner, func(t *testing.T) {
			runtest.Workspace(t, func(t *testing.T, f func(*testing.T)) { f(t) },
				func(t *testing.T) *runtest.Files { return filesOf(t, owner) })
		})
	}
}

// folders are the folders of two users as one process of the gateway has them.
type userFolders struct {
	root   string
	jobUID *int
}

func (f userFolders) runs(user string) string { return filepath.Join(f.root, user, "runs") }

func (f userFolders) users(t *testing.T, owner string) *asuser.Users {
	u := asuser.New(asuser.Config{Limit: 1, Idle: time.Minute,
		UserOf: func(context.Context, string) (string, error) { return owner, nil },
		Login:  func(user string, _ func() string) (asuser.Login, error) { return userFolder{f, user}, nil },
		RunDir: func(user, runID string) string { return filepath.Join(f.runs(user), runID) }})
	t.Cleanup(u.Close)
	return u
}

type userFolder struct {
	userFolders
	user string
}

func (f userFolder) Open(context.Context) (asuser.Parts, error) {
	w, err := staging.NewShared(staging.Config{RunsDir: f.runs(f.user), GatewayID: "gw-1", JobUID: f.jobUID})
	return asuser.Parts{Workspace: w}, err
}
func (userFolder) Drop(string) {}
func (userFolder) Up() bool    { return true }
func (userFolder) Close()      {}

func filesOf(t *testing.T, owner string) *runtest.Files {
	f := userFolders{root: t.TempDir()}
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	for _, user := range []string{"alice", "bob"} {
		must(t, os.MkdirAll(f.runs(user), 0o700))
	}
	dir, other := f.runs(owner), map[string]string{"alice": "bob", "bob": "alice"}[owner]
	t.Cleanup(func() {
		if names, err := os.ReadDir(f.runs(other)); err != nil || len(names) > 0 {
			t.Errorf("%s, whose run it is not, has %v %v", other, names, err)
		}
	})
	foreign := os.Geteuid() + 1
	return &runtest.Files{Workspace: f.users(t, owner),
		Again: func(t *testing.T) run.Workspace { return userFolders{root: f.root}.users(t, owner) },
		Foreign: func(t *testing.T) run.Workspace {
			return userFolders{root: f.root, jobUID: &foreign}.users(t, owner)
		},
		Leave: func(t *testing.T, runID, path string, e runtest.Entry) {
			name := filepath.Join(dir, runID, path)
			must(t, os.MkdirAll(filepath.Dir(name), 0o700))
			must(t, os.RemoveAll(name))
			must(t, map[runtest.Entries]func() error{
				runtest.File:     func() error { return os.WriteFile(name, []byte(e.Data), 0o600) },
				runtest.Symlink:  func() error { return os.Symlink(outside, name) },
				runtest.Hardlink: func() error { return os.Link(outside, name) },
				runtest.Pipe:     func() error { return unix.Mkfifo(name, 0o600) },
				runtest.Folder:   func() error { return os.Mkdir(name, 0o700) },
			}[e.Kind]())
		},
		Read: func(t *testing.T, runID, path string) (string, bool) {
			name := filepath.Join(dir, runID, path)
			st, err := os.Lstat(name)
			if err != nil || !st.Mode().IsRegular() {
				return "", false
			}
			return content(t, name), true
		},
		Claim: func(t *testing.T, runID string, n int, mine string) string {
			ctl := filepath.Join(dir, runID, staging.AttemptName(n), "ctl")
			own := filepath.Join(ctl, ".claim."+rand.Text())
			must(t, os.WriteFile(own, []byte(mine), 0o600))
			_ = os.Link(own, filepath.Join(ctl, run.ClaimFile)) // the content decides, whatever link says
			return content(t, filepath.Join(ctl, run.ClaimFile))
		}}
}

func content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	return string(data)
}
