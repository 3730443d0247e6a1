package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A full disk under the ledger: new runs are refused with the reason, what there is can be looked at, and a run whose job ends
// meanwhile is finished when there is room again.
//
// proves CARD-04
func TestFullDisk(t *testing.T) {
	t.Parallel()
	state := shell(t, "root", `d=$(mktemp -d /home/lab/small-XXXXXX) && mount -t tmpfs -o size=48m,mode=0700,uid=lab,gid=lab tmpfs "$d" && echo "$d"`)
	t.Cleanup(func() { shell(t, "root", `umount -l "$1" && rmdir "$1"`, state) }) // after the gateway's end
	s := newSite(t, "probing", func(f *siteFile) { f.State, f.ReserveMB = state, 8 })
	d := s.serve()
	running := s.submit(held()).RunID
	s.phase(running, "running")
	s.started(running)
	workspace := s.story(running).Workspace
	file := s.file("before.txt", "imported before the disk was full\n")
	a := s.import1(file)

	shell(t, "lab", `fallocate -l $(( $(df --output=avail -B1 "$1" | tail -1) - (4 << 20) )) "$1/ballast"`, state)
	other := probePlan("write", "out/result", "other")
	before := s.count(running)
	f := s.fails(8, "submit", s.plan(other))
	if f.Code != "disk_full" || !f.Retryable || !strings.Contains(f.Message, "gateway.state_dir") || !strings.Contains(f.Message,
		"reserve_mb") {
		t.Errorf("%+v", f)
	}
	for _, args := range [][]string{{s.file("after.txt", "x")}, {file, "--label", "other"}} {
		f := s.fails(8, append([]string{"artifact", "import"}, args...)...)
		if f.Code != "disk_full" || !strings.Contains(f.Message, "reserve_mb") {
			t.Errorf("%+v", f)
		}
	}
	if b := s.import1(file); b.ArtifactID != a.ArtifactID {
		t.Errorf("what is imported needs no room: %+v", b)
	}
	var again submitted
	if s.ok(&again, "submit", s.plan(held())); !again.Replayed || again.RunID != running {
		t.Errorf("a replay needs no room: %+v", again)
	}
	// To the last byte: not even the end of the job can be written down.
	shell(t, "lab", `dd if=/dev/zero of="$1/ballast2" bs=4k 2>/dev/null || :`, state)
	s.letGo(workspace)
	until(t, time.Minute, "refusal by the ledger", func() bool { return strings.Contains(d.text.String(), "the ledger's disk is full") })
	var l looked
	if s.ok(&l, "get", running); l.State != "running" {
		t.Errorf("%+v", l)
	}
	shell(t, "lab", `rm "$1/ballast" "$1/ballast2"`, state)
	if l := s.wait(running); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
	if l := s.wait(s.submit(other).RunID); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
	if after := s.count(running); after.Accounted != 1 || after.Accounted != before.Accounted {
		t.Errorf("%d jobs of one run", after.Accounted)
	}
}

// A ledger restored from an older backup does not know what was sent since. What it would send again stops before its workspace.
//
// proves ABI-18 CARD-04
func TestRestoredLedger(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	old := s.submit(probePlan("write", "out/result", "old")).RunID
	s.wait(old)
	state := "/home/lab/" + strings.TrimPrefix(s.dir, "/shared/")
	shell(t, "lab", `cp "$1/ledger.db" "$1/backup.db"`, state) // no gateway runs: nothing is left in the log beside it
	lost := probePlan("write", "out/result", "since")
	run := s.submit(lost).RunID
	s.wait(run)
	shell(t, "lab", `cp "$1/backup.db" "$1/ledger.db" && rm -f "$1"/ledger.db-*`, state)

	if r := s.submit(probePlan("write", "out/result", "old")); !r.Replayed || r.State != "succeeded" {
		t.Errorf("what the backup knows is a replay: %+v", r)
	}
	r := s.submit(lost)
	if r.RunID != run || r.Replayed {
		t.Errorf("%+v", r)
	}
	l := s.phase(run, "workspace_ahead_of_ledger")
	if l.State != "blocked" || !strings.Contains(l.why(), "cancel the run") {
		t.Errorf("%+v %s", l, l.why())
	}
	if n := s.count(run).Accounted; n != 1 {
		t.Errorf("%d jobs of it", n)
	}
	s.ok(nil, "cancel", run)
	if s.ok(&l, "get", run); l.State != "cancelled" {
		t.Errorf("%+v", l)
	}
}

// A gateway that starts while the shared filesystem is away does not take an empty folder for it, and the run whose job ends meanwhile is
// collected when it is back.
func TestStartedUnmounted(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	r := s.submit(probePlan("await", "out/go", "out/result"))
	until(t, time.Minute, "start of "+r.RunID, func() bool {
		_, err := os.Lstat(host(s.dir) + "/runs/" + r.RunID + "/a1/out/started")
		return err == nil
	})
	shell(t, "lab", `mv "$1" "$1.away"`, s.dir+"/runs")
	for range 2 { // not there, then empty
		if f := s.fails(8, "get", r.RunID); f.Code != "runs_dir_unavailable" || !strings.Contains(f.Message, ".gateway-id") {
			t.Errorf("%+v", f)
		}
		shell(t, "lab", `mkdir -p -m 700 "$1" && [[ -z $(ls -A "$1") ]]`, s.dir+"/runs")
	}
	shell(t, "lab", `rmdir "$1" && mv "$1.away" "$1" && touch "$1/$2/a1/out/go"`, s.dir+"/runs", r.RunID)
	if l := s.wait(r.RunID); l.State != "succeeded" {
		t.Errorf("%+v %s", l, l.why())
	}
}

// TERM while sbatch is under way: it is waited for, its receipt is recorded, and only then the gateway ends.
func TestTermDuringSend(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	bin := s.dir + "/bin"
	shell(t, "lab", `mkdir "$1" && for c in squeue sacct scancel scontrol; do ln -s "/usr/bin/$c" "$1/$c"; done
printf '#!/bin/bash\n[[ $1 == --version ]] || { touch %q; sleep 12; }\nexec /usr/bin/sbatch "$@"\n' "$1/begun" >"$1/sbatch" && chmod 755 "$1/sbatch"`, bin)
	s.replace("site.yaml", "slurm:\n", "slurm:\n  bin_dir: "+bin+"\n")
	d := s.serve()
	r := s.submit(probePlan("write", "out/result", "slow")) // answers before sbatch does
	if r.Phase != "submitting" {
		t.Errorf("%+v", r)
	}
	shell(t, "lab", `test -e "$1/begun"`, bin)
	began := time.Now()
	d.signal("TERM")
	if code := d.ended(t); code != 0 {
		t.Errorf("serve ended with %d:\n%s", code, d.text)
	}
	t.Logf("ended %.1f s after TERM", time.Since(began).Seconds())
	if n := s.count(r.RunID).Accounted; n != 1 {
		t.Errorf("%d jobs", n)
	}
	if v := s.story(r.RunID); len(v.Sends) != 1 || v.Sends[0].Outcome != "accepted" {
		t.Errorf("%+v", v.Sends)
	}
	if l := s.wait(r.RunID); l.State != "succeeded" {
		t.Errorf("%+v", l)
	}
}
