package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// Room keeps a reserve free on the gateway's disks: what callers import stops before it, so that runs that have begun can be recorded and
// collected. Imports in progress count with all that they will still write.
type Room struct {
	reserve int64  // bytes
	disks   []Disk // the first is that of the store
	statfs  func(path string, st *unix.Statfs_t) error

	mu       sync.Mutex
	promised int64 // bytes that imports in progress have yet to write
}

// Disk is a folder whose disk must have the reserve free, and the setting that names it.
type Disk struct{ Field, Folder string }

// leastFiles is how many more files a disk must have room for, where it has a limit.
const leastFiles = 1000

// NewRoom makes a room of a reserve in bytes on the store's disk and others.
func NewRoom(reserve int64, store Disk, others ...Disk) *Room {
	return &Room{reserve: reserve, disks: append([]Disk{store}, others...), statfs: unix.Statfs}
}

// hold is the room of one import. Without a room it is endless.
type hold struct {
	room *Room
	left int64 // promised and not yet written
}

// Take implements [Allowance].
func (h *hold) Take(_ context.Context, least, want int64) (int64, error) {
	if h.room == nil {
		return want, nil
	}
	h.room.mu.Lock()
	defer h.room.mu.Unlock()
	if err := h.room.check(want); err != nil && (want == least || h.room.check(least) != nil) {
		return 0, err
	} else if err != nil {
		want = least
	}
	h.room.promised += want
	h.left += want
	return want, nil
}

// wrote moves n promised bytes to the written ones, and checks whether there is still room for the rest.
func (h *hold) wrote(n int64, check bool) error {
	if h.room == nil {
		return nil
	}
	h.room.mu.Lock()
	defer h.room.mu.Unlock()
	n = min(n, h.left)
	h.left -= n
	h.room.promised -= n
	if !check {
		return nil
	}
	return h.room.check(0)
}

// end releases what was promised and not written.
func (h *hold) end() { _ = h.wrote(math.MaxInt64, false) }

// check refuses so many more bytes when they would not leave the reserve free. A disk that cannot be examined refuses nothing.
func (r *Room) check(more int64) error {
	for i, d := range r.disks {
		var st unix.Statfs_t
		if r.statfs(d.Folder, &st) != nil {
			continue
		}
		free := int64(min(st.Bavail, math.MaxInt64/uint64(max(1, st.Bsize)))) * st.Bsize
		need := r.reserve
		if i == 0 {
			need += r.promised + more
		}
		switch {
		case free < need && free < r.reserve+more:
			return full(d, fmt.Sprintf("has %d MiB free; storage.reserve_mb reserves %d MiB for runs that have begun", free>>20, r.reserve>>20))
		case free < need:
			return full(d, fmt.Sprintf("has %d MiB free; other imports in progress need %d MiB of it, and storage.reserve_mb reserves %d MiB",
				free>>20, r.promised>>20, r.reserve>>20))
		case st.Files > 0 && st.Ffree < leastFiles:
			return full(d, fmt.Sprintf("can hold only %d more files", st.Ffree))
		}
	}
	return nil
}

func full(d Disk, what string) error {
	return fault.New(fault.Transport, "disk_full", "nothing was imported: the disk of "+d.Field+" "+what).
		WithNext("free space below " + d.Folder + "; what is imported already is still found by importing it again")
}

// Keep stores what the gateway made for a caller, such as a long answer, where there is room; what is stored already needs none.
func (im *Importer) Keep(ctx context.Context, data []byte) (sum string, size int64, err error) {
	size = int64(len(data))
	if im.room != nil && !im.store.Has(fmt.Sprintf("%x", sha256.Sum256(data))) {
		h := &hold{room: im.room}
		if _, err := h.Take(ctx, size, size); err != nil {
			return "", 0, err
		}
		defer h.end()
	}
	return im.store.Put(ctx, bytes.NewReader(data), size)
}

// Allowance is a number of bytes from which an import takes before it stores them.
type Allowance interface {
	// Take returns at least least bytes and at most want, or why there are none.
	Take(ctx context.Context, least, want int64) (int64, error)
}

// Within returns an importer that also takes what it stores from an allowance.
func (im *Importer) Within(a Allowance) *Importer {
	other := *im
	other.allowance = a
	return &other
}

const (
	unknownSize = -1
	piece       = 1 << 20  // of an import of unknown size, taken at a time
	checkEvery  = 16 << 20 // bytes between two checks of the disk
)

// metered reads within what an import has reserved, and reserves more during the copy where the size is not known
// before.
type metered struct {
	io.Reader
	ctx    context.Context
	hold   *hold
	from   []Allowance
	known  bool
	left   int64 // taken and not yet read
	unseen int64 // read since the last check of the disk
}

// meter takes the size of an import from the room and the allowance, or a first piece.
func (im *Importer) meter(ctx context.Context, r io.Reader, size int64) (*metered, error) {
	m := &metered{Reader: r, ctx: ctx, hold: &hold{room: im.room}, known: size != unknownSize}
	if m.from = []Allowance{m.hold}; im.allowance != nil {
		m.from = append(m.from, im.allowance)
	}
	least, want := size, size
	if !m.known {
		least, want = 1, piece
	}
	return m, m.take(least, want)
}

func (m *metered) take(least, want int64) error {
	for _, a := range m.from {
		got, err := a.Take(m.ctx, least, want)
		if err != nil {
			m.hold.end()
			return err
		}
		want = got
	}
	m.left += want
	return nil
}

// Read implements io.Reader.
func (m *metered) Read(b []byte) (int, error) {
	if !m.known && m.left == 0 {
		if err := m.take(1, piece); err != nil {
			return 0, err
		}
	}
	if !m.known {
		b = b[:min(int64(len(b)), m.left)]
	}
	n, err := m.Reader.Read(b)
	m.left -= int64(n)
	m.unseen += int64(n)
	look := m.unseen >= checkEvery
	if look {
		m.unseen = 0
	}
	if full := m.hold.wrote(int64(n), look); full != nil {
		return n, full
	}
	return n, err
}
