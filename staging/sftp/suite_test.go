package sftp

import (
	"testing"

	"slurmgate/run/runtest"
)

// Remote workspaces pass the conformance suite of all workspaces: here with scripts in this host's bash and OpenSSH's
// SFTP server without a connection. cluster_test.go does the same over a real sshd.
func TestWorkspaceConformance(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"shell":      nil,
		"SFTP alone": func(c *Config) { c.Shell, c.SyncsFolders = nil, true },
	} {
		t.Run(name, func(t *testing.T) {
			runtest.Workspace(t, func(t *testing.T, f func(*testing.T)) { t.Parallel(); f(t) }, func(t *testing.T) *runtest.Files {
				files := newFar(t, change).suite(t)
				files.HidesLinks = change != nil
				return files
			})
		})
	}
}
