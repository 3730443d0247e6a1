package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"slurmgate/app"
	"slurmgate/run"
	"slurmgate/site"
)

// artifactIn puts an artifact into the store and the ledger of a site that is not served, and returns its id.
func artifactIn(t *testing.T, s *site.Site, content string) string {
	t.Helper()
	g := value(openGateway(t.Context(), s, toChange, quiet(), nil))(t)
	defer g.Close()
	sum, size, err := g.app.Store.Put(t.Context(), strings.NewReader(content), 1<<20)
	must(t, err)
	a := run.Artifact{ID: "art_" + strings.ToUpper(sum[:26]), ProjectID: "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", SHA256: sum, SizeBytes: size,
		Type: "TEXT", Label: "x", Source: "import"}
	_, _, err = g.app.Ledger.AddArtifact(t.Context(), a)
	must(t, err)
	return a.ID
}

// While no gateway runs, root sees runs, artifacts and records as the gateway left them; nothing below the state folder
// becomes root's or changes, and every call but a read is refused.
//
// proves OPS-01
func TestRootLooksWithoutGateway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it gives files to another user")
	}
	const owner = 65534
	s, file := plainSite(t)
	id := artifactIn(t, s, "hello\n")
	for _, name := range below(t, filepath.Dir(s.Gateway.StateDir)) {
		must(t, os.Lchown(name, owner, owner))
	}
	before := below(t, s.Gateway.StateDir)
	for _, args := range [][]string{{"runs"}, {"artifact", "list"}, {"artifact", "get", id, "-o", "-"}, {"artifact", "preview", id},
		{"artifact", "verify", "--all"}, {"events"}, {"events", "verify"}, {"token"}, {"approvals"}, {"tool", "list"}} {
		code, out, said := verb(t, append([]string{"--site", file}, args...)...)
		if code != 0 || !strings.Contains(said, "the gateway is not running") {
			t.Errorf("%v: %d %s %s", args, code, out, said)
		}
		if args[0] == "artifact" && !strings.Contains(out, map[string]string{"get": "hello", "list": id, "preview": "hello",
			"verify": "0 damaged"}[args[1]]) {
			t.Errorf("%v: %s", args, out)
		}
	}
	code, out, _ := verb(t, "--site", file, "--json", "artifact", "list")
	var page struct {
		Artifacts []struct {
			ID string `json:"artifact_id"`
		} `json:"artifacts"`
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || len(page.Artifacts) != 1 || page.Artifacts[0].ID != id {
		t.Error(code, out, err)
	}
	for _, args := range [][]string{{"cancel-all", "--yes"}, {"artifact", "import", file}, {"token", "create", "x"}, {"gc"}} {
		fails(t, 4, "nobody", append([]string{"--site", file}, args...)...)
	}
	for _, name := range below(t, s.Gateway.StateDir) {
		info := value(os.Lstat(name))(t)
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != owner {
			t.Errorf("%s belongs to uid %d", name, uid)
		}
		if !slices.Contains(before, name) && !strings.HasPrefix(filepath.Base(name), "ledger.db-") {
			t.Errorf("%s is new", name)
		}
	}
}

// Where the site is a service no verb becomes the gateway: it reports what is down and how it is started. root still
// reads the ledger.
func TestStoppedService(t *testing.T) {
	s, _ := plainSite(t)
	s.Gateway.Service = "slurmgate.service"
	g := value(openGateway(t.Context(), s, toChange, quiet(), nil))(t)
	g.Close()
	file := writeSite(t, s)
	code, out, _ := verb(t, "--site", file, "--json", "cancel-all", "--yes")
	if code != 8 || !strings.Contains(out, `"service_down"`) || !strings.Contains(out, "systemctl start slurmgate.service") {
		t.Errorf("cancel-all while the service is down: exit %d: %s, want 8 with service_down and how it is started", code, out)
	}
	code, _, said := verb(t, "--site", file, "runs", "list")
	if code != 0 || !strings.Contains(said, "the gateway is not running") {
		t.Errorf("runs list by root: exit %d: %s, want the ledger as it was left", code, said)
	}
	serveProgram(t, s, file)
	if code, _, said := verb(t, "--site", file, "runs", "list"); code != 0 || strings.Contains(said, "not running") {
		t.Errorf("runs list while the service runs: exit %d: %s, want its answer", code, said)
	}
}

// A text that was imported with a call and read is, after artifact rm, in no file of the gateway: not in the store, and
// not in the ledger, which has the records of both calls. The history verifies.
func TestArtifactRemovedByTheShell(t *testing.T) {
	s, conf := workerSite(t, "http://127.0.0.1:1")
	p := serveProgram(t, s, conf)
	shell := func(into any, args ...string) (text string) {
		t.Helper()
		c := exec.Command(os.Args[0], append([]string{"--site", conf, "--json"}, args...)...)
		c.Env = append(os.Environ(), "SLURMGATE_TEST_AS_PROGRAM=1")
		c.Stdin = strings.NewReader("PATIENT-0815 and more\n")
		out, err := c.Output()
		if err != nil && into != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
		if into != nil {
			must(t, json.Unmarshal(out, into))
		}
		return string(out)
	}
	where := func() (names []string) {
		must(t, filepath.WalkDir(s.Gateway.StateDir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if strings.Contains(string(data), "PATIENT-0815") {
				names = append(names, path)
			}
			return err
		}))
		return names
	}
	var in app.ArtifactDoc
	shell(&in, "artifact", "import", "-", "--label", "notes.txt")
	if text := shell(&struct{}{}, "artifact", "preview", in.ArtifactID); !strings.Contains(text, "PATIENT-0815") {
		t.Fatal(text)
	}
	wantWaiting(t, s.Gateway.StateDir)
	if n := len(where()); n < 2 {
		t.Fatal("it is not in store and ledger: ", where())
	}
	var r app.RemovalAnswer
	if shell(&r, "artifact", "rm", in.ArtifactID, "--reason", "a test"); r.ID == "" || len(r.Artifacts)+len(r.Pending) != 1 ||
		r.Records == 0 {
		t.Errorf("the answer is %+v", r)
	}
	if left := where(); len(left) > 0 {
		t.Errorf("it is still in %v", left)
	}
	if text := shell(nil, "artifact", "get", in.ArtifactID); !strings.Contains(text, "artifact_removed_by_request") {
		t.Error(text)
	}
	shell(&struct{}{}, "events", "verify")
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	must(t, p.cmd.Wait())
}
