package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// server is where an SSH server of the cluster listens.
type server struct {
	Address string
	Port    int
}

// sshInfo is the output of scripts/devcluster ssh-info: how this machine reaches the cluster's SSH servers.
type sshInfo struct {
	Login, Login2 server
	DTN           struct {
		server
		Shared string
	}
	Shared       string
	Key          string
	KnownHosts   string            `json:"known_hosts"`
	KnownHostsCA string            `json:"known_hosts_ca"`
	UserCA       string            `json:"user_ca"`
	OtherHostKey string            `json:"other_host_key"`
	Users        map[string]string // login shells
	Callers      callers
}

func sshOf(t testing.TB) (h sshInfo) { return sshOfCluster(t, world.cluster) }

func sshOfCluster(t testing.TB, name string) (h sshInfo) {
	t.Helper()
	out := value(exec.Command(filepath.Join(world.repo, "scripts/devcluster"), "--name", name, "ssh-info").Output())(t)
	must(t, json.Unmarshal(out, &h))
	return h
}

// farSite makes a site whose gateway runs on this machine and reaches the cluster as an example of site-configs
// describes.
func farSite(t testing.TB, example string, edit ...func(doc tree)) *site {
	t.Helper()
	h := sshOf(t)
	return siteOutside(t, example, append([]func(doc tree){func(doc tree) {
		ssh := doc["slurm"].(tree)["ssh"].(tree)
		ssh["host"], ssh["port"], ssh["user"], ssh["key"], ssh["known_hosts"] = h.Login.Address, h.Login.Port, "lab", h.Key, []any{h.KnownHosts}
		if _, jumps := ssh["jump"]; jumps {
			ssh["jump"] = []any{tree{"host": h.Login2.Address, "port": h.Login2.Port}}
		}
	}}, edit...)...)
}

// siteOutside makes a site of a gateway on this machine after an example of site-configs; edit sets how the gateway
// reaches the cluster.
func siteOutside(t testing.TB, example string, edit ...func(doc tree)) *site {
	t.Helper()
	s := newSite(t, "probing")
	h := sshOf(t)
	text := value(os.ReadFile(filepath.Join(world.repo, "site-configs", example)))(t)
	doc := tree{}
	must(t, yaml.Unmarshal(text, &doc))
	slurm, storage := doc["slurm"].(tree), doc["storage"].(tree)
	dir := t.TempDir()
	doc["gateway"] = tree{"state_dir": dir + "/state", "default_project": "demo"}
	doc["domain_dir"] = host(s.dir) + "/domain"
	delete(slurm, "cluster")
	slurm["accounting"], slurm["grace_seconds"] = "required", 2
	storage["runs_dir"], storage["image_store"], storage["reserve_mb"] = s.dir+"/runs", s.dir+"/images", 1
	if far, own := storage["sftp"].(tree); own {
		on := func(path string) string { return h.DTN.Shared + strings.TrimPrefix(path, h.Shared) }
		far["host"], far["port"], far["runs_dir"], far["image_store"] = h.DTN.Address, h.DTN.Port, on(s.dir+"/runs"), on(s.dir+"/images")
	}
	must(t, os.Mkdir(dir+"/files", 0o755))
	doc["import"] = tree{"roots": []any{tree{"path": dir + "/files", "projects": []any{"demo"}}}}
	doc["watch"] = tree{"floor_seconds": 1, "ceiling_seconds": 5}
	doc["budget"] = tree{"rpc_per_minute": 6000, "sends_in_flight": 4, "staging_workers": 4}
	for _, f := range edit {
		f(doc)
	}
	out := value(yaml.Marshal(doc))(t)
	s.outside = dir + "/site.yaml"
	must(t, os.WriteFile(s.outside, out, 0o600))
	return s
}

// probeImage returns the path of the test image on this machine.
func probeImage() string {
	return host(world.dir) + "/images/" + strings.TrimPrefix(world.probe, "sha256:") + ".sif"
}

// A gateway outside of the cluster, over SSH and SFTP, to the login node, to a data host behind a jump host, and with SFTP alone for files:
// an image reaches the far store, runs are submitted, waited for, collected, cancelled, retried and replayed, also after the gateway was
// killed, one that waited for an output starts, and gc removes their workspaces.
//
// proves SITE-01 SITE-02 CARD-03 CARD-07 MANY-04
// short: Slurm over SSH, files over SFTP
func TestGatewayOutsideTheCluster(t *testing.T) {
	t.Parallel()
	alone := func(doc tree) { doc["storage"].(tree)["sftp"] = tree{"shell": false, "syncs_folders": true} }
	for _, x := range []struct {
		name, example string
		edit          []func(doc tree)
	}{{"login", "ssh-sftp.yaml", nil}, {"data host", "ssh-sftp-dtn.yaml", nil}, {"SFTP alone", "ssh-sftp.yaml", []func(doc tree){alone}}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := farSite(t, x.example, x.edit...)
			s.ok(nil, "image", "add", "--replace", "probe", probeImage())
			if r := s.cli("image", "verify", "--json"); r.code != 0 || !strings.Contains(string(r.stdout), world.probe) {
				t.Errorf("%v, want the digest %s", r, world.probe)
			}
			goesOn(t, s, "ssh", x.name == "SFTP alone")
		})
	}
}

// swept is the report of a gc.
type swept struct {
	DryRun                     bool `json:"dry_run"`
	Workspaces, Imports, Bytes struct {
		Count, Bytes int64
		Named        []string
	}
	Kept []struct{ Name, Why string }
}

