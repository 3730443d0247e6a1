package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowSbatch makes a folder of Slurm's commands whose sbatch does what the file "mode" says:
//
//	before   waits for the file "go", then submits
//	after    submits, then waits for the file "go" before it prints the job's id
//	hold     submits a held job, then waits the same way
//
// and leaves MODE.begun when it begins to wait. Without the file it is sbatch.
const slowSbatch = `mkdir -p "$1" && for c in squeue sacct scancel scontrol; do ln -s "/usr/bin/$c" "$1/$c"; done
cat >"$1/sbatch" <<'END' && chmod 755 "$1/sbatch"
#!/bin/bash
at=${0%/*}
read -r mode 2>/dev/null <"$at/mode"
[[ -n $mode && $1 != --version ]] || exec /usr/bin/sbatch "$@"
hold=''
[[ $mode != hold ]] || hold=--hold
[[ $mode == before ]] || out=$(/usr/bin/sbatch $hold "$@") || exit
echo $$ >"$at/$mode.begun"
until [[ -e $at/go ]]; do sleep 0.05; done
[[ $mode != before ]] || exec /usr/bin/sbatch "$@"
echo "$out"
END`

// slow is the folder of such an sbatch, as this machine sees it.
type slow string

// next says what the next sbatch does.
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
	until(t, patience, "sbatch that waits", func() bool {
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

// jobs are Slurm's ids of the jobs of a name.
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
		storage["reserve_mb"] = 0 // else a new run may be refused while the disk is full
	})
	if r := s.cli("image", "add", "--replace", "probe", probeImage()); r.code != 0 {
		t.Fatal(r)
	}
	return s
}

// farLogin is a login node of a machine, seen from a gateway on this one, with an sbatch that waits.
type farLogin struct {
	*machine
	*site
	t      testing.TB
	sbatch slow
}

// begin submits a run whose sbatch waits, and gives its id.
func (f farLogin) begin(mode string) string {
	f.t.Helper()
	f.sbatch.next(f.t, mode)
	id := f.site.submit(probePlan("write", "out/result", fmt.Sprint(mode, time.Now().UnixNano()))).RunID
	f.sbatch.waits(f.t, mode)
	return id
}

// waiting is how many sbatch wait. One that has just forked to sleep is two processes of the same name, parent and child.
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
	until(f.t, patience, "end of the sessions "+sessions, func() bool {
		return f.try("for s in "+sessions+"; do loginctl show-session --value -p State $s 2>/dev/null | grep -v closing; done").text == ""
	})
}

// ends waits for the end of a run, and wants it so, with so many jobs.
func (f farLogin) ends(id, state, reason string, jobs int) {
	f.t.Helper()
	if l := f.wait(id); l.State != state || !strings.Contains(l.why(), reason) {
		f.t.Errorf("%+v %s, want %s %s", l, l.why(), state, reason)
	}
	name := f.story(id).JobName
	got := f.jobs(name)
	for end := time.Now().Add(patience); len(got) < jobs && time.Now().Before(end); { // slurmctld reports to accounting after a while
		got = f.jobs(name)
	}
	if len(got) != jobs {
		f.t.Errorf("%s has the jobs %v, want %d", id, got, jobs)
	}
}

// A login node whose logind ends what a session started, an sshd that is restarted, and a disk of the cluster that is full, each in the
// middle of sends.
//
// proves SITE-04
func TestLoginNodeFaults(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "logind", "--ssh")
	// The nodes' slurmd see the mounts that were there when they started.
	m.run(`mkdir -p /shared/far && mount -t tmpfs -o size=24m,mode=0755,uid=lab,gid=lab tmpfs /shared/far
systemctl restart slurmd@n1 slurmd@n2`)
	m.run(strings.ReplaceAll(slowSbatch, "$1", "/shared/far/bin"), "lab")
	f := farLogin{m, m.farMachine(t, "/shared/far"), t, slow(m.root("/shared/far/bin"))}
	f.serve()
	f.killed()
	f.full()
}

