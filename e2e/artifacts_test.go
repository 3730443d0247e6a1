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

// Roots around the gateway's own folders do not let in what other projects have there: not to a token, not to the gateway's own user.
//
// proves ARC-02
func TestImportOwnFolders(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	s.replace("site.yaml", "roots: [", "roots: [{path: "+s.dir+", projects: [demo]}, ")
	p := s.openPort(t)
	var l looked
	s.ok(&l, "run", "samtools.flagstat", "--input", "bam="+data("aln.bam"), "--wait")
	attempt := s.dir + "/runs/" + l.RunID + "/a1"
	for _, path := range []string{attempt + "/ctl/token", attempt + "/out/flagstat.json", attempt + "/out/none", s.dir + "/runs/.gateway-id"} {
		if status, body := p.send("POST", "/v1/artifacts", fmt.Sprintf(`{"path":%q}`, path)); !strings.Contains(string(body), "IMPORT-OWN") {
			t.Errorf("%s: %d %s", path, status, body)
		}
		if strings.HasSuffix(path, "none") {
			continue
		}
		if f := s.fails(4, "artifact", "import", path); f.Code != "IMPORT-OWN" {
			t.Errorf("%s: %+v", path, f)
		}
	}
	s.ok(nil, "artifact", "import", s.file("mine.txt", "x"))
}

// What the site does not let in stays out: of what a token names, and of what a user of the host hands over.
//
// proves ARC-02 ARC-06
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
		start := time.Now()
		if status, body := p.send("POST", "/v1/artifacts", fmt.Sprintf(`{"path":%q}`, tt.path)); status < 300 ||
			!strings.Contains(string(body), `"`+tt.code+`"`) {
			t.Errorf("%s: %d %s", tt.path, status, body)
		}
		if tt.handed != "" {
			if f := s.fails(tt.exit, "artifact", "import", tt.path); f.Code != tt.handed {
				t.Errorf("%s: %+v", tt.path, f)
			}
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("it took %v", d)
		}
	}
	var page artifactPage
	s.ok(&page, "artifact", "list")
	if slices.ContainsFunc(page.Artifacts, func(a artifactRow) bool { return a.Source == "import" }) {
		t.Errorf("something came in: %+v", page)
	}
}

// A user of the host imports what he can read himself, wherever it is, and nothing that only the gateway's user can read; a token imports
// from the roots of its project. One shell that is the gateway itself does the same.
func TestImportWithOnesOwnRights(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.replace("site.yaml", "import:\n", "import:\n  local: own\n")
	peer := "    - {user: %s, capabilities: [gateway, read, import], projects: [%s]}\n"
	s.replace("site.yaml", "domain_dir:", "  socket: "+s.dir+"/gw.sock\naccess:\n  peers:\n"+fmt.Sprintf(peer, "alice", "hers")+
		fmt.Sprintf(peer, "bob", "his")+"domain_dir:")
	s.replace("site.yaml", "roots: [", "roots: [{path: "+s.dir+"/hers, projects: [hers]}, "+s.dir+"/old, ")
	shell(t, "root", `cd "$1"; mkdir hers old files/private; echo lab >hers/lab; echo alice >hers/alice; chown alice hers/alice; echo old >old/f
		mkdir home; echo mine >home/f; echo swapped >home/g; chown -R alice home; chmod 700 home
		chown lab hers/lab old/f; chmod 600 hers/* home/f; chmod 755 hers old`, s.dir)
	s.serve()
	as := func(user string, path string, env ...string) result {
		return s.user(user, env, "artifact", "import", path)
	}
	var a artifactRow
	as("alice", s.dir+"/hers/alice").object(t, &a)
	as("alice", s.dir+"/home/f").object(t, &a) // a folder that the gateway's user cannot enter
	for _, c := range [][2]string{{"alice", "/hers/lab"}, {"bob", "/hers/alice"}, {"bob", "/hers/lab"}, {"bob", "/home/f"},
		{"bob", "/home/none"}} {
		if f := as(c[0], s.dir+c[1]).failure(t, 2); f.Code != "file_unreadable" {
			t.Errorf("%v: %+v", c, f)
		}
	}
	// Without slurmgate's help: a path alone, which the gateway would have to open.
	ask := func(user, path, token string) string {
		head := "X-None: 1"
		if token != "" {
			head = "Authorization: Bearer " + token
		}
		return shell(t, user, `perl -MIO::Socket::UNIX -e '($to, $head, $body) = @ARGV; $c = IO::Socket::UNIX->new(Peer => $to) or die;
			print $c "POST /v1/artifacts HTTP/1.0\r\nHost: g\r\nContent-Type: application/json\r\n$head\r\nContent-Length: ", length $body, "\r\n\r\n$body";
			print <$c>' "$@"`, s.dir+"/gw.sock", head, fmt.Sprintf(`{"path":%q}`, s.dir+path))
	}
	for _, path := range []string{"/hers/lab", "/hers/alice", "/home/f"} {
		if got := ask("alice", path, ""); !strings.Contains(got, "IMPORT-HANDED") {
			t.Errorf("%s: %s", path, got)
		}
	}
	token := func(name string, more ...string) string {
		var made tokenAnswer
		s.ok(&made, append([]string{"token", "create", name, "--capability", "gateway,read,import"}, more...)...)
		return made.Token
	}
	hers, his, every := token("hers", "--project", "hers"), token("his", "--project", "his"), token("every", "--project", "*")
	for _, c := range []struct{ token, path, want string }{
		{hers, "/hers/lab", `"artifact_id"`}, {his, "/hers/lab", "IMPORT-ROOT"}, {his, "/hers/none", "IMPORT-ROOT"},
		{every, "/hers/lab", `"artifact_id"`},
		{hers, "/old/f", "IMPORT-ROOT"}, {every, "/old/f", `"artifact_id"`}, {hers, "/home/f", "IMPORT-ROOT"},
	} {
		if got := ask("bob", c.path, c.token); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
	// A chat of a user on the host is his own process too.
	say := func(user, path string) string {
		return shell(t, user, `export SLURMGATE_SITE=$1; { echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t"}}}'
			echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
			echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"artifact_import\",\"arguments\":{\"path\":\"$3\"}}}"; } | "$2" mcp`,
			s.dir+"/site.yaml", world.dir+"/slurmgate", s.dir+path)
	}
	if got := say("alice", "/home/g"); !strings.Contains(got, "Imported: ") {
		t.Error(got)
	}
	if got := say("bob", "/hers/lab"); strings.Contains(got, "Imported: ") || !strings.Contains(got, "not readable for you") {
		t.Error(got)
	}
}

// A shell that is the gateway itself imports as its user: from the roots, and from elsewhere where the site allows that.
//
// proves ARC-02
func TestImportByTheShellAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.ok(nil, "artifact", "import", s.file("f", "in a root"))
	shell(t, "lab", `ln -s /etc/hostname "$1/files/link"`, s.dir)
	for path, code := range map[string]string{"/etc/hostname": "IMPORT-ROOT", s.dir + "/files/link": "IMPORT-ROOT"} {
		if f := s.fails(4, "artifact", "import", path); f.Code != code {
			t.Errorf("%s: %+v", path, f)
		}
	}
	s.replace("site.yaml", "import:\n", "import:\n  local: own\n")
	s.ok(nil, "artifact", "import", "/etc/hostname")
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
