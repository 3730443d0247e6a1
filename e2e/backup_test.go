package e2e

import (
	"os"
	"strings"
	"testing"
)

// A backup is made while the gateway serves and a job runs; more runs are made, the gateway is killed and its state folder is lost.
// Restored from the backup, what it knows is replayed or collected, and what it does not know is executed by nobody a second time: those
// runs name the verb that ends them, and gc leaves their files alone.
//
// proves OPS-01
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
		t.Errorf("%+v", f)
	}
	shell(t, "lab", `! test -e "$1" && mkdir -m 700 "$1"`, state)
	var restored struct {
		Objects int      `json:"objects"`
		Missing []string `json:"missing"`
	}
	if s.ok(&restored, "restore", s.dir+"/backups"); restored.Objects == 0 || len(restored.Missing) > 0 {
		t.Errorf("%+v", restored)
	}

	s.serve()
	if r := s.submit(probePlan("write", "out/result", "known")); !r.Replayed || r.State != "succeeded" {
		t.Errorf("what the backup knows is a replay: %+v", r)
	}
	shell(t, "lab", `touch "$1/runs/$2/a1/out/go"`, s.dir, flight.RunID)
	if l := s.wait(flight.RunID); l.State != "succeeded" {
		t.Errorf("%+v %s", l, l.why())
	}
	for i, p := range lost {
		if r := s.submit(p); r.RunID != ids[i] || r.Replayed {
			t.Errorf("%+v", r)
		}
		s.phase(ids[i], "workspace_ahead_of_ledger")
	}
	s.ok(nil, "gc", "--workspaces-older-than", "0s")
	for _, id := range ids {
		if _, err := os.Lstat(host(s.dir) + "/runs/" + id + "/a1/out/result"); err != nil {
			t.Errorf("gc removed what a newer run made: %v", err)
		}
		s.ok(nil, "cancel", id)
		if n := s.count(id).Accounted; n != 1 {
			t.Errorf("%d jobs of %s", n, id)
		}
	}
	if n := s.count(flight.RunID).Accounted; n != 1 {
		t.Errorf("%d jobs of the run in flight", n)
	}
}

// drain refuses new runs on every face with who, why and since when, lets what runs go on, and survives a restart; with --queue new runs
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
			t.Errorf("%+v", f)
		}
	}
	refused()
	d.signal("TERM")
	d.ended(t)
	d = s.serve()
	refused()
	if r := s.cli("status"); r.code != 0 || !strings.Contains(string(r.stdout), "drained by user:lab") ||
		!strings.Contains(string(r.stdout), "1 running") {
		t.Error(r)
	}
	shell(t, "lab", `touch "$1/runs/$2/a1/out/go"`, s.dir, flight.RunID)
	if l := s.wait(flight.RunID); l.State != "succeeded" {
		t.Errorf("%+v %s", l, l.why())
	}
	s.ok(nil, "drain", "--queue", "--reason", "new disks")
	waits := s.submit(probePlan("write", "out/result", "waits"))
	if waits.Phase != "deferred" || waits.Reason == nil || !strings.Contains(*waits.Reason, "new disks") {
		t.Errorf("%+v", waits)
	}
	s.ok(nil, "resume")
	if l := s.wait(waits.RunID); l.State != "succeeded" {
		t.Errorf("%+v %s", l, l.why())
	}
	if n := s.count(waits.RunID).Accounted; n != 1 {
		t.Errorf("%d jobs", n)
	}
}
