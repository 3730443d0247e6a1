package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"slurmgate/run"
	"slurmgate/site"
)

// artifactIn puts an artifact into the store and the ledger of a site that is not served, and gives its id.
func artifactIn(t *testing.T, s *site.Site, content string) string {
	t.Helper()
	g, err := openGateway(t.Context(), s, toChange, quiet(), nil)
	must(t, err)
	defer g.Close()
	sum, size, err := g.app.Store.Put(t.Context(), strings.NewReader(content), 1<<20)
	must(t, err)
	a := run.Artifact{ID: "art_" + strings.ToUpper(sum[:26]), ProjectID: "proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", SHA256: sum, SizeBytes: size,
		Type: "TEXT", Label: "x", Source: "import"}
	_, _, err = g.app.Ledger.AddArtifact(t.Context(), a)
	must(t, err)
	return a.ID
}

// While no gateway runs, root sees runs, artifacts and records as the gateway left them; nothing below the state folder becomes root's or
// changes, and what is more than a look is refused.
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
		if code, _, said := verb(t, append([]string{"--site", file}, args...)...); code != 4 || !strings.Contains(said, "nobody") {
			t.Errorf("%v: %d %s", args, code, said)
		}
	}
	for _, name := range below(t, s.Gateway.StateDir) {
		info, err := os.Lstat(name)
		must(t, err)
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != owner {
			t.Errorf("%s belongs to uid %d", name, uid)
		}
		if !slices.Contains(before, name) && !strings.HasPrefix(filepath.Base(name), "ledger.db-") {
			t.Errorf("%s is new", name)
		}
	}
}
