package site

import "testing"

// A runs_dir may end with the user's name, and have that name in it twice.
func TestOwnFolder(t *testing.T) {
	for dir, want := range map[string]string{"/scratch/{user}/slurmgate": "/scratch/alice", "/scratch/{user}": "/scratch/alice",
		"/alice/runs/{user}/sg": "/alice/runs/alice"} {
		if got := (&Site{Storage: Storage{RunsDir: dir}}).OwnFolder("alice"); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}
