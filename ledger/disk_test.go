package ledger

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// smallDisk mounts a filesystem of that size in memory.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		t.Fatalf("cannot mount a small filesystem (the tests of this package need root): %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) }) // a loop device lets go of its file a moment after its own unmounting
	return dir
}

// thinDisk mounts a filesystem that claims more room than it has, as thinly provisioned disks do. After exhaust,
// writes to new blocks are taken into memory and cannot be synced; relieve makes room again.
func thinDisk(t *testing.T) (dir string, exhaust, relieve func()) {
	t.Helper()
	back := smallDisk(t, 48<<20)
	image, ballast := filepath.Join(back, "image"), filepath.Join(back, "ballast")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 256<<20))
	dir = t.TempDir()
	for _, argv := range [][]string{{"mkfs.ext4", "-q", "-O", "^has_journal", "-E", "nodiscard", image}, {"mount", "-o", "loop,nodiscard",
		image, dir}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		os.Remove(ballast)
		must(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	exhaust = func() {
		unix.Sync()
		fill(t, ballast)
	}
	return dir, exhaust, func() { must(t, os.Remove(ballast)) }
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for block := bytes.Repeat([]byte("x"), size); err == nil; {
			_, err = f.Write(block)
		}
		err = nil
	}
}

// A full disk refuses a change and loses none; with room again changes succeed. A gateway can even start on it.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t, 4<<20)
	l := openAt(t, filepath.Join(dir, "ledger.db"))
	first := insert(t, l, 1)
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	refused := 0
	for i := range 40 { // the room in the log still takes some
		_, _, err := l.Insert(t.Context(), newRun(100+i))
		if err != nil {
			wantFault(t, err, fault.Transport, "ledger_disk_full")
			refused++
		}
	}
	if refused < 10 || l.Stopped() != nil {
		t.Errorf("%d refused on a full disk; stopped: %v", refused, l.Stopped())
	}
	if _, err := l.View(t.Context(), first.Run.ID); err != nil {
		t.Errorf("reading from a full disk: %v", err)
	}
	lock, err := TakeLock(filepath.Join(dir, "gateway.lock"))
	if err != nil {
		t.Errorf("the lock needs no room: %v", err)
	} else {
		must(t, lock.Release())
	}
	must(t, os.Remove(ballast))
	insert(t, l, 2)
	must(t, l.Integrity(t.Context()))
}

// After a sync that failed nothing more is written, not even when the disk seems well again; what had been acknowledged is
// there for the next who opens the ledger.
func TestFailedSyncStops(t *testing.T) {
	dir, exhaust, relieve := thinDisk(t)
	path := filepath.Join(dir, "ledger.db")
	l := openAt(t, path)
	acknowledged := []string{insert(t, l, 1).Run.ID}
	exhaust()
	var err error
	for i := 0; err == nil && i < 20_000; i++ {
		n := newRun(1000 + i)
		if _, _, err = l.Insert(t.Context(), n); err == nil {
			acknowledged = append(acknowledged, n.Run.ID)
		}
	}
	if l.Stopped() == nil {
		t.Fatalf("after %d runs on a disk without room behind it: %v", len(acknowledged), err)
	}
	wantFault(t, l.Stopped(), fault.Transport, "ledger_stopped")
	relieve()
	for i := range 5 {
		_, _, err := l.Insert(t.Context(), newRun(80_000+i))
		wantFault(t, err, fault.Transport, "ledger_stopped")
	}
	if _, err := l.View(t.Context(), acknowledged[0]); err != nil {
		t.Errorf("View after the disk failed: %v, want success", err)
	}
	must(t, l.Close())
	// Nothing of the cache: what the disk itself has.
	must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0))
	next := openAt(t, path)
	must(t, next.Integrity(t.Context()))
	for _, id := range acknowledged {
		if _, err := next.View(t.Context(), id); err != nil {
			t.Errorf("acknowledged and gone: %v", err)
		}
	}
	insert(t, next, 90_000)
	t.Logf("%d runs acknowledged before the sync failed, all there", len(acknowledged))
}

// The ledger does not wait for a disk that hangs, as after a failure of its server or bus: the gateway is not ready,
// and reports why. It is ready again once the disk answers.
func TestDiskThatDoesNotAnswer(t *testing.T) {
	dir, _, _ := thinDisk(t)
	l := openAt(t, filepath.Join(dir, "ledger.db"))
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	const freeze, thaw = 0xc0045877, 0xc0045878 // FIFREEZE, FITHAW
	must(t, unix.IoctlSetInt(int(f.Fd()), freeze, 0))
	thawed := sync.OnceFunc(func() { must(t, unix.IoctlSetInt(int(f.Fd()), thaw, 0)) })
	defer thawed()
	for range 2 { // the second call finds the probe of the first under way
		err := l.DiskAnswers(t.Context())
		wantFault(t, err, fault.Transport, "state_disk_silent")
	}
	thawed()
	<-l.probe().ended
	if err := l.DiskAnswers(t.Context()); err != nil {
		t.Errorf("after a disk went on it answers %v", err)
	}
}
