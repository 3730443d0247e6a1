package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"slurmgate/app"
)

// A text that was imported with a call and looked at is, after artifact rm, in no file of the gateway: not in the store, and not in the
// ledger, which has the records of both calls. The history verifies.
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
		t.Errorf("%+v", r)
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
