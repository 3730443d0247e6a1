package artifact

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// Part is one request of an upload that may come in several: what the caller calls the upload, and how many bytes of it came before.
type Part struct {
	Owner  string // whose uploads have names of their own, such as a project and a caller
	Key    string
	Offset int64 // bytes
}

// OffsetError is the cause where a part does not begin where what is stored ends.
type OffsetError struct {
	Stored int64  // bytes
	SHA256 string // of those, in hex
}

// Error implements error.
func (e *OffsetError) Error() string { return fmt.Sprintf("%d bytes are stored", e.Stored) }

// uploadsOfOne bounds how many cut uploads of one owner are kept; the oldest goes.
const uploadsOfOne = 16

// uploaded begins the keys of uploads.
const uploaded = "u"

var errBusy error = fault.New(fault.Transport, "upload_busy", "another request is sending this upload").
	WithNext("send the rest when that has ended").WithRetry(5)

func hashed(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// key begins with the owner's.
func (p *Part) key() string { return uploaded + hashed(p.Owner) + hashed(p.Owner, p.Key) }

// from checks that the part begins where the upload ends. Its bytes so far are shown to the inspector, and count as taken.
func (p *Part) from(m *metered, look *inspector, have *partial) (io.Reader, error) {
	if p.Offset != have.done {
		return nil, fault.Wrap(fault.Conflict, "upload_offset",
			fmt.Sprintf("the request begins at byte %d of the upload", p.Offset), &OffsetError{have.done, hex.EncodeToString(have.sum.Sum(nil))}).
			WithNext(fmt.Sprintf("send the upload from byte %d on, with offset=%d", have.done, have.done))
	}
	if err := look.feed(io.NewSectionReader(have.f, 0, have.done)); err != nil {
		return nil, fsFault("the bytes cannot be read", err)
	}
	if !m.known {
		if err := m.take(have.done, have.done); err != nil {
			return nil, err
		}
	}
	m.left -= have.done
	return io.TeeReader(m, look), m.hold.wrote(have.done, false)
}

// boundUploads removes the oldest cut upload of an owner who has as many as are kept, unless the key is of one of them. What is being sent
// stays.
func (s *Store) boundUploads(key string) {
	owner := "tmp/" + partPrefix + key[:len(key)/2+1]
	names, err := fs.Glob(s.root.FS(), owner+"*")
	if err != nil {
		return
	}
	age := map[string]time.Time{}
	for _, name := range names {
		if info, err := s.root.Lstat(name); err == nil && !strings.HasSuffix(name, stateSuffix) {
			age[name] = info.ModTime()
		}
	}
	if _, own := age["tmp/"+partPrefix+key]; own || len(age) < uploadsOfOne {
		return
	}
	names = slices.DeleteFunc(names, func(name string) bool { return age[name].IsZero() })
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(age[a].Compare(age[b]), cmp.Compare(a, b)) })
	for _, name := range names {
		if _, gone := s.dropOne(name, time.Now().Add(time.Hour)); gone {
			return
		}
	}
}
