package transfer

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"sync"

	"github.com/pkg/sftp"
	"golang.org/x/sync/errgroup"

	"slurmgate/fault"
)

// File is a file on the server.
type File struct {
	Path   string // absolute
	Size   int64
	SHA256 string      // of its bytes, in hex; empty: unknown
	Mode   fs.FileMode // of a file that is put; 0: the server's default
	Name   string      // its name in messages; empty: the path
	// ReadBack is for a file that is put and not hashed afterwards: the part from an earlier upload is read back before
	// it is continued.
	ReadBack bool
	// Unsynced is for a file of at most [ChunkBytes] that is put and that the caller makes durable, together with
	// others. It may lack bytes after a crash, so the caller checks its content too.
	Unsynced bool
	// Grows allows a file that is read to be longer than Size. Only the first Size bytes are read.
	Grows bool
}

func (f File) name() string { return cmp.Or(f.Name, f.Path) }

// upload is the transfer of one file to the server.
type upload struct {
	pool *Pool
	file File
	src  io.ReaderAt
	crew *crew
	temp string
	from int64       // length of the part from an earlier upload
	free chan []byte // unused buffers; all of them if no request is running
	sum  hash.Hash   // of the bytes read in order
	seed maphash.Seed

	mu      sync.Mutex
	pending map[int64]*sent // read and not yet durable
	next    int64           // offset of the next byte to read

	noting sync.Mutex
	noted  int64 // bytes that the record states
}

// sent is a span that has been read from the source.
type sent struct {
	n     int
	print uint64 // of its bytes, to check that a second reading gives the same bytes
	lane  int    // the lane that confirmed it; unconfirmed: none
}

const unconfirmed = -1

// Put sends f.Size bytes of src to f.Path and returns their SHA-256, computed as they are read. The file appears under
// its name when it is complete and durable, and replaces an existing file. The name itself is durable after the caller
// has synced the folder.
//
// A large file with a known SHA-256 is continued where an earlier Put of the same bytes to the same path ended, also
// one of an earlier process.
//
// A source with other bytes than f.SHA256, or fewer than f.Size, is a Validation fault. A full disk is a Transport fault with code
// disk_full.
func (p *Pool) Put(ctx context.Context, f File, src io.ReaderAt) (sum string, err error) {
	u := &upload{pool: p, file: f, src: src, sum: sha256.New(), seed: maphash.MakeSeed(), pending: map[int64]*sent{}}
	u.crew = newCrew(p.choose(f.Size))
	defer u.crew.release()
	unlock, err := u.name(ctx)
	if err != nil {
		return "", explain(ctx, "written", f.name(), err)
	}
	defer unlock()
	if sum, err = u.run(ctx); err != nil {
		if need := f.Size - u.durable(); ctx.Err() == nil {
			err = fullDisk(ctx, u.crew.lanes[0].slot, f.Path, need, err)
		}
		u.discard(ctx, err)
		return "", explain(ctx, "written", f.name(), err)
	}
	return sum, nil
}

// name chooses the temporary name, and reserves it for this upload.
func (u *upload) name(ctx context.Context) (unlock func(), err error) {
	dir, base := path.Split(u.file.Path)
	if !u.resumable() {
		u.temp = dir + TempPrefix + rand.Text()
		return func() {}, nil
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s", u.file.SHA256, u.file.Size, base))
	u.temp = dir + TempPrefix + hex.EncodeToString(id[:16])
	return u.pool.reserve(ctx, u.temp)
}

// TempPrefix begins the temporary names of files that are being put. Those left after a crash may be removed, or are
// continued.
const TempPrefix = ".put-"

var part = regexp.MustCompile(`^\.put-[0-9a-f]{32}(\.at)?$`)

// IsPart reports whether a file may be the part of a large file, or the record of one, that a later Put continues.
func IsPart(name string) bool { return part.MatchString(name) }

func (u *upload) run(ctx context.Context) (string, error) {
	if err := u.begin(ctx); err != nil {
		return "", err
	}
	if err := u.prefix(ctx); err != nil {
		return "", err
	}
	u.next = u.from
	if err := u.round(ctx, u.first); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(u.sum.Sum(nil))
	if u.file.SHA256 != "" && sum != u.file.SHA256 {
		return "", fault.New(fault.Validation, CodeSum,
			fmt.Sprintf("the source has checksum %s instead of %s", sum, u.file.SHA256))
	}
	var losses backOff
	for left := len(u.pending); ; left = len(u.pending) {
		if err := u.syncAll(ctx); err != nil {
			return "", err
		}
		if len(u.pending) == 0 {
			break
		}
		if len(u.pending) < left {
			losses = 0
		} else if !losses.wait(ctx, u.pool.tune.pause) {
			return "", sftp.ErrSSHFxConnectionLost
		}
		if err := u.round(ctx, u.again); err != nil {
			return "", err
		}
	}
	return sum, u.publish(ctx)
}

// round sends the spans that feed reads, until the server has confirmed all of them.
func (u *upload) round(ctx context.Context, feed func(ctx context.Context) error) error {
	w := u.crew
	w.start(cap(u.free))
	inner, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() {
		worked <- w.work(inner)
		stop()
	}()
	fed := feed(inner)
	if fed == nil {
		fed = u.settle(inner)
	}
	if fed == nil {
		w.finish()
	} else {
		stop()
	}
	err := <-worked
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && !errors.Is(err, context.Canceled):
		return err // the reason why feeding ended
	}
	return fed
}

