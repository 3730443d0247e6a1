package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"slurmgate/site"
)

func asJSON(t *testing.T, out string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return m
}

// withPolicy makes a site's policy allow some tools more.
func withPolicy(t *testing.T, s *site.Site, tools string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(s.DomainDir, "policies.yaml"), []byte("version: 1\ntool_allowlist: ["+tools+"]\n"), 0o600))
}

// backup works while the gateway runs and while it does not, is recorded with its caller, and leaves its time in
// state_dir; restore puts it into another state folder, as on another host, with the right owner and mode, and the
// gateway starts on it. Both refuse what would do harm.
//
// proves OPS-01
func TestBackupAndRestoreVerbs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it gives files to another user")
	}
	const owner = 65534
	s, file := plainSite(t)
	withPolicy(t, s, "artifact_list, artifact_get, event_list, event_record, gateway_backup")
	dir := filepath.Join(t.TempDir(), "backups")
	fails(t, 3, "there is no ledger", "--site", file, "backup", dir)
	if _, err := os.Stat(s.Gateway.StateDir); err == nil {
		t.Error("a backup of nothing left a state folder")
	}
	id := artifactIn(t, s, "hello\n")

	g := value(openGateway(t.Context(), s, toChange, quiet(), nil))(t)
	code, out, said := verb(t, "--site", file, "--json", "backup", dir)
	if code != 0 || said != "" {
		t.Fatal(code, said)
	}
	if m := asJSON(t, out); m["objects"] != 1.0 || m["objects_copied"] != 1.0 {
		t.Error(out)
	}
	fails(t, 5, "another slurmgate uses this ledger", "--site", file, "restore", dir, "--owner", "root")
	if code, out, said := verb(t, "--site", file, "--json", "events", "list", "--tool", "gateway.backup"); code != 0 ||
		!strings.Contains(out, `"effects"`) || !strings.Contains(out, "user:") {
		t.Error(code, out, said)
	}
	g.Close()
	if b := readBackupMark(s.Gateway.StateDir); b == nil || filepath.Dir(b.Folder) != dir {
		t.Errorf("the backup is %+v", b)
	}
	fails(t, 5, "exists; nothing was restored", "--site", file, "restore", dir, "--owner", "root")
	for _, inside := range []string{s.Gateway.StateDir + "/b", s.Gateway.ArtifactDir, s.Storage.RunsDir + "/x"} {
		fails(t, 2, "is inside", "--site", file, "backup", inside)
	}
	if code, out, said = verb(t, "--site", file, "backup", dir, "--keep", "1"); code != 0 || !strings.Contains(out, "0 of them copied") ||
		!strings.Contains(out, "removed") {
		t.Error(code, out, said)
	}

	other := *s
	other.Gateway.StateDir = filepath.Join(filepath.Dir(s.Gateway.StateDir), "other")
	other.Gateway.ArtifactDir = other.Gateway.StateDir + "/artifacts"
	there := writeSite(t, &other)
	fails(t, 3, "install -d -o slurmgate", "--site", there, "restore", dir)
	must(t, os.Mkdir(other.Gateway.StateDir, 0o700))
	fails(t, 2, "--owner slurmgate", "--site", there, "restore", dir)
	must(t, os.Chown(other.Gateway.StateDir, owner, owner))
	fails(t, 3, "no complete backup", "--site", there, "restore", t.TempDir())
	code, out, said = verb(t, "--site", there, "restore", dir)
	if code != 0 || !strings.Contains(out, "nobody") || !strings.Contains(out, "make sure that the gateway this backup is of") {
		t.Fatal(code, out, said)
	}
	must(t, filepath.WalkDir(other.Gateway.StateDir, func(path string, d fs.DirEntry, err error) error {
		info, ierr := os.Lstat(path)
		if err != nil || ierr != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != owner || st.Gid != owner || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s belongs to %d:%d, mode %v", path, st.Uid, st.Gid, info.Mode())
		}
		return nil
	}))
	if code, out, said = verb(t, "--site", there, "artifact", "get", id, "-o", "-"); code != 0 || out != "hello\n" {
		t.Error(code, out, said) // root reads the folder
	}
	for _, name := range below(t, other.Gateway.StateDir) {
		must(t, os.Lchown(name, 0, 0))
	}
	g = value(openGateway(t.Context(), &other, toLook, quiet(), nil))(t)
	defer g.Close()
	must(t, g.app.Ledger.Integrity(t.Context()))
	if _, err := g.app.Ledger.Artifact(t.Context(), id); err != nil {
		t.Error(err)
	}
}
