package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Bytes that go in come out; the same bytes under the same label are the same artifact.
//
// proves ARC-01 ARC-02
func TestArtifactRoundTrip(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	rnd, random := rand.New(rand.NewPCG(1, 2)), make([]byte, 900_000)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	for name, content := range map[string][]byte{"random.bin": random, "empty": {}, "text.txt": []byte("one\ntwo\n"),
		"a name é $x.txt": []byte("x")} {
		t.Run(name, func(t *testing.T) {
			s := s.as(t)
			file := s.file(name, string(content))
			a := s.import1(file)
			if !a.Created || a.SizeBytes != int64(len(content)) || a.SHA256 != fmt.Sprintf("%x", sha256.Sum256(content)) {
				t.Errorf("%+v", a)
			}
			if b := s.import1(file); b.Created || b.ArtifactID != a.ArtifactID {
				t.Errorf("imported again: %+v", b)
			}
			to := s.dir + "/back-" + name
			s.ok(nil, "artifact", "get", a.ArtifactID, "-o", to)
			back, err := os.ReadFile(host(to))
			must(t, err)
			if !bytes.Equal(back, content) || !bytes.Equal(s.bytesOf(a.ArtifactID), content) {
				t.Error("the bytes differ")
			}
			if f := s.fails(5, "artifact", "get", a.ArtifactID, "-o", to); f.Code != "target_exists" {
				t.Errorf("nothing is overwritten: %+v", f)
			}
			// What was imported does not follow the file.
			must(t, os.WriteFile(host(file), []byte("changed"), 0o644))
			if !bytes.Equal(s.bytesOf(a.ArtifactID), content) {
				t.Error("the artifact followed its file")
			}
		})
	}
	t.Run("text", func(t *testing.T) {
		r := s.cliWith(strings.NewReader("typed\nby hand\n"), "artifact", "import", "-", "--label", "a note", "--json")
		var a artifactRow
		r.object(t, &a)
		if r.code != 0 || a.Type != "TEXT" || a.Label != "a note" || string(s.bytesOf(a.ArtifactID)) != "typed\nby hand\n" {
			t.Errorf("%v", r)
		}
	})
	t.Run("identity", func(t *testing.T) { // the design's own example
		r := s.cliWith(strings.NewReader("hello\n"), "artifact", "import", "-", "--label", "greeting", "--type", "TEXT", "--json")
		var a artifactRow
		if r.object(t, &a); a.ArtifactID != "art_183BZJHEYXMKZBB4A0X74BNFSS" {
			t.Errorf("%v", r)
		}
	})
	t.Run("standard input", func(t *testing.T) { // of any kind, as it comes; too much of it leaves nothing
		reads, err := os.ReadFile(host(data("aln.bam")))
		must(t, err)
		var a, b artifactRow
		s.cliWith(bytes.NewReader(reads), "artifact", "import", "-", "--json").object(t, &a)
		if a.Type != "BAM" || a.SizeBytes != int64(len(reads)) || !bytes.Equal(s.bytesOf(a.ArtifactID), reads) {
			t.Errorf("%+v", a)
		}
		if s.cliWith(bytes.NewReader(reads), "artifact", "import", "-", "--json").object(t, &b); b.ArtifactID != a.ArtifactID {
			t.Errorf("%+v is another artifact than %+v", b, a)
		}
		r := s.cliWith(io.LimitReader(zeros{}, 3<<20), "artifact", "import", "-", "--label", "too much", "--json")
		if f := r.failure(t, 4); f.Code != "artifact_too_large" {
			t.Errorf("%+v", f)
		}
		if l := string(s.cli("artifact", "list", "--json").stdout); strings.Contains(l, "too much") {
			t.Errorf("something of it is kept: %s", l)
		}
	})
	t.Run("no path in what is shown", func(t *testing.T) {
		for _, args := range [][]string{{"artifact", "list", "--json"}, {"tool", "list", "--all", "--json"}} {
			if r := s.cli(args...); r.code != 0 || strings.Contains(string(r.stdout), s.dir) {
				t.Errorf("%v", r)
			}
		}
	})
}

