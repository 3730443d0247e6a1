package artifact

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/plan/tree"
)

// Hashed has the files of a folder in place that have been hashed so far. They are stored, so that interrupted
// hashing continues with the next file:
//
//	tmp/part-l<key>   the state of the folder, and a line of SHA-256, size and path for each file; key is of the folder's place
//
// The state covers each file in the folder, so what was hashed under it holds as long as the folder has it. Nothing
// is synced: what a crash of the machine loses is hashed again, and reading stops at a line that is not whole. Like
// any partial copy it is removed after PartialAge.
type Hashed struct {
	Files []tree.File // that were there already, in their order

	mu    sync.Mutex
	f     *os.File // nil: another call writes it, or it cannot be written, and nothing is kept
	w     *bufio.Writer
	store *Store
	name  string
	known map[string]tree.File
	held  int64 // bytes of files whose lines are not in the file yet
}

// Hashed opens what an earlier call has hashed of the folder at a place, if that has still the state.
func (s *Store) Hashed(place, state string) *Hashed {
	sum := sha256.Sum256([]byte(place))
	h := &Hashed{store: s, name: "tmp/" + partPrefix + "l" + hex.EncodeToString(sum[:16]), known: map[string]tree.File{}}
	f, err := s.root.OpenFile(h.name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return h
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		f.Close()
		return h
	}
	h.f, h.w = f, bufio.NewWriterSize(f, 4<<10)
	h.recall(state)
	return h
}

// recall reads what is there, and leaves the file at the end of what counts.
func (h *Hashed) recall(state string) {
	data, err := io.ReadAll(io.LimitReader(h.f, maxHashed))
	end := int64(0)
	if rest, same := bytes.CutPrefix(data, []byte(state+"\n")); err == nil && same {
		end = int64(len(state) + 1)
		for line := range bytes.Lines(rest) {
			one, ok := tree.ParseSum1(strings.TrimSuffix(string(line), "\n"))
			if !ok || line[len(line)-1] != '\n' {
				break
			}
			h.Files, h.known[one.Path], end = append(h.Files, one), one, end+int64(len(line))
		}
	}
	if h.f.Truncate(end) != nil {
		h.Files, h.known = nil, map[string]tree.File{}
		_ = h.f.Truncate(0)
		end = 0
	}
	_, _ = h.f.Seek(end, io.SeekStart)
	if end == 0 {
		h.w.WriteString(state + "\n")
	}
}

// maxHashed bounds what is read: as many lines as a directory may have files.
const maxHashed = 256 << 20

// Add writes down a file that was hashed. That it cannot be written only costs time later.
func (h *Hashed) Add(f tree.File) {
	if h == nil || h.f == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.w.WriteString(tree.SumLine(f))
	if h.held += f.Size; h.held >= leastPart {
		h.held = 0
		_ = h.w.Flush()
	}
}

// find returns the checksum of a file that was hashed before.
func (h *Hashed) find(path string, size int64) (sum string, ok bool) {
	if h == nil {
		return "", false
	}
	f, ok := h.known[path]
	return f.SHA256, ok && f.Size == size
}

// Close keeps what was hashed for the next call; with done nothing is left for one.
func (h *Hashed) Close(done bool) {
	if h.f == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.w.Flush()
	if done {
		_ = h.store.root.Remove(h.name)
	}
	h.f.Close()
	h.f = nil
}
