package e2e

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"strings"
	"testing"
)

// swept is the report of a gc.
type swept struct {
	DryRun                     bool `json:"dry_run"`
	Workspaces, Imports, Bytes struct {
		Count, Bytes int64
		Named        []string
	}
	Kept []struct{ Name, Why string }
}

// gc removes the workspaces of finished runs and nothing else: what a run made stays, runs that are not over are not touched, and a run
// whose workspace is gone can be retried.
//
// proves ARC-08
func TestGC(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	unused := s.import1(s.file("unused.txt", "nobody needs this\n"))
	done, failed := s.submit(probePlan("write", "out/result", "kept")), s.submit(probePlan("exit", "3"))
	open, _ := s.waiting(withInputOf(s, probePlan("write", "out/result", "later")))
	if l := s.wait(done.RunID); l.State != "succeeded" {
		t.Fatalf("%+v", l)
	}
	s.wait(failed.RunID)
	var dry, wet, again swept
	if s.ok(&dry, "gc"); dry.Workspaces.Count != 0 {
		t.Errorf("removed though the site keeps workspaces for 30 days: %+v", dry)
	}
	s.ok(&dry, "gc", "--dry-run", "--workspaces-older-than", "0s")
	if !dry.DryRun || dry.Workspaces.Count != 2 || dry.Workspaces.Bytes == 0 || dry.Imports.Count+dry.Bytes.Count != 0 {
		t.Errorf("%+v", dry)
	}
	workspace := s.story(done.RunID).Workspace
	if _, err := os.Stat(host(workspace + "/a1/ctl/script")); err != nil {
		t.Errorf("a dry run removed something: %v", err)
	}
	s.ok(&wet, "gc", "--workspaces-older-than", "0s")
	s.ok(&again, "gc", "--workspaces-older-than", "0s")
	if wet.Workspaces.Count != 2 || len(wet.Kept) != 0 || again.Workspaces.Count != 0 {
		t.Errorf("%+v, then %+v", wet, again)
	}
	if left := shell(t, "lab", `cd "$1"; find . -mindepth 1 | sort`, workspace); left != "./a1" {
		t.Errorf("left of the workspace: %s", left)
	}
	// What the run made, and what it said, is all there.
	var c struct {
		Roles map[string]string `json:"artifacts_by_role"`
	}
	s.ok(&c, "collect", done.RunID)
	if got := s.bytesOf(c.Roles["result"]); string(got) != "kept" && string(got) != "kept\n" {
		t.Errorf("%q of %v", got, c.Roles)
	}
	for _, args := range [][]string{{"logs", done.RunID}, {"logs", failed.RunID, "--stream", "stderr"}, {"runs", "show", done.RunID},
		{"artifact", "verify", "--all"}, {"artifact", "get", unused.ArtifactID}} {
		s.ok(nil, args...)
	}
	if r := s.cli("runs", "show", done.RunID); !strings.Contains(string(r.stdout), "removed by gc") {
		t.Errorf("%v", r)
	}
	if r := s.submit(probePlan("write", "out/result", "kept")); r.RunID != done.RunID || !r.Replayed {
		t.Errorf("%+v", r)
	}
	// A new attempt gets a workspace again, and the run that waited ends well in its own.
	s.ok(nil, "retry", failed.RunID)
	if l := s.wait(failed.RunID); l.State != "failed" || l.ExitCode == nil || *l.ExitCode != 3 {
		t.Errorf("%+v", l)
	}
	shell(t, "lab", `scontrol update jobid="$1" partition=main`, *s.phase(open, "pending").SlurmJobID)
	if l := s.wait(open); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
}

// Tables and pictures are shown as what they are.
//
// proves ARC-01
func TestPreviews(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	table := s.import1(s.file("counts.tsv", "gene\tcount\nA\t1\nB\t2\nC\t30\n"))
	var v struct {
		Type      string
		Columns   []struct{ Name, Type string }
		Rows      [][]string
		Truncated bool
		Prov      string `json:"provenance_run_id"`
	}
	s.ok(&v, "artifact", "preview", table.ArtifactID, "--lines", "1", "--first", "1")
	if table.Type != "TSV" || len(v.Rows) != 1 || v.Rows[0][0] != "B" || v.Columns[1].Name != "count" || v.Columns[1].Type != "integer" ||
		!v.Truncated || !strings.HasPrefix(v.Prov, "run_") {
		t.Errorf("%+v", v)
	}
	if r := s.cli("artifact", "preview", table.ArtifactID); r.code != 0 || !strings.Contains(string(r.stdout), "gene  count") {
		t.Errorf("%v", r)
	}
	var b bytes.Buffer
	must(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 1200, 300))))
	picture := s.import1(s.file("plot.png", b.String()))
	small := s.dir + "/small.png"
	s.ok(nil, "artifact", "preview", picture.ArtifactID, "-o", small)
	data, err := os.ReadFile(host(small))
	must(t, err)
	if c, err := png.DecodeConfig(bytes.NewReader(data)); err != nil || c.Width != 512 || c.Height != 128 {
		t.Errorf("%+v, %v", c, err)
	}
	if f := s.fails(5, "artifact", "preview", picture.ArtifactID, "-o", small); f.Code != "target_exists" {
		t.Errorf("%+v", f)
	}
}
