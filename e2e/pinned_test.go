package e2e

import (
	"os"
	"strings"
	"testing"
)

// waiting submits a plan to the partition that never starts anything, and returns the run and a function that lets its
// job start: its owner may move a pending job to another partition. So the test has as much time as it needs in
// between.
func (s *site) waiting(doc tree) (runID string, release func()) {
	s.t.Helper()
	a := s.submit(s.set(doc, "placement.partition", "big"))
	job := *s.phase(a.RunID, "pending").SlurmJobID
	return a.RunID, func() { shell(s.t, "lab", `scontrol update jobid="$1" partition=main`, job) }
}

func withInputOf(s *site, doc tree) tree {
	in := s.import1(s.file("input.txt", "the input\n"))
	doc["io"].(tree)["inputs"] = []any{tree{"role": "table", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256,
		"dest_relpath": "in/input.txt"}}
	return doc
}

// What was pinned when the run was made is what the job demands when it starts, hours later.
//
// proves CARD-02 ARC-07
// short: what runs is what was pinned
func TestPinnedBytes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		reason string
		tamper func(t *testing.T, s *site, workspace string)
	}{
		{"nothing changed", "ok", func(*testing.T, *site, string) {}},
		{"image overwritten", "image_mismatch", func(t *testing.T, s *site, _ string) {
			overwrite(t, s.image(), func(b []byte) { b[len(b)-5000] ^= 1 })
		}},
		{"image gone", "image_missing", func(t *testing.T, s *site, _ string) { must(t, os.Remove(s.image())) }},
		{"input overwritten", "input_mismatch", func(t *testing.T, s *site, workspace string) {
			overwrite(t, host(workspace)+"/in/input.txt", func(b []byte) { b[0] = 'T' })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "probing", func(f *siteFile) { f.ImageStore = f.Dir + "/images" })
			s.ok(nil, "image", "add", "probe", world.dir+"/probe.sif")
			s.serve()
			id, release := s.waiting(withInputOf(s, probePlan("write", "out/result", "it ran")))
			workspace := s.story(id).Workspace
			tt.tamper(t, s, workspace)
			release()
			l := s.wait(id)
			if tt.reason == "ok" {
				if l.State != "succeeded" || string(s.bytesOf(l.Roles["result"])) != "it ran" {
					t.Fatalf("with nothing changed %v, want it succeeded with its output", l)
				}
				return
			}
			s.endedBadly(l, "failed", tt.reason)
			if entries, err := os.ReadDir(host(workspace) + "/a1/out"); err == nil {
				t.Errorf("there is a folder for the program's outputs: %v", entries)
			}
		})
	}
}

// An image whose content does not match its name in the store is refused before a run is created.
//
// proves CARD-02
// short: what runs is what was pinned
func TestChangedImageIsRefusedAtSubmit(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing", func(f *siteFile) { f.ImageStore = f.Dir + "/images" })
	f := s.fails(3, "submit", s.plan(probePlan("nothing")))
	if f.Code != "IMAGE-NOT-FOUND" {
		t.Errorf("submit with an image that the store lacks fails with %v, want IMAGE-NOT-FOUND", f)
	}
	s.ok(nil, "image", "add", "probe", world.dir+"/probe.sif")
	overwrite(t, s.image(), func(b []byte) { b[len(b)-5000] ^= 1 })
	s.refused(6, "IMAGE-DIGEST", "submit", s.plan(probePlan("nothing")))
	if r := s.cli("image", "verify", "--json"); r.code != 6 || !strings.Contains(string(r.stdout), "IMAGE-DIGEST") {
		t.Errorf("image verify: %v", r)
	}
	var page runPage
	if s.ok(&page, "runs", "list"); len(page.Runs) != 0 {
		t.Errorf("after refused submits runs list shows %+v, want nothing", page.Runs)
	}
	s.ok(nil, "image", "add", "probe", world.dir+"/probe.sif")
	s.ok(nil, "image", "verify")
	s.ends(s.submit(probePlan("write", "out/result", "x")).RunID, "succeeded")
}

// image returns this machine's path of the test image in the site's own store.
func (s *site) image() string {
	return host(s.dir) + "/images/" + strings.TrimPrefix(world.probe, "sha256:") + ".sif"
}

// overwrite changes bytes of a file in place, length and owner kept.
func overwrite(t *testing.T, name string, change func([]byte)) {
	t.Helper()
	b := value(os.ReadFile(name))(t)
	change(b)
	f, err := os.OpenFile(name, os.O_WRONLY, 0) // root may, whatever the mode
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Close())
}
