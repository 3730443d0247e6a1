package artifact

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
)

// A large file's import that is cut – by its caller, by a signal, by a crash – leaves what it has, and the next
// import of the same file continues there:
//
// 	tmp/part-<key>         the bytes so far; key is of the source's device, inode, size, mtime and ctime
// 	tmp/part-<key>.state   JSON: how many of them are on the disk, and the state of the SHA-256 after those
//
// A state is written only after its bytes are durable, and a state that cannot be read is ignored. A source that
// changed has another key. Where a file stays in its place and is only hashed, the first of the two is empty. A copy
// that is not continued is removed after PartialAge. An upload for which its caller has a key is such a source too,
// see [Part].

const (
	partPrefix  = "part-"
	stateSuffix = ".state"
	leastPart   = 64 << 20  // bytes of a file from which on its import can go on
	pointEvery  = 256 << 20 // bytes between two states
	writeEvery  = 8 << 20   // bytes after which the kernel is asked to write
)

// PartialAge is how long the files of a cut import are kept.
const PartialAge = 7 * 24 * time.Hour

// sourceKey names the state of an open file.
func sourceKey(st unix.Stat_t) string {
	return hashed(fmt.Sprintf("%d %d %d %d.%d %d.%d", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec))
}

// partial is a file's copy that is being made.
type partial struct {
	store *Store
	f     *os.File
	name  string
	sum   hash.Hash
	done  int64 // bytes copied and hashed
	begun int64 // bytes that the kernel was asked to write
	only  bool  // they are hashed and not copied
	saved chan error
}

// partialState is the content of a state file.
type partialState struct {
	Done  int64  `json:"done_bytes"`
	Hash  []byte `json:"sha256_state"`
	Check string `json:"check"` // SHA-256 of the two
}

func (p partialState) check() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %x", p.Done, p.Hash))
	return hex.EncodeToString(sum[:])
}

// onlyHashed begins the key of a source that is not copied.
const onlyHashed = "h"

