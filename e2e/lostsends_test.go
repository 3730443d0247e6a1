package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// slowSbatch makes a folder of Slurm's commands whose sbatch behaves as the file "mode" selects:
//
//	before   waits for the file "go", then submits
//	after    submits, then waits for the file "go" before it prints the job's id
//	hold     submits a held job, then waits the same way
//
// and creates MODE.begun when it begins to wait. Without the file it is the real sbatch.
const slowSbatch = `mkdir -p "$1" && for c in squeue sacct scancel scontrol; do ln -s "/usr/bin/$c" "$1/$c"; done
cat >"$1/sbatch" <<'END' && chmod 755 "$1/sbatch"
#!/bin/bash
at=${0%/*}
read -r mode 2>/dev/null <"$at/mode"
[[ -n $mode && $1 != --version ]] || exec /usr/bin/sbatch "$@"
[[ $mode == before ]] || out=$(/usr/bin/sbatch "$@") || exit
echo $$ >"$at/$mode.begun"
until [[ -e $at/go ]]; do sleep 0.05; done
[[ $mode != before ]] || exec /usr/bin/sbatch "$@"
echo "$out"
END`

// slow is the folder of slowSbatch, as this machine sees it.
type slow string

// next sets the mode of the next sbatch.
func (s slow) next(t testing.TB, mode string) {
	t.Helper()
	for _, old := range []string{"go", mode + ".begun"} {
		must(t, os.RemoveAll(filepath.Join(string(s), old)))
	}
	must(t, os.WriteFile(filepath.Join(string(s), "mode"), []byte(mode+"\n"), 0o644))
}

// waits until sbatch waits.
func (s slow) waits(t testing.TB, mode string) {
	t.Helper()
	until(t, "sbatch that waits", func() bool {
		data, err := os.ReadFile(filepath.Join(string(s), mode+".begun"))
		return err == nil && len(data) > 1
	})
}

// letGo ends the waiting.
func (s slow) letGo(t testing.TB) {
	t.Helper()
	must(t, os.RemoveAll(filepath.Join(string(s), "mode")))
	must(t, os.WriteFile(filepath.Join(string(s), "go"), nil, 0o644))
}

// jobs returns Slurm's ids of the jobs with the name.
func (m *machine) jobs(name string) []string {
	m.t.Helper()
	return strings.Fields(m.run("sacct -X -n -P -D -a -S now-1hour -o jobid --name=" + name))
}

// farMachine makes a site on this machine whose cluster is m; its runs_dir is in dir.
func (m *machine) farMachine(t testing.TB, dir string) *site {
	t.Helper()
	h := sshOfCluster(t, m.name)
	s := farSite(t, "ssh-sftp.yaml", func(doc tree) {
		slurm, storage := doc["slurm"].(tree), doc["storage"].(tree)
		ssh := slurm["ssh"].(tree)
		ssh["host"], ssh["port"], ssh["key"], ssh["known_hosts"] = h.Login.Address, h.Login.Port, h.Key, []any{h.KnownHosts}
		slurm["bin_dir"] = dir + "/bin"
		slurm["arrays"] = tree{"min": 0} // a send for each run, and a job by its name
		doc["watch"] = tree{"floor_seconds": 1, "ceiling_seconds": 1}
		storage["runs_dir"], storage["image_store"] = dir+"/runs", dir+"/images"
	})
	s.ok(nil, "image", "add", "--replace", "probe", probeImage())
	return s
}

// farLogin is a machine's login node with an sbatch that waits, reached by a gateway on this machine.
type farLogin struct {
	*machine
	*site
	t      testing.TB
	sbatch slow
}

// begin submits a run whose sbatch waits, and returns its id.
func (f farLogin) begin(mode string) string {
	f.t.Helper()
	f.sbatch.next(f.t, mode)
	id := f.site.submit(probePlan("write", "out/result", fmt.Sprint(mode, time.Now().UnixNano()))).RunID
	f.sbatch.waits(f.t, mode)
	return id
}

