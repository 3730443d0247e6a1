package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// referenceRow holds the fields of a reference that these tests read.
type referenceRow struct {
	Value    string
	Pinned   string
	Type     string
	SHA256   string `json:"checksum_sha256"`
	Size     int64  `json:"size_bytes"`
	Site     *string
	Changed  bool
	Versions []referenceRow
}

// The site's names for data are inputs like any other: a run has their bytes in its identity and reports the name.
// Other content under a name needs --replace and makes another run; the old one still answers, and its content is
// available by its digest.
//
// proves DATA-07 ABI-19
func TestReferences(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("site.yaml", "  image_store:", "  in_place: [{path: "+s.dir+"/refs, projects: [demo], shared: true}]\n  image_store:")
	s.references()
}

// What is hashed by a job is an ordinary run, on a cluster whose files are here and on one whose files are elsewhere.
//
// proves DATA-07 DATA-05
func TestReferencesByJob(t *testing.T) {
	t.Parallel()
	t.Run("here", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "probing")
		s.replace("site.yaml", "  image_store:", "  in_place: [{path: "+s.dir+"/refs, projects: [demo], shared: true}]\n  image_store:")
		s.hashedByJob()
	})
	t.Run("elsewhere", func(t *testing.T) {
		t.Parallel()
		s := farSite(t, "ssh-sftp-dtn.yaml", func(doc tree) {
			storage := doc["storage"].(tree)
			storage["in_place"] = []any{tree{"path": filepath.Dir(storage["runs_dir"].(string)) + "/refs", "projects": []any{"demo"},
				"shared": true}}
		})
		s.ok(nil, "image", "add", "--replace", "probe", probeImage())
		s.hashedByJob()
	})
}

// The same on a cluster whose files the gateway reaches only by SFTP: what stays in place is hashed there.
//
// proves DATA-07
func TestReferencesElsewhere(t *testing.T) {
	t.Parallel()
	s := farSite(t, "ssh-sftp-dtn.yaml", func(doc tree) {
		storage := doc["storage"].(tree)
		storage["in_place"] = []any{tree{"path": filepath.Dir(storage["runs_dir"].(string)) + "/refs", "projects": []any{"demo"}, "shared": true}}
	})
	s.ok(nil, "image", "add", "--replace", "probe", probeImage())
	s.references("--type", "TEXT")
}

// givenPack defines a tool that hashes its input.
const givenPack = `id: probe.given
version: 1.0.0
abiVersion: v1
contractVersion: v1
planKind: slurm
description: Hashes its input.
deterministic: true
timeoutMs: 600000
limits: {maxInputBytes: 2097152, maxOutputBytes: 1048576}
inputSchema: {type: object, required: [data], properties: {data: {type: string, pattern: "^art_[0-9A-HJKMNP-TV-Z]{26}$"}}}
outputSchema: {$ref: schemas/probe.small.json}
inputs: [{role: data, param: data, types: [TEXT, DIRECTORY], destRelpath: in/data}]
declaredOutputs: [{role: result, type: TEXT, label: result, srcRelpath: out/result}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
execution: {kind: cli, cmd: [testprog, sums, out/result, in]}
`

