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
)

// restInfo is what a client of the cluster's slurmrestd needs.
type restInfo struct {
	Versions    []string `json:"versions"`
	ThisMachine restAt   `json:"this_machine"`
	Login       restAt   `json:"login"`
}

// restAt is where slurmrestd is, as one host names it.
type restAt struct {
	Command   []string `json:"command"`    // one on pipes, with auth/local
	Socket    string   `json:"socket"`     // auth/local
	SocketJWT string   `json:"socket_jwt"` // tokens
	HTTP      string   `json:"http"`
	HTTPS     string   `json:"https"` // a proxy of the tests, as Debian's Slurm has no TLS of its own
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

// overREST makes slurmrestd the transport of a site on the login node.
func (s *site) overREST(rest tree) {
	s.t.Helper()
	text, err := json.Marshal(rest)
	must(s.t, err)
	s.replace("site.yaml", "transport: cli", "transport: rest\n  cluster: devcluster\n  rest: "+string(text))
}

// restSite makes a site of a gateway on this machine, as an example of site-configs says: slurmrestd over TLS, files through the data host.
func restSite(t testing.TB, example string, edit ...func(doc tree)) *site {
	t.Helper()
	ssh := sshOf(t)
	return siteOutside(t, example, append([]func(doc tree){func(doc tree) {
		doc["slurm"].(tree)["rest"] = restOf(t).ThisMachine.tls()
		far := doc["storage"].(tree)["sftp"].(tree)
		far["user"], far["key"], far["known_hosts"] = "lab", ssh.Key, []any{ssh.KnownHosts}
	}}, edit...)...)
}

// goesOn is what every gateway does, however it reaches its cluster: runs are submitted, fail, are collected and cancelled; it is killed,
// and the next one answers replays, finds the job that ran meanwhile, starts what waited for its output, and removes the workspaces.
func goesOn(t *testing.T, s *site, chained bool) {
	t.Helper()
	if chained {
		s.chainTools("two")
	}
	gateway := s.serve()
	doc := withInputOf(s, probePlan("write", "out/result", "with its input"))
	first := s.submit(doc)
	if l := s.wait(first.RunID); l.State != "succeeded" || string(s.bytesOf(l.Roles["result"])) != "with its input" {
		t.Errorf("%+v", l)
	}
	failed := s.submit(probePlan("exit", "3"))
	if l := s.wait(failed.RunID); l.State != "failed" || l.ExitCode == nil || *l.ExitCode != 3 {
		t.Errorf("%+v", l)
	}
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
		t.Errorf("%+v", again)
	}
	if l := s.wait(held); l.State != "succeeded" || string(s.bytesOf(l.Roles["result"])) != "after the gateway died" {
		t.Errorf("%+v", l)
	}
	check("after the gateway died")
	if l := s.wait(doomed); l.State != "cancelled" {
		t.Errorf("%+v", l)
	}
	if n := len(jobsNamed(t, s.story(held).JobName)); n != 1 {
		t.Errorf("the run that was under way when the gateway died has %d jobs", n)
	}
	var gone swept
	if s.ok(&gone, "gc", "--workspaces-older-than", "0s"); gone.Workspaces.Count != spaces || len(gone.Kept) != 0 {
		t.Errorf("%+v", gone)
	}
	for name, row := range s.siteRows() {
		if name != "local" && (row.Transport != "rest" || row.State != "ready") {
			t.Errorf("%+v", row)
		}
	}
}

// A gateway that asks slurmrestd, over its socket, over TLS with a token, and as a child on pipes. It uses none of Slurm's commands, and
// what users may charge comes from slurmdbd through slurmrestd too.
//
// proves SITE-01 SITE-06 CARD-07 MANY-04
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
			goesOn(t, s, name == "TLS")
		})
	}
}

// A gateway outside of the cluster, without a login node: Slurm through slurmrestd, files through an SFTP server with and without a shell.
//
// proves SITE-01 SITE-06 CARD-03 MANY-04
func TestGatewayOverRESTAndSFTP(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"rest-sftp.yaml", "rest-sftp-alone.yaml"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			s := restSite(t, example)
			if r := s.cli("image", "add", "--replace", "probe", probeImage()); r.code != 0 {
				t.Fatal(r)
			}
			if r := s.cli("config", "check"); r.code != 0 {
				t.Error(r)
			}
			goesOn(t, s, true)
		})
	}
}

// A token is renewed while a run goes on, and slurmrestd is restarted: both cost time, and no run.
//
// proves SITE-06
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
	token("4")
	s.overREST(tree{"url": "unix:" + at.SocketJWT, "user": "lab", "token_file": s.dir + "/token"})
	s.serve()
	began := time.Now()
	held, release := s.waiting(probePlan("write", "out/result", "renewed"))
	until(t, time.Minute, "the end of the first token", func() bool { return time.Since(began) > 5*time.Second })
	token("3600")
	release()
	if l := s.wait(held); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
	held, release = s.waiting(probePlan("write", "out/result", "restarted"))
	devd("kill", "slurmrestd-jwt")
	t.Cleanup(func() { devd("restart", "slurmrestd-jwt") })
	release()
	under := s.submit(probePlan("write", "out/result", "sent while it was away"))
	devd("restart", "slurmrestd-jwt")
	for _, id := range []string{held, under.RunID} {
		if l := s.wait(id); l.State != "succeeded" {
			t.Errorf("%+v", l)
		}
		if n := len(jobsNamed(t, s.story(id).JobName)); n != 1 {
			t.Errorf("%s has %d jobs", id, n)
		}
	}
}

// One gateway asks one cluster by Slurm's commands and through slurmrestd, as two sites with a folder each; `sites` shows the transports.
//
// proves SITE-01 SITE-07
func TestSitesOfDifferentTransports(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	text := s.text()
	part := func(of string, edits ...string) {
		cluster := "version: 1\nsite: " + of + "\n" + text[strings.Index(text, "slurm:\n"):strings.Index(text, "import:\n")]
		cluster = strings.NewReplacer(append(edits, s.dir+"/runs", s.dir+"/runs-"+of)...).Replace(cluster)
		must(t, os.WriteFile(filepath.Join(host(s.dir), of+".yaml"), []byte(cluster), 0o644))
	}
	part("commands")
	part("restd", "transport: cli", fmt.Sprintf("transport: rest\n  rest: {url: 'unix:%s'}", restOf(t).Login.Socket))
	main := strings.Replace(text[:strings.Index(text, "slurm:\n")], "site: e2e\n", "sites: [commands.yaml, restd.yaml]\n", 1) +
		text[strings.Index(text, "import:\n"):strings.Index(text, "watch:\n")]
	must(t, os.WriteFile(filepath.Join(host(s.dir), "site.yaml"), []byte(main), 0o644))
	must(t, giveToLab(host(s.dir)))
	s.serve()
	for site, transport := range map[string]string{"commands": "cli", "restd": "rest"} {
		var a sited
		s.ok(&a, "submit", s.plan(s.set(probePlan("write", "out/result", site), "placement.site", site)))
		if l := s.wait(a.RunID); l.State != "succeeded" || a.Site != site {
			t.Errorf("%s: %+v", a.Site, l)
		}
		if r := s.siteRows()[site]; r.Transport != transport || r.State != "ready" {
			t.Errorf("%+v", r)
		}
	}
}
