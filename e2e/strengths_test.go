package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// large returns a mebibyte of content, which is worth a mount, different for each seed.
func large(seed string) string { return strings.Repeat(seed+"\n", 1<<20/len(seed)+1)[:1<<20] }

func sumOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// shownStrengths returns how the latest attempt of a run gets its inputs, by path.
func (s *site) shownStrengths(runID string) map[string]string {
	s.t.Helper()
	var v struct {
		Inputs []struct{ Relpath, Strength string }
	}
	s.ok(&v, "runs", "show", runID)
	by := map[string]string{}
	for _, in := range v.Inputs {
		by[in.Relpath] = in.Strength
	}
	return by
}

// occupied adds up the sizes of the files below a folder of the cluster.
func occupied(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	must(t, filepath.Walk(host(dir), func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return err
	}))
	return bytes
}

// An input of a megabyte or more is mounted from the store where the nodes see it, read-only and alone; a small one is copied. The job
// hashes the stored object, so one that was changed ends the run. Whether it is mounted changes no run's identity.
//
// proves DATA-05
// short: files in and out
func TestBoundInputs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	copied := newSite(t, "probing")
	store := s.dir + "/store"
	s.replace("site.yaml", "gateway:\n", "gateway:\n  artifact_dir: "+store+"\n")
	s.replace("site.yaml", "  image_store:", "  bind_artifacts: "+store+"\n  image_store:")
	content, small := large("bound"), "small\n"
	doc := func(s *site) tree {
		doc := probePlan("sums", "out/result", "in")
		var inputs []any
		for i, text := range []string{content, small} {
			a := s.import1(s.file(fmt.Sprintf("f%d.txt", i), text))
			inputs = append(inputs, tree{"role": fmt.Sprintf("r%d", i), "artifact_id": a.ArtifactID, "checksum_sha256": a.SHA256,
				"dest_relpath": fmt.Sprintf("in/f%d.txt", i)})
		}
		doc["io"].(tree)["inputs"] = inputs
		return doc
	}
	a, b := s.submit(doc(s)), copied.submit(doc(copied))
	if a.RunID != b.RunID {
		t.Errorf("a mounted input makes it the run %s, a copied one %s", a.RunID, b.RunID)
	}
	want := sumOf(content) + " in/f0.txt\n" + sumOf(small) + " in/f1.txt\n"
	for _, x := range []struct {
		*site
		strength string
	}{{s, "bound"}, {copied, "copied"}} {
		l := x.mustEnd(a.RunID, "succeeded")
		if got := string(x.bytesOf(l.Roles["result"])); got != want {
			t.Errorf("with a %s input the program saw %s, want %s", x.strength, got, want)
		}
		if by := x.shownStrengths(a.RunID); by["in/f0.txt"] != x.strength || by["in/f1.txt"] != "copied" {
			t.Errorf("runs show has the inputs %v, want the large one %s and the small one copied", by, x.strength)
		}
		if n := occupied(t, x.story(a.RunID).Workspace); (n > 1<<19) != (x.strength == "copied") {
			t.Errorf("%s: the run's folder has %d bytes", x.strength, n)
		}
	}
	s.serve()
	id, release := s.waiting(s.set(doc(s), "resources.mem_mb", 101))
	overwrite(t, host(store)+"/objects/"+sumOf(content)[:2]+"/"+sumOf(content), func(b []byte) { b[7] ^= 1 })
	release()
	s.endedBadly(s.wait(id), "failed", "input_mismatch")
}

// sumsOf returns a plan that hashes one input.
func sumsOf(a artifactRow, dest string) tree {
	doc := probePlan("sums", "out/result", "in")
	doc["io"].(tree)["inputs"] = []any{tree{"role": "data", "artifact_id": a.ArtifactID, "checksum_sha256": a.SHA256, "dest_relpath": dest}}
	return doc
}

// A file below a folder that the admin names is registered by its SHA-256 and stays where it is: no byte of it is written, whatever its
// name; the job checks what it reads before and after, and a file that was changed ends the run with both of its states.
//
// proves DATA-05
// short: files in and out
func TestInputsInPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("site.yaml", "  image_store:", "  in_place: [{path: "+s.dir+"/refs, projects: [demo]}]\n  image_store:")
	s.inPlace()
}

// The same on a cluster whose files the gateway reaches only by SFTP: the login node hashes the file in place.
//
// proves DATA-05
func TestInputsInPlaceElsewhere(t *testing.T) {
	t.Parallel()
	s := farSite(t, "ssh-sftp-dtn.yaml", func(doc tree) {
		storage := doc["storage"].(tree)
		dir := filepath.Dir(storage["runs_dir"].(string))
		storage["in_place"] = []any{tree{"path": dir + "/refs", "projects": []any{"demo"}}}
	})
	s.ok(nil, "image", "add", "--replace", "probe", probeImage())
	s.inPlace("--type", "TEXT")
}

func (s *site) inPlace(flags ...string) {
	t := s.t
	t.Helper()
	refs := s.dir + "/refs"
	must(t, os.MkdirAll(host(refs)+"/sub", 0o755))
	name := refs + `/sub/a, "b": c.txt`
	content := large("in place")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(host(name), []byte(text), 0o644))
		must(t, giveToLab(host(refs)))
	}
	write(content)
	s.serve()
	var a artifactRow
	s.ok(&a, append([]string{"artifact", "import", "--in-place", "--label", "refs", name}, flags...)...)
	if a.SHA256 != sumOf(content) {
		t.Errorf("the import in place gives %+v, want the file's checksum", a)
	}
	first := s.submit(sumsOf(a, "in/data.txt"))
	l := s.mustEnd(first.RunID, "succeeded")
	if got := string(s.bytesOf(l.Roles["result"])); got != sumOf(content)+" in/data.txt\n" {
		t.Errorf("the program saw %s, want the checksum of the registered file", got)
	}
	if by := s.shownStrengths(first.RunID); by["in/data.txt"] != "in_place" {
		t.Errorf("runs show has the inputs %v, want in_place", by)
	}
	if n := occupied(t, s.dir+"/runs"); n > 1<<19 {
		t.Errorf("the run's folder has %d bytes", n)
	}
	if s.outside == "" {
		if got := string(s.bytesOf(a.ArtifactID)); got != content {
			t.Errorf("%d bytes", len(got))
		}
	}
	// changed while its job waits: the job sees it
	id, release := s.waiting(s.set(sumsOf(a, "in/data.txt"), "resources.mem_mb", 101))
	write(strings.ToUpper(content))
	release()
	l = s.wait(id)
	s.endedBadly(l, "failed", "input_mismatch")
	if !strings.Contains(l.why(), "registered with inode, size, mtime and ctime") {
		t.Errorf("the run failed for %q, want what the file was registered with", l.why())
	}
	// changed before its job is sent: nothing is sent
	l = s.wait(s.submit(s.set(sumsOf(a, "in/data.txt"), "resources.mem_mb", 102)).RunID)
	if l.State != "failed" || !strings.Contains(l.why(), "input_mismatch") || !strings.Contains(l.why(), name) {
		t.Errorf("a run on a file that was changed: %v, want it failed as input_mismatch that names the file", l)
	}
	// the old content again is the same artifact
	write(content)
	s.ok(&a, append([]string{"artifact", "import", "--in-place", "--label", "refs", name}, flags...)...)
	s.ends(s.submit(s.set(sumsOf(a, "in/data.txt"), "resources.mem_mb", 103)).RunID, "succeeded")
	s.refused(4, "IMPORT-ROOT", append([]string{"artifact", "import", "--in-place", s.dir + "/files/x"}, flags...)...)
}
