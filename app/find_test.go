package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/plan"
)

// A part of a name finds artifacts and files, with the caller's rights, and shows only the name of a file. A file's
// handle imports it, for the caller that received it, after a restart too, and for no other caller.
//
// proves MANY-01 ARC-01
func TestFind(t *testing.T) {
	g := tableGateway(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, name := range []string{"ours/deep/S7_reads.txt", "ours/s7_more.txt", "ours/S8.txt", "theirs/S7_secret.txt"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644))
	}
	if g.Importer, err = artifact.NewImporter(g.Store, artifact.ImportPolicy{MaxBytes: 1 << 20, Roots: []artifact.Root{
		{Folder: dir + "/ours", Projects: []string{plan.ProjectID("demo")}},
		{Folder: dir + "/theirs", Projects: []string{plan.ProjectID("other")}}}}); err != nil {
		t.Fatal(err)
	}
	g.Policy.Import.Roots = []string{dir + "/ours", dir + "/theirs"} // as at the start of a gateway
	token := func(name, project string, caps ...string) gate.Caller {
		return gate.Caller{Transport: gate.MCP, Principal: gate.Principal{Name: name, Method: gate.ByToken,
			Rights: gate.RightsOf(append(caps, gate.CapGateway, gate.CapRead), []string{plan.ProjectID(project)})}}
	}
	ours, theirs := token("token:a", "demo", gate.CapImport), token("token:b", "other", gate.CapImport)
	var l FoundList
	res := g.says(t, ours, "artifact.find", FindArgs{Name: "s7"}, "", &l)
	if l.FilesTotal != 2 || len(l.Files) != 2 || l.Files[0].Name != "S7_reads.txt" || l.Files[1].Name != "s7_more.txt" || l.Note != "" ||
		len(l.Artifacts) != 0 || strings.Contains(string(res.Result), dir) {
		t.Fatalf("%s", res.Result)
	}
	handle := l.Files[0].FileID
	var a ImportAnswer
	g.says(t, ours, "artifact.import", ImportArgs{FileID: handle}, "", &a)
	if a.Label != "S7_reads.txt" || a.SizeBytes != int64(len("ours/deep/S7_reads.txt\n")) || !a.Created {
		t.Errorf("the import by handle: %q, %d bytes, created %t; want S7_reads.txt as new", a.Label, a.SizeBytes, a.Created)
	}
	g.says(t, ours, "artifact.find", FindArgs{Name: "S7"}, "", &l)
	if l.ArtifactsTotal != 1 || l.Artifacts[0].ArtifactID != a.ArtifactID || l.FilesTotal != 2 || l.Files[0].FileID != handle {
		t.Errorf("artifact.find: %d artifacts, %d files %v; want %s and 2 files", l.ArtifactsTotal, l.FilesTotal, l.Files, a.ArtifactID)
	}
	g.handles = handles{} // as after a restart
	g.says(t, ours, "artifact.import", ImportArgs{FileID: handle}, "", &a)
	if a.Created {
		t.Errorf("the same import after a restart created %s", a.ArtifactID)
	}
	g.says(t, theirs, "artifact.import", ImportArgs{FileID: handle}, "file_not_found", nil)
	text := "x"
	g.says(t, ours, "artifact.import", ImportArgs{FileID: handle, Text: &text}, "IMPORT-SOURCE", nil)
	g.says(t, theirs, "artifact.find", FindArgs{Name: "S7"}, "", &l)
	if l.ArtifactsTotal != 0 || l.FilesTotal != 1 || l.Files[0].Name != "S7_secret.txt" {
		t.Errorf("artifact.find of the others: %d artifacts, files %v; want only S7_secret.txt", l.ArtifactsTotal, l.Files)
	}
	other := l.Files[0].FileID
	g.says(t, ours, "artifact.import", ImportArgs{FileID: other}, "file_not_found", nil)
	// An error about a file does not show its path.
	must(t, os.Remove(dir+"/theirs/S7_secret.txt"))
	if res := g.says(t, theirs, "artifact.import", ImportArgs{FileID: other}, "import_missing", nil); strings.Contains(
		fmt.Sprint(res.Error.Message, res.Error.Details), dir) {
		t.Errorf("the error %q, %v shows the folder %s", res.Error.Message, res.Error.Details, dir)
	}
	// A caller without the right to import sees only artifacts; a user of this host searches with that user's own
	// process.
	g.says(t, token("token:c", "demo"), "artifact.find", FindArgs{Name: "s7"}, "", &l)
	if l.ArtifactsTotal != 1 || len(l.Files) != 0 || !strings.Contains(l.Note, "capability import") {
		t.Errorf("artifact.find without import: %d artifacts, %d files, note %q", l.ArtifactsTotal, len(l.Files), l.Note)
	}
	g.says(t, everything("user:lab", gate.All), "artifact.find", FindArgs{Name: "s7"}, "", &l)
	if len(l.Files) != 0 || l.Note != ownRights {
		t.Errorf("artifact.find of a local user: %d files, note %q; want %q", len(l.Files), l.Note, ownRights)
	}
	// Pages: artifacts first, then files, each once.
	for i := range 5 {
		body := fmt.Sprint("s7 number ", i)
		g.says(t, ours, "artifact.import", ImportArgs{Text: &body, Label: body}, "", nil)
	}
	seen := map[string]int{}
	for args := (FindArgs{Name: "s7", Limit: 2}); ; args.Cursor = *l.Cursor {
		l = FoundList{}
		g.says(t, ours, "artifact.find", args, "", &l)
		for _, x := range l.Artifacts {
			seen[x.ArtifactID]++
		}
		for _, x := range l.Files {
			seen[x.FileID]++
		}
		if len(l.Artifacts)+len(l.Files) > 2 || len(seen) > 8 {
			t.Fatalf("a page of %d artifacts and %d files, %d seen in all; want at most 2, and 8", len(l.Artifacts), len(l.Files), len(seen))
		}
		if l.Cursor == nil {
			break
		}
	}
	if len(seen) != 8 {
		t.Errorf("%v", seen)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s %d times", id, n)
		}
	}
	g.says(t, ours, "artifact.find", FindArgs{Name: "s7", Cursor: "x"}, "LIST-CURSOR", nil)
}

