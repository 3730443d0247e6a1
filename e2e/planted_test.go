package e2e

import (
	"os"
	"path/filepath"
	"strings"
)

// plantedHere returns faults of the gateway's own host: folders, ledger, policy, images, limits, network.
func plantedHere() []planted {
	return []planted{
		{name: "a value of the site file is out of bounds", code: "site_file", status: "fault", found: "floor_seconds",
			edit: [][2]string{{"floor_seconds: 1", "floor_seconds: 0"}}, serve: "floor_seconds"},
		{name: "the service's user cannot read the site file", code: "site_file", status: "fault", found: "permission denied", root: true,
			plant: then(used, asRoot(`chown root "$1/site.yaml"; chmod 600 "$1/site.yaml"`)), serve: "permission denied"},
		{name: "the service's user cannot execute the program", code: "service_user", status: "fault", found: "permission denied", root: true,
			plant: then(used, asRoot(`mkdir -m 700 "$1/hidden"; cp "$(dirname "$1")/slurmgate" "$1/hidden/"`)), program: "hidden/slurmgate",
			mute: true},
		{name: "state_dir belongs to root", code: "state_dir", status: "fault", found: "belongs to root",
			plant: asRoot(`mkdir -p "$2"; chown lab "$(dirname "$2")"; chmod 755 "$2"`), also: []string{"record", "artifact_dir", "socket"}, serve: "can start one"},
		{name: "everybody can write to state_dir", code: "state_dir", status: "fault", found: "mode 0777",
			plant: asRoot(`mkdir -p "$2"; chown lab "$(dirname "$2")" "$2"; chmod 777 "$2"`), also: []string{"record"}, serve: "mode 0777"},
		{name: "state_dir cannot be created", code: "state_dir", status: "fault", found: "does not exist",
			file: func(f *siteFile) { f.State = "/opt/nothing/state" }, also: []string{"record", "artifact_dir", "socket"}, serve: "state_dir"},
		{name: "the ledger became root's", code: "state_files", status: "fault", found: "belongs to root", root: true,
			plant: then(used, asRoot(`chown root "$2/ledger.db"`)), also: []string{"record"}, serve: "ledger"},
		{name: "the ledger is on a network filesystem", code: "state_dir_disk", status: "fault", found: "a network filesystem",
			plant: asRoot(`install -d -o lab "$(dirname "$2")" "$2" "$1/lower" "$1/upper" "$1/fwork"; chmod 700 "$2" "$1/lower" "$1/upper"
				fuse-overlayfs -o allow_other,lowerdir="$1/lower",upperdir="$1/upper",workdir="$1/fwork" "$2"`), also: []string{"record"},
			serve: "network filesystem"},
		{name: "the ledger is in memory", code: "ledger_sync", status: "warning", found: "is in memory", mute: true,
			plant: asRoot(`install -d -o lab "$(dirname "$2")" "$2"; mount -t tmpfs -o mode=700,uid="$(id -u lab)" none "$2"`)},
		{name: "artifact_dir cannot be created", code: "artifact_dir", status: "fault", found: "does not exist",
			edit:  [][2]string{{"  default_project: demo\n", "  default_project: demo\n  artifact_dir: /opt/nothing/artifacts\n"}},
			serve: "artifact store"},
		{name: "the folder of the socket cannot be created", code: "socket", status: "fault", found: "does not exist",
			edit: [][2]string{{"  default_project: demo\n", "  default_project: demo\n  socket: /run/nothing/gateway.sock\n"}}, serve: "socket"},
		{name: "a file is in the place of the socket", code: "socket", status: "fault", found: "is no socket",
			plant: then(used, asRoot(`rm -f "$2/gateway.sock"; install -o lab -m 600 /dev/null "$2/gateway.sock"`)), serve: "socket",
			also: []string{"record"}},
		{name: "the ledger is gone", code: "ledger", status: "fault", found: "there is no ledger",
			plant: then(used, asRoot(`rm "$2"/ledger.db*`)), also: []string{"record"}, serve: "there is no ledger"},
		{name: "the ledger is not a database", code: "ledger", status: "fault", found: "not a database",
			plant: then(used, asRoot(`rm -f "$2"/ledger.db-*; yes garbage | head -c 65536 >"$2/ledger.db"`)), also: []string{"record"},
			serve: "not a database"},
		{name: "runs_dir is another gateway's", code: "ledger_runs_dir", status: "fault", found: "belongs to gateway gw-other",
			plant: then(used, asRoot(`echo gw-other >"$1/runs/.gateway-id"`)), serve: "belongs to gateway"},
		{name: "an older ledger was restored", code: "ledger_runs_dir", status: "fault", found: "does not know",
			plant: then(used, asRoot(`install -d -o lab -m 700 "$1/runs/run_1H7B5J2ZARRNWKD7V6CEBCKP61"`))},
		{name: "the disk of the artifacts is not mounted", code: "artifact_files", status: "fault", found: "lacks the bytes",
			plant: then(used, asRoot(`mv "$2/artifacts" "$2/elsewhere"`))},
		{name: "runs_dir belongs to root", code: "runs_dir", status: "fault", found: "belongs to root",
			plant: asRoot(`install -d -m 700 "$1/runs"`), serve: "runs: permission denied", also: []string{"ledger", "record"}},
		{name: "everybody can write to runs_dir", code: "runs_dir", status: "fault", found: "mode 0777",
			plant: asRoot(`install -d -o lab -m 777 "$1/runs"`), serve: "runs_dir"},
		{name: "runs_dir is mounted read-only", code: "runs_dir", status: "fault", found: "read-only",
			plant: then(used, asRoot(`mount --bind "$1/runs" "$1/runs"; mount -o remount,bind,ro "$1/runs"`)), serve: "read-only"},
		{name: "runs_dir is in this host's memory", code: "runs_dir_write", status: "fault", found: "compute nodes do not see it", mute: true,
			plant: asRoot(`install -d -o lab "$1/runs"; mount -t tmpfs -o mode=700,uid="$(id -u lab)" none "$1/runs"`)},
		{name: "a disk is nearly full", code: "disk_space", status: "fault", found: "MiB free",
			file: func(f *siteFile) { f.ReserveMB = 1048576 }},
		{name: "a disk has hardly an inode", code: "disk_inodes", status: "fault", found: "inodes free", plant: asRoot(
			`install -d -o lab "$(dirname "$2")" "$2/artifacts" "$2"; chmod 700 "$2"
				mount -t tmpfs -o mode=700,nr_inodes=500,size=20m,uid="$(id -u lab)" none "$2/artifacts"`)},
		{name: "a toolpack breaks a rule", code: "domain", status: "fault", found: "abiVersion", also: []string{"record"}, plant: func(s *site) {
			s.replace("domain/toolpacks/samtools.flagstat.tool.yaml", "abiVersion: v1", "abiVersion: v9")
		}, serve: "abiVersion"},
		{name: "an import root is not there", code: "import_roots", status: "warning", found: "/nothing is not a folder",
			edit: [][2]string{{"roots: [", "roots: [{path: /nothing, projects: [demo]}, "}}},
		{name: "policy denies a tool", code: "policy_fits", status: "warning", found: "tool_allowlist",
			rules: [][2]string{{"version: 1\n", "version: 1\ntool_allowlist: [samtools_flagstat, seqkit_stats, site_doctor]\n"}}},
		{name: "a tool asks for a folder that the site does not have", code: "tool_binds", status: "fault", found: "ref", plant: func(s *site) {
			s.replace("domain/toolpacks/samtools.flagstat.tool.yaml", "abiVersion: v1\n", "abiVersion: v1\nbinds: [ref]\n")
		}, serve: "ref"},
		{name: "policy names a cluster that is not there", code: "policy_sites", status: "fault", found: "other",
			rules: [][2]string{{"version: 1\n", "version: 1\nsites: {allowlist: [e2e, other]}\n"}}, serve: "other"},
		{name: "policy denies the default account", code: "default_placement", status: "fault", found: "policy does not allow teaching",
			edit: [][2]string{{"default_account: research", "default_account: teaching"}}},
		{name: "what runs on this host lacks its Apptainer", code: "local_runs", status: "fault", found: "/opt/nothing/apptainer",
			file:  func(f *siteFile) { f.Apptainer = "/opt/nothing/apptainer" },
			rules: [][2]string{{"version: 1\n", "version: 1\nlocal: {max_running: 1}\n"}}},
		{name: "few open files", code: "open_files", status: "warning", found: "may open 200", as: []string{"prlimit", "--nofile=200:200"},
			mute: true},
		{name: "little memory", code: "memory", status: "warning", found: "of memory", as: []string{"prlimit", "--data=400000000"}, mute: true},
		{name: "another program has the port", code: "http_port", status: "fault", found: "another program listens",
			edit: [][2]string{{"import:\n", "http: {listen: \"127.0.0.1:18442\"}\nimport:\n"}}, serve: "18442", front: func(s *site) func() {
				other := newSite(s.t, "genomics")
				other.replace("site.yaml", "import:\n", "http: {listen: \"127.0.0.1:18442\"}\nimport:\n")
				other.serve()
				return func() {}
			}},
		{name: "the port's address is not this host's", code: "http_port", status: "fault", found: "does not have the address",
			edit: [][2]string{{"import:\n", "http: {listen: \"192.0.2.1:18443\", remote: true}\nimport:\n"}}, serve: "192.0.2.1"},
		{name: "the public address does not answer", code: "certificate", status: "unknown", found: "does not answer",
			edit: [][2]string{{"import:\n", "http: {listen: \"127.0.0.1:0\", public_url: \"https://127.0.0.1:1\"}\nimport:\n"}}},
		{name: "an image is not in the store", code: "images", status: "fault", found: "image ",
			file: func(f *siteFile) { f.ImageStore = f.Dir + "/images" }, plant: asRoot(`install -d -o lab "$1/images"`),
			also: []string{"image_lock"},
			mute: true},
		{name: "an image is damaged", code: "images", status: "fault", found: "image ", mute: true,
			file: func(f *siteFile) { f.ImageStore = f.Dir + "/images" }, plant: damageImage},
		{name: "the image store is a file", code: "image_store", status: "fault", found: "images",
			file: func(f *siteFile) { f.ImageStore = f.Dir + "/images" }, plant: asRoot(`echo >"$1/images"`), also: []string{"image_lock"}},
		{name: "everybody can change the site file", code: "installed_files", status: "warning", found: "site.yaml",
			plant: asRoot(`chmod 666 "$1/site.yaml"`)},
	}
}

// damageImage copies the image store and changes a byte of one image.
func damageImage(s *site) {
	shell(s.t, "lab", `cp -r "$2" "$1/images"; chmod -R u+w "$1/images"`, s.dir, world.dir+"/images")
	var done bool
	must(s.t, filepath.WalkDir(host(s.dir)+"/images", func(path string, e os.DirEntry, err error) error {
		if err != nil || done || !e.Type().IsRegular() || !strings.Contains(s.locked(), strings.TrimSuffix(e.Name(), ".sif")) {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return err
		}
		done = true
		_, err = f.WriteAt([]byte("damaged"), st.Size()-100)
		return err
	}))
	if !done {
		s.t.Fatal("no image was damaged")
	}
}

// locked reads the site's image lock.
func (s *site) locked() string {
	data := value(os.ReadFile(host(s.dir) + "/domain/images.lock.yaml"))(s.t)
	return string(data)
}
