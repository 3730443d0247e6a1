package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// Bytes come out as they went in; the same bytes under the same label are the same artifact.
//
// proves ARC-01 ARC-02
// short: files in and out
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
				t.Errorf("import of %s gives %+v, want a new artifact of these bytes", name, a)
			}
			if b := s.import1(file); b.Created || b.ArtifactID != a.ArtifactID {
				t.Errorf("the second import of %s gives %+v, want %s and nothing created", name, b, a.ArtifactID)
			}
			to := s.dir + "/back-" + name
			s.ok(nil, "artifact", "get", a.ArtifactID, "-o", to)
			back := value(os.ReadFile(host(to)))(t)
			if !bytes.Equal(back, content) || !bytes.Equal(s.bytesOf(a.ArtifactID), content) {
				t.Error("the bytes differ")
			}
			s.refused(5, "target_exists", "artifact", "get", a.ArtifactID, "-o", to)
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
			t.Errorf("a text from standard input: %v, want it stored as TEXT under its label", r)
		}
	})
	t.Run("standard input", func(t *testing.T) { // of any kind, as it comes; too much of it leaves nothing
		reads := value(os.ReadFile(host(data("aln.bam"))))(t)
		var a, b artifactRow
		s.cliWith(bytes.NewReader(reads), "artifact", "import", "-", "--json").object(t, &a)
		if a.Type != "BAM" || a.SizeBytes != int64(len(reads)) || !bytes.Equal(s.bytesOf(a.ArtifactID), reads) {
			t.Errorf("import of a BAM file from standard input gives %+v, want its type, size and bytes", a)
		}
		if s.cliWith(bytes.NewReader(reads), "artifact", "import", "-", "--json").object(t, &b); b.ArtifactID != a.ArtifactID {
			t.Errorf("the second import of the same bytes gives %s, want %s", b.ArtifactID, a.ArtifactID)
		}
		r := s.cliWith(io.LimitReader(zeros{}, 3<<20), "artifact", "import", "-", "--label", "too much", "--json")
		if f := r.failure(t, 4); f.Code != "artifact_too_large" {
			t.Errorf("import of too much from standard input fails with %v, want artifact_too_large", f)
		}
		if l := string(s.cli("artifact", "list", "--json").stdout); strings.Contains(l, "too much") {
			t.Errorf("something of it is kept: %s", l)
		}
	})
	t.Run("no path in what is shown", func(t *testing.T) {
		for _, args := range [][]string{{"artifact", "list", "--json"}, {"tool", "list", "--all", "--json"}} {
			if r := s.cli(args...); r.code != 0 || strings.Contains(string(r.stdout), s.dir) {
				t.Errorf("%v, want no path of the site", r)
			}
		}
	})
}

// What the site does not let in stays out: of what a token names, and of what a user of the host hands over.
//
// proves ARC-02 ARC-06
// short: files in and out
func TestImportBoundary(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("site.yaml", "import:\n", "import:\n  local: own\n")
	p := s.openPort(t)
	files := s.dir + "/files"
	s.file("real.txt", "x")
	shell(t, "root", `cd "$1"; ln -s real.txt link; ln -s /etc/passwd passwd; mkdir sub; echo y >sub/file; ln -s sub subs; mkfifo fifo; mkfifo ../fifo-outside
		echo secret >secret; chmod 600 secret; chmod 755 . sub; mknod zero c 1 5; chmod 666 fifo zero; truncate -s 1048577 big`, files)
	for _, tt := range []struct {
		path, code string
		handed     string // the code for the user whom the gateway runs as; empty: it may come in
		exit       int
	}{
		{"/etc/passwd", "IMPORT-ROOT", "", 0},
		{s.dir + "/site.yaml", "IMPORT-ROOT", "", 0},
		{files, "IMPORT-KIND", "IMPORT-SIZE", 4}, // as a directory, which has big
		{files + "/link", "IMPORT-SYMLINK", "", 0},
		{files + "/passwd", "IMPORT-SYMLINK", "", 0},
		{files + "/subs/file", "IMPORT-SYMLINK", "", 0},
		{files + "/fifo", "IMPORT-KIND", "file_unreadable", 2},
		{s.dir + "/fifo-outside", "IMPORT-ROOT", "file_unreadable", 2},
		{files + "/zero", "IMPORT-KIND", "file_unreadable", 2},
		{files + "/secret", "IMPORT-ACCESS", "file_unreadable", 2},
		{files + "/big", "IMPORT-SIZE", "IMPORT-SIZE", 4},
		{files + "/nothing", "import_missing", "file_not_found", 3},
		{files + "-other/x", "IMPORT-ROOT", "file_not_found", 3},
		{"/proc/self/environ", "IMPORT-ROOT", "IMPORT-HANDED", 4},
	} {
		if status, body := p.send("POST", "/v1/artifacts", fmt.Sprintf(`{"path":%q}`, tt.path)); status < 300 ||
			!strings.Contains(string(body), `"`+tt.code+`"`) {
			t.Errorf("import of %s by a token answers %d %s, want %s", tt.path, status, body, tt.code)
		}
		if tt.handed != "" {
			if f := s.fails(tt.exit, "artifact", "import", tt.path); f.Code != tt.handed {
				t.Errorf("import of %s by the gateway's own user fails with %v, want %s", tt.path, f, tt.handed)
			}
		}
	}
	var page artifactPage
	s.ok(&page, "artifact", "list")
	if slices.ContainsFunc(page.Artifacts, func(a artifactRow) bool { return a.Source == "import" }) {
		t.Errorf("after refused imports artifact list shows %+v, want no import", page.Artifacts)
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