// The sample, or a tag, of a batch's row finds the inputs and outputs of its run, whatever their names, in the
// caller's projects.
//
// proves MANY-01
func TestFindBySample(t *testing.T) {
	l := seedList(t, 480) // 120 rows a batch share 100 outputs
	find := func(name string) (out FoundList) {
		t.Helper()
		l.g.does(t, "artifact.find", map[string]any{"name": name, "limit": 200}, &out)
		return out
	}
	var rows BatchRowsAnswer
	l.g.does(t, "batch.rows", map[string]any{"batch": "b0", "state": "succeeded", "outputs": true, "limit": 3}, &rows)
	row := rows.Rows[1]
	got := find(row.Sample)
	var ids []string
	for _, a := range got.Artifacts {
		if a.Sample != row.Sample {
			t.Errorf("%s is of sample %q, want %q", a.ArtifactID, a.Sample, row.Sample)
		}
		ids = append(ids, a.ArtifactID)
	}
	if !slices.Contains(ids, row.Outputs[0].ArtifactID) || int(got.ArtifactsTotal) != len(ids) || len(ids) > 5 {
		t.Errorf("the artifacts of sample %s are %q of %d, want %s among at most 5", row.Sample, ids, got.ArtifactsTotal,
			row.Outputs[0].ArtifactID)
	}
	tagged := find("lot0")
	shared := 0
	for _, a := range tagged.Artifacts {
		if strings.HasSuffix(a.Sample, " and others") {
			shared++
		} else if a.Sample == "" {
			t.Errorf("%s was found by a tag and has no sample", a.ArtifactID)
		}
	}
	if tagged.ArtifactsTotal <= got.ArtifactsTotal || shared == 0 || shared == len(tagged.Artifacts) {
		t.Errorf("%d in all, %d of %d shared", tagged.ArtifactsTotal, shared, len(tagged.Artifacts))
	}
	if byLabel := find("o1.json"); len(byLabel.Artifacts) == 0 || byLabel.Artifacts[0].Sample != "" {
		t.Errorf("%d artifacts with the label o1.json; want some, without a sample", len(byLabel.Artifacts))
	}
	if none := find("lot"); none.ArtifactsTotal != 0 { // a part of a tag does not match
		t.Errorf("a part of a tag finds %d artifacts, want none", none.ArtifactsTotal)
	}
	stranger := gate.Caller{Transport: gate.MCP, Principal: gate.Principal{Name: "token:b", Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead}, []string{plan.ProjectID("other")})}}
	if l.g.says(t, stranger, "artifact.find", FindArgs{Name: "lot0"}, "", &tagged); tagged.ArtifactsTotal != 0 || len(tagged.Artifacts) != 0 {
		t.Errorf("another project's caller finds %d artifacts, want none", tagged.ArtifactsTotal)
	}
}
