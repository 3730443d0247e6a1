package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The daemon under a real systemd, with its shipped unit, next to Debian's units of munge and Slurm. The parts follow
// each other as an admin's week does; each leaves the service running.
//
// proves OPS-01
func TestService(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, part := range []struct {
		name string
		does func(*testing.T, *machine)
	}{
		{"hardened", hardened}, {"ready", readyWhenStarted}, {"tools", toolsWork}, {"worker", workerBeside}, {"socket", socketForPeers},
		{"reload", reloads},
		{"mistakes", mistakesAreNotLoaded}, {"load", reloadUnderLoad}, {"send", restartInASend}, {"watchdog", watchdogRestarts},
		{"configuration", misconfiguredStops},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.does(t, &machine{t: t, name: m.name, share: m.share, init: m.init})
		})
		if t.Failed() {
			return // what follows starts from what this part leaves
		}
	}
}

var score = regexp.MustCompile(`(?m)^→ Overall exposure level for slurmgate.service: ([0-9.]+)`)

// The unit has no mistake that systemd knows of, and keeps the service away from what it does not need.
func hardened(t *testing.T, m *machine) {
	m.run("systemd-analyze verify /etc/systemd/system/slurmgate.service")
	m.run("mkdir -p /etc/systemd/system/slurmgate.service.d")
	drop := m.root("/etc/systemd/system/slurmgate.service.d/")
	for _, c := range []struct {
		drop string
		most float64
	}{{"", 3}, {"no-local-tools.conf", 2}} {
		if c.drop != "" {
			must(t, command("cp", "packaging/"+c.drop, drop))
		}
		found := score.FindStringSubmatch(m.run("systemd-analyze security --no-pager --offline=yes /etc/systemd/system/slurmgate.service"))
		if found == nil {
			t.Fatal("systemd-analyze printed no score")
		}
		if is, err := strconv.ParseFloat(found[1], 64); err != nil || is > c.most {
			t.Errorf("systemd-analyze security %s: %s, at most %.1f", c.drop, found[1], c.most)
		}
		t.Logf("systemd-analyze security %s: %s", c.drop, found[1])
	}
	m.run("rm /etc/systemd/system/slurmgate.service.d/no-local-tools.conf")
	m.write(drop+"watchdog.conf", "[Service]\nWatchdogSec=10\nRestartSec=0\n") // sooner than an admin wants it
	m.run("systemctl daemon-reload")
}

// When systemctl returns, a run can be submitted.
func readyWhenStarted(t *testing.T, m *machine) {
	m.run("systemctl enable --now slurmgate")
	m.submit("probe.words --param word=ready")
	for property, want := range map[string]string{"ActiveState": "active", "Type": "notify", "NRestarts": "0"} {
		if got := m.unit(property); got != want {
			t.Errorf("%s=%s, want %s", property, got, want)
		}
	}
	until(t, "status line", func() bool { return strings.Contains(m.unit("StatusText"), "runs queued") })
	if status, text, err := ask(m.client(), "GET", "/metrics", ""); err != nil || status != http.StatusOK ||
		!strings.Contains(text, "slurmgate_runs{") {
		t.Errorf("metrics over the socket: %d %v %s", status, err, text)
	}
}

// Under the hardened unit jobs run, with munge and a seccomp profile, and so do tools on the service's own host.
func toolsWork(t *testing.T, m *machine) {
	m.run("slurmgate run probe.words --param word=job --wait")
	// alice's own process opens her file: the service's user cannot.
	m.run("echo a note >/home/alice/note; chmod 600 /home/alice/note; chown alice: /home/alice/note")
	m.run("slurmgate run probe.here --input note=/home/alice/note --param mode=write --wait", "alice")
}

// Users that the site names reach the socket in /run, others are refused; no user can replace the socket.
func socketForPeers(t *testing.T, m *machine) {
	m.run("slurmgate runs list", "alice")
	if p := m.try("slurmgate runs list", "bob"); p.code != 4 {
		t.Errorf("runs list by bob, whom the site does not name, exits with %d (%s), want 4", p.code, p.text)
	}
	if p := m.try("stat -c '%a %U' /run/slurmgate /run/slurmgate/gateway.sock; touch /run/slurmgate/x", "alice"); p.code == 0 ||
		!strings.HasPrefix(p.text, "755 slurmgate\n666 slurmgate\n") {
		t.Errorf("alice sees the socket's folder as\n%s\nand writes into it with exit %d; want modes 755 and 666, and a refusal",
			p.text, p.code)
	}
	if status, _, err := ask(m.client(), "GET", "/metrics", ""); err != nil || status != http.StatusOK {
		t.Errorf("metrics for root: %d %v, want 200", status, err)
	}
	if got := m.run("curl -s -o /dev/null -w '%{http_code}' --unix-socket /run/slurmgate/gateway.sock http://gateway/metrics",
		"alice"); got != "403" {
		t.Errorf("metrics for alice, who may not read them: %s", got)
	}
}

