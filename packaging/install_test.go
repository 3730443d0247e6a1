package packaging_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// host is the login node of a cluster whose init is systemd.
type host struct {
	t     *testing.T
	name  string // of the cluster
	share string // its /shared, seen from here
}

// start starts a separate cluster, always in the same clean state.
func start(t *testing.T) host {
	h := host{t: t, name: cmp.Or(os.Getenv("SLURMGATE_TEST_CLUSTER"), "e2e") + "-packages"}
	output(t, "scripts/devcluster", "--name", h.name, "down")
	output(t, "scripts/devcluster", "--name", h.name, "up", "--systemd")
	t.Cleanup(func() { output(t, "scripts/devcluster", "--name", h.name, "down") })
	h.share = strings.TrimSpace(output(t, "scripts/devcluster", "--name", h.name, "path"))
	h.must(`find /shared -mindepth 1 -maxdepth 1 ! -name scratch -exec rm -rf {} +`) // a filesystem is mounted below scratch
	return h
}

// run runs a line of bash there as root, and returns both output streams.
func (h host) run(line string) (string, error) {
	c := exec.Command("scripts/devcluster", "--name", h.name, "exec", "--", "bash", "-c", line)
	c.Path, c.Dir = filepath.Join(made.repo, c.Path), made.repo
	c.Err = nil
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return strings.TrimSpace(out.String()), err
}

func (h host) must(line string) string {
	h.t.Helper()
	out, err := h.run(line)
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// says runs a line and fails the test unless its output has these words.
func (h host) says(line string, want ...string) string {
	h.t.Helper()
	out := h.must(line)
	for _, w := range want {
		if !strings.Contains(out, w) {
			h.t.Errorf("%s: no %q in:\n%s", line, w, out)
		}
	}
	return out
}

// until repeats a line until it succeeds.
func (h host) until(line string) {
	h.t.Helper()
	var out string
	var err error
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		if out, err = h.run(line); err == nil {
			return
		}
	}
	h.t.Fatalf("%s did not succeed within 5 minutes: %v\n%s", line, err, out)
}

// call runs slurmgate as the gateway's user.
func (h host) call(args string) string {
	h.t.Helper()
	return h.must("runuser -u slurmgate -- slurmgate " + args)
}

// submit starts a run of the tool that waits, and returns its id.
func (h host) submit(number string) string {
	h.t.Helper()
	var answer struct {
		RunID string `json:"run_id"`
	}
	out := h.call("run pause.wait --json -p number=" + number + " 2>/dev/null")
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.RunID == "" {
		h.t.Fatalf("%v in %s", err, out)
	}
	return answer.RunID
}

// finish lets a run's program continue and waits for its outputs.
func (h host) finish(run string) {
	h.t.Helper()
	h.until("test -e /shared/lab/slurmgate/runs/" + run + "/a1/out/started")
	h.must("touch /shared/lab/slurmgate/runs/" + run + "/a1/out/go")
	h.says("runuser -u slurmgate -- slurmgate wait --timeout 60s "+run, "succeeded")
}

