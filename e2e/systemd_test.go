package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machine is a cluster whose init is systemd, with slurmgate installed as INSTALL.md says.
type machine struct {
	t     testing.TB
	name  string
	share string // its /shared, seen from here
	init  int    // the host's pid of its systemd
}

// startMachine starts a cluster with systemd, and stops it when the test has ended.
func startMachine(t testing.TB, name string, flags ...string) *machine {
	t.Helper()
	m := &machine{t: t, name: world.cluster + "-" + name}
	must(t, command(append([]string{"scripts/devcluster", "--name", m.name, "up", "--systemd"}, flags...)...))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("context: the end of the journal\n" + m.try("journalctl --no-pager -o cat -n 18 -u slurmgate -u systemd-logind").text)
		}
		if err := command("scripts/devcluster", "--name", m.name, "down"); err != nil {
			t.Error(err)
		}
	})
	out, err := exec.Command(filepath.Join(world.repo, "scripts/devcluster"), "--name", m.name, "status", "--json").Output()
	must(t, err)
	var status struct {
		PID   int    `json:"pid"`
		Share string `json:"share"`
	}
	must(t, json.Unmarshal(out, &status))
	m.init, m.share = status.PID, status.Share
	return m
}

// newMachine starts the cluster and installs the program and its unit.
func newMachine(t testing.TB) *machine {
	t.Helper()
	m := startMachine(t, "systemd")
	dir := filepath.Join(m.share, "install")
	must(t, os.RemoveAll(dir))
	must(t, os.RemoveAll(filepath.Join(m.share, "slurmgate")))
	must(t, os.MkdirAll(dir, 0o755))
	from := host(world.dir)
	for name, file := range map[string]string{"slurmgate": from + "/slurmgate", "probe.sif": from + "/probe.sif",
		"slurmgate.service": world.repo + "/packaging/slurmgate.service", "seccomp.json": world.repo + "/site-configs/seccomp.json"} {
		must(t, command("cp", file, filepath.Join(dir, name)))
	}
	must(t, os.CopyFS(filepath.Join(dir, "domain"), os.DirFS(filepath.Join(world.repo, "e2e/testdata/domain"))))
	m.write(dir+"/domain/toolpacks/probe.here.tool.yaml", hereTool)
	m.edit(dir+"/domain/manifest.yaml", "tools:\n", "tools:\n  - {tool_id: probe.here, kind: job_worker}\n")
	m.edit(dir+"/domain/policies.yaml", "network: none", "network: none\nlocal: {max_running: 2}")
	m.write(dir+"/domain/images.lock.yaml", "version: 1\nimages: []\n")
	m.write(dir+"/site.yaml", machineSite)
	m.run(`cd /shared/install
useradd --create-home slurmgate
sacctmgr -i add user slurmgate account=research >/dev/null
until scontrol show assoc_mgr users=slurmgate flags=assoc | grep UserName >/dev/null; do sleep 0.1; done # slurmctld hears of it from slurmdbd
install -m 755 slurmgate /usr/local/bin/slurmgate
install -d /etc/slurmgate /etc/slurmgate/domains
cp -r domain /etc/slurmgate/domains/probing
install -m 644 site.yaml /etc/slurmgate/site.yaml
install -d -m 700 -o slurmgate -g slurmgate /var/lib/slurmgate
install -d -m 755 /shared/slurmgate /shared/slurmgate/images
install -d -m 700 -o slurmgate -g slurmgate /shared/slurmgate/runs
install -m 644 seccomp.json /shared/slurmgate/
slurmgate image add probe probe.sif
install -m 644 slurmgate.service /etc/systemd/system/slurmgate.service
systemctl daemon-reload`)
	return m
}

const machineSite = `version: 1
site: machine
gateway:
  state_dir: /var/lib/slurmgate
  socket: /run/slurmgate/gateway.sock
  default_project: demo
domain_dir: /etc/slurmgate/domains/probing
slurm:
  transport: cli
  run_as: self
  default_partition: main
  default_account: research
  accounting: required
  grace_seconds: 2
storage:
  runs_dir: /shared/slurmgate/runs
  image_store: /shared/slurmgate/images
  reserve_mb: 1
apptainer:
  path: /usr/bin/apptainer
  seccomp: /shared/slurmgate/seccomp.json
import:
  local: own
watch:
  floor_seconds: 1
  ceiling_seconds: 5
budget:
  rpc_per_minute: 6000
access:
  peers:
    - {user: alice, capabilities: [gateway, read, import, slurm], projects: [demo]}
`

func (m *machine) write(file, text string) {
	m.t.Helper()
	must(m.t, os.WriteFile(file, []byte(text), 0o644))
}

// edit replaces a part of a file.
func (m *machine) edit(file, old, with string) {
	m.t.Helper()
	data := value(os.ReadFile(file))(m.t)
	if !bytes.Contains(data, []byte(old)) {
		m.t.Fatalf("%s does not contain %q", file, old)
	}
	m.write(file, strings.Replace(string(data), old, with, 1))
}

// root returns this machine's path of a file of the machine.
func (m *machine) root(path string) string { return fmt.Sprintf("/proc/%d/root%s", m.init, path) }

type printed struct {
	text string
	code int
}

// try runs a bash line as root, or as a user, and returns its output.
func (m *machine) try(line string, as ...string) printed {
	m.t.Helper()
	ctx, stop := commandContext(m.t)
	defer stop()
	args := append([]string{"--name", m.name, "exec", "--cwd", "/tmp", "--user"}, append(as, "root")[0], "--", "bash", "-ec", line)
	c := exec.CommandContext(ctx, filepath.Join(world.repo, "scripts/devcluster"), args...)
	c.WaitDelay = 10 * time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		m.t.Fatalf("the line has not ended at the deadline of its test: %s\n%s", line, out)
	}
	if c.ProcessState == nil {
		m.t.Fatal(err)
	}
	return printed{strings.TrimSpace(string(out)), c.ProcessState.ExitCode()}
}

// run runs try and fails the test if the line fails.
func (m *machine) run(line string, as ...string) string {
	m.t.Helper()
	p := m.try(line, as...)
	if p.code != 0 {
		m.t.Fatalf("%s: exit %d\n%s", line, p.code, p.text)
	}
	return p.text
}

// unit returns a property of the service.
func (m *machine) unit(property string) string {
	m.t.Helper()
	return m.run("systemctl show --value -p " + property + " slurmgate")
}

// journal returns the service's log since a time in journalctl's form.
func (m *machine) journal(since string) string {
	m.t.Helper()
	return m.run("journalctl -u slurmgate --no-pager -o cat --since '" + since + "'")
}

// client speaks HTTP with the gateway's socket, as root.
func (m *machine) client() *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", m.root("/run/slurmgate/gateway.sock"))
		}}}
}

// ask makes one request and returns its answer.
func ask(c *http.Client, method, path, body string) (status int, answer string, err error) {
	req, err := http.NewRequest(method, "http://gateway"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, string(data), err
}