// submit runs a tool and returns the run's id.
func (m *machine) submit(call string, as ...string) string {
	m.t.Helper()
	var run submitted
	must(m.t, json.Unmarshal([]byte(m.run("slurmgate run "+call+" --json 2>/dev/null", as...)), &run))
	return run.RunID
}

// since returns the journal's present time.
func (m *machine) since() string { return m.run("date '+%Y-%m-%d %H:%M:%S.%6N'") }

const loaded = "the configuration was loaded"

// A reload reads site file, policy and tools again, in the same process.
func reloads(t *testing.T, m *machine) {
	pid, since := m.unit("MainPID"), m.since()
	site := m.root("/etc/slurmgate/site.yaml")
	m.edit(site, "peers:\n", "peers:\n    - {user: bob, capabilities: [gateway, read], projects: [demo]}\n")
	m.run("systemctl reload slurmgate")
	until(t, "reload", func() bool { return strings.Contains(m.journal(since), loaded) })
	m.run("slurmgate runs list", "bob")
	since = m.since()
	m.edit(site, "    - {user: bob, capabilities: [gateway, read], projects: [demo]}\n", "")
	m.run("kill -HUP " + pid)
	until(t, "reload", func() bool { return strings.Contains(m.journal(since), loaded) })
	if p := m.try("slurmgate runs list", "bob"); p.code != 4 {
		t.Errorf("runs list by bob, whom the site does not name any more, exits with %d (%s), want 4", p.code, p.text)
	}
	if now := m.unit("MainPID"); now != pid || m.unit("NRestarts") != "0" {
		t.Errorf("another process: %s, before %s", now, pid)
	}
}

// Files with mistakes are not loaded: systemctl reports a failure, the journal has every mistake, and the service keeps
// running with the old configuration.
func mistakesAreNotLoaded(t *testing.T, m *machine) {
	pid, site, policy := m.unit("MainPID"), m.root("/etc/slurmgate/site.yaml"), m.root("/etc/slurmgate/domains/probing/policies.yaml")
	broken := func(file, old, with string, want ...string) {
		t.Helper()
		m.edit(file, old, with)
		defer m.edit(file, with, old)
		since := m.since()
		if p := m.try("systemctl reload slurmgate"); p.code == 0 {
			t.Errorf("%s: systemctl reload succeeds", with)
		}
		for _, w := range append(want, "the configuration was not loaded") {
			until(t, w+" in the journal", func() bool { return strings.Contains(m.journal(since), w) })
		}
		until(t, "refusal", func() bool { return strings.Contains(m.unit("StatusText"), "RELOAD FAILED") })
		if status, answer, err := ask(m.client(), "GET", "/v1/runs", ""); err != nil || status != http.StatusOK {
			t.Errorf("the gateway does not go on: %d %v %s", status, err, answer)
		}
	}
	broken(site, "run_as: self", "run_as: alice\n  slrum: 1", "slurm.run_as", "slrum")
	broken(policy, "max_cpus: 64", "max_cpus: many", "max_cpus")
	broken(m.root("/etc/slurmgate/domains/probing/toolpacks/probe.words.tool.yaml"), "planKind: slurm", "planKind: none", "planKind")
	// What only the start shows: slurmctld listens at this address. The gateway starts again as it was.
	m.edit(site, "access:\n", "http: {listen: \"127.0.0.1:6817\"}\naccess:\n")
	since := m.since()
	m.run("systemctl reload slurmgate")
	until(t, "refusal", func() bool { return strings.Contains(m.journal(since), "cannot listen at http.listen") })
	m.edit(site, "http: {listen: \"127.0.0.1:6817\"}\naccess:\n", "access:\n")
	m.run("slurmgate run probe.words --param word=still --wait", "alice")
	since = m.since()
	m.run("systemctl reload slurmgate")
	until(t, "reload", func() bool { return strings.Contains(m.journal(since), loaded) })
	until(t, "status without the failure", func() bool { return !strings.Contains(m.unit("StatusText"), "RELOAD FAILED") })
	if now := m.unit("MainPID"); now != pid {
		t.Errorf("another process: %s, before %s", now, pid)
	}
}

