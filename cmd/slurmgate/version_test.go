package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/cli"
)

// What make builds names its tag or commit; what a release sets goes before that.
func TestVersion(t *testing.T) {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	inCheckout := err == nil
	for _, c := range []struct {
		args   []string
		want   string
		commit string
	}{{nil, "", strings.TrimSpace(string(head))}, {[]string{"VERSION=v9.8.7", "COMMIT=abc"}, "v9.8.7", "abc"}} {
		bin := filepath.Join(t.TempDir(), "slurmgate")
		build := exec.Command("make", append([]string{"-C", "../..", "build", "BIN=" + bin}, c.args...)...)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		out, err := exec.Command(bin, "version", "--json").Output()
		var b cli.Build
		if err == nil {
			err = json.Unmarshal(out, &b)
		}
		if err != nil {
			t.Fatal(err)
		}
		known := b.Version != "unknown" && !strings.Contains(b.Version, "devel")
		if known != (inCheckout || c.want != "") || c.want != "" && b.Version != c.want || b.Commit != c.commit ||
			!strings.HasPrefix(b.Go, "go1.") || !strings.HasPrefix(b.SQLite, "3.") {
			t.Errorf("%v: %s", c.args, out)
		}
		text, err := exec.Command(bin, "version").Output()
		if err != nil || !strings.HasPrefix(string(text), "slurmgate "+b.Version+"\n") || strings.Contains(string(text),
			"not committed") != b.Dirty {
			t.Errorf("%s %v", text, err)
		}
	}
}
