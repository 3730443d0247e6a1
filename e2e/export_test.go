package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// exported is the output of slurmgate export.
type exported struct {
	Saved, SHA256 string
	SizeBytes     int64 `json:"size_bytes"`
	Files         int
	Signed        bool
	ByReference   []struct{ ArtifactID string } `json:"by_reference"`
}

// verified is the output of slurmgate verify.
type verified struct {
	OK        bool
	RunID     string `json:"run_id"`
	State     string
	Events    int
	Signature struct{ Signed, Trusted bool }
}

// verifyAlone checks an archive with nothing but the program and the file: an empty environment, no site file, an empty folder.
func verifyAlone(t testing.TB, file string, want int) (v verified) {
	t.Helper()
	cmd := exec.Command(host(world.dir)+"/slurmgate", "verify", file, "--json")
	cmd.Env, cmd.Dir = []string{}, t.TempDir()
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != want {
		t.Fatalf("verify ends with %d: %v\n%s", code, err, out)
	}
	result{stdout: out}.object(t, &v)
	return v
}

// A run on the real cluster is exported, and its archive verified with nothing else at hand: succeeded and failed runs,
// twice and after further reads the same bytes, with no path of the site in it. A run that has not ended is refused.
//
// proves EXP-01 ARC-09 ARC-01
func TestExport(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	for state, doc := range map[string]tree{"succeeded": withInputOf(s, probePlan("write", "out/result", "it's $HOME")),
		"failed": probePlan("exit", "3")} {
		id := s.submit(doc).RunID
		l := s.wait(id)
		if l.State != state {
			t.Fatalf("%v, want it %s", l, state)
		}
		first, second := s.dir+"/"+state+"-1.zip", s.dir+"/"+state+"-2.zip"
		var e, again exported
		s.ok(&e, "export", id, "--to", first)
		s.story(id)
		s.ok(&again, "export", id, "--to", second)
		a := value(os.ReadFile(host(first)))(t)
		b := value(os.ReadFile(host(second)))(t)
		if !bytes.Equal(a, b) || e.SHA256 != again.SHA256 || e.SizeBytes != int64(len(a)) || !e.Signed || len(e.ByReference) > 0 {
			t.Errorf("two exports of a run that %s differ, or are not whole: %+v and %+v", state, e, again)
		}
		for _, path := range []string{s.dir + "/", "/home/"} {
			if i := bytes.Index(a, []byte(path)); i >= 0 {
				t.Errorf("%s: the archive has a path of the site: %q", state, a[max(0, i-80):min(len(a), i+80)])
			}
		}
		v := verifyAlone(t, host(first), 0)
		if !v.OK || v.RunID != id || v.State != state || v.Events < 4 || !v.Signature.Signed || v.Signature.Trusted {
			t.Errorf("verify of the archive of a run that %s reports %+v, want intact and signed by an unknown key",
				state, v)
		}
		if r := s.cli("export", id, "--to", first); r.code != 5 || !strings.Contains(string(r.stderr), "already exists") {
			t.Errorf("%v, want exit 5, as the file exists", r)
		}
	}
	open, release := s.waiting(probePlan("write", "out/result", "x"))
	if r := s.cli("export", open, "--to", s.dir+"/open.zip"); r.code != 5 || !strings.Contains(string(r.stderr), "the run is not over") {
		t.Errorf("%v, want exit 5, as the run is not over", r)
	}
	release()
	if _, err := os.Stat(host(s.dir + "/open.zip")); err == nil {
		t.Error("a refused export left a file")
	}
	s.wait(open)
}
