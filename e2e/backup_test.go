package e2e

import (
	"os"
	"strings"
	"testing"
)

// A backup runs while the gateway serves and a job runs; more runs are submitted, the gateway is killed and its state
// folder is lost. The restored gateway replays or collects the runs it knows. The others never execute a second time:
// those runs name the verb that ends them, and gc leaves their files alone.
//
// proves OPS-01
// short: operating it
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	d := s.serve()
	known := s.submit(probePlan("write", "out/result", "known"))
	s.wait(known.RunID)
	flight := s.submit(probePlan("await", "out/go", "out/result"))
	s.started(flight.RunID)
	s.ok(nil, "backup", s.dir+"/backups")
	lost := []tree{probePlan("write", "out/result", "lost 1"), probePlan("write", "out/result", "lost 2")}
	var ids []string
	for _, p := range lost {
		ids = append(ids, s.submit(p).RunID)
		s.wait(ids[len(ids)-1])
	}
	d.signal("KILL")
	d.ended(t)
	state := "/home/lab/" + strings.TrimPrefix(s.dir, "/shared/")
	shell(t, "lab", `mv "$1" "$1.lost"`, state)
	if f := s.fails(5, "cancel-all"); f.Code != "ledger_missing" || !strings.Contains(f.Message, "restore") {
		t.Errorf("cancel-all without a state folder fails with %v, want ledger_missing, and restore as the remedy", f)
	}
	shell(t, "lab", `! test -e "$1" && mkdir -m 700 "$1"`, state)
	var restored struct {
		Objects int      `json:"objects"`
		Missing []string `json:"missing"`
	}
	if s.ok(&restored, "restore", s.dir+"/backups"); restored.Objects == 0 || len(restored.Missing) > 0 {
		t.Errorf("restore returned %+v, want objects and none missing", restored)
	}

	s.serve()
	if r := s.submit(probePlan("write", "out/result", "known")); !r.Replayed || r.State != "succeeded" {
		t.Errorf("what the backup knows is answered with %v, want a replay of what succeeded", r)
	}
	shell(t, "lab", `touch "$1/runs/$2/a1/out/go"`, s.dir, flight.RunID)
	s.ends(flight.RunID, "succeeded")
	again := func(i int) { // its result is whole in its workspace: it is collected, and nothing is executed
		if r := s.submit(lost[i]); r.RunID != ids[i] || r.Replayed {
			t.Errorf("a run made after the backup, asked for again, is %v, want the new run %s", r, ids[i])
		}
		s.ends(ids[i], "succeeded")
		s.hasOneJob(ids[i])
	}
	again(0)
	s.ok(nil, "gc", "--workspaces-older-than", "0s")
	if _, err := os.Lstat(host(s.dir) + "/runs/" + ids[1] + "/a1/out/result"); err != nil {
		t.Errorf("gc removed what a newer run made: %v", err)
	}
	again(1)
	s.hasOneJob(flight.RunID)
}

// drain refuses new runs on every face with who, why and since when, lets what runs continue, and survives a restart; with --queue new runs
// wait. resume sends them.
//
// proves OPS-03
func TestDrainAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	d := s.serve()
	flight := s.submit(probePlan("await", "out/go", "out/result"))
	s.started(flight.RunID)
	s.ok(nil, "drain", "--reason", "new disks")
	refused := func() {
		t.Helper()
		f := s.fails(8, "submit", s.plan(probePlan("write", "out/result", "refused")))
		if f.Code != "drained" || !f.Retryable || !strings.Contains(f.Message, "new disks") || !strings.Contains(f.Message, "user:lab") {
			t.Errorf("submit while the site is drained fails with %v, want drained, to be tried again, by whom and why", f)
		}
	}
	refused()
	d.signal("TERM")
	d.ended(t)
	d = s.serve()
	refused()
	if r := s.cli("status"); r.code != 0 || !strings.Contains(string(r.stdout), "drained by user:lab") ||
		!strings.Contains(string(r.stdout), "1 running") {
		t.Errorf("%v, want who drained the site, and the run that runs", r)
	}
	shell(t, "lab", `touch "$1/runs/$2/a1/out/go"`, s.dir, flight.RunID)
	s.ends(flight.RunID, "succeeded")
	s.ok(nil, "drain", "--queue", "--reason", "new disks")
	waits := s.submit(probePlan("write", "out/result", "waits"))
	if waits.Phase != "deferred" || waits.Reason == nil || !strings.Contains(*waits.Reason, "new disks") {
		t.Errorf("a new run while the site is drained with --queue: %v, want it deferred with the reason", waits)
	}
	s.ok(nil, "resume")
	s.ends(waits.RunID, "succeeded")
	s.hasOneJob(waits.RunID)
}
