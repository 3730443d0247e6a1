package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// farFault is a fault planted on a site elsewhere, and the finding that doctor must report.
type farFault struct {
	name, example, code, status, found string
	plant                              func(t *testing.T, doc tree)
}

// test plants the fault and runs doctor. The checks of the way before the one that finds it are ok.
func (x farFault) test(t *testing.T) {
	s := farSite(t, x.example, func(doc tree) { x.plant(t, doc) })
	shell(t, "lab", `mkdir -p -m 700 "$1/runs" "$1/images"`, s.dir)
	r := s.cli("doctor", "--no-jobs", "--json")
	var e examined
	r.object(t, &e)
	if status, found, remedy := e.find(x.code); status != x.status || !strings.Contains(found, x.found) || remedy == "" && status != "ok" {
		t.Errorf("%s is %q: %s; %s\n%v", x.code, status, found, remedy, r)
	}
	for _, before := range []string{"ssh_files", "ssh_connection", "ssh_host_key", "ssh_login"} {
		if before == x.code {
			break
		}
		if status, found, _ := e.find(before); status != "ok" {
			t.Errorf("%s is %q: %s", before, status, found)
		}
	}
}

// certificate makes a key and has it signed with options of ssh-keygen; empty by: by an untrusted authority.
func certificate(t *testing.T, by string, options ...string) (key, cert string) {
	t.Helper()
	dir := t.TempDir()
	key = filepath.Join(dir, "key")
	must(t, command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key))
	if by == "" {
		by = filepath.Join(dir, "authority")
		must(t, command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", by))
	}
	must(t, command(append(append([]string{"ssh-keygen", "-q", "-s", by, "-I", "e2e"}, options...), key+".pub")...))
	return key, key + "-cert.pub"
}

// small mounts a small filesystem over the site's runs_dir on the login node.
func small(t *testing.T, runs, options string) {
	t.Helper()
	const mount = `mkdir -p "$1" && mount -t tmpfs -o "mode=700,uid=$(id -u lab),gid=$(id -g lab),$2" tmpfs "$1"`
	shell(t, "root", mount, runs, options)
	t.Cleanup(func() { shell(t, "root", `umount "$1"`, runs) })
}

// A host that allows one session on a connection is found before anything waits for another one. sshd is restarted, so this is not
// parallel.
//
// proves SITE-04 OPS-02
func TestDoctorCountsSessions(t *testing.T) {
	for most, status := range map[int]string{1: "fault", 3: "warning"} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			sshd(t, "-o", fmt.Sprint("MaxSessions=", most))
			farFault{"", "ssh-sftp.yaml", "ssh_sessions", status, fmt.Sprintf("allows %d session", most), func(*testing.T, tree) {}}.test(t)
		})
	}
}

// The site file says where jobs see runs_dir, the login node and the data host. Where jobs see another folder, a probe
// job finds out: it reads the file that went there by SFTP.
//
// proves SITE-01 OPS-02
func TestDoctorFindsAnotherFolderOfJobs(t *testing.T) {
	t.Parallel()
	s := farSite(t, "ssh-sftp.yaml")
	s.ok(nil, "image", "add", "--replace", "probe", probeImage())
	shell(t, "lab", `mkdir -p -m 700 "$1/runs" "$1/wrong"`, s.dir)
	text := value(os.ReadFile(s.outside))(t)
	there := fmt.Sprintf("    runs_dir: %s/runs\n", s.dir)
	for wrong, want := range map[string]string{s.dir + "/wrong": "another filesystem", s.dir + "/missing": "missing"} {
		mapped := fmt.Sprintf("    login:\n        runs_dir: %s/runs\n    runs_dir: %s\n", s.dir, wrong)
		doc := strings.Replace(string(text), there, mapped, 1)
		must(t, os.WriteFile(s.outside, []byte(doc), 0o600))
		r := s.cli("doctor", "--json")
		var e examined
		r.object(t, &e)
		if status, found, remedy := e.find("shared_filesystem"); status != "fault" || !strings.Contains(found, want) || remedy == "" {
			t.Errorf("with jobs that see another folder shared_filesystem is %q: %s; next %s; want a fault: %s\n%v",
				status, found, remedy, want, r)
		}
		for _, code := range []string{"runs_dir", "runs_dir_same", "runs_dir_write"} {
			if status, found, _ := e.find(code); status != "ok" {
				t.Errorf("%s is %q: %s", code, status, found)
			}
		}
	}
}
