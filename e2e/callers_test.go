package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// callers is the output of scripts/devcluster ssh-info for sites with run_as: caller. Paths are the cluster's.
type callers struct {
	Host       string         `json:"host"`
	Ports      map[string]int `json:"ports"`
	KnownHosts string         `json:"known_hosts"`
	RunsDir    string         `json:"runs_dir"`
	Scratch    string         `json:"scratch"`
	Signer     struct {
		User     string `json:"user"`
		CAKey    string `json:"ca_key"`
		CAPublic string `json:"ca_public"`
	} `json:"signer"`
	CAKeyHere  string `json:"ca_key_here"` // as this machine sees it
	Principals string `json:"principals"`
	Revoked    string `json:"revoked"`
	Users      map[string]struct {
		UID int `json:"uid"`
	} `json:"users"`
}

// callerSite makes a site with run_as: caller after site-configs/caller.yaml. Its gateway runs on the login node as
// lab, its signer there as a separate user; the signer runs until the end of the test. Users of the cluster's group
// callers may use the gateway: s.user("alice", nil, "submit", …) runs slurmgate as alice. Each site has separate
// folders below /shared/scratch/USER.
func callerSite(t testing.TB, edit ...func(doc tree)) (*site, *signerProcess) {
	t.Helper()
	info := sshOf(t).Callers
	s := newSite(t, "probing")
	text := value(os.ReadFile(filepath.Join(world.repo, "site-configs/caller.yaml")))(t)
	doc := tree{}
	must(t, yaml.Unmarshal(text, &doc))
	sign := newSigner(t, s, nil)
	slurm, storage := doc["slurm"].(tree), doc["storage"].(tree)
	doc["site"], doc["domain_dir"] = "e2e", s.dir+"/domain"
	doc["gateway"] = tree{"state_dir": "/home/lab/" + strings.TrimPrefix(s.dir, "/shared/"), "default_project": "demo",
		"socket": s.dir + "/gw.sock"}
	caller := slurm["caller"].(tree)
	caller["ssh"] = tree{"host": info.Host, "port": info.Ports["login"], "known_hosts": []any{info.KnownHosts}}
	caller["signer"] = sign.socket
	slurm["cluster"], slurm["default_account"], slurm["accounting"], slurm["grace_seconds"] = "devcluster", "research", "required", 2
	delete(slurm, "accounts")
	storage["runs_dir"], storage["image_store"], storage["reserve_mb"] = s.callerRuns("{user}"), world.dir+"/images", 1
	doc["access"] = tree{"peers": []any{tree{"group": "callers", "capabilities": []any{"gateway", "read", "import", "slurm"},
		"projects": []any{"demo"}}}}
	doc["import"] = tree{"local": "own"}
	doc["watch"] = tree{"floor_seconds": 1, "ceiling_seconds": 5}
	doc["budget"] = tree{"rpc_per_minute": 6000, "sends_in_flight": 4, "staging_workers": 4}
	for _, f := range edit {
		f(doc)
	}
	out := value(yaml.Marshal(doc))(t)
	must(t, os.WriteFile(host(s.dir)+"/site.yaml", out, 0o644))
	t.Cleanup(func() {
		shell(t, "root", removing(`"$1"/*/"$2"`), info.Scratch, path.Base(s.callerRuns("x")))
	})
	return s, sign
}

// callerRuns returns a user's runs_dir.
func (s *site) callerRuns(user string) string {
	return "/shared/scratch/" + user + "/" + strings.ReplaceAll(strings.TrimPrefix(s.dir, "/shared/"), "/", "-")
}

// tightDisk guards the disk of the user tight, which one test at a time may use.
var tightDisk sync.Mutex

// holdTight gives the test the disk of the user tight until its end. It precedes the test's site, whose clean-up removes what is left
// there.
func holdTight(t testing.TB) {
	tightDisk.Lock()
	t.Cleanup(tightDisk.Unlock)
}

// fillTight fills the disk of the user tight until the end of the test, which holds it.
func fillTight(t testing.TB) {
	t.Helper()
	shell(t, "root", "devd user tight full")
	t.Cleanup(func() { shell(t, "root", "devd user tight room") })
}

// submitAs submits a plan as a user, who must be answered with a run.
func (s *site) submitAs(user string, doc tree) submitted {
	s.t.Helper()
	var a submitted
	r := s.user(user, nil, "submit", s.plan(doc))
	r.object(s.t, &a)
	if a.RunID == "" {
		s.t.Fatalf("submit as %s: %v, want a run", user, r)
	}
	return a
}

// fileOf writes a file that only the user may read, and returns its path.
func (s *site) fileOf(user, name, content string) string {
	s.t.Helper()
	dir := "/home/" + user + "/" + path.Base(s.callerRuns("x"))
	c := inCluster(user, "bash", "-euc", `umask 077; mkdir -p "$1"; cat >"$1/$2"`, "bash", dir, name)
	c.Stdin = strings.NewReader(content)
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("the file %s of %s cannot be written: %v: %s", name, user, err, out)
	}
	s.t.Cleanup(func() { shell(s.t, "root", removing(`"$1"`), dir) })
	return dir + "/" + name
}

