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

// doctor of a site elsewhere names faults of keys, of login shells, of SFTP servers and of far disks.
//
// proves SITE-03 OPS-02
func TestDoctorElsewhereMore(t *testing.T) {
	t.Parallel()
	h := sshOf(t)
	ssh := func(doc tree) tree { return doc["slurm"].(tree)["ssh"].(tree) }
	signed := func(by string, options ...string) func(*testing.T, tree) {
		return func(t *testing.T, doc tree) {
			ssh(doc)["key"], ssh(doc)["certificate"] = certificate(t, by, options...)
		}
	}
	server := func(options string) func(*testing.T, tree) { // the SFTP server of the certificate, with SFTP alone
		return func(t *testing.T, doc tree) {
			key, cert := certificate(t, h.UserCA, "-n", "lab", "-O", "force-command=/usr/lib/openssh/sftp-server "+options)
			doc["storage"].(tree)["sftp"] = tree{"shell": false, "syncs_folders": true, "key": key, "certificate": cert}
		}
	}
	runs := func(doc tree) string { return doc["storage"].(tree)["runs_dir"].(string) }
	const near, far = "ssh-sftp.yaml", "ssh-sftp-dtn.yaml"
	for _, x := range []farFault{
		{"a certificate", near, "ssh_login", "ok", "logged in as lab", signed(h.UserCA, "-n", "lab")},
		{"a certificate for later", near, "ssh_login", "fault", "is not valid before", signed(h.UserCA, "-n", "lab", "-V", "+1d:+2d")},
		{"a certificate of an unknown authority", near, "ssh_login", "fault", "signed for lab", signed("", "-n", "lab")},
		{"a certificate of another user", near, "ssh_login", "fault", "signed for bob", signed(h.UserCA, "-n", "bob")},
		{"a profile that never ends", near, "ssh_shell", "fault", "did not start /bin/sh within", func(_ *testing.T, doc tree) {
			ssh(doc)["user"] = "endless"
		}},
		{"a profile that asks gets empty answers", near, "ssh_shell", "ok", "a script ran as asks", func(_ *testing.T, doc tree) {
			ssh(doc)["user"] = "asks"
		}},
		{"no shell", near, "ssh_shell", "fault", "/bin/sh", func(_ *testing.T, doc tree) { ssh(doc)["user"] = "sftponly" }},
		{"a server without links", near, "sftp_server", "fault", "hardlink@openssh.com", server("-P hardlink")},
		{"a server without renames", near, "sftp_server", "fault", "posix-rename@openssh.com", server("-P posix-rename")},
		{"a server without fsync", near, "sftp_server", "fault", "fsync@openssh.com", server("-P fsync")},
		{"a server without statvfs", near, "sftp_server", "warning", "statvfs@openssh.com", server("-P statvfs")},
		{"few inodes", near, "disk_space_far", "fault", "inodes", func(t *testing.T, doc tree) {
			small(t, runs(doc), "nr_inodes=100")
		}},
		{"a full disk", near, "runs_dir_write", "fault", "No space left on device", func(t *testing.T, doc tree) {
			small(t, runs(doc), "size=64k")
			shell(t, "lab", `head -c 65536 /dev/zero >"$1/full"`, runs(doc))
		}},
		{"a full disk with SFTP alone", near, "runs_dir_write", "fault", "a used-up quota", func(t *testing.T, doc tree) {
			small(t, runs(doc), "size=64k")
			shell(t, "lab", `head -c 65536 /dev/zero >"$1/full"`, runs(doc))
			doc["storage"].(tree)["sftp"] = tree{"shell": false}
		}},
		{"a folder nobody may enter", near, "runs_dir", "fault", "may not look at the folder", func(_ *testing.T, doc tree) {
			doc["storage"].(tree)["runs_dir"] = "/root/runs"
		}},
		{"no such name", far, "ssh_connection", "fault", "cannot be reached", func(_ *testing.T, doc tree) {
			ssh(doc)["host"] = "login..invalid"
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.test(t)
		})
	}
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
