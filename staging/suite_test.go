package staging

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/run"
	"slurmgate/run/runtest"
)

// The workspaces on a shared filesystem, held to the suite of all workspaces. The fake of package run's tests is held to it too
// (run.TestFakeConformance).
func TestWorkspaceConformance(t *testing.T) {
	runtest.Workspace(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Files {
		s, dir := newShared(t)
		outside := filepath.Join(t.TempDir(), "secret")
		put(t, outside, "secret")
		other := os.Geteuid() + 1
		another := func(c Config) func(t *testing.T) run.Workspace {
			return func(t *testing.T) run.Workspace {
				s, err := NewShared(c)
				must(t, err)
				return s
			}
		}
		return &runtest.Files{Workspace: s, Again: another(Config{RunsDir: dir, GatewayID: "gw-1", Marked: true}),
			Foreign: another(Config{RunsDir: dir, GatewayID: "gw-1", JobUID: &other}),
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
				t.Cleanup(func() {
					if got := content(t, outside); got != "secret" {
						t.Errorf("a file outside was written: %q", got)
					}
				})
			},
			Read: func(t *testing.T, runID, path string) (string, bool) {
				name := filepath.Join(dir, runID, path)
				if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() {
					return "", false
				}
				return content(t, name), true
			},
			Claim: func(t *testing.T, runID string, n int, mine string) string {
				ctl := filepath.Join(dir, runID, AttemptName(n), "ctl")
				own := filepath.Join(ctl, ".claim."+randomName())
				put(t, own, mine)
				_ = os.Link(own, filepath.Join(ctl, run.ClaimFile)) // the content decides, whatever link says
				return content(t, filepath.Join(ctl, run.ClaimFile))
			}}
	})
}
