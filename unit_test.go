package slurmgate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit that is shipped has the limits that hold when all others fail, and leaves sbatch alone when the gateway stops.
func TestServiceUnit(t *testing.T) {
	unit, err := os.ReadFile("packaging/slurmgate.service")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	section := ""
	for line := range strings.Lines(string(unit)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = line
		case line == "" || strings.HasPrefix(line, "#"):
		case !ok:
			t.Errorf("not a setting: %q", line)
		default:
			if _, twice := has[section+name]; twice && name != "ExecReload" {
				t.Errorf("%s appears twice", name)
			}
			has[section+name] = value
		}
	}
	for name, want := range map[string]string{"KillMode": "process", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "MemoryMax": "2G",
		"TasksMax": "2048", "LimitNOFILE": "65536", "PrivateTmp": "yes", "UMask": "0077", "User": "slurmgate", "Type": "notify",
		"RestartPreventExitStatus": "78", "RuntimeDirectory": "slurmgate", "RuntimeDirectoryMode": "0755"} {
		if got := has["[Service]"+name]; got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not here: the unit's names are not checked")
		return
	}
	drop, err := os.ReadFile("packaging/no-local-tools.conf")
	if err != nil {
		t.Fatal(err)
	}
	// A whole unit with the drop-in's settings, and a program that exists everywhere.
	strict := strings.Replace(string(unit), "\n[Install]", strings.TrimPrefix(string(drop[strings.Index(string(drop), "[Service]\n"):]),
		"[Service]")+"\n[Install]", 1)
	for name, text := range map[string]string{"slurmgate.service": string(unit), "strict.service": strict} {
		file := filepath.Join(t.TempDir(), name)
		text = strings.ReplaceAll(text, "/usr/local/bin/slurmgate", "/bin/true")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		if err != nil || strings.Contains(string(out), filepath.Base(file)+":") {
			t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
		}
	}
}
