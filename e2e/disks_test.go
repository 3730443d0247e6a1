package e2e

import (
	"strings"
	"testing"
)

// A full disk under the ledger: new runs are refused with the reason, existing ones can be read, and a run whose job
// ends meanwhile is finished when there is room again.
//
// proves CARD-04
// short: success is proven
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
		t.Errorf("submit on a full disk fails with %v, want disk_full, to be tried again, with both settings", f)
	}
	for _, args := range [][]string{{s.file("after.txt", "x")}, {file, "--label", "other"}} {
		f := s.fails(8, append([]string{"artifact", "import"}, args...)...)
		if f.Code != "disk_full" || !strings.Contains(f.Message, "reserve_mb") {
			t.Errorf("import on a full disk fails with %v, want disk_full", f)
		}
	}
	if b := s.import1(file); b.ArtifactID != a.ArtifactID {
		t.Errorf("on a full disk the import of known bytes gives %s, want %s", b.ArtifactID, a.ArtifactID)
	}
	var again submitted
	if s.ok(&again, "submit", s.plan(held())); !again.Replayed || again.RunID != running {
		t.Errorf("on a full disk the same request gives %v, want a replay of %s", again, running)
	}
	// To the last byte: not even the end of the job can be written down.
	shell(t, "lab", `dd if=/dev/zero of="$1/ballast2" bs=4k 2>/dev/null || :`, state)
	s.letGo(workspace)
	until(t, "refusal by the ledger", func() bool { return strings.Contains(d.text.String(), "the ledger's disk is full") })
	var l looked
	if s.ok(&l, "get", running); l.State != "running" {
		t.Errorf("while the ledger cannot be written to %v, want it running", l)
	}
	shell(t, "lab", `rm "$1/ballast" "$1/ballast2"`, state)
	s.ends(running, "succeeded")
	s.ends(s.submit(other).RunID, "succeeded")
	if after := s.count(running); after.Accounted != 1 || after.Accounted != before.Accounted {
		t.Errorf("%d jobs of one run", after.Accounted)
	}
}