// killed: logind ends what a session started (KillUserProcesses). The attempt whose sbatch was killed before it submitted ends absent and
// is never executed, and the one whose sbatch had submitted is adopted. With KillExcludeUsers, as INSTALL.md advises, sbatch outlives the
// connection and submits; lingering alone does not help.
func (f farLogin) killed() {
	f.run("loginctl enable-linger lab")
	before, after := f.begin("before"), f.begin("after")
	if n := f.waiting(); n != 2 {
		f.t.Fatalf("%d sbatch wait, not 2", n)
	}
	f.restart()
	until(f.t, patience, "end of what the session started", func() bool { return f.waiting() == 0 })
	f.sbatch.letGo(f.t)
	f.ends(after, "succeeded", "", 1)
	f.ends(before, "failed", "absent", 0)
	f.ok(nil, "retry", before)
	f.ends(before, "succeeded", "", 1)

	f.run(`printf '[Login]\nKillUserProcesses=yes\nKillExcludeUsers=root lab\n' >/etc/systemd/logind.conf.d/devcluster.conf
systemctl kill -s HUP systemd-logind`)
	until(f.t, patience, "logind that knows KillExcludeUsers", func() bool {
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

// full: the disk of the cluster is full for SFTP and for the shell. What was not staged waits and says why; a send whose receipt could not
// be written is adopted by its name; a run that waits in Slurm can be cancelled.
func (f farLogin) full() {
	adopted, doomed := f.begin("hold"), f.begin("hold")
	must(f.t, os.RemoveAll(string(f.sbatch)+"/mode"))
	fill := func() {
		f.run("dd if=/dev/zero of=/shared/far/ballast bs=4k oflag=append conv=notrunc 2>/dev/null || :")
	}
	fill()
	must(f.t, os.WriteFile(string(f.sbatch)+"/go", nil, 0o644)) // an empty file needs no room
	for _, id := range []string{adopted, doomed} {
		until(f.t, patience, "job of "+id, func() bool { return f.story(id).SlurmJobID != "" })
	}
	fill() // of what the sends may have left
	plain := f.site.submit(probePlan("write", "out/result", "no room for its control files")).RunID
	input := f.site.submit(withInputOf(f.site, probePlan("write", "out/result", "no room for its input"))).RunID
	for _, id := range []string{plain, input} {
		var l looked
		until(f.t, patience, "run that waits for space, "+id, func() bool {
			l = looked{}
			f.ok(&l, "get", id)
			return strings.Contains(l.why(), "No space left on device") || id == input && strings.Contains(l.why(), "is full")
		})
	}
	f.ok(nil, "cancel", doomed)
	if l := f.wait(doomed); l.State != "cancelled" {
		f.t.Errorf("%+v", l)
	}
	if claim := f.run("cat /shared/far/runs/" + doomed + "/a1/ctl/claim"); !strings.Contains(claim, "void") {
		f.t.Errorf("the cancelled run's claim is %q", claim)
	}
	f.run("rm /shared/far/ballast; scontrol release " + f.story(adopted).SlurmJobID)
	for _, id := range []string{adopted, plain, input} {
		f.ends(id, "succeeded", "", 1)
	}
}

// A connection that is lost in the middle of a send is made again to another login node behind the same name, which cannot see sbatch: the
// send is held and not repeated. An sbatch that goes on leaves its receipt on the cluster's filesystem; one that was killed is
// doubt once as much time has passed as sbatch can take.
//
// proves SITE-04
func TestAnotherLoginNode(t *testing.T) {
	t.Parallel()
	h := sshOf(t)
	at := func(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
	name := leadTo(t, at(h.Login.Address, h.Login.Port))
	known := filepath.Join(t.TempDir(), "known_hosts")
	data, err := os.ReadFile(h.KnownHosts)
	must(t, err)
	var lines strings.Builder
	for line := range strings.Lines(string(data)) {
		hosts, key, _ := strings.Cut(line, " ")
		if strings.Contains(hosts, h.Login.Address) {
			fmt.Fprintf(&lines, "[127.0.0.1]:%d %s", name.port(), key)
		}
	}
	must(t, os.WriteFile(known, []byte(lines.String()), 0o600))
	s := farSite(t, "ssh-sftp.yaml", func(doc tree) {
		slurm := doc["slurm"].(tree)
		ssh := slurm["ssh"].(tree)
		ssh["host"], ssh["port"], ssh["known_hosts"] = "127.0.0.1", name.port(), []any{known}
		slurm["bin_dir"] = filepath.Dir(doc["storage"].(tree)["runs_dir"].(string)) + "/bin"
		doc["watch"] = tree{"floor_seconds": 1, "ceiling_seconds": 1}
	})
	shell(t, "lab", slowSbatch, s.dir+"/bin")
	shell(t, "lab", `rm "$1/squeue" && printf '#!/bin/sh\nhostname >>%q\nexec /usr/bin/squeue "$@"\n' "$1/asked" >"$1/squeue" &&
chmod 755 "$1/squeue"`, s.dir+"/bin")
	sbatch := slow(host(s.dir) + "/bin")
	if r := s.cli("image", "add", "--replace", "probe", probeImage()); r.code != 0 {
		t.Fatal(r)
	}
	s.serve()
	begin := func(word string) string {
		t.Helper()
		sbatch.next(t, "before")
		id := s.submit(probePlan("write", "out/result", word)).RunID
		sbatch.waits(t, "before")
		return id
	}
	slowly, killed := begin("submits in the end"), begin("is killed")
	name.lead(at(h.Login2.Address, h.Login2.Port))
	must(t, os.RemoveAll(string(sbatch)+"/asked"))
	until(t, 60*time.Second, "three looks from the other login node", func() bool {
		data, err := os.ReadFile(string(sbatch) + "/asked")
		return err == nil && strings.Count(string(data), "login2\n") >= 3
	})
	for _, id := range []string{slowly, killed} {
		var l looked
		s.ok(&l, "get", id)
		claim := shell(t, "lab", `cd "$1/runs/$2/a1/ctl" && ls claim 2>/dev/null || :`, s.dir, id)
		if jobs := jobsNamed(t, s.story(id).JobName); l.Phase != "unconfirmed" || claim != "" || len(jobs) != 0 {
			t.Errorf("%+v %s, the jobs %v, claim %q", l, l.why(), jobs, claim)
		}
	}
	// The time of a file is how long the send has been under way.
	shell(t, "lab", `pkill -KILL -f "sg-$2-a1"; touch -d '-1 hour' "$1/runs/$2/a1/ctl/send.1.out"`, s.dir, killed)
	sbatch.letGo(t)
	for id, want := range map[string]struct {
		state, reason string
		jobs          int
	}{slowly: {"succeeded", "", 1}, killed: {"failed", "absent", 0}} {
		l := s.wait(id)
		if jobs := jobsNamed(t, s.story(id).JobName); l.State != want.state || !strings.Contains(l.why(), want.reason) || len(jobs) != want.jobs {
			t.Errorf("%+v %s, the jobs %v", l, l.why(), jobs)
		}
	}
}

// forwarder is a name of several hosts: a port of this machine that leads to one of them.
type forwarder struct {
	net.Listener
	mu   sync.Mutex
	to   string
	open []net.Conn
}

func leadTo(t testing.TB, to string) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &forwarder{Listener: l, to: to}
	t.Cleanup(func() {
		l.Close()
		f.lead("")
	})
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go f.carry(from)
		}
	}()
	return f
}

func (f *forwarder) port() int { return f.Addr().(*net.TCPAddr).Port }

// lead cuts all connections and leads the next ones to a host.
func (f *forwarder) lead(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
	for _, c := range f.open {
		c.Close()
	}
	f.open = nil
}

func (f *forwarder) carry(from net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to, err := net.Dial("tcp", f.to)
	if err != nil {
		from.Close()
		return
	}
	f.open = append(f.open, from, to)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(way[1], way[0]) // it ends when either is closed
			way[0].Close()
			way[1].Close()
		}()
	}
}

