package runtest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/run"
)

// In makes the suite use a workspace whose runs are in a folder of this host. Links that it leaves point to secret,
// which is created.
func (x *Files) In(t *testing.T, dir, secret string) *Files {
	t.Helper()
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	x.Leave = func(t *testing.T, runID, path string, e Entry) {
		name := filepath.Join(dir, runID, path)
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.RemoveAll(name))
		must(t, map[Entries]func() error{
			File:     func() error { return os.WriteFile(name, []byte(e.Data), 0o600) },
			Symlink:  func() error { return os.Symlink(secret, name) },
			Hardlink: func() error { return os.Link(secret, name) },
			Pipe:     func() error { return unix.Mkfifo(name, 0o600) },
			Folder:   func() error { return os.Mkdir(name, 0o700) },
		}[e.Kind]())
		t.Cleanup(func() {
			if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
				t.Errorf("a file outside was written: it has %q (%v), want secret", got, err)
			}
		})
	}
	x.Read = func(t *testing.T, runID, path string) (string, bool) {
		name := filepath.Join(dir, runID, path)
		if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() {
			return "", false
		}
		data, err := os.ReadFile(name)
		must(t, err)
		return string(data), true
	}
	x.Claim = func(t *testing.T, runID string, n int, mine string) string {
		ctl := filepath.Join(run.JobSpec{RunDir: filepath.Join(dir, runID), N: n}.AttemptDir(), "ctl")
		own := filepath.Join(ctl, ".claim."+rand.Text())
		must(t, os.WriteFile(own, []byte(mine), 0o600))
		_ = os.Link(own, filepath.Join(ctl, run.ClaimFile)) // the content decides, whatever link returns
		data, err := os.ReadFile(filepath.Join(ctl, run.ClaimFile))
		must(t, err)
		return string(data)
	}
	return x
}