func (s *site) references(flags ...string) {
	t := s.t
	t.Helper()
	s.addTool("probe.given", givenPack)
	refs := s.dir + "/refs"
	must(t, os.MkdirAll(host(refs), 0o755))
	content := large("reference")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(host(refs)+"/genome.txt", []byte(text), 0o644))
		must(t, giveToLab(host(s.dir)))
	}
	write(content)
	s.serve()
	var g, index referenceRow
	s.ok(&g, append([]string{"reference", "add", "genome", refs + "/genome.txt", "--in-place", "--description", "a genome"}, flags...)...)
	if g.Value != "ref:genome" || g.SHA256 != sumOf(content) || g.Site == nil || !g.Changed {
		t.Errorf("reference add --in-place returned %+v, want ref:genome with the file's checksum", g)
	}
	first := s.given("ref:genome", "in_place", "genome", sumOf(content)+" in/data\n")
	if again := s.given(g.Pinned, "in_place", "genome", ""); again != first {
		t.Errorf("the pinned name makes it the run %s instead of %s", again, first)
	}

	s.folderInPlace(refs, flags)

	// a folder of which the gateway has a copy
	if s.outside == "" {
		must(t, os.MkdirAll(host(s.dir)+"/files/index/sub", 0o755))
	}
	s.file("index/a", "one\n")
	folder := strings.TrimSuffix(s.file("index/sub/b", "two\n"), "/sub/b")
	s.ok(&index, "reference", "add", "index", folder)
	if index.Type != "DIRECTORY" || index.Size != 8 || index.Site != nil {
		t.Errorf("reference add of a folder returned %+v, want a copied directory of 8 bytes", index)
	}
	old := s.given("ref:index", "copied", "index", sumOf("one\n")+" in/data/a\n"+sumOf("two\n")+" in/data/sub/b\n")
	s.file("index/a", "three\n")
	s.refused(5, "reference_exists", "reference", "add", "index", folder)
	s.ok(&index, "reference", "add", "index", folder, "--replace")
	if len(index.Versions) != 1 {
		t.Errorf("reference add --replace returned %+v, want one earlier version", index)
	}
	if now := s.given("ref:index", "copied", "index", sumOf("three\n")+" in/data/a\n"+sumOf("two\n")+" in/data/sub/b\n"); now == old {
		t.Error("other content is the same run")
	}
	if was := s.given(index.Versions[0].Pinned, "copied", "index", ""); was != old {
		t.Errorf("the old content makes it the run %s instead of %s", was, old)
	}

	// A file changed in place fails the run; registered again it is another run.
	write(strings.ToUpper(content))
	var changed submitted
	s.cli("run", "probe.given", "--input", "data=ref:genome", "--mem", "101M", "--json").object(t, &changed)
	if l := s.wait(changed.RunID); l.State != "failed" || !strings.Contains(l.why(), "input_mismatch") {
		t.Errorf("a run on a reference that was changed: %v, want it failed as input_mismatch", l)
	}
	s.ok(&g, append([]string{"reference", "add", "genome", refs + "/genome.txt", "--in-place", "--replace"}, flags...)...)
	if now := s.given("ref:genome", "in_place", "genome", sumOf(strings.ToUpper(content))+" in/data\n"); now == first {
		t.Error("other content is the same run")
	}
	s.ends(first, "succeeded")

	if f := s.fails(2, "run", "probe.given", "--input", "data=ref:genone"); f.Code != "ARGS-REFERENCE" || len(f.Details.Problems) != 1 ||
		!strings.Contains(f.Details.Problems[0].Message, "did you mean genome?") {
		t.Errorf("a misspelt reference fails with %v %+v, want ARGS-REFERENCE with the near name", f,
			f.Details.Problems)
	}
	var list struct{ References []referenceRow }
	s.ok(&list, "reference", "list")
	if len(list.References) != 3 {
		t.Errorf("reference list shows %+v, want three", list.References)
	}
	s.ok(nil, "reference", "rm", "genome")
	s.refused(3, "reference_not_found", "reference", "show", "genome")
}

// given runs the tool on a reference and returns its run.
func (s *site) given(value, strength, name, result string) string {
	s.t.Helper()
	var a submitted
	s.ok(&a, "run", "probe.given", "--input", "data="+value)
	l := s.mustEnd(a.RunID, "succeeded")
	if got := string(s.bytesOf(l.Roles["result"])); result != "" && got != result {
		s.t.Errorf("the run on %s made %s, want %s", value, got, result)
	}
	var v struct {
		Inputs []struct{ Reference, Strength string }
	}
	s.ok(&v, "runs", "show", a.RunID)
	if len(v.Inputs) != 1 || v.Inputs[0].Reference != name || v.Inputs[0].Strength != strength {
		s.t.Errorf("run on %s has the inputs %+v, want the reference %s, %s", value, v.Inputs, name, strength)
	}
	return a.RunID
}

// doctorLooksAtReferences: a folder that was changed is found, without a job.
func (s *site) doctorLooksAtReferences(changed string) {
	s.t.Helper()
	var e examined
	s.cli("doctor", "--no-jobs", "--json").object(s.t, &e)
	if status, found, _ := e.find("references_in_place"); status != "fault" || !strings.Contains(found, "the reference folder: "+changed) {
		s.t.Errorf("references_in_place: %s %s", status, found)
	}
	if status, found, _ := e.find("references"); status != "ok" {
		s.t.Errorf("references: %s %s", status, found)
	}
}

