//go:build takeover

package e2e

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A ledger of an earlier slurmgate, built from TAKEOVER_FROM, with runs in flight: running, pending in Slurm, deferred, asked for and not
// yet staged, a docker run, and finished ones. Its gateway is killed, and this program takes over the same site file and ledger: every run
// ends once, under its id; replays replay; the chain of events is whole. `make takeover FROM=COMMIT` runs this test.
//
// proves CARD-04 ABI-18 SITE-07
func TestTakeover(t *testing.T) {
	now, kept := host(world.dir)+"/slurmgate", host(world.dir)+"/slurmgate.now"
	must(t, os.Rename(now, kept))
	before(t, os.Getenv("TAKEOVER_FROM"), now)

	s, call := here(t, "docker", "local: {max_running: 2}")
	// As every program reads them.
	s.replace("site.yaml", "{path: "+s.dir+"/files, projects: [demo]}", s.dir+"/files")
	s.replace("site.yaml", "{path: "+world.dir+`/data, projects: ["*"]}`, world.dir+"/data")
	s.replace("domain/policies.yaml", "    env: [N, NAME, PLAIN, NASTY, EMPTY, _x1, TZ]\n", "")
	conf := s.dir + "/slurm.conf"
	shell(t, "lab", `cp /etc/slurm/slurm.conf "$1"`, conf)
	s.replace("site.yaml", "slurm:\n", "slurm:\n  conf: "+conf+"\n")
	d := s.serve()
	plan := func(argv ...string) string { return s.plan(probePlan(argv...)) }
	submit := func(argv ...string) submitted {
		t.Helper()
		var a submitted
		s.ok(&a, "submit", plan(argv...))
		return a
	}
	finished := submit("write", "out/result", "finished").RunID
	s.wait(finished)
	var docker submitted
	s.ok(&docker, call("mode=await", "a=out/go", "b=out/result")...)
	s.started(docker.RunID)
	running := submit("await", "out/go", "out/result").RunID
	s.started(running)
	pending, release := s.waiting(probePlan("write", "out/result", "pending"))
	shell(t, "lab", `sed -i '/^SlurmctldPort=/d' "$1" && echo SlurmctldPort=1 >>"$1"`, conf)
	deferred := submit("write", "out/result", "deferred").RunID
	s.phase(deferred, "deferred")
	late := submit("write", "out/result", "late").RunID // as the kill finds it: staging or deferred
	workspaces := []string{s.story(docker.RunID).Workspace, s.story(running).Workspace}
	d.signal("KILL")
	d.ended(t)
	shell(t, "lab", `sed -i '/^SlurmctldPort=1$/d' "$1"`, conf)
	release()
	if file := os.Getenv("TAKEOVER_KEEP"); file != "" { // the ledger as the kill left it, packed
		packed, err := base64.StdEncoding.DecodeString(shell(t, "lab", `tar -C ~/"$1" -cz ledger.db ledger.db-wal | base64 -w0`,
			strings.TrimPrefix(s.dir, "/shared/")))
		must(t, err)
		must(t, os.WriteFile(file, packed, 0o600))
	}

	must(t, os.Rename(kept, now))
	s.serve()
	for _, w := range workspaces {
		s.letGo(w)
	}
	for _, id := range []string{finished, docker.RunID, running, pending, deferred, late} {
		if l := s.wait(id); l.State != "succeeded" {
			t.Errorf("%s: %+v", id, l)
		}
		var v struct {
			Site    string `json:"site"`
			JobName string `json:"job_name"`
			Attempt int    `json:"attempt"`
		}
		s.ok(&v, "runs", "show", id)
		want := map[bool]string{true: "local", false: "e2e"}[id == docker.RunID]
		if v.Site != want || v.Attempt != 1 {
			t.Errorf("%s is on %s at attempt %d", id, v.Site, v.Attempt)
		}
		if n := s.count(id).Accounted; id != docker.RunID && n != 1 {
			t.Errorf("%s has %d jobs", id, n)
		}
	}
	for word, id := range map[string]string{"finished": finished, "pending": pending, "deferred": deferred, "late": late} {
		doc := probePlan("write", "out/result", word)
		if word == "pending" {
			s.set(doc, "placement.partition", "big")
		}
		var a submitted
		if s.ok(&a, "submit", s.plan(doc)); a.RunID != id || !a.Replayed {
			t.Errorf("%s: %+v, want %s", word, a, id)
		}
	}
	var again submitted
	if s.ok(&again, call("mode=await", "a=out/go", "b=out/result")...); again.RunID != docker.RunID || !again.Replayed {
		t.Errorf("%+v", again)
	}
	if r := s.cli("events", "verify"); r.code != 0 {
		t.Error(r)
	}
}

// before builds the program of a commit.
func before(t *testing.T, commit, out string) {
	t.Helper()
	if commit == "" {
		t.Fatal("TAKEOVER_FROM names no commit: make takeover FROM=COMMIT")
	}
	dir := filepath.Join(t.TempDir(), "before")
	must(t, command("git", "worktree", "add", "--detach", dir, commit))
	defer func() { must(t, command("git", "worktree", "remove", "--force", dir)) }()
	c := exec.Command("go", "build", "-o", out, "./cmd/slurmgate")
	c.Dir = dir
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	must(t, os.Lchown(out, world.uid, world.uid))
}
