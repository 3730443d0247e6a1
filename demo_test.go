package slurmgate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build/demo-slurmgate goes to the cluster that the demo used, also where that is not the default one and the shell
// that calls it later does not know its name; and the demo's last line takes that cluster down.
func TestDemoKnowsItsCluster(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "scripts")
	if err := os.Mkdir(calls, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(calls, "devcluster"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	repo, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for command, user := range map[string]string{"lab_command": "lab", "callers_command": "alice"} {
		for name, want := range map[string]string{"": "exec", "other": "--name other exec"} {
			write := exec.Command("bash", "-euc", `source "$1/scripts/demo.d/site"; source "$1/scripts/demo.d/caller"
base=/shared/demo on=(); "$2" >command; later_devcluster`, "bash", repo, command)
			write.Dir, write.Env = filepath.Dir(calls), append(os.Environ(), "DEVCLUSTER_NAME="+name)
			said, err := write.CombinedOutput()
			if down := "scripts/devcluster" + strings.TrimSuffix(" "+want, " exec"); err != nil || name != "" && string(said) != down {
				t.Fatalf("with the cluster %q the demo ends with %q, %v; want %q", name, said, err, down)
			}
			call := exec.Command("sh", filepath.Join(filepath.Dir(calls), "command"), "alice", "get")
			call.Dir, call.Env = "/", []string{"PATH=/usr/bin:/bin"}
			got, err := call.CombinedOutput()
			words := strings.Join(strings.Fields(string(got)), " ")
			if err != nil || !strings.HasPrefix(words, want+" ") || !strings.Contains(words, "--user "+user) {
				t.Errorf("of the cluster %q %s calls scripts/devcluster with %q, %v; want %s and --user %s", name, command, got, err, want, user)
			}
		}
	}
}
