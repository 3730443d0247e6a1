package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Every call says which run it is. A look is the same one while nothing it shows has changed, and another afterwards.
//
// proves ARC-11
func TestLooksAreRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	var all struct {
		Tools []struct {
			ID string `json:"tool_id"`
		} `json:"tools"`
	}
	s.ok(&all, "tool", "list", "--all")
	for _, tool := range all.Tools {
		var doc struct {
			Output struct {
				Required []string `json:"required"`
			} `json:"output_schema"`
		}
		s.ok(&doc, "tool", "show", tool.ID)
		if !slices.Contains(doc.Output.Required, "provenance_run_id") {
			t.Errorf("%s does not say which run it is", tool.ID)
		}
	}

	a, b := s.import1(s.file("a", "a")), s.import1(s.file("b", "b"))
	first, other := s.submit(probePlan("write", "out/result", "1")).RunID, s.submit(probePlan("write", "out/result", "2")).RunID
	s.wait(first)
	s.wait(other)
	looks := [][]string{
		{"artifact", "list"}, {"artifact", "list", "--type", "TEXT"}, {"artifact", "get", a.ArtifactID}, {"artifact", "preview", a.ArtifactID},
		{"artifact", "verify", a.ArtifactID},
		{"artifact", "verify", "--all"}, {"artifact", "get", b.ArtifactID}, {"runs", "list"}, {"runs", "list", "--state", "succeeded"},
		{"runs", "show", first}, {"runs", "show", other},
		{"runs", "diff", first, other}, {"runs", "diff", other, first}, {"get", first}, {"collect", first}, {"get", other}, {"tool", "list"},
		{"tool", "list", "--all"}, {"tool", "show", "run.show"},
	}
	changing := []string{"artifact list", "artifact list --type TEXT", "artifact verify --all", "runs list", "runs list --state succeeded"}
	identify := func() map[string]string {
		out := map[string]string{}
		for _, args := range looks {
			var look looksLike
			s.ok(&look, args...)
			name := strings.Join(args, " ")
			for before, run := range out {
				if run == look.Run || look.Run == "" {
					t.Errorf("%s and %s are both %q", before, name, run)
				}
			}
			out[name] = look.Run
		}
		return out
	}
	for try := 0; ; try++ {
		measured := []bool{s.measured(first), s.measured(other)}
		before := identify()
		again := identify()
		s.import1(s.file(fmt.Sprint("c", try), fmt.Sprint(try)))
		after := identify()
		if !slices.Equal(measured, []bool{s.measured(first), s.measured(other)}) {
			continue // accounting told what the jobs used, and `runs show` shows that
		}
		same(t, "the same looks", again, before)
		for name, run := range before {
			if changed := after[name] != run; changed != slices.Contains(changing, name) {
				t.Errorf("%s: another run after an import: %v", name, changed)
			}
		}
		return
	}
}

// measured tells whether accounting has told what the job used; it is asked seldom.
func (s *site) measured(runID string) bool {
	s.t.Helper()
	var v struct {
		Attempts []struct {
			Source string `json:"usage_source"`
		} `json:"attempts"`
	}
	s.ok(&v, "runs", "show", runID)
	return len(v.Attempts) == 1 && v.Attempts[0].Source == "accounting"
}

// Bytes that are no longer what they were are found, by whatever artifact has them.
//
// proves ARC-01
func TestVerifyArtifacts(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	good, bad, gone := s.import1(s.file("good", "good bytes")), s.import1(s.file("bad", "some bytes")), s.import1(s.file("gone", "lost bytes"))
	r := s.cliWith(strings.NewReader("some bytes"), "artifact", "import", "-", "--label", "twin", "--json")
	var twin artifactRow
	r.object(t, &twin)
	type verified struct {
		Checked, Objects int
		DamagedCount     int `json:"damaged_count"`
		Damaged          []struct {
			artifactRow
			Code string `json:"code"`
		}
	}
	var v verified
	s.ok(&v, "artifact", "verify", "--all")
	if v.Checked != 4 || v.Objects != 3 || v.DamagedCount != 0 || v.Damaged == nil {
		t.Errorf("%+v", v)
	}
	shell(t, "lab", `cd "$1/artifacts/objects"; chmod u+w */"$2"; printf 'Some bytes' >*/"$2"; rm -f */"$3"`,
		"/home/lab/"+strings.TrimPrefix(s.dir, "/shared/"), bad.SHA256, gone.SHA256)
	r = s.cli("artifact", "verify", "--all", "--json")
	v = verified{}
	if err := json.Unmarshal(r.stdout, &v); err != nil || r.code != 6 {
		t.Fatal(err, r)
	}
	// Who fetches damaged bytes is told so, and no file of them stays.
	if f := s.fails(1, "artifact", "get", bad.ArtifactID, "--output", s.dir+"/fetched"); f.Code != "artifact_corrupt" ||
		!strings.Contains(f.Message, "slurmgate artifact verify "+bad.ArtifactID) {
		t.Errorf("%+v", f)
	}
	shell(t, "lab", `[[ ! -e $1/fetched ]]`, s.dir)
	if r := s.cli("artifact", "get", bad.ArtifactID, "--output", "-"); r.code != 1 || string(r.stdout) != "Some bytes" {
		t.Error(r)
	}
	if r := s.cli("artifact", "get", good.ArtifactID, "--output", "-"); r.code != 0 || string(r.stdout) != "good bytes" {
		t.Error(r)
	}
	found := map[string]string{}
	for _, d := range v.Damaged {
		found[d.ArtifactID] = d.Code
	}
	same(t, "damage", found, map[string]string{bad.ArtifactID: "artifact_corrupt", twin.ArtifactID: "artifact_corrupt",
		gone.ArtifactID: "artifact_bytes_missing"})
	if v.Checked != 4 || v.DamagedCount != 3 || strings.Contains(string(r.stdout), "/home/") {
		t.Errorf("%+v", r)
	}
	s.ok(&v, "artifact", "verify", good.ArtifactID)
	if r := s.cli("artifact", "verify", gone.ArtifactID); r.code != 6 || !strings.Contains(string(r.stdout), gone.ArtifactID) ||
		!strings.Contains(string(r.stdout), "1 damaged") {
		t.Error(r)
	}
	for _, args := range [][]string{{"artifact", "verify"}, {"artifact", "verify", good.ArtifactID, "--all"}, {"artifact", "verify",
		good.ArtifactID, "--project", "demo"}} {
		if f := s.fails(2, args...); len(f.Details.Problems) != 1 || f.Details.Problems[0].Code != "VERIFY-WHAT" {
			t.Errorf("%+v", f)
		}
	}
	if f := s.fails(3, "artifact", "verify", "art_00000000000000000000000000"); f.Code != "artifact_not_found" {
		t.Errorf("%+v", f)
	}
	// A lost object comes back with the same file.
	s.import1(s.file("gone", "lost bytes"))
	s.ok(&v, "artifact", "verify", gone.ArtifactID)
}
