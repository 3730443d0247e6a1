package staging

import (
	"os"
	"path/filepath"
	"testing"

	"slurmgate/run"
	"slurmgate/run/runtest"
)

// Workspaces on a shared filesystem pass the conformance suite of all workspaces. The fake in the tests of package run
// passes it too (run.TestFakeConformance).
func TestWorkspaceConformance(t *testing.T) {
	runtest.Workspace(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Files {
		s, dir := newShared(t)
		other := os.Geteuid() + 1
		another := func(c Config) func(t *testing.T) run.Workspace {
			return func(t *testing.T) run.Workspace {
				s, err := NewShared(c)
				must(t, err)
				return s
			}
		}
		x := &runtest.Files{Workspace: s, Again: another(Config{RunsDir: dir, GatewayID: "gw-1", Marked: true}),
			Foreign: another(Config{RunsDir: dir, GatewayID: "gw-1", JobUID: &other})}
		return x.In(t, dir, filepath.Join(t.TempDir(), "secret"))
	})
}
