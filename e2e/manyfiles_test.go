//go:build many

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// A directory of very many files goes into a job and comes back as the same artifact, on a shared filesystem and over SFTP; then it is
// removed. What it costs is printed.
//
// proves DATA-02
func TestManyFiles(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("FILES"))
	if err != nil || n < 1 {
		t.Fatal("FILES must say how many")
	}
	t.Run("shared", func(t *testing.T) {
		s := newSite(t, "probing")
		s.manyFiles(n, filepath.Join(host(s.dir), "index"), s.dir+"/index")
	})
	t.Run("sftp", func(t *testing.T) {
		s := farSite(t, "ssh-sftp.yaml")
		s.ok(nil, "image", "add", "--replace", "probe", probeImage())
		dir := t.TempDir() + "/index"
		s.manyFiles(n, dir, dir)
	})
}

// phases prints when a run was sent, ran, ended and was collected, in seconds from its beginning.
func (s *site) phases(id string) {
	s.t.Helper()
	var v struct {
		Events []struct {
			At   time.Time `json:"at"`
			Type string    `json:"type"`
		} `json:"events"`
	}
	s.ok(&v, "runs", "show", id)
	for _, e := range v.Events {
		s.t.Logf("%6.1f s  %s", e.At.Sub(v.Events[0].At).Seconds(), e.Type)
	}
}

var peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func (s *site) manyFiles(n int, dir, seen string) {
	t := s.t
	t.Helper()
	for i := range n {
		folder := fmt.Sprintf("%s/part %03d", dir, i/1000)
		if i%1000 == 0 {
			must(t, os.MkdirAll(folder, 0o755))
		}
		must(t, os.WriteFile(fmt.Sprintf("%s/%06d.txt", folder, i), fmt.Appendf(nil, "%d\n", i), 0o644))
	}
	d := s.serve()
	say := func(what string, began time.Time) {
		t.Logf("%s: %.1f s for %d files", what, time.Since(began).Seconds(), n)
		var status []byte
		if s.outside != "" {
			status, _ = os.ReadFile("/proc/" + d.pid + "/status")
		} else {
			status, _ = inCluster("lab", "cat", "/proc/"+d.pid+"/status").Output()
		}
		if m := peakMemory.FindSubmatch(status); m != nil {
			t.Logf("the gateway's peak of memory so far: %s kB", m[1])
		}
	}
	began := time.Now()
	in := s.import1(seen)
	say("imported", began)
	doc := probePlan("copytree", "/work/in/index", "/work/out/copy")
	doc["resources"].(tree)["time_limit_seconds"] = 3600
	io := doc["io"].(tree)
	io["inputs"] = []any{tree{"role": "index", "artifact_id": in.ArtifactID, "checksum_sha256": in.SHA256, "dest_relpath": "in/index",
		"directory": true}}
	io["outputs"] = []any{tree{"role": "copy", "src_relpath": "out/copy", "type": "DIRECTORY", "label": "copy"}}
	began = time.Now()
	id := s.submit(doc).RunID
	var l looked
	within(t, time.Hour, "run", func() bool {
		l = looked{}
		s.ok(&l, "get", id)
		return l.State == "succeeded" || l.State == "failed" || l.State == "cancelled" || l.State == "blocked"
	})
	if l.State != "succeeded" {
		t.Fatalf("a run with a directory of many files: %v, want it succeeded", l)
	}
	say("in, through the job and back", began)
	s.phases(id)
	var back artifactRow
	s.ok(&back, "artifact", "get", l.Roles["copy"])
	if back.SHA256 != in.SHA256 {
		t.Errorf("%s came back as %s", in.SHA256, back.SHA256)
	}
	began = time.Now()
	s.ok(nil, "runs", "rm", id, "--reason", "measured")
	s.ok(nil, "artifact", "rm", in.ArtifactID, "--reason", "measured")
	say("removed", began)
}