// image makes the image of the program that waits.
func (h host) image() {
	root := filepath.Join(made.dir, "image")
	for _, d := range []string{"bin", "dev", "etc", "proc", "root", "sys", "tmp", "var/tmp", "work/in", "work/out", "work/meta"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, f := range []string{"etc/passwd", "etc/group"} {
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
	output(h.t, "env", "CGO_ENABLED=0", "go", "build", "-o", filepath.Join(root, "bin/testprog"), "./e2e/testprog")
	output(h.t, "mksquashfs", root, root+".squashfs", "-noappend", "-no-progress", "-quiet", "-comp", "gzip", "-all-root", "-no-xattrs")
	output(h.t, "go", "run", "./scripts/images/mksif", "-o", h.share+"/probe.sif", root+".squashfs")
}

// configure does what INSTALL.md asks of an admin after the installation, with the commands that site init prints. The
// folder is another than the unit names.
func (h host) configure() {
	h.image()
	output(h.t, "cp", "-r", "packaging/testdata/domain", h.share+"/pausing")
	h.must(`sacctmgr -i add user slurmgate account=research && mkdir /shared/data /shared/lab &&
		slurmgate site init --shared /shared/lab --domain /shared/pausing --data /shared/data --account research >/root/init &&
		sed -n 's/^  //p' /root/init | sh -e &&
		slurmgate image add probe /shared/probe.sif && systemctl enable --now slurmgate`)
	h.until("test -S /run/slurmgate/gateway.sock")
}

// signer starts the signer under its unit, and asks it as the gateway's user.
func (h host) signer() {
	h.t.Helper()
	h.must(`runuser -u slurmgate-signer -- ssh-keygen -q -t ed25519 -N '' -C slurmgate-signer -f /etc/slurmgate-signer/ca &&
		cp /etc/slurmgate/signer.yaml.template /etc/slurmgate/signer.yaml`)
	h.says("runuser -u slurmgate-signer -- slurmgate signer --check 2>&1", "would start")
	h.says("runuser -u slurmgate-signer -- slurmgate signer --public-key; cat /etc/slurmgate-signer/ca.pub", "ssh-ed25519 ")
	h.must("systemd-analyze verify /usr/lib/systemd/system/slurmgate-signer.service")
	h.must("systemctl start slurmgate-signer || { journalctl -n 20 -u slurmgate-signer; exit 1; }")
	h.must(`ssh-keygen -q -t ed25519 -N '' -C '' -f /root/probe`)
	ask := `runuser -u %s -- perl -MIO::Socket::UNIX -e '$SIG{PIPE} = "IGNORE";
		$s = IO::Socket::UNIX->new(Peer => "/run/slurmgate-signer/signer.sock") or die $!;
		print $s "$ARGV[0]\n"; $s->flush; print <$s>' "{\"user\":\"%s\",\"public_key\":\"$(cat /root/probe.pub)\",\"run_id\":\"r\",
		\"caller\":\"c\",\"gateway\":\"g\",\"source_addresses\":[\"127.0.0.1\"],\"minutes\":5}"`
	ask = strings.ReplaceAll(ask, "\n\t\t\\\"", "\\\"")
	h.says(fmt.Sprintf(ask, "slurmgate", "alice"), `{"certificate":"ssh-ed25519-cert-v01@openssh.com `)
	h.says(fmt.Sprintf(ask, "slurmgate", "munge"), "user_refused")
	h.says(fmt.Sprintf(ask, "alice", "alice"), "accepts no requests of user id")
	h.says("cd /var/log/slurmgate-signer && stat -c '%a %U' . certificates.log", "700 slurmgate-signer\n600 slurmgate-signer")
	h.says("systemd-analyze security --no-pager slurmgate-signer | tail -n 1", " OK ")
}

const pid = "systemctl show -P MainPID slurmgate"

// The deb is installed, upgraded while one run executes and another waits for a place, removed while a run waits, installed again and
// purged: no run is lost or made twice, and nothing but a purge takes the configuration. The data stay in any case.
//
// proves OPS-01
func TestInstall(t *testing.T) {
	h := start(t)
	for name, r := range map[string]release{"old": made.old, "new": made.new} {
		output(t, "cp", r.file(t, "*.deb"), h.share+"/"+name+".deb")
	}

	h.says("dpkg -i /shared/old.deb", "not configured yet. Next: slurmgate site init")
	h.says(`systemctl is-enabled slurmgate slurmgate-gc.timer slurmgate-backup.timer; systemctl is-active slurmgate; true`,
		"disabled\ndisabled\ndisabled\ninactive")
	h.says("stat -c '%a %U' /var/lib/slurmgate /var/backups/slurmgate", "700 slurmgate\n700 slurmgate")
	// The signer is installed for sites that use it: under a separate user, which no group of the gateway's has, and
	// off.
	h.says("systemctl is-enabled slurmgate-signer; systemctl is-active slurmgate-signer; true", "disabled\ninactive")
	h.says("id -nG slurmgate-signer; id -nG slurmgate; stat -c '%a %U' /etc/slurmgate-signer; getent passwd slurmgate-signer",
		"slurmgate-signer\nslurmgate\n700 slurmgate-signer\n", "/usr/sbin/nologin")
	h.says("find /usr/share/doc/slurmgate/examples/ -name policies.yaml", "domains/genomics/policies.yaml")
	h.must("gzip -t /usr/share/man/man1/slurmgate*.1.gz && source /usr/share/bash-completion/completions/slurmgate && complete -p slurmgate")

	h.configure()
	h.says("slurmgate version", made.old.version)
	h.signer()
	executing := h.submit("1")
	h.until("test -e /shared/lab/slurmgate/runs/" + executing + "/a1/out/started")
	h.must("scontrol update PartitionName=main State=DOWN")
	waiting := h.submit("2")
	before := h.must(pid)

	h.must("dpkg -i /shared/new.deb")
	if after := h.must(pid); after == before || after == "0" {
		t.Errorf("the gateway was process %s and is process %s", before, after)
	}
	h.says("systemctl is-active slurmgate-signer; readlink /proc/$(systemctl show -P MainPID slurmgate-signer)/exe",
		"active\n/usr/bin/slurmgate")
	h.says(`readlink /proc/$(`+pid+`)/exe; slurmgate version`, "/usr/bin/slurmgate\nslurmgate "+made.new.version)
	h.until("test -S /run/slurmgate/gateway.sock")
	h.says("runuser -u slurmgate -- slurmgate get "+executing, "running")
	h.says("runuser -u slurmgate -- slurmgate get "+waiting, "queued")
	h.must("scontrol update PartitionName=main State=UP")
	h.finish(executing)
	h.finish(waiting)
	if jobs := h.must("sacct -X -n -P -D -u slurmgate -o JobID,State"); strings.Count(jobs, "COMPLETED") != 2 || strings.Count(jobs,
		"\n") != 1 {
		t.Errorf("two runs are two jobs:\n%s", jobs)
	}
	if again := h.submit("1"); again != executing {
		t.Errorf("%s was asked for again and became %s", executing, again)
	}

	// The next version does not accept the configuration: the one that runs is left alone.
	before = h.must(pid)
	h.must("cp -p /etc/slurmgate/site.yaml /root/ && echo 'slrum: {}' >> /etc/slurmgate/site.yaml")
	h.says("dpkg -i /shared/new.deb", `did you mean "slurm"?`, "the old one still runs")
	if after := h.must(pid); after != before {
		t.Errorf("the gateway was process %s and is process %s", before, after)
	}
	h.must("mv /root/site.yaml /etc/slurmgate/ && systemctl restart slurmgate")
	h.until("test -S /run/slurmgate/gateway.sock")

	h.must("systemctl start slurmgate-gc slurmgate-backup || { journalctl -n 20 -u slurmgate-gc -u slurmgate-backup; exit 1; }")
	h.must("test -n \"$(find /var/backups/slurmgate -name 'ledger.db*')\"")

	left := h.submit("3")
	h.until("test -e /shared/lab/slurmgate/runs/" + left + "/a1/out/started")
	h.says("dpkg -r slurmgate", "jobs in flight go on")
	h.must("test ! -e /usr/bin/slurmgate && test -e /var/lib/slurmgate/ledger.db && test -e /etc/slurmgate/site.yaml")
	h.says("systemctl is-active slurmgate; systemctl is-failed slurmgate; squeue -h -u slurmgate -o %T", "RUNNING")
	h.says("dpkg -i /shared/new.deb && systemctl enable --now slurmgate", "Next: systemctl enable --now slurmgate")
	h.until("test -S /run/slurmgate/gateway.sock")
	h.finish(left)

	h.says("dpkg -P slurmgate", "/var/lib/slurmgate", "still there", "/etc/slurmgate-signer, which has the key")
	h.must("test ! -e /etc/slurmgate && test -s /var/lib/slurmgate/ledger.db && id slurmgate && test -s /etc/slurmgate-signer/ca")
	h.says("systemctl list-unit-files 'slurmgate*'; true", "0 unit files listed")
}