// partial opens what an earlier import of a source left, or begins anew. ok is false while another import writes it.
func (s *Store) partial(key string) (p *partial, ok bool, err error) {
	p = &partial{store: s, name: "tmp/" + partPrefix + key, sum: sha256.New(), only: strings.HasPrefix(key, onlyHashed)}
	open := func() (err error) {
		p.f, err = s.root.OpenFile(p.name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		return err
	}
	err = open()
	if errors.Is(err, fs.ErrPermission) { // it was complete, and its writer died before it got its name
		p.drop()
		err = open()
	}
	if err != nil {
		return nil, false, err
	}
	if err := unix.Flock(int(p.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		p.f.Close()
		return nil, false, nil
	}
	// Its writer may have finished, or a sweep removed it, between the two.
	var have, named unix.Stat_t
	dir, err := s.root.Open("tmp")
	if err != nil {
		p.f.Close()
		return nil, false, err
	}
	defer dir.Close()
	if unix.Fstat(int(p.f.Fd()), &have) != nil || unix.Fstatat(int(dir.Fd()), partPrefix+key, &named, unix.AT_SYMLINK_NOFOLLOW) != nil ||
		have.Ino != named.Ino || have.Mode&unix.S_IFMT != unix.S_IFREG {
		p.f.Close()
		return nil, false, nil
	}
	if p.only {
		p.recall(math.MaxInt64)
		return p, true, nil
	}
	p.recall(have.Size)
	if err = p.f.Truncate(p.done); err == nil {
		_, err = p.f.Seek(p.done, io.SeekStart)
	}
	if err != nil {
		p.f.Close()
		return nil, false, err
	}
	return p, true, nil
}

// recall takes up the state that was saved, if it is one of the bytes that are there.
func (p *partial) recall(size int64) {
	data, err := p.store.root.ReadFile(p.name + stateSuffix)
	var was partialState
	if err != nil || json.Unmarshal(data, &was) != nil || was.Check != was.check() || was.Done < 0 || was.Done > size {
		return
	}
	h := sha256.New()
	if h.(encoding.BinaryUnmarshaler).UnmarshalBinary(was.Hash) != nil {
		return
	}
	p.sum, p.done, p.begun = h, was.Done, was.Done
}

// Write implements io.Writer, and has the filesystem write during the copy.
func (p *partial) Write(b []byte) (int, error) {
	if p.only {
		p.done += int64(len(b))
		return len(b), nil
	}
	n, err := p.f.Write(b)
	p.done += int64(n)
	if part := p.done - p.begun; err == nil && part >= writeEvery {
		_ = unix.SyncFileRange(int(p.f.Fd()), p.begun, part, unix.SYNC_FILE_RANGE_WRITE) // a hint
		p.begun = p.done
	}
	return n, err
}

// copy takes at most limit bytes of r to the end of what is there, and saves states on the way and, after an error, at the end.
func (p *partial) copy(ctx context.Context, r io.Reader, limit int64) error {
	defer p.wait()
	for {
		at := p.done
		n, err := files.CopyInto(ctx, p.sum, p, io.LimitReader(r, min(pointEvery, limit-at)), pointEvery)
		switch {
		case err != nil:
			p.done = at + n // what was written and hashed; a last write may have been cut
			p.save(true)
			return err
		case n == 0 || p.done == limit:
			return nil
		}
		p.save(false)
	}
}

// save writes the state, in the background during the copy: it first waits for the state before.
func (p *partial) save(last bool) {
	state, err := p.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return
	}
	was := partialState{Done: p.done, Hash: state}
	was.Check = was.check()
	p.wait()
	p.saved = make(chan error, 1)
	go func() {
		err := unix.Fdatasync(int(p.f.Fd()))
		if err == nil {
			err = p.store.replace(p.name+stateSuffix, was)
		}
		p.saved <- err
	}()
	if last {
		p.wait()
	}
}

// wait waits for the state that is being written. That one was not written only costs time later.
func (p *partial) wait() {
	if p.saved != nil {
		<-p.saved
		p.saved = nil
	}
}

// replace writes a small file in one step.
func (s *Store) replace(name string, doc any) error {
	data, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	temp := "tmp/" + strings.ToLower(rand.Text())
	if err := s.root.WriteFile(temp, data, 0o600); err != nil {
		return errors.Join(err, s.root.Remove(temp))
	}
	return s.root.Rename(temp, name)
}

// drop removes the partial copy.
func (p *partial) drop() {
	_ = p.store.root.Remove(p.name + stateSuffix)
	_ = p.store.root.Remove(p.name)
}

// putPartial is put, or only hashing, for a large file, and continues where an earlier one of the same state was cut.
// from returns the rest of the source. ok is false while another import copies the same file.
func (s *Store) putPartial(ctx context.Context, key string, limit int64, from func(*partial) (io.Reader, error),
	check func(size int64) error) (sum string, size int64, ok bool, err error) {
	p, ok, err := s.partial(key)
	if err != nil {
		return "", 0, true, fsFault("the artifact store cannot be written", err)
	}
	if !ok {
		return "", 0, false, nil
	}
	defer p.f.Close()
	r, err := from(p)
	if err != nil {
		if p.done == 0 { // nothing is lost
			p.drop()
		}
		return "", 0, true, err
	}
	files.Watcher(ctx).Skip(p.done)
	if err := p.copy(ctx, r, limit+1); err != nil {
		return "", 0, true, fsFault("the bytes cannot be stored", err)
	}
	if p.done > limit {
		p.drop()
		return "", 0, true, fault.New(fault.Policy, "artifact_too_large", fmt.Sprintf("it has more than the allowed %d bytes", limit))
	}
	if err := check(p.done); err != nil {
		if p.keeps(err) {
			p.save(true)
			err = p.kept(err)
		} else {
			p.drop()
		}
		return "", 0, true, err
	}
	sum, size = hex.EncodeToString(p.sum.Sum(nil)), p.done
	if p.only {
		p.drop()
		return sum, size, true, nil
	}
	if err := p.f.Chmod(0o400); err != nil {
		return "", 0, true, fsFault("the bytes cannot be stored", err)
	}
	if _, err := s.commit(ctx, p.f, p.name, sum, size); err != nil {
		return "", 0, true, fsFault("the bytes cannot be stored", err)
	}
	p.drop()
	return sum, size, true, nil
}

// DropPartials removes what cut imports left before a time, and reports how many and how many bytes they were.
func (s *Store) DropPartials(before time.Time) (n int, bytes int64, err error) {
	entries, err := fs.ReadDir(s.root.FS(), "tmp")
	if err != nil {
		return 0, 0, fsFault("the store cannot be listed", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partPrefix) || strings.HasSuffix(e.Name(), stateSuffix) {
			continue
		}
		size, gone := s.dropOne("tmp/"+e.Name(), before)
		if gone {
			n++
			bytes += size
		}
	}
	return n, bytes, nil
}

// dropOne removes a partial copy that is older than a time and not being written.
func (s *Store) dropOne(name string, before time.Time) (size int64, gone bool) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || !info.ModTime().Before(before) ||
		unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return 0, false
	}
	_ = s.root.Remove(name + stateSuffix)
	return info.Size(), s.root.Remove(name) == nil
}

// isPartial reports whether a temporary file is a partial copy, or its state, that is kept for now.
func (s *Store) isPartial(name string, now time.Time) bool {
	if !strings.HasPrefix(name, partPrefix) {
		return false
	}
	info, err := s.root.Lstat("tmp/" + strings.TrimSuffix(name, stateSuffix))
	return err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) < PartialAge
}