// folderInPlace registers a folder in place: it is mounted as a whole, and a changed or added file ends the run.
func (s *site) folderInPlace(refs string, flags []string) {
	t := s.t
	t.Helper()
	dir := host(refs) + "/it's index"
	must(t, os.MkdirAll(dir+"/sub", 0o755))
	for i := range 300 { // more than one process hashes at once
		must(t, os.WriteFile(fmt.Sprintf("%s/sub/part %03d", dir, i), []byte(fmt.Sprint(i)), 0o644))
	}
	must(t, os.WriteFile(dir+"/-n.0", []byte("an option\n"), 0o644))
	must(t, giveToLab(host(refs)))
	if flags != nil {
		flags = []string{"--type", "DIRECTORY"}
	}
	add := append([]string{"reference", "add", "folder", refs + "/it's index", "--in-place"}, flags...)
	var r referenceRow
	s.ok(&r, add...)
	if r.Type != "DIRECTORY" || r.Size != 800 || r.Site == nil {
		t.Errorf("reference add --in-place of a folder returned %+v, want a directory of 800 bytes", r)
	}
	want := sumOf("an option\n") + " in/data/-n.0\n"
	for i := range 300 {
		want += sumOf(fmt.Sprint(i)) + fmt.Sprintf(" in/data/sub/part %03d\n", i)
	}
	id := s.given("ref:folder", "in_place", "folder", want)
	if n := occupied(t, s.story(id).Workspace+"/in"); n > 0 {
		t.Errorf("%d bytes of in/ were copied", n)
	}
	ends := func(mem string) {
		t.Helper()
		var a submitted
		s.cli("run", "probe.given", "--input", "data=ref:folder", "--mem", mem, "--json").object(t, &a)
		if l := s.wait(a.RunID); l.State != "failed" || !strings.Contains(l.why(), "input_mismatch") {
			t.Errorf("a run on a folder that was changed: %v, want it failed as input_mismatch", l)
		}
	}
	must(t, os.WriteFile(dir+"/sub/added", nil, 0o644))
	ends("102M")
	must(t, os.Remove(dir+"/sub/added"))
	var shown struct{ Problem string }
	if s.ok(&shown, "reference", "show", "folder"); !strings.Contains(shown.Problem, "was changed") {
		t.Errorf("reference show of a changed folder returned %q, want that it was changed", shown.Problem)
	}
	s.doctorLooksAtReferences(refs + "/it's index")
	s.ok(&r, add...) // as it is now: the same content
	var there artifactRow
	s.ok(&there, append([]string{"artifact", "import", "--in-place", refs + "/it's index"}, flags...)...)
	saved := s.dir + "/saved-folder"
	if s.outside != "" {
		saved = filepath.Dir(s.outside) + "/saved-folder"
	}
	if f := s.fails(2, "artifact", "get", there.ArtifactID, "-o", saved); f.Code != "directory_in_place" ||
		!strings.Contains(f.Message, refs+"/it's index") {
		t.Errorf("artifact get of a folder in place fails with %v, want directory_in_place, and where it is", f)
	}
	// changed while its job waits: the job sees it
	doc := probePlan("sums", "out/result", "in")
	var in artifactRow
	s.ok(&in, append([]string{"artifact", "import", "--in-place", refs + "/it's index"}, flags...)...)
	doc["io"].(tree)["inputs"] = []any{tree{"role": "data", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256,
		"dest_relpath": "in/data", "directory": true}}
	run, release := s.waiting(doc)
	must(t, os.WriteFile(dir+"/sub/added", nil, 0o644))
	release()
	s.endedBadly(s.wait(run), "failed", "input_mismatch")
	must(t, os.Symlink("/etc/passwd", dir+"/link"))
	code, exit := "IMPORT-SYMLINK", 4
	if s.outside != "" {
		code, exit = "IMPORT-ENTRY", 2
	}
	if f := s.fails(exit, add...); f.Code != code {
		t.Errorf("reference add of a folder with a link in it fails with %v, want %s", f, code)
	}
}

