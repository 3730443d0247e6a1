package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
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
	Problems  []struct{ File, Message string }
	NotJudged []struct{ File, Message string } `json:"not_judged"`
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

// forged checks archives forged from a real one without the key, with MANIFEST brought up to date. Verify finds each
// change, and reports an archive that this program cannot judge not as intact but with a separate exit status.
func (s *site) forged(archive string) {
	s.t.Helper()
	for _, x := range []struct {
		what, script string
		want         int
	}{
		{"nothing", `:`, 0},
		{"another format", `sed -i 's/"slurmgate_export": [0-9]*/"slurmgate_export": 99/' run.json`, 10},
		{"no signature", `rm MANIFEST.dsse.json`, 10},
		{"another caller", `sed -i 's/"principal": ".*"/"principal": "user:mallory"/' run.json`, 6},
		{"an event left out", `sed -i 2d events.jsonl`, 6},
		{"an event said to be altered", `sed -i '2s/"data":{/"altered":"paths","data":{"x":1,/' events.jsonl`, 6},
		{"another node", `sed -i 's/"node": ".*"/"node": "n99"/' exit.json`, 6},
		{"another script", `echo 'rm -rf /' >>job-script.sh`, 6},
	} {
		dir := s.t.TempDir()
		cmd := exec.Command("sh", "-c", `set -e; python3 -m zipfile -e "$1" . && `+x.script+`
find . -type f ! -name 'MANIFEST*' | sed 's|^\./||' | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum >MANIFEST`,
			"-", host(archive))
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("the archive cannot be forged by %s: %v\n%s", x.what, err, out)
		}
		v := verifyAlone(s.t, dir, x.want)
		if v.OK != (x.want == 0) || (len(v.Problems) > 0) != (x.want == 6) || (len(v.NotJudged) > 0) != (x.want == 10) {
			s.t.Errorf("%s: intact %v, problems %v, not judged %v; want exit status %d", x.what, v.OK, v.Problems, v.NotJudged, x.want)
		}
	}
}

// A run on the real cluster is exported, and its archive verified with nothing else at hand: succeeded and failed runs,
// twice and after further reads the same bytes, with no path of the site in it. A run that has not ended is refused.
// Forged archives are not intact.
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
		a, err := os.ReadFile(host(first))
		must(t, err)
		b, err := os.ReadFile(host(second))
		must(t, err)
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
		s.forged(first)
		a[len(a)/2] ^= 1
		damaged := filepath.Join(t.TempDir(), "damaged.zip")
		must(t, os.WriteFile(damaged, a, 0o600))
		if v := verifyAlone(t, damaged, 6); v.OK || len(v.Problems) == 0 {
			t.Errorf("verify of an archive with one byte changed reports %+v, want problems", v)
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
