package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

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
		t.Errorf("artifact verify --all returned %+v, want 4 artifacts of 3 objects, none damaged", v)
	}
	shell(t, "lab", `cd "$1/artifacts/objects"; chmod u+w */"$2"; printf 'Some bytes' >*/"$2"; rm -f */"$3"`,
		"/home/lab/"+strings.TrimPrefix(s.dir, "/shared/"), bad.SHA256, gone.SHA256)
	r = s.cli("artifact", "verify", "--all", "--json")
	v = verified{}
	if err := json.Unmarshal(r.stdout, &v); err != nil || r.code != 6 {
		t.Fatalf("%v (%v), want exit 6 and what is damaged", r, err)
	}
	// A fetch of damaged bytes fails with that reason and leaves no file.
	if f := s.fails(1, "artifact", "get", bad.ArtifactID, "--output", s.dir+"/fetched"); f.Code != "artifact_corrupt" ||
		!strings.Contains(f.Message, "slurmgate artifact verify "+bad.ArtifactID) {
		t.Errorf("artifact get of damaged bytes fails with %v, want artifact_corrupt, and the verb that verifies", f)
	}
	shell(t, "lab", `[[ ! -e $1/fetched ]]`, s.dir)
	if r := s.cli("artifact", "get", bad.ArtifactID, "--output", "-"); r.code != 1 || string(r.stdout) != "Some bytes" {
		t.Errorf("%v, want exit 1 after the damaged bytes", r)
	}
	if r := s.cli("artifact", "get", good.ArtifactID, "--output", "-"); r.code != 0 || string(r.stdout) != "good bytes" {
		t.Errorf("%v, want the good bytes", r)
	}
	found := map[string]string{}
	for _, d := range v.Damaged {
		found[d.ArtifactID] = d.Code
	}
	same(t, "damage", found, map[string]string{bad.ArtifactID: "artifact_corrupt", twin.ArtifactID: "artifact_corrupt",
		gone.ArtifactID: "artifact_bytes_missing"})
	if v.Checked != 4 || v.DamagedCount != 3 || strings.Contains(string(r.stdout), "/home/") {
		t.Errorf("artifact verify --all returned %v, want 3 of 4 artifacts damaged, without a path", r)
	}
	s.ok(&v, "artifact", "verify", good.ArtifactID)
	if r := s.cli("artifact", "verify", gone.ArtifactID); r.code != 6 || !strings.Contains(string(r.stdout), gone.ArtifactID) ||
		!strings.Contains(string(r.stdout), "1 damaged") {
		t.Errorf("%v, want exit 6 and one damaged artifact", r)
	}
	for _, args := range [][]string{{"artifact", "verify"}, {"artifact", "verify", good.ArtifactID, "--all"}, {"artifact", "verify",
		good.ArtifactID, "--project", "demo"}} {
		if f := s.fails(2, args...); len(f.Details.Problems) != 1 || f.Details.Problems[0].Code != "VERIFY-WHAT" {
			t.Errorf("artifact verify with %v fails with %v, want VERIFY-WHAT", args, f)
		}
	}
	s.refused(3, "artifact_not_found", "artifact", "verify", "art_00000000000000000000000000")
	// A lost object comes back with the same file.
	s.import1(s.file("gone", "lost bytes"))
	s.ok(&v, "artifact", "verify", gone.ArtifactID)
}