// A gateway that logs in with a user certificate alone: sshd trusts the authority that signed it. A certificate of another user's is
// refused before anything runs.
//
// proves SITE-03
func TestLoginByCertificate(t *testing.T) {
	t.Parallel()
	h := sshOf(t)
	dir := t.TempDir()
	for name, principal := range map[string]string{"own": "lab", "other": "alice"} {
		key := filepath.Join(dir, name)
		for _, args := range [][]string{{"-q", "-t", "ed25519", "-N", "", "-f", key},
			{"-q", "-s", sshdOf(t).UserCA, "-I", name, "-n", principal, "-V", "+5m", key + ".pub"}} {
			if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
		}
	}
	with := func(key, certificate string) func(doc tree) {
		return func(doc tree) {
			ssh := doc["slurm"].(tree)["ssh"].(tree)
			ssh["key"], ssh["host"] = filepath.Join(dir, key), h.Login.Address
			if certificate != "" {
				ssh["certificate"] = filepath.Join(dir, certificate)
			}
		}
	}
	s := farSite(t, "ssh-sftp.yaml", with("own", "own-cert.pub"))
	if r := s.cli("image", "add", "--replace", "probe", probeImage()); r.code != 0 {
		t.Fatal(r)
	}
	s.serve()
	if l := s.wait(s.submit(probePlan("write", "out/result", "certified")).RunID); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
	for name, edit := range map[string]func(doc tree){"another user's": with("other", "other-cert.pub"), "none": with("own", "")} {
		r := farSite(t, "ssh-sftp.yaml", edit).cli("doctor", "--no-jobs", "--json")
		var e examined
		r.object(t, &e)
		if status, found, _ := e.find("ssh_login"); status != "fault" || !strings.Contains(found, "does not accept") {
			t.Errorf("%s: ssh_login is %q: %s", name, status, found)
		}
	}
}
