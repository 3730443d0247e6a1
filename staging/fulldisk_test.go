package staging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/run"
)

// A run that filled its disk to the last byte is removed, although there is no room for the file that replaces it.
func TestRemovalFromAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", 1<<20)); err != nil {
		t.Fatalf("a small filesystem cannot be mounted, which needs root: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1"})
	must(t, err)
	attempts := map[int]string{1: tokenA, 2: tokenB} // no job claimed the first
	for n, token := range attempts {
		must(t, s.OpenAttempt(t.Context(), runA, n, token))
	}
	put(t, filepath.Join(dir, runA, "a2/ctl", run.ClaimFile), "a job's")
	out := filepath.Join(dir, runA, "a2/out")
	must(t, os.Mkdir(out, 0o700))
	put(t, out+"/half", strings.Repeat("x", 1<<19))
	const rest = 1 << 18 // at least
	if err := os.WriteFile(filepath.Join(dir, runA, "a2/ctl/stdout"), make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the write succeeded, want a full disk")
	}
	freed, err := s.RemoveRun(t.Context(), runA, attempts, func() (bool, error) { return true, nil })
	if err != nil || freed < 1<<19+rest {
		t.Errorf("the removal freed %d bytes, %v; want no error and at least %d", freed, err, 1<<19+rest)
	}
	for n, token := range attempts {
		if got, want := content(t, filepath.Join(dir, runA, AttemptName(n))), string(GoneFile(token)); got != want {
			t.Errorf("in the place of attempt %d is %q, want %q", n, got, want)
		}
	}
}
