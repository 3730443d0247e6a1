package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// restInfo holds the settings of a client of the cluster's slurmrestd.
type restInfo struct {
	Versions    []string `json:"versions"`
	ThisMachine restAt   `json:"this_machine"`
	Login       restAt   `json:"login"`
}

// restAt holds the addresses of slurmrestd, as one host names them.
type restAt struct {
	Command   []string `json:"command"`    // one on pipes, with auth/local
	Socket    string   `json:"socket"`     // auth/local
	SocketJWT string   `json:"socket_jwt"` // tokens
	HTTP      string   `json:"http"`
	HTTPS     string   `json:"https"` // a proxy of the tests, because Debian's Slurm has no TLS
	CA        string   `json:"ca"`
	TokenFile string   `json:"token_file"`
}

func restOf(t testing.TB) (i restInfo) {
	t.Helper()
	out, err := exec.Command(filepath.Join(world.repo, "scripts/devcluster"), "--name", world.cluster, "rest-info").Output()
	must(t, err)
	must(t, json.Unmarshal(out, &i))
	return i
}

func (r restAt) tls() tree {
	return tree{"url": r.HTTPS, "user": "lab", "token_file": r.TokenFile, "ca": r.CA}
}

// logsOfSlurmrestd makes a failed test print whether the cluster's slurmrestd and the proxy before it run, and the end
// of their logs.
func logsOfSlurmrestd(t testing.TB) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		out, err := inCluster("root", "bash", "-c", `devd status | grep slurmrestd
for log in "slurmrestd-tls 2" "slurmrestd 2" "slurmrestd-jwt 8"; do
	echo "--- ${log% *}"; tail -n "${log#* }" "/var/log/slurm/${log% *}.out"
done`).CombinedOutput()
		t.Logf("context: slurmrestd of the cluster (%v)\n%s", err, out)
	})
}

// restartSlurmrestd starts a slurmrestd of the cluster that was killed, and returns when it answers.
func restartSlurmrestd(t testing.TB, name, socket string) {
	t.Helper()
	shell(t, "root", `devd restart "$1"
curl -sS --retry 30 --retry-all-errors --retry-delay 1 -o /dev/null --unix-socket "$2" http://slurmrestd/`, name, socket)
}

// overREST makes slurmrestd the transport of a site on the login node.
func (s *site) overREST(rest tree) {
	s.t.Helper()
	logsOfSlurmrestd(s.t)
	text := value(json.Marshal(rest))(s.t)
	s.replace("site.yaml", "transport: cli", "transport: rest\n  cluster: devcluster\n  rest: "+string(text))
}

// restSite makes a site of a gateway on this machine, after an example of site-configs: slurmrestd over TLS, files
// through the data host.
func restSite(t testing.TB, example string, edit ...func(doc tree)) *site {
	t.Helper()
	logsOfSlurmrestd(t)
	ssh := sshOf(t)
	return siteOutside(t, example, append([]func(doc tree){func(doc tree) {
		doc["slurm"].(tree)["rest"] = restOf(t).ThisMachine.tls()
		far := doc["storage"].(tree)["sftp"].(tree)
		far["user"], far["key"], far["known_hosts"] = "lab", ssh.Key, []any{ssh.KnownHosts}
	}}, edit...)...)
}

