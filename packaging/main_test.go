// Package packaging_test makes the packages and tries them: the deb on a cluster whose init is systemd, the rpm by its contents.
package packaging_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// made holds what all tests share: two releases of the same source. The first is the older one, so that there is
// something to upgrade from.
var made struct {
	repo     string
	dir      string // of this test run
	old, new release
}

// release is the output of scripts/packages.
type release struct{ version, dir string }

func (r release) file(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v %v", pattern, r.dir, found, err)
	}
	return found[0]
}

func TestMain(m *testing.M) {
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (code int, err error) {
	here, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	made.repo = filepath.Dir(here)
	if made.dir, err = os.MkdirTemp("", "slurmgate-packages-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(made.dir)
	made.old = release{"v1.9.0", filepath.Join(made.dir, "old")}
	made.new = release{"v1.10.0", filepath.Join(made.dir, "new")}
	for _, r := range []release{made.old, made.new} {
		if err := r.make(made.repo, "all"); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// make runs scripts/packages of a tree; the same arguments give the same bytes.
func (r release) make(tree, what string, env ...string) error {
	c := exec.Command(filepath.Join(tree, "scripts/packages"), what)
	c.Env = append(os.Environ(), append([]string{"OUT=" + r.dir, "VERSION=" + r.version, "COMMIT=" + strings.Repeat("c0ffee", 6) + "c0de",
		"SOURCE_DATE_EPOCH=1795000000"}, env...)...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return fmt.Errorf("scripts/packages: %w\n%s", err, out.Bytes())
	}
	return nil
}

func output(t *testing.T, argv ...string) string {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = made.repo
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}
