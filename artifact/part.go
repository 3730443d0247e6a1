package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
)

// Part is one request of an upload that may take several: the caller's name of the upload, and the number of bytes
// received before.
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

// uploadsOfOne bounds how many cut uploads of one owner are kept; the oldest is removed.
const uploadsOfOne = 16

// uploaded begins the keys of uploads.
const uploaded = "u"

var errBusy error = fault.New(fault.Transport, "upload_busy", "another request is sending this upload").
	WithNext("send the rest when that has ended").WithRetry(5)

// hashed names what is the same by its words.
func hashed(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// owner begins the key of each upload of the part's owner.
func (p *Part) owner() string { return uploaded + hashed(p.Owner) }

func (p *Part) key() string { return p.owner() + hashed(p.Owner, p.Key) }

// begin checks that the part begins where the upload ends. A new upload may take the place of the owner's oldest.
func (p *Part) begin(have *partial) error {
	if p.Offset != have.done {
		return fault.Wrap(fault.Conflict, "upload_offset", fmt.Sprintf("the request begins at byte %d of the upload", p.Offset),
			&OffsetError{have.done, hex.EncodeToString(have.sum.Sum(nil))}).
			WithNext(fmt.Sprintf("send the upload from byte %d on, with offset=%d", have.done, have.done))
	}
	if have.done == 0 {
		have.store.boundUploads(p.owner(), have.name)
	}
	return nil
}

// keeps reports whether what was uploaded is kept although it was refused: only its type was, and it may be another.
func (p *partial) keeps(err error) bool {
	code := fault.CodeOf(err)
	return strings.HasPrefix(p.name, "tmp/"+partPrefix+uploaded) && (code == ImportFormat || code == "POLICY-IMPORT-TYPE")
}

// kept returns a refusal after which the whole upload is still stored.
func (p *partial) kept(err error) error {
	return fault.Wrap("", fault.CodeOf(err), "the upload is kept, but not as an artifact",
		errors.Join(err, &OffsetError{p.done, hex.EncodeToString(p.sum.Sum(nil))})).
		WithNext(fmt.Sprintf("repeat the request with offset=%d, an empty body and the right type, to import the same bytes", p.done))
}

// boundUploads removes the oldest cut upload of an owner who has as many in addition to a new one as are kept. What
// is being sent stays.
func (s *Store) boundUploads(owner, begun string) {
	names, err := fs.Glob(s.root.FS(), "tmp/"+partPrefix+owner+"*")
	if err != nil {
		return
	}
	age := map[string]time.Time{}
	for _, name := range names {
		if info, err := s.root.Lstat(name); err == nil && name != begun && !strings.HasSuffix(name, stateSuffix) {
			age[name] = info.ModTime()
		}
	}
	if len(age) < uploadsOfOne {
		return
	}
	for _, name := range slices.SortedFunc(maps.Keys(age), func(a, b string) int { return age[a].Compare(age[b]) }) {
		if _, gone := s.dropOne(name, time.Now().Add(time.Hour)); gone {
			return
		}
	}
}
