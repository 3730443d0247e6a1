package staging

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"slurmgate/fault"
	"slurmgate/plan"
)

// No path, in any spelling, opens a file outside out/, and every name in a warning is escaped.
func FuzzOutputPath(f *testing.F) {
	for _, s := range []string{"out/x", "out/../../secret", "/etc/passwd", "out/\x00", "out/l/secret", "out/\u202e", "out/a b/", "../out/x",
		"out/x\n", "out/" + strings.Repeat("a/", 600)} {
		f.Add(s)
	}
	dir := f.TempDir()
	must(f, os.Chmod(dir, 0o700))
	s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw"})
	must(f, err)
	must(f, s.OpenAttempt(f.Context(), runA, 1, tokenA))
	out := filepath.Join(dir, runA, "a1/out")
	for _, err := range []error{os.Mkdir(out, 0o700), os.WriteFile(out+"/x", []byte("fine"), 0o600), os.WriteFile(dir+"/secret",
		[]byte("secret"), 0o600), os.Symlink(dir, out+"/l")} {
		must(f, err)
	}
	f.Fuzz(func(t *testing.T, rel string) {
		r, _, err := s.OpenOutput(t.Context(), runA, 1, rel)
		if err == nil {
			got, _ := io.ReadAll(r)
			r.Close()
			if string(got) != "fine" {
				t.Errorf("%q opened %q", rel, got)
			}
		} else if k := fault.KindOf(err); k != fault.Tool && k != fault.Validation {
			t.Errorf("OpenOutput of %q gives %v, want a tool or validation fault", rel, err)
		}
		p := Printable(rel)
		if !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == '\u202e' || r == 0x7f }) {
			t.Errorf("%q is printed as %q", rel, p)
		}
		if msg := plan.CheckRelPath(p, "out"); msg == "" && p != rel {
			t.Errorf("%q is printed as another path %q", rel, p)
		}
	})
}
