package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A folder is imported as one artifact, lies below in/ of a job, which copies it, and its copy comes back as one artifact with the same
// checksum: of shell, HTTP and job each has the same files. A folder with a link, and an output that is none, are refused.
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
		t.Fatalf("%+v", in)
	}
	doc := probePlan("copytree", "/work/in/index", "/work/out/copy")
	io := doc["io"].(tree)
	io["inputs"] = []any{tree{"role": "index", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256, "dest_relpath": "in/index",
		"directory": true}}
	io["outputs"] = []any{tree{"role": "copy", "src_relpath": "out/copy", "type": "DIRECTORY", "label": "copy"}}
	id := s.submit(doc).RunID
	if l := s.wait(id); l.State != "succeeded" {
		t.Fatal(l.why(), s.story(id))
	}
	s.ok(nil, "collect", id, "--to", s.dir+"/back")
	if out := shell(t, "lab", "diff -r "+s.dir+"/index "+s.dir+"/back/copy && echo same"); out != "same" {
		t.Error(out)
	}
	var v struct {
		Damaged int `json:"damaged_count"`
	}
	s.ok(&v, "artifact", "verify", in.ArtifactID)
	if v.Damaged != 0 {
		t.Error(v)
	}
	var p struct {
		Text string `json:"text"`
	}
	s.ok(&p, "artifact", "preview", in.ArtifactID)
	if !strings.HasPrefix(p.Text, "directory index: 602 files, 179718 bytes\n") || !strings.Contains(p.Text, "  sub/part 001\n") {
		t.Errorf("%.200s", p.Text)
	}

	must(t, os.Symlink("/etc/passwd", dir+"/link"))
	if f := s.fails(2, "artifact", "import", s.dir+"/index"); f.Code != "IMPORT-ENTRY" {
		t.Errorf("%+v", f)
	}
	doc = probePlan("write", "/work/out/copy/one", "content") // the folder is there before the program runs
	doc["io"].(tree)["outputs"] = io["outputs"]
	if l := s.wait(s.submit(doc).RunID); l.State != "succeeded" {
		t.Error(l.why())
	}
	for mode, code := range map[string]string{"hardlink": "OUTPUT-IRREGULAR", "nothing": "OUTPUT-EMPTY"} {
		doc := probePlan(mode, "/work/out/copy/one")
		doc["io"].(tree)["outputs"] = io["outputs"]
		if l := s.wait(s.submit(doc).RunID); l.State != "failed" || !strings.HasPrefix(l.why(), code+":") {
			t.Errorf("%s: %s %s instead of %s", mode, l.State, l.why(), code)
		}
	}
}

// The same with a gateway that reaches the cluster by SSH and its files by SFTP: a directory of many files goes there and comes back, and a
// declared folder hides nothing that is undeclared.
//
// proves DATA-02
func TestDirectoriesElsewhere(t *testing.T) {
	t.Parallel()
	s := farSite(t, "ssh-sftp.yaml")
	if r := s.cli("image", "add", "--replace", "probe", probeImage()); r.code != 0 {
		t.Fatal(r)
	}
	s.serve()
	dir := t.TempDir()
	for i := range 600 { // more than are placed by one call of a script
		folder := fmt.Sprintf("%s/index/part %d/it's [a-z]*", dir, i/100)
		must(t, os.MkdirAll(folder, 0o755))
		must(t, os.WriteFile(fmt.Sprintf("%s/%03d", folder, i), []byte(strings.Repeat("x", i)), 0o644))
	}
	in := s.import1(dir + "/index")
	doc := probePlan("copytree", "/work/in/index", "/work/out/copy [a-z]*")
	io := doc["io"].(tree)
	io["inputs"] = []any{tree{"role": "index", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256, "dest_relpath": "in/index",
		"directory": true}}
	io["outputs"] = []any{tree{"role": "copy", "src_relpath": "out/copy [a-z]*", "type": "DIRECTORY", "label": "copy"}}
	id := s.submit(doc).RunID
	if l := s.wait(id); l.State != "succeeded" || len(l.Warnings) != 0 {
		t.Fatal(l.why(), l.Warnings, s.story(id))
	}
	s.ok(nil, "collect", id, "--to", dir+"/back")
	if out, err := exec.Command("diff", "-r", dir+"/index", dir+"/back/copy [a-z]*").CombinedOutput(); err != nil {
		t.Errorf("%.2000s %v", out, err)
	}
}