// The script lies in the ledger and is an artifact like any other: read, shown, verified, an input of another run; no file of the store
// comes of it.
//
// proves ARC-01 ARC-08
func TestScriptArtifact(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	d := s.serve()
	first := s.wait(s.submit(probePlan("write", "out/result", "x")).RunID)
	id := first.Roles["slurm_script"]
	sent, err := os.ReadFile(host(s.story(first.RunID).Workspace) + "/a1/ctl/script")
	must(t, err)
	if !bytes.Equal(s.bytesOf(id), sent) || !bytes.HasPrefix(sent, []byte("#!/bin/bash\n")) {
		t.Error("the artifact is not what was sent")
	}
	var a artifactRow
	s.ok(&a, "artifact", "get", id)
	same(t, "artifact", a, artifactRow{ArtifactID: id, Type: "TEXT", Label: "slurm_script", SizeBytes: int64(len(sent)),
		SHA256: fmt.Sprintf("%x", sha256.Sum256(sent)), Source: first.RunID})
	if r := s.cli("artifact", "preview", id); r.code != 0 || !bytes.Contains(r.stdout, []byte("# slurmgate job script")) {
		t.Error(r)
	}
	doc := probePlan("report", "out/result")
	doc["io"].(tree)["inputs"] = []any{tree{"role": "table", "artifact_id": id, "checksum_sha256": a.SHA256, "dest_relpath": "in/script"}}
	second := s.wait(s.submit(doc).RunID)
	var r struct{ Inputs map[string]string }
	must(t, json.Unmarshal(s.bytesOf(second.Roles["result"]), &r))
	if second.State != "succeeded" || r.Inputs["in/script"] != string(sent) {
		t.Errorf("%+v %q", second, r.Inputs)
	}
	var v struct {
		DamagedCount int `json:"damaged_count"`
		Damaged      []struct{ Code string }
	}
	s.ok(&v, "artifact", "verify", id)
	same(t, "artifacts damaged", v.DamagedCount, 0)
	if n := strings.TrimSpace(shell(t, "lab", `find "$1/artifacts/objects" -name "$2" | wc -l`, "/home/lab/"+strings.TrimPrefix(s.dir,
		"/shared/"), a.SHA256)); n != "0" {
		t.Errorf("%s files of the script in the store", n)
	}

	// Damage in the ledger is found like damage in the store. The two scripts have the damaged part in common.
	d.signal("TERM")
	d.ended(t)
	shell(t, "lab", `perl -pi -e 's/Read me. This script/Read me. That script/' "$1/ledger.db"`, "/home/lab/"+strings.TrimPrefix(s.dir,
		"/shared/"))
	s.serve()
	out := s.cli("artifact", "verify", "--all", "--json")
	if err := json.Unmarshal(out.stdout, &v); err != nil || out.code != 6 || v.DamagedCount != 2 || v.Damaged[0].Code != "ledger_corrupt" {
		t.Error(err, out)
	}
	if out := s.cli("artifact", "get", id, "-o", "-"); out.code == 0 || bytes.Contains(out.stdout, []byte("slurmgate")) {
		t.Error(out)
	}
}

// A policy whose roots are around the gateway's own folders does not let in what other projects have there.
//
// proves ARC-02
func TestImportOwnFolders(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	s.replace("site.yaml", "roots: [", "roots: ["+s.dir+", ")
	s.serve()
	var l looked
	s.ok(&l, "run", "samtools.flagstat", "--input", "bam="+data("aln.bam"), "--wait")
	attempt := s.dir + "/runs/" + l.RunID + "/a1"
	for _, path := range []string{attempt + "/ctl/token", attempt + "/out/flagstat.json", attempt + "/out/none", s.dir + "/runs/.gateway-id"} {
		if f := s.fails(4, "artifact", "import", path); f.Code != "IMPORT-OWN" {
			t.Errorf("%s: %+v", path, f)
		}
	}
	s.ok(nil, "artifact", "import", s.file("mine.txt", "x"))
}

// What the policy does not let in stays out.
//
// proves ARC-02 ARC-06
func TestImportBoundary(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	files := s.dir + "/files"
	s.file("real.txt", "x")
	shell(t, "root", `cd "$1"; ln -s real.txt link; ln -s /etc/passwd passwd; mkdir sub; echo y >sub/file; ln -s sub subs; mkfifo fifo; mkfifo ../fifo-outside
		echo secret >secret; chmod 600 secret; chmod 755 . sub; mknod zero c 1 5; chmod 666 fifo zero; truncate -s 1048577 big`, files)
	tests := []struct {
		path string
		exit int
		code string
	}{
		{"/etc/passwd", 4, "IMPORT-ROOT"},
		{s.dir + "/site.yaml", 4, "IMPORT-ROOT"},
		{files, 4, "IMPORT-KIND"},
		{files + "/sub", 4, "IMPORT-KIND"},
		{files + "/link", 4, "IMPORT-SYMLINK"},
		{files + "/passwd", 4, "IMPORT-SYMLINK"},
		{files + "/subs/file", 4, "IMPORT-SYMLINK"},
		{files + "/fifo", 4, "IMPORT-KIND"},
		{s.dir + "/fifo-outside", 4, "IMPORT-ROOT"},
		{files + "/zero", 4, "IMPORT-KIND"},
		{files + "/secret", 4, "IMPORT-ACCESS"},
		{files + "/big", 4, "IMPORT-SIZE"},
		{files + "/nothing", 3, "import_missing"},
		{files + "-other/x", 4, "IMPORT-ROOT"},
		{"/proc/self/environ", 4, "IMPORT-ROOT"},
	}
	for _, tt := range tests {
		t.Run(tt.path[max(0, strings.LastIndex(tt.path, "/")):], func(t *testing.T) {
			t.Parallel()
			s := s.as(t)
			for _, args := range [][]string{{"artifact", "import", tt.path}, {"artifact", "import",
				files + "/../files" + strings.TrimPrefix(tt.path, files)}} {
				if !strings.HasPrefix(tt.path, files+"/") && strings.Contains(args[2], "..") {
					continue
				}
				start := time.Now()
				if f := s.fails(tt.exit, args...); f.Code != tt.code {
					t.Errorf("%v: %+v", args, f)
				}
				if d := time.Since(start); d > 20*time.Second {
					t.Errorf("it took %v", d)
				}
			}
		})
	}
	t.Cleanup(func() {
		var page artifactPage
		s.ok(&page, "artifact", "list")
		if slices.ContainsFunc(page.Artifacts, func(a artifactRow) bool { return a.Source == "import" }) {
			t.Errorf("something came in: %+v", page)
		}
	})
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