// During a reload no request fails: reads, submissions and waits are answered, on the connections that they had.
func reloadUnderLoad(t *testing.T, m *machine) {
	client := m.client()
	stop := make(chan struct{})
	var workers sync.WaitGroup
	var asked, waits atomic.Int64
	for i := range 8 {
		workers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				method, path, body := "GET", "/v1/runs", ""
				switch {
				case i == 0 && n < 20: // submissions
					method, path, body = "POST", "/v1/tools/probe.words:run", fmt.Sprintf(`{"input":{"word":"load%d"}}`, n)
				case i == 1:
					path = "/v1/tools"
				}
				status, answer, err := ask(client, method, path, body)
				asked.Add(1)
				if err != nil || status >= 300 {
					t.Errorf("during a reload %s %s answers %d %v %s, want a success", method, path, status, err,
						answer)
					return
				}
			}
		})
	}
	long := m.submit("probe.here --input note=/home/alice/note --param mode=sleep --param a=30", "alice")
	workers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if status, answer, err := ask(client, "GET", "/v1/runs/"+long+"?wait_seconds=20", ""); err != nil || status != http.StatusOK {
				t.Errorf("a wait: %d %v %s", status, err, answer)
				return
			}
			waits.Add(1)
		}
	})
	for range 3 {
		since, began := m.since(), asked.Load()
		m.run("systemctl reload slurmgate")
		until(t, "reload", func() bool { return strings.Contains(m.journal(since), loaded) })
		until(t, "more requests", func() bool { return asked.Load() > began+20 })
	}
	m.run("slurmgate cancel "+long, "alice")
	close(stop)
	workers.Wait()
	if waits.Load() < 3 {
		t.Errorf("%d waits were answered, and 3 reloads ended one each", waits.Load())
	}
	t.Logf("%d requests during 3 reloads", asked.Load())
	m.settled()
}

// settled waits until no run is in progress, and makes sure that each has one job.
func (m *machine) settled() {
	m.t.Helper()
	until(m.t, "end of all runs", func() bool {
		return !strings.Contains(m.run("slurmgate runs list --state queued --json; slurmgate runs list --state running --json"), `"run_id"`)
	})
	if twice := m.run("sacct -X -n -P -S now-1hour --format=JobName | sort | uniq -d"); twice != "" {
		m.t.Errorf("jobs that were submitted twice: %s", twice)
	}
}

// A restart while sbatch hangs loses nothing and submits nothing twice.
func restartInASend(t *testing.T, m *machine) {
	m.run("devd pause slurmctld")
	id := m.submit("probe.words --param word=hanging")
	m.run("systemctl restart slurmgate; devd resume slurmctld")
	m.run("slurmgate wait " + id)
	m.settled()
}

// A daemon that does not do its work is killed by systemd's watchdog, and started again; nothing is lost.
func watchdogRestarts(t *testing.T, m *machine) {
	pid := m.unit("MainPID")
	id := m.submit("probe.words --param word=stopped")
	m.run("kill -STOP " + pid)
	until(t, "new process", func() bool {
		return m.unit("MainPID") != pid && m.unit("ActiveState") == "active"
	})
	if n := m.unit("NRestarts"); n != "1" {
		t.Errorf("%s restarts, want 1", n)
	}
	m.run("slurmgate wait " + id)
	m.settled()
	// A hanging Slurm is no reason to be killed: signs of life continue.
	pid = m.unit("MainPID")
	m.run("devd pause slurmctld")
	m.submit("probe.words --param word=waiting")
	for last, n := m.unit("WatchdogTimestampMonotonic"), 0; n < 3; n++ {
		until(t, "sign of life", func() bool { return m.unit("WatchdogTimestampMonotonic") != last })
		last = m.unit("WatchdogTimestampMonotonic")
	}
	m.run("devd resume slurmctld")
	if now := m.unit("MainPID"); now != pid {
		t.Errorf("the watchdog killed a gateway that waits for Slurm: %s, before %s", now, pid)
	}
	m.settled()
}

// A misconfigured service that cannot start stops after one try; the journal has the reason.
func misconfiguredStops(t *testing.T, m *machine) {
	site := m.root("/etc/slurmgate/site.yaml")
	m.edit(site, "run_as: self", "run_as: alice")
	since := m.since()
	if p := m.try("systemctl restart slurmgate"); p.code == 0 {
		t.Error("systemctl restart succeeds")
	}
	for property, want := range map[string]string{"ActiveState": "failed", "ExecMainStatus": "78", "Result": "exit-code"} {
		if got := m.unit(property); got != want {
			t.Errorf("%s=%s, want %s", property, got, want)
		}
	}
	if said := m.journal(since); strings.Count(said, "slurm.run_as") != 1 || strings.Contains(said, "Scheduled restart job") {
		t.Errorf("the journal:\n%s", said)
	}
	m.edit(site, "run_as: alice", "run_as: self")
	m.run("systemctl start slurmgate && slurmgate runs list")
}