// jobUser returns the user and the account of a run's job, as Slurm reports them.
func (s *site) jobUser(runID string) (user, account string) {
	s.t.Helper()
	name := s.story(runID).JobName
	var got []string
	until(s.t, "a job of "+runID+" in accounting", func() bool { // slurmdbd follows slurmctld
		got = strings.Fields(shell(s.t, "root", `sacct -X -n -P -D -S now-1hour -o user%99,account%99 --delimiter=" " --name="$1"`, name))
		return len(got) > 0
	})
	if len(got) != 2 {
		s.t.Fatalf("sacct about %s: %q", name, got)
	}
	return got[0], got[1]
}

// signerProcess is a running `slurmgate signer`.
type signerProcess struct {
	t                   testing.TB
	ca                  string
	dir, config, socket string
	log                 string // with a line for each certificate
	cmd                 *exec.Cmd
	text                *syncBuffer
	done                chan error
}

// newSigner starts a signer of the site for the gateway's user lab; edit changes its configuration. Its folder is
// outside the site's, where lab could change it.
func newSigner(t testing.TB, s *site, edit func(doc tree)) *signerProcess {
	t.Helper()
	info := sshOf(t).Callers
	dir := "/run/signers/" + path.Base(s.callerRuns("x"))
	sign := &signerProcess{t: t, ca: info.Signer.CAKey, dir: dir, config: dir + "/signer.yaml", socket: dir + "/signer.sock",
		log: dir + "/certificates.log"}
	doc := sign.settings(nil)
	if edit != nil {
		edit(doc)
	}
	sign.write(doc)
	sign.start()
	t.Cleanup(func() {
		sign.stop("TERM")
		shell(t, "root", removing(`"$1"`), dir)
	})
	return sign
}

// settings returns the signer's usual configuration with some fields changed.
func (g *signerProcess) settings(with tree) tree {
	doc := tree{"ca": tree{"key": g.ca}, "socket": g.socket, "gateway_users": []any{"lab"}, "log": g.log,
		"source_addresses": []any{"127.0.0.1", "::1"}, "per_minute": 6000, "per_user_minute": 6000}
	maps.Copy(doc, with)
	return doc
}

// write writes the signer's configuration, which it reads when it starts.
func (g *signerProcess) write(doc tree) {
	g.t.Helper()
	out := value(yaml.Marshal(doc))(g.t)
	c := inCluster("root", "bash", "-euc", `install -d -m 0755 /run/signers; install -d -m 0755 -o sgsigner "$1"; cat >"$1/signer.yaml"`,
		"bash", g.dir)
	c.Stdin = bytes.NewReader(out)
	if out, err := c.CombinedOutput(); err != nil {
		g.t.Fatalf("the signer's configuration cannot be written: %v: %s", err, out)
	}
}

// start starts it and returns when it answers.
func (g *signerProcess) start() {
	g.t.Helper()
	g.cmd = inClusterContext(context.Background(), "sgsigner", nil, "bash", "-c", `echo "(pid $$)"; exec "$@"`, "bash",
		world.dir+"/slurmgate", "signer", "--config", g.config)
	g.text, g.done = &syncBuffer{}, make(chan error, 1)
	g.cmd.Stdout, g.cmd.Stderr = g.text, g.text
	must(g.t, g.cmd.Start())
	go func() { g.done <- g.cmd.Wait() }()
	until(g.t, "signer", func() bool {
		select {
		case err := <-g.done:
			g.t.Fatalf("the signer ended: %v\n%s", err, g.text)
		default:
		}
		return strings.Contains(g.text.String(), "signs certificates")
	})
}

// stop ends the signer with a signal, if it runs.
func (g *signerProcess) stop(signal string) {
	g.t.Helper()
	if g.cmd == nil {
		return
	}
	shell(g.t, "root", `kill -"$1" "$2" || true`, signal, servePID.FindStringSubmatch(g.text.String())[1])
	select {
	case <-g.done:
	case <-time.After(time.Until(deadline(g.t))):
		g.t.Fatalf("the signer did not end:\n%s", g.text)
	}
	g.cmd = nil
}

// certificates reads the lines of the signer's log.
func (g *signerProcess) certificates() (lines []tree) {
	g.t.Helper()
	for line := range strings.Lines(shell(g.t, "root", `cat "$1"`, g.log)) {
		one := tree{}
		must(g.t, json.Unmarshal([]byte(line), &one))
		lines = append(lines, one)
	}
	return lines
}

// newUser makes a user of the cluster for this test alone, whose account it may lock, expire or remove: devd user NAME VERB.
func newUser(t testing.TB) string {
	t.Helper()
	siteMu.Lock()
	siteN++
	name := fmt.Sprintf("user%d-%d", os.Getpid(), siteN)
	siteMu.Unlock()
	shell(t, "root", `flock /run/users.lock devd user "$1" add`, name)
	t.Cleanup(func() {
		shell(t, "root", `devd user "$1" restore; scancel --user="$1"; flock /run/users.lock devd user "$1" remove`, name)
	})
	return name
}