// jobsNamed returns Slurm's ids of the jobs with the name.
func jobsNamed(t testing.TB, name string) (ids []string) {
	t.Helper()
	until(t, "a job "+name+" in accounting", func() bool { // slurmdbd follows slurmctld
		ids = strings.Fields(shell(t, "lab", `sacct -X -n -P -D -S now-1hour -o jobid --name="$1"`, name))
		return len(ids) > 0
	})
	return ids
}

// doctor of a site elsewhere names faults on the way to it, of keys, of login shells, of SFTP servers and of far disks, reports what to do,
// and a fault of one site does not hide another's.
//
// proves SITE-03 OPS-02
func TestDoctorElsewhere(t *testing.T) {
	t.Parallel()
	h := sshOf(t)
	ssh := func(doc tree) tree { return doc["slurm"].(tree)["ssh"].(tree) }
	file := func(t *testing.T, text string) string {
		name := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
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
	other := value(os.ReadFile(h.OtherHostKey))(t)
	key := strings.Join(strings.Fields(string(other))[:2], " ")
	for _, x := range []farFault{
		{"nobody listens", "ssh-sftp.yaml", "ssh_connection", "fault", "refused", func(_ *testing.T, doc tree) { ssh(doc)["port"] = 1 }},
		{"the key is unknown", "ssh-sftp.yaml", "ssh_host_key", "fault", "none of the known_hosts files",
			func(t *testing.T, doc tree) { ssh(doc)["known_hosts"] = []any{file(t, "other.example "+key+"\n")} }},
		{"no known_hosts", "ssh-sftp.yaml", "ssh_files", "fault", "known_hosts",
			func(_ *testing.T, doc tree) { ssh(doc)["known_hosts"] = []any{"/nonexistent/known_hosts"} }},
		{"an open key", "ssh-sftp.yaml", "ssh_files", "fault", "mode 0644", func(t *testing.T, doc tree) {
			text := value(os.ReadFile(h.Key))(t)
			name := file(t, string(text))
			must(t, os.Chmod(name, 0o644))
			ssh(doc)["key"] = name
		}},
		{"no such user", "ssh-sftp.yaml", "ssh_login", "fault", "does not accept",
			func(_ *testing.T, doc tree) { ssh(doc)["user"] = "nobody-here" }},
		{"a noisy profile", "ssh-sftp.yaml", "ssh_shell", "warning", "print text", func(_ *testing.T, doc tree) { ssh(doc)["user"] = "noisy" }},
		{"no commands", "ssh-sftp.yaml", "slurm_commands", "fault", "has no sbatch", func(_ *testing.T, doc tree) {
			doc["slurm"].(tree)["bin_dir"] = "/usr/lib"
		}},
		{"the data host's key is unknown", "ssh-sftp-dtn.yaml", "sftp_host_key", "fault", "none of the known_hosts files",
			func(t *testing.T, doc tree) {
				doc["storage"].(tree)["sftp"].(tree)["known_hosts"] = []any{file(t, "other.example "+key+"\n")}
			}},
		{"two folders", "ssh-sftp-dtn.yaml", "runs_dir_same", "fault", "is not in", func(t *testing.T, doc tree) {
			there := fmt.Sprintf("/tmp/runs-%d", time.Now().UnixNano())
			shell(t, "lab", `mkdir -m 700 "$1"`, there)
			doc["storage"].(tree)["login"] = tree{"runs_dir": there}
		}},
		{"a folder of somebody else's", "ssh-sftp.yaml", "runs_dir", "fault", "belongs to", func(_ *testing.T, doc tree) {
			doc["storage"].(tree)["runs_dir"] = "/usr/lib"
		}},
		{"no folder yet", "ssh-sftp.yaml", "runs_dir", "fault", "does not exist", func(_ *testing.T, doc tree) {
			doc["storage"].(tree)["runs_dir"] = fmt.Sprintf("/shared/none-%d", time.Now().UnixNano())
		}},
		{"SFTP alone", "ssh-sftp.yaml", "sftp_syncs_folders", "warning", "cannot sync folders", func(_ *testing.T, doc tree) {
			doc["storage"].(tree)["sftp"] = tree{"shell": false}
		}},
		{"the disk is too small", "ssh-sftp.yaml", "disk_space_far", "fault", "free", func(_ *testing.T, doc tree) {
			doc["storage"].(tree)["reserve_mb"] = 1 << 20
		}},
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

// doctor finds nothing broken on a healthy site elsewhere, compute nodes included, and leaves nothing behind.
//
// proves OPS-02
func TestDoctorElsewhereAllIsWell(t *testing.T) {
	t.Parallel()
	s := farSite(t, "ssh-sftp-dtn.yaml")
	s.ok(nil, "image", "add", "--replace", "probe", probeImage())
	s.wait(s.submit(probePlan("write", "out/result", "so that there is a ledger")).RunID)
	r := s.cli("doctor", "--json")
	var e examined
	r.object(t, &e)
	e.healthy(t, []string{"fault", "unknown"}, []string{"accounts", "submit_limits", "tool_jobs"},
		"ssh_login", "ssh_sessions", "ssh_shell",
		"ssh_tools", "clock_login", "sftp_login", "sftp_sessions", "sftp_server", "runs_dir_same",
		"sftp_syncs_folders", "runs_dir", "ledger_runs_dir", "runs_dir_write", "runs_dir_links", "clock_runs_dir", "disk_space_far", "images",
		"slurm_commands", "cluster_name", "image_arch", "shared_filesystem", "node_runs_dir", "node_images", "node_user", "container")
	if left := shell(t, "lab", `find "$1/runs" -maxdepth 1 -name '.doctor*'`, s.dir); left != "" {
		t.Errorf("doctor left %s", left)
	}
}
