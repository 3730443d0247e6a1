package sftp

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/run"
	"slurmgate/staging"
)

// A run that filled its disk to the last byte is removed, although there is no room for the file that replaces it.
func TestRemovalFromAFullDisk(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"shell":      nil,
		"SFTP alone": func(c *Config) { c.Shell, c.SyncsFolders = nil, true },
	} {
		t.Run(name, func(t *testing.T) {
			far := newFar(t, change)
			if err := unix.Mount("tmpfs", far.dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", 1<<20)); err != nil {
				t.Fatalf("a small filesystem cannot be mounted, which needs root: %v", err)
			}
			t.Cleanup(func() { must(t, unix.Unmount(far.dir, unix.MNT_DETACH)) })
			w := far.open(t, nil)
			attempts := map[int]string{1: tokenA, 2: tokenB} // no job claimed the first
			for n, token := range attempts {
				must(t, w.OpenAttempt(t.Context(), runA, n, token))
			}
			must(t, os.WriteFile(far.path(runA, "a2/ctl", run.ClaimFile), []byte("a job's"), 0o600))
			must(t, os.MkdirAll(far.path(runA, "a2/out"), 0o700))
			must(t, os.WriteFile(far.path(runA, "a2/out/half"), bytes.Repeat([]byte("x"), 1<<19), 0o600))
			const rest = 1 << 18 // at least
			if err := os.WriteFile(far.path(runA, "a2/ctl/stdout"), make([]byte, 1<<20), 0o600); err == nil {
				t.Fatal("the write succeeded, want a full disk")
			}
			freed, err := w.RemoveRun(t.Context(), runA, attempts, func() (bool, error) { return true, nil })
			if err != nil || freed < 1<<19+rest {
				t.Errorf("the removal freed %d bytes, %v; want no error and at least %d", freed, err, 1<<19+rest)
			}
			for n, token := range attempts {
				if got, want := content(t, far.path(runA, staging.AttemptName(n))), string(staging.GoneFile(token)); got != want {
					t.Errorf("in the place of attempt %d is %q, want %q", n, got, want)
				}
			}
		})
	}
}
