package sftp

import (
	"testing"

	"slurmgate/run/runtest"
)

// Workspaces far away, held to the suite of all workspaces: here with scripts in this host's bash and OpenSSH's SFTP server without a
// connection between. cluster_test.go does the same over a real sshd.
func TestWorkspaceConformance(t *testing.T) {
	runtest.Workspace(t, func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) }, func(t *testing.T) *runtest.Files {
		return newFar(t, nil).suite(t)
	})
}