// goesOn checks the work of every gateway, over any transport: runs are submitted, fail, are collected and cancelled;
// it is killed, and the next one answers replays, finds the job that ran meanwhile, starts what waited for its output,
// and removes the workspaces.
func goesOn(t *testing.T, s *site, transport string, chained bool) {
	t.Helper()
	if chained {
		s.chainTools("two")
	}
	gateway := s.serve()
	doc := withInputOf(s, probePlan("write", "out/result", "with its input"))
	first := s.submit(doc)
	if l := s.wait(first.RunID); l.State != "succeeded" || string(s.bytesOf(l.Roles["result"])) != "with its input" {
		t.Errorf("a run with an input: %v, want it succeeded with its output", l)
	}
	failed := s.submit(probePlan("exit", "3"))
	if l := s.wait(failed.RunID); l.State != "failed" || l.ExitCode == nil || *l.ExitCode != 3 {
		t.Errorf("a run of exit 3 is %s (%s) with the status %v; want failed with 3", l.State, l.why(), l.ExitCode)
	}
	s.ok(nil, "retry", failed.RunID)
	held, release := s.waiting(probePlan("write", "out/result", "after the gateway died"))
	doomed, _ := s.waiting(probePlan("write", "out/result", "never"))
	s.ok(nil, "cancel", doomed)
	check, spaces := func(string) {}, int64(4)
	if chained {
		check, spaces = s.after(held), 5
	}

	gateway.signal("KILL")
	gateway.ended(t)
	release()
	s.serve()
	if again := s.submit(doc); !again.Replayed || again.RunID != first.RunID || again.State != "succeeded" {
		t.Errorf("the same request to the next gateway gives %v, want a replay of %s, succeeded", again, first.RunID)
	}
	if l := s.wait(held); l.State != "succeeded" || string(s.bytesOf(l.Roles["result"])) != "after the gateway died" {
		t.Errorf("the job that ran while no gateway did: %v, want it succeeded with its output", l)
	}
	check("after the gateway died")
	s.ends(doomed, "cancelled")
	s.wait(failed.RunID)
	if n := len(jobsNamed(t, s.story(held).JobName)); n != 1 {
		t.Errorf("the run that was under way when the gateway died has %d jobs", n)
	}
	var gone swept
	if s.ok(&gone, "gc", "--workspaces-older-than", "0s"); gone.Workspaces.Count != spaces || len(gone.Kept) != 0 {
		t.Errorf("gc returned %+v, want %d workspaces removed and none kept", gone, spaces)
	}
	if left := shell(t, "lab", `find "$1"/runs/run_* -mindepth 1 -type f ! -name 'a[0-9]*'`, s.dir); left != "" {
		t.Errorf("gc left of the workspaces: %s", left)
	}
	for name, row := range s.siteRows() {
		if name != "local" && (row.Transport != transport || row.State != "ready") {
			t.Errorf("sites reports for %s: transport %s, state %s; want %s, ready", name, row.Transport, row.State, transport)
		}
	}
}

// A gateway that asks slurmrestd, over its socket, over TLS with a token, and as a child on pipes. It uses none of Slurm's commands, and
// what users may charge comes from slurmdbd through slurmrestd too.
//
// proves SITE-01 SITE-06 CARD-07 MANY-04
// short: slurmrestd
// slurmrestd: all of it
func TestGatewayOverREST(t *testing.T) {
	t.Parallel()
	at := restOf(t).Login
	for name, rest := range map[string]tree{"socket": {"url": "unix:" + at.Socket}, "TLS": at.tls(), "pipes": {"command": at.Command}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "probing")
			s.overREST(rest)
			if name == "TLS" {
				s.replace("site.yaml", "transport: rest\n", "transport: rest\n  accounts: associations\n")
			}
			goesOn(t, s, "rest", name == "TLS")
		})
	}
}

// A gateway outside of the cluster, without a login node: Slurm through slurmrestd, files through an SFTP server with and without a shell.
//
// proves SITE-01 SITE-06 CARD-03 MANY-04
// short: slurmrestd
// slurmrestd: all of it
func TestGatewayOverRESTAndSFTP(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"rest-sftp.yaml", "rest-sftp-alone.yaml"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			s := restSite(t, example)
			s.ok(nil, "image", "add", "--replace", "probe", probeImage())
			s.ok(nil, "config", "check")
			goesOn(t, s, "rest", true)
		})
	}
}

// A token is renewed while a run is open, and slurmrestd is restarted: both cost time, and no run.
//
// proves SITE-06
// slurmrestd: all of it
func TestSlurmrestdRestartsAndTokensEnd(t *testing.T) {
	at := restOf(t).Login
	s := newSite(t, "probing")
	devd := func(args ...string) string { return shell(t, "root", `devd "$@"`, args...) }
	token := func(lifespan string) {
		t.Helper()
		file := host(s.dir) + "/token"
		must(t, os.WriteFile(file+".new", []byte(devd("token", "lab", lifespan)+"\n"), 0o600))
		must(t, os.Lchown(file+".new", world.uid, world.uid))
		must(t, os.Rename(file+".new", file))
	}
	token("20")
	s.overREST(tree{"url": "unix:" + at.SocketJWT, "user": "lab", "token_file": s.dir + "/token"})
	s.serve()
	began := time.Now()
	held, release := s.waiting(probePlan("write", "out/result", "renewed"))
	until(t, "the end of the first token", func() bool { return time.Since(began) > 21*time.Second })
	token("3600")
	release()
	s.ends(held, "succeeded")
	held, release = s.waiting(probePlan("write", "out/result", "restarted"))
	devd("kill", "slurmrestd-jwt")
	t.Cleanup(func() { restartSlurmrestd(t, "slurmrestd-jwt", at.SocketJWT) })
	release()
	under := s.submit(probePlan("write", "out/result", "sent while it was away"))
	restartSlurmrestd(t, "slurmrestd-jwt", at.SocketJWT)
	for _, id := range []string{held, under.RunID} {
		s.ends(id, "succeeded")
		if n := len(jobsNamed(t, s.story(id).JobName)); n != 1 {
			t.Errorf("%s has %d jobs", id, n)
		}
	}
}