// settle waits until all requests have ended.
func (u *upload) settle(ctx context.Context) error {
	back := make([][]byte, 0, cap(u.free))
	for len(back) < cap(u.free) {
		select {
		case b := <-u.free:
			back = append(back, b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, b := range back {
		u.free <- b
	}
	return nil
}

// first reads the source in order and hashes it.
func (u *upload) first(ctx context.Context) error {
	for u.next < u.file.Size {
		n := int(min(int64(u.crew.chunk), u.file.Size-u.next))
		buf, err := u.read(ctx, u.next, n)
		if err != nil {
			return err
		}
		u.sum.Write(buf) // never fails
		u.mu.Lock()
		u.pending[u.next] = &sent{n: n, print: maphash.Bytes(u.seed, buf), lane: unconfirmed}
		off := u.next
		u.next += int64(n)
		u.mu.Unlock()
		u.crew.todo <- &span{off, buf}
	}
	return nil
}

// again reads the spans again that may have been lost.
func (u *upload) again(ctx context.Context) error {
	u.mu.Lock()
	offsets := slices.Sorted(maps.Keys(u.pending))
	u.mu.Unlock()
	for _, off := range offsets {
		u.mu.Lock()
		s := u.pending[off]
		s.lane = unconfirmed
		u.mu.Unlock()
		buf, err := u.read(ctx, off, s.n)
		if err != nil {
			return err
		}
		if maphash.Bytes(u.seed, buf) != s.print {
			return fault.New(fault.Validation, CodeChanged, fmt.Sprintf("the source changed at byte %d while it was sent", off))
		}
		u.crew.todo <- &span{off, buf}
	}
	return nil
}

// read reads n bytes of the source, as soon as there is a buffer and the bandwidth limit allows them.
func (u *upload) read(ctx context.Context, off int64, n int) ([]byte, error) {
	var buf []byte
	select {
	case buf = <-u.free:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	err := pace(ctx, u.pool.up, n)
	if err == nil {
		var got int
		if got, err = u.src.ReadAt(buf, off); got == n {
			return buf, nil
		}
		err = u.sourceFault(err, off+int64(got))
	}
	u.free <- buf
	return nil, err
}

// sourceFault returns the fault of a source that gave no more bytes.
func (u *upload) sourceFault(err error, at int64) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.Validation, CodeSum, fmt.Sprintf("the source ends at byte %d of %d", at, u.file.Size))
	}
	return err
}

// done records that the server has confirmed a span.
func (u *upload) done(l *lane, s *span) {
	u.mu.Lock()
	if l.conn.syncs && !u.file.Unsynced {
		u.pending[s.off].lane = l.i
	} else { // a sync is not possible, or not wanted
		delete(u.pending, s.off)
	}
	u.mu.Unlock()
	u.free <- s.buf
}

// gone marks the spans that a lane has confirmed and not synced, to be sent again.
func (u *upload) gone(l *lane) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.pending {
		if s.lane == l.i {
			s.lane = unconfirmed
		}
	}
}

// after syncs what a lane has sent, if the file has advanced far enough since the last sync.
func (u *upload) after(ctx context.Context, l *lane) error {
	if !l.conn.syncs || !l.syncing.TryLock() {
		return nil
	}
	defer l.syncing.Unlock()
	u.mu.Lock()
	next := u.next
	u.mu.Unlock()
	if next-l.mark < u.pool.tune.sync*int64(len(u.crew.lanes)) {
		return nil
	}
	l.mark = next
	c := l.conn
	return u.sync(ctx, l, func() error { // with a separate handle: Sync locks the one that writes
		f, err := c.OpenFile(u.temp, os.O_WRONLY)
		if err != nil {
			return err
		}
		defer background(f)
		return f.Sync()
	})
}

// sync makes the spans durable that a lane has confirmed.
func (u *upload) sync(ctx context.Context, l *lane, fsync func() error) error {
	var confirmed []int64
	u.mu.Lock()
	for off, s := range u.pending {
		if s.lane == l.i {
			confirmed = append(confirmed, off)
		}
	}
	u.mu.Unlock()
	if err := l.slot.call(ctx, l.conn, fsync); err != nil {
		return err
	}
	u.mu.Lock()
	for _, off := range confirmed {
		delete(u.pending, off)
	}
	u.mu.Unlock()
	return u.note(ctx, l)
}

// syncAll syncs every lane. A lane whose connection is lost leaves its spans pending.
func (u *upload) syncAll(ctx context.Context) error {
	if u.file.Unsynced {
		return nil
	}
	var syncs errgroup.Group
	for _, l := range u.crew.lanes {
		if l.file == nil || !l.conn.syncs {
			continue
		}
		syncs.Go(func() error {
			err := u.sync(ctx, l, l.file.Sync)
			if mayReturn(err) {
				u.crew.lose(l)
				return nil
			}
			return err
		})
	}
	return syncs.Wait()
}

// durable returns how many bytes from the start the server has synced.
func (u *upload) durable() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	low := u.next
	for off := range u.pending {
		low = min(low, off)
	}
	return low
}