// hashedByJob registers a folder and a file that a job hashes: an ordinary run, found again by a call that repeats one that was cut, by a
// killed gateway, too; and what was changed is hashed by another one.
func (s *site) hashedByJob() {
	t := s.t
	t.Helper()
	s.addTool("probe.given", givenPack)
	refs := s.dir + "/refs"
	must(t, os.MkdirAll(host(refs), 0o755))
	must(t, giveToLab(host(s.dir)))
	d := s.serve()
	dir := host(refs) + "/by job's"
	must(t, os.MkdirAll(dir+"/sub", 0o755))
	for i := range 300 {
		must(t, os.WriteFile(fmt.Sprintf("%s/sub/part %03d", dir, i), []byte(fmt.Sprint(i)), 0o644))
	}
	must(t, giveToLab(host(refs)))
	var here, r referenceRow
	s.ok(&here, "reference", "add", "here", refs+"/by job's", "--in-place", "--type", "DIRECTORY")
	add := []string{"reference", "add", "hashed", refs + "/by job's", "--in-place", "--type", "DIRECTORY", "--by-job"}
	if s.ok(&r, add...); r.SHA256 != here.SHA256 || r.Size != here.Size || r.Type != "DIRECTORY" || !r.Changed {
		t.Errorf("reference add --by-job returned %+v, want the result of hashing here: %+v", r, here)
	}
	hashes := func() (ids []string) {
		t.Helper()
		var page runPage
		s.ok(&page, "runs", "list", "--tool", "reference.add")
		for _, x := range page.Runs {
			ids = append(ids, x.RunID)
		}
		return ids
	}
	first := hashes()
	if len(first) != 1 || s.count(first[0]).Accounted != 1 {
		t.Fatalf("reference add --by-job made the runs %v, want one with one job", first)
	}
	s.ends(first[0], "succeeded")
	s.ok(nil, "runs", "show", first[0])
	s.ok(nil, "logs", first[0])
	if s.ok(&r, add...); r.Changed || len(hashes()) != 1 {
		t.Errorf("reference add --by-job again returned %+v with the runs %v, want nothing changed and one run", r,
			hashes())
	}
	s.given("ref:hashed", "in_place", "hashed", "")

	// cut: the gateway is killed while the job hashes; the shell makes its call again, and so does another one later
	must(t, os.WriteFile(host(refs)+"/long", nil, 0o644))
	must(t, os.Truncate(host(refs)+"/long", 3<<30))
	must(t, giveToLab(host(refs)))
	long := []string{"reference", "add", "long", refs + "/long", "--in-place", "--type", "UNKNOWN", "--by-job"}
	_, out, done := s.background(append(long, "--json")...)
	until(t, "job that hashes", func() bool { // killed while it is sent, the run may end as absent, and is to be retried
		var page runPage
		s.ok(&page, "runs", "list", "--tool", "reference.add", "--state", "running")
		return len(page.Runs) == 1
	})
	d.signal("KILL")
	d.ended(t)
	if err := <-done; err != nil {
		t.Logf("the call ended with its gateway: %v %s", err, out)
	}
	s.serve()
	if s.ok(&r, long...); r.Size != 3<<30 || len(r.SHA256) != 64 {
		t.Errorf("reference add --by-job after a kill returned %+v, want the size and a checksum", r)
	}
	all := hashes()
	for _, id := range all {
		s.hasOneJob(id)
	}
	if len(all) != 2 {
		t.Errorf("after a kill the runs that hash are %v, want two", all)
	}

	// changed: another run; a file that is missing, or may not be in a directory, is reported before there is one
	must(t, os.WriteFile(dir+"/sub/part 000", []byte("changed"), 0o644))
	if s.ok(&r, append(add, "--replace")...); !r.Changed || r.SHA256 == here.SHA256 || len(hashes()) != 3 {
		t.Errorf("reference add --by-job of a changed folder returned %+v with the runs %v, want another checksum and a third run",
			r, hashes())
	}
	s.refused(3, "import_missing", "reference", "add", "none", refs+"/none", "--in-place", "--type", "UNKNOWN", "--by-job")
	must(t, os.Symlink("/etc/passwd", dir+"/link"))
	s.refused(6, "hash_job_failed", append(add, "--replace")...)
	if len(hashes()) != 4 {
		t.Errorf("the runs that hash are %v, want four", hashes())
	}
}
