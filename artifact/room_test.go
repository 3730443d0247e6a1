package artifact

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// tinyDisk is a disk with this much room.
type tinyDisk struct {
	mu          sync.Mutex
	free, files uint64
}

func (d *tinyDisk) statfs(_ string, st *unix.Statfs_t) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	*st = unix.Statfs_t{Bsize: 1, Bavail: d.free, Files: d.files, Ffree: d.files}
	return nil
}

func (d *tinyDisk) shrinkTo(free uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = free
}

// withRoom returns an importer on a disk with so much free, 1000 bytes of it in reserve.
func withRoom(t *testing.T, free uint64) (im *Importer, d *tinyDisk, storeDir, root string) {
	t.Helper()
	s, storeDir := newStore(t)
	root = t.TempDir()
	d = &tinyDisk{free: free, files: 1 << 20}
	room := NewRoom(1000, Disk{"gateway.artifact_dir", storeDir}, Disk{"gateway.state_dir", storeDir})
	room.statfs = d.statfs
	im, err := NewImporter(s, ImportPolicy{MaxBytes: 1 << 30, Room: room, Roots: rootsOf(root)})
	must(t, err)
	return im, d, storeDir, root
}

// paused returns its bytes when on is closed.
type paused struct {
	io.Reader
	begun, on chan struct{}
	once      sync.Once
}

func (p *paused) Read(b []byte) (int, error) {
	p.once.Do(func() { close(p.begun) })
	<-p.on
	return p.Reader.Read(b)
}

// An import begins only where it leaves the reserve free, by every way in, and counts what others in progress will
// still write.
func TestImportsLeaveTheReserve(t *testing.T) {
	im, d, storeDir, root := withRoom(t, 1500)
	put(t, root+"/f", strings.Repeat("x", 600))
	f := value(os.Open(root + "/f"))(t)
	defer f.Close()
	text := strings.Repeat("y", 600)
	ways := map[string]func(im *Importer) error{
		"path":   func(im *Importer) error { _, err := im.ImportFile(t.Context(), root+"/f", inP); return err },
		"handed": func(im *Importer) error { _, err := im.ImportHanded(t.Context(), f, root+"/f", false, inP); return err },
		"text":   func(im *Importer) error { _, err := im.ImportText(t.Context(), text); return err },
		"upload": func(im *Importer) error {
			_, err := im.ImportStream(t.Context(), strings.NewReader(text), 600, "", nil)
			return err
		},
		"answer": func(im *Importer) error { _, _, err := im.Keep(t.Context(), []byte(text)); return err },
	}
	for what, way := range ways {
		wantFault(t, way(im), fault.Transport, "disk_full")
		if what != "answer" {
			must(t, way(im.Rehearsal())) // it writes nothing
		}
	}
	if got := listed(t, storeDir); got != nil {
		t.Error("stored:", got)
	}
	d.shrinkTo(1700)
	slow := &paused{Reader: strings.NewReader(strings.Repeat("z", 200)), begun: make(chan struct{}), on: make(chan struct{})}
	done := make(chan error)
	go func() { _, err := im.ImportStream(context.Background(), slow, 200, "", nil); done <- err }()
	<-slow.begun
	for what, way := range ways {
		if err := way(im); fault.CodeOf(err) != "disk_full" || !strings.Contains(err.Error(), "other imports in progress") {
			t.Errorf("%s: %v", what, err)
		}
	}
	close(slow.on)
	must(t, <-done)
	for _, way := range ways {
		must(t, way(im)) // nothing is promised any more
	}
	must(t, ways["answer"](im))
	d.mu.Lock()
	d.files = leastFiles - 1
	d.mu.Unlock()
	wantFault(t, ways["path"](im), fault.Transport, "disk_full")
	d.shrinkTo(0)
	must(t, ways["answer"](im)) // it is stored already
	if im.room.promised != 0 {
		t.Errorf("%d bytes are promised without an import, want 0", im.room.promised)
	}
}

// filling returns bytes and reports how many were read.
type filling struct {
	d    *tinyDisk
	read int64
	each func(read int64)
}

func (e *filling) Read(b []byte) (int, error) {
	e.read += int64(len(b))
	e.each(e.read)
	return len(b), nil
}

// A disk that fills while an import runs ends it before the reserve is used, whether its size was known or not; nothing of it stays.
func TestImportsStopAtTheReserve(t *testing.T) {
	const disk = 64 << 20
	for size, what := range map[int64]string{unknownSize: "of unknown size", 100 << 20: "too large for the disk, as another fills it"} {
		im, d, storeDir, _ := withRoom(t, disk)
		e := &filling{d: d}
		e.each = func(read int64) { d.shrinkTo(uint64(max(0, disk-read))) }
		if size > 0 {
			d.shrinkTo(200 << 20)
		}
		_, err := im.ImportStream(t.Context(), e, size, "", nil)
		wantFault(t, err, fault.Transport, "disk_full")
		if e.read > disk {
			t.Errorf("%s: %d bytes were written to a disk of %d", what, e.read, disk)
		}
		if got := listed(t, storeDir); got != nil {
			t.Error(what, "left", got)
		}
		if im.room.promised != 0 {
			t.Errorf("%s: %d bytes are promised without an import, want 0", what, im.room.promised)
		}
	}
}
