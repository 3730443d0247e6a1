package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// background starts a command and returns while it runs.
func (s *site) background(args ...string) (c *exec.Cmd, out *syncBuffer, done chan error) {
	s.t.Helper()
	ctx, stop := commandContext(s.t)
	s.t.Cleanup(stop)
	c, out, done = s.command(ctx, args...), &syncBuffer{}, make(chan error, 1)
	c.Stdout = out
	must(s.t, c.Start())
	go func() { done <- c.Wait() }()
	return c, out, done
}

// held returns a plan whose program runs until [site.letGo] is called for its run, two minutes at most.
func held() tree {
	doc := probePlan("await", "out/go", "out/result")
	doc["resources"].(tree)["time_limit_seconds"] = 180
	return doc
}

// letGo lets a held program end, once its job has made the folder.
func (s *site) letGo(workspace string) {
	s.t.Helper()
	until(s.t, "folder for outputs", func() bool {
		_, err := os.Stat(host(workspace) + "/a1/out")
		return err == nil
	})
	must(s.t, os.WriteFile(host(workspace)+"/a1/out/go", nil, 0o644))
}

// One shell waits for its run and is the gateway meanwhile; others read through its socket; when it ends, they take
// over.
//
// proves HTC-06
func TestTwoShells(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	_, first, done := s.background("submit", s.plan(held()), "--wait", "--json")
	var page runPage
	until(t, "run in another shell", func() bool {
		if r := s.cli("runs", "list", "--json"); r.code == 0 { // the ledger may not be there yet
			r.object(t, &page)
		}
		return len(page.Runs) == 1
	})
	id := page.Runs[0].RunID
	s.phase(id, "running")
	s.started(id)
	// While the first shell is the gateway.
	if r := s.cli("serve"); r.code == 0 || !strings.Contains(string(r.stderr), "pid") {
		t.Errorf("a second gateway: %v", r)
	}
	var l looked
	s.ok(&l, "get", id)
	if l.State != "running" || l.SlurmJobID == nil {
		t.Errorf("through the other shell's socket %v, want it running with a job", l)
	}
	s.ok(nil, "logs", id)
	s.ok(nil, "runs", "show", id)
	// A third one waits as well; it outlives the first, which is killed hard.
	_, third, thirdDone := s.background("wait", id, "--json")
	holder := shell(t, "lab", `pgrep -u lab -f "submit $1" | head -n 1`, s.dir)
	shell(t, "lab", `kill -9 "$1"`, holder)
	if err := <-done; err == nil {
		t.Errorf("the first shell was killed and ended well: %s", first)
	}
	s.ok(&l, "get", id)
	if l.State != "running" {
		t.Errorf("after the gateway's death %v, want it running", l)
	}
	s.letGo(s.story(id).Workspace)
	if err := <-thirdDone; err != nil {
		t.Fatalf("the third shell: %v\n%s", err, third)
	}
	var w looked
	result{[]string{"wait"}, 0, []byte(third.String()), nil}.object(t, &w)
	if w.State != "succeeded" || w.RunID != id {
		t.Errorf("the third shell waited for %v, want run %s succeeded", w, id)
	}
	s.hasOneJob(id)
}

// A gateway that stays serves all verbs; a second one exits and names it; TERM makes it finish and go.
//
// short: the shell
func TestServe(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	d := s.serve()
	second := s.cli("serve", "--json")
	f := second.failure(t, 5)
	if f.Code != "gateway_running" || !strings.Contains(f.Message, d.pid) {
		t.Errorf("a second gateway fails with %v, want gateway_running that names the first, pid %s", f, d.pid)
	}
	id := s.submit(held()).RunID
	s.phase(id, "running")
	s.started(id)
	workspace := s.story(id).Workspace
	// TERM while a job runs: the gateway goes, the job does not.
	d.signal("TERM")
	if code := d.ended(t); code != 0 {
		t.Errorf("serve ended with %d after TERM:\n%s", code, d.text)
	}
	if !strings.Contains(d.text.String(), "stopping") {
		t.Errorf("serve did not log its end:\n%s", d.text)
	}
	s.letGo(workspace)
	s.ends(id, "succeeded")
	var r submitted
	s.ok(&r, "submit", s.plan(held()))
	if !r.Replayed || r.State != "succeeded" {
		t.Errorf("the same request after TERM gives %v, want a replay of what succeeded", r)
	}
}

// kill -9 of the gateway while a job runs, and while one waits: nothing is lost, nothing runs twice.
//
// proves ABI-18 CARD-04 CARD-05
// short: at most one execution
func TestKilledGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	d := s.serve()
	running := s.submit(held()).RunID
	waiting, release := s.waiting(probePlan("write", "out/result", "late"))
	s.phase(running, "running")
	s.started(running)
	jobs := []string{s.story(running).SlurmJobID, s.story(waiting).SlurmJobID}
	workspace := s.story(running).Workspace
	d.signal("KILL")
	d.ended(t)
	release()
	s.letGo(workspace)
	until(t, "end of both jobs while nobody watches", func() bool {
		return shell(t, "root", `squeue -h -t all -j "$1,$2" -o %T | sort -u`, jobs[0], jobs[1]) == "COMPLETED"
	})
	for _, id := range []string{running, waiting} {
		var l looked
		s.ok(&l, "get", id) // one read by a new shell is enough to have it collected
		if l.State != "succeeded" {
			l = s.wait(id)
			t.Logf("after the first read %s was %s", id, l.Phase)
		}
		if l.State != "succeeded" {
			t.Errorf("collected after the kill: %v, want it succeeded", l)
		}
		s.hasOneJob(id)
	}
	s.serve() // the lock of the dead one is no obstacle
	var r submitted
	if s.ok(&r, "submit", s.plan(held())); !r.Replayed || r.RunID != running {
		t.Errorf("the same request after the kill gives %v, want a replay of %s", r, running)
	}
}

// A run in flight that outlives its shell: Ctrl-C ends the waiting, not the run.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	s.serve()
	file := s.plan(held())
	c, out, done := s.background("submit", file, "--wait", "--json")
	id := ""
	until(t, "run", func() bool {
		var page runPage
		if s.ok(&page, "runs", "list"); len(page.Runs) == 1 {
			id = page.Runs[0].RunID
		}
		return id != ""
	})
	s.phase(id, "running")
	shell(t, "lab", `pkill -INT -u lab -f "submit $1"`, file)
	err := <-done
	if err == nil {
		t.Errorf("an interrupted wait ended well: %s", out)
	}
	f := result{[]string{"submit"}, c.ProcessState.ExitCode(), []byte(out.String()), nil}.failure(t, 6)
	if f.Code != "canceled" || !strings.Contains(f.Message, id) {
		t.Errorf("an interrupted submit --wait fails with %v, want canceled that names %s", f, id)
	}
	s.letGo(s.story(id).Workspace)
	s.ends(id, "succeeded")
}