// waiting counts the waiting sbatch. One that has just forked to sleep is two processes of the same name, parent and
// child.
func (f farLogin) waiting() (n int) {
	f.t.Helper()
	_, err := fmt.Sscan(f.run(`ps -u lab -o pid=,ppid=,args= |
awk '$3 == "/bin/bash" && $4 == "/shared/far/bin/sbatch" { parent[$1] = $2 } END { for (p in parent) n += !(parent[p] in parent); print n + 0 }'`), &n)
	must(f.t, err)
	return n
}

// restart restarts sshd and cuts its connections.
func (f farLogin) restart() {
	f.t.Helper()
	sessions := f.run(`loginctl list-sessions --no-legend | awk '$6 == "user" { print $1 }' | tr '\n' ' '; devd restart sshd; devd cut sshd`)
	until(f.t, "end of the sessions "+sessions, func() bool {
		return f.try("for s in "+sessions+"; do loginctl show-session --value -p State $s 2>/dev/null | grep -v closing; done").text == ""
	})
}

// ends waits for the end of a run, and checks its state, its reason and the number of its jobs.
func (f farLogin) ends(id, state, reason string, jobs int) {
	f.t.Helper()
	if l := f.wait(id); l.State != state || !strings.Contains(l.why(), reason) {
		f.t.Errorf("%v, want %s %s", l, state, reason)
	}
	name := f.story(id).JobName
	var got []string
	until(f.t, fmt.Sprintf("%d jobs of %s in accounting", jobs, id), func() bool { // slurmctld reports to it after a while
		got = f.jobs(name)
		return len(got) >= jobs
	})
	if len(got) != jobs {
		f.t.Errorf("%s has the jobs %v, want %d", id, got, jobs)
	}
}

// A login node whose logind ends what a session started, and an sshd that is restarted, each in the middle of sends.
//
// proves SITE-04
func TestLoginNodeFaults(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "logind", "--ssh")
	m.run("rm -rf /shared/far; install -d -o lab -g lab /shared/far") // /shared outlives the machine
	m.run(strings.ReplaceAll(slowSbatch, "$1", "/shared/far/bin"), "lab")
	f := farLogin{m, m.farMachine(t, "/shared/far"), t, slow(m.root("/shared/far/bin"))}
	f.serve()
	f.killed()
}

// killed: logind ends what a session started (KillUserProcesses). The attempt whose sbatch was killed before it submitted ends absent and
// is never executed, and the one whose sbatch had submitted is adopted. With KillExcludeUsers, as docs/run/places.md advises, sbatch
// outlives the connection and submits; lingering alone does not help.
func (f farLogin) killed() {
	f.run("loginctl enable-linger lab")
	before, after := f.begin("before"), f.begin("after")
	if n := f.waiting(); n != 2 {
		f.t.Fatalf("%d sbatch wait, not 2", n)
	}
	f.restart()
	until(f.t, "end of what the session started", func() bool { return f.waiting() == 0 })
	f.sbatch.letGo(f.t)
	f.ends(after, "succeeded", "", 1)
	f.ends(before, "failed", "absent", 0)
	f.ok(nil, "retry", before)
	f.ends(before, "succeeded", "", 1)

	f.run(`printf '[Login]\nKillUserProcesses=yes\nKillExcludeUsers=root lab\n' >/etc/systemd/logind.conf.d/devcluster.conf
systemctl kill -s HUP systemd-logind`)
	until(f.t, "logind that knows KillExcludeUsers", func() bool {
		return strings.Contains(f.try(`busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
KillExcludeUsers`).text, `"lab"`)
	})
	before = f.begin("before")
	f.restart()
	if n := f.waiting(); n != 1 {
		f.t.Errorf("%d sbatch outlived the connection", n)
	}
	f.sbatch.letGo(f.t)
	f.ends(before, "succeeded", "", 1)
}
