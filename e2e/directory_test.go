package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder is imported as one artifact, appears below in/ of a job, which copies it, and its copy comes back as one
// artifact with the same checksum: imports by shell, HTTP and job have the same files. A folder with a link, and an
// output that is not a folder, are refused.
//
// proves DATA-02
func TestDirectories(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	dir := filepath.Join(host(s.dir), "index")
	must(t, os.MkdirAll(dir+"/sub/deep", 0o755))
	for i := range 600 { // more than one process hashes at once
		must(t, os.WriteFile(fmt.Sprintf("%s/sub/part %03d", dir, i), []byte(strings.Repeat("x", i)), 0o644))
	}
	must(t, os.WriteFile(dir+"/sub/deep/it's $(id).txt", []byte("awkward\n"), 0o644))
	must(t, os.WriteFile(dir+"/-n", []byte("an option\n"), 0o644))
	in := s.import1(s.dir + "/index")
	if in.Type != "DIRECTORY" || in.SizeBytes != 600*599/2+8+10 {
		t.Fatalf("the folder's import is %+v, want a directory of 179718 bytes", in)
	}
	doc := probePlan("copytree", "/work/in/index", "/work/out/copy")
	io := doc["io"].(tree)
	io["inputs"] = []any{tree{"role": "index", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256, "dest_relpath": "in/index",
		"directory": true}}
	io["outputs"] = []any{tree{"role": "copy", "src_relpath": "out/copy", "type": "DIRECTORY", "label": "copy"}}
	id := s.submit(doc).RunID
	s.mustEnd(id, "succeeded")
	s.ok(nil, "collect", id, "--to", s.dir+"/back")
	if out := shell(t, "lab", "diff -r "+s.dir+"/index "+s.dir+"/back/copy && echo same"); out != "same" {
		t.Errorf("the folder and what came back differ:\n%s", out)
	}
	var v struct {
		Damaged int `json:"damaged_count"`
	}
	s.ok(&v, "artifact", "verify", in.ArtifactID)
	if v.Damaged != 0 {
		t.Errorf("artifact verify of the folder says that %d artifacts are damaged, want none", v.Damaged)
	}
	var p struct {
		Text string `json:"text"`
	}
	s.ok(&p, "artifact", "preview", in.ArtifactID)
	if !strings.HasPrefix(p.Text, "directory index: 602 files, 179718 bytes\n") || !strings.Contains(p.Text, "  sub/part 001\n") {
		t.Errorf("the folder's preview begins with %.200s, want its number of files and their names", p.Text)
	}

	must(t, os.Symlink("/etc/passwd", dir+"/link"))
	s.refused(2, "IMPORT-ENTRY", "artifact", "import", s.dir+"/index")
	doc = probePlan("write", "/work/out/copy/one", "content") // the folder is there before the program runs
	doc["io"].(tree)["outputs"] = io["outputs"]
	s.ends(s.submit(doc).RunID, "succeeded")
	for mode, code := range map[string]string{"hardlink": "OUTPUT-IRREGULAR", "nothing": "OUTPUT-EMPTY"} {
		doc := probePlan(mode, "/work/out/copy/one")
		doc["io"].(tree)["outputs"] = io["outputs"]
		if l := s.wait(s.submit(doc).RunID); l.State != "failed" || !strings.HasPrefix(l.why(), code+":") {
			t.Errorf("%s: %s %s instead of %s", mode, l.State, l.why(), code)
		}
	}
}
