package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan/tree"
)

// Codes of what the import boundary refuses.
const (
	ImportPath    = "IMPORT-PATH"    // not an absolute path in its plain spelling
	ImportName    = "IMPORT-NAME"    // not UTF-8, or with control characters
	ImportRoot    = "IMPORT-ROOT"    // below none of the roots of the project
	ImportHanded  = "IMPORT-HANDED"  // not an open file that can be taken over
	ImportOwn     = "IMPORT-OWN"     // in a folder of the gateway
	ImportSymlink = "IMPORT-SYMLINK" // it, or a folder on the way, is a symlink
	ImportKind    = "IMPORT-KIND"    // not a regular file
	ImportSize    = "IMPORT-SIZE"    // too large
	ImportAccess  = "IMPORT-ACCESS"  // the gateway's user may not read it
	ImportText    = "IMPORT-TEXT"    // not valid UTF-8
	ImportFormat  = "IMPORT-FORMAT"  // not a whole file of its type
)

// MaxText is the largest text that ImportText takes, in bytes.
const MaxText = 1 << 20

// ImportPolicy says what may be imported.
type ImportPolicy struct {
	Roots    []Root   // none: no file may be imported by its path
	MaxBytes int64    // of one file, text or stream
	Types    []string // artifact types of the domain in addition to those of every gateway, to be detected by content

	Room *Room // keeps the disk's reserve free; nil: nothing does

	Full bool // inflate gzip files of any size to compare their checksums; without it those up to [filetype.MaxInflated]

	OthersMount bool // jobs that mount files in place belong to other users than this process's; see [Importer.SafeToMount]

	// Own are folders of the gateway itself, nothing below which may be imported wherever the roots are: the ledger, the artifacts' bytes,
	// and the workspaces are of all projects, and the gateway's user may read them all. One that does not exist yet counts from when it does.
	Own []string
}

// Importer is the import boundary: the one way in which a path of the gateway's host becomes an artifact.
type Importer struct {
	store     *Store
	put       func(ctx context.Context, r io.Reader, limit int64, check func(size int64) error) (sum string, size int64, err error)
	roots     []importRoot // longest name first
	maxBytes  int64
	types     []string
	own       []string
	full      bool
	dry       bool                 // it stores nothing
	listed    bool                 // dry: what it would have stored of a directory is listed all the same
	resumes   bool                 // dry: interrupted hashing continues in the next call
	hashed    *Hashed              // of a folder, then; else nil
	room      *Room                // nil: no check of the disk
	allowance Allowance            // nil: without limit
	accept    func(Imported) error // refuses what was read before it is stored; may be nil
	as        string               // the type callers say; empty: it is detected
	flights   *flights             // imports of large files; nil: nothing is stored
	bounds    Bounds               // of a directory

	othersMount bool // see ImportPolicy
}

// Bounds are limits of a directory in addition to those of every directory artifact; 0: none.
type Bounds struct{ Files, Depth, Bytes int64 }

// Bounded returns the importer with limits for directories.
func (im *Importer) Bounded(b Bounds) *Importer {
	other := *im
	other.bounds = b
	return &other
}

// Imported describes what an import stored. Label is a suggestion that satisfies the rule for labels.
type Imported struct {
	SHA256    string
	SizeBytes int64
	Type      string
	Label     string

	List *List // of a directory that was stored; its object is the one with the checksum, and SizeBytes are those of the files
}

// List is the list of files of a directory.
type List struct {
	Bytes int64
	Files []tree.File
}

// NewImporter resolves the roots, once: a symlink in a root's own path is followed now and not again.
func NewImporter(store *Store, p ImportPolicy) (*Importer, error) {
	im := &Importer{store: store, put: store.put, room: p.Room, maxBytes: p.MaxBytes, types: slices.Clone(p.Types),
		own: slices.Clone(p.Own), full: p.Full, othersMount: p.OthersMount, flights: &flights{}}
	var problems []fault.Problem
	if p.MaxBytes <= 0 {
		problems = append(problems, fault.Problem{Code: ImportSize, Field: "max_bytes", Rule: "at least 1",
			Msg: fmt.Sprintf("%d is out of range", p.MaxBytes)})
	}
	for i, root := range p.Roots {
		resolved, msg := resolveRoot(root.Folder)
		if msg != "" {
			problems = append(problems, fault.Problem{Code: ImportRoot, Field: fmt.Sprintf("roots[%d]", i),
				Rule: "an existing absolute folder other than /", Msg: msg})
			continue
		}
		im.roots = append(im.roots, importRoot{root, resolved})
		if resolved != root.Folder {
			im.roots = append(im.roots, importRoot{Root{resolved, root.Projects}, resolved})
		}
	}
	if problems != nil {
		return nil, fault.Invalid("the import policy cannot be used", problems...)
	}
	slices.SortStableFunc(im.roots, func(a, b importRoot) int { return len(b.Folder) - len(a.Folder) })
	return im, nil
}

// Rehearsal returns an importer with the same boundary that stores nothing: it reports the result an import would
// have. It reads every byte.
func (im *Importer) Rehearsal() *Importer {
	dry := *im
	dry.put, dry.room, dry.allowance, dry.flights, dry.dry = measure, nil, nil, nil, true
	return &dry
}

// Accepting returns an importer that stores only what accept does not refuse.
func (im *Importer) Accepting(accept func(Imported) error) *Importer {
	other := *im
	other.accept = accept
	return &other
}

// ImportFile stores the bytes of a file that the gateway opens. The path must be absolute, in its plain spelling, below a root that scope
// may read, and free of symlinks below it; the file must be regular and at most MaxBytes large. All this is asked of the descriptor whose
// bytes are then read, and a file that changes meanwhile is a Validation fault with code import_changed.
//
// A file with several names is taken like any other: with fs.protected_hardlinks, the default, only those can give a file another name who
// own it or may read and write it.
func (im *Importer) ImportFile(ctx context.Context, path string, scope Scope) (Imported, error) {
	f, before, err := im.openPlain(path, scope)
	if err != nil {
		return Imported{}, err
	}
	defer f.Close()
	return im.copy(ctx, f, path, before)
}

// regular examines an open file: it must be a regular one of an allowed size.
func (im *Importer) regular(f *os.File, path string) (st unix.Stat_t, err error) {
	err = unix.Fstat(int(f.Fd()), &st)
	switch {
	case err != nil:
		return st, fsFault("the file cannot be examined", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return st, denied(ImportKind, "only a regular file", path+" is "+files.Kind(st.Mode)+", not a regular file", "name a file")
	case st.Size > im.maxBytes:
		return st, denied(ImportSize, fmt.Sprintf("at most %d bytes", im.maxBytes), fmt.Sprintf("%s has %d bytes", path, st.Size), "")
	}
	return st, nil
}

// copy stores the bytes of an open file that was examined before. It reads by offset: the process that handed the
// file over may move its position. A large file continues where an earlier import of the same state of it was cut,
// and identical concurrent imports are one.
func (im *Importer) copy(ctx context.Context, f *os.File, path string, before unix.Stat_t) (Imported, error) {
	name, key := filepath.Base(path), ""
	files.Watcher(ctx).Expect(before.Size)
	one := func(ctx context.Context) (Imported, error) {
		got, err := im.take(ctx, source{io.NewSectionReader(f, 0, math.MaxInt64), im.inspect(name, "path", before.Size), before.Size,
			im.maxBytes, labelOf(name), func(size int64) error { return unchanged(f, before, size, path) }, key, nil})
		if fault.CodeOf(err) == "artifact_too_large" { // it had an allowed size before
			err = changed(path)
		}
		return got, err
	}
	switch {
	case before.Size >= leastPart && im.resumes:
		key = onlyHashed + sourceKey(before)
		return one(ctx)
	case before.Size < leastPart, im.flights == nil:
		return one(ctx)
	}
	key = sourceKey(before)
	got, own, err := im.flights.once(ctx, key+" "+im.as+" "+name, one)
	if err == nil && !own { // what the other's call was asked, this one is asked too
		var m *metered
		if m, err = im.meter(ctx, nil, before.Size); err == nil {
			m.hold.end()
			if err = unchanged(f, before, before.Size, path); err == nil && im.accept != nil {
				err = im.accept(got)
			}
		}
	}
	return got, err
}

// source is the input of an import: at most limit bytes, and size where that is known before.
type source struct {
	io.Reader
	look        *inspector
	size, limit int64
	label       string
	check       func(size int64) error // of what was read
	key         string                 // of the source's state, where its import may go on where one was cut; else empty
	part        *Part                  // of an upload with a key; else nil
}

// take stores the bytes of a source, unless there is no room, its check or the inspector refuses it, or the importer
// does not accept the result.
func (im *Importer) take(ctx context.Context, s source) (got Imported, err error) {
	defer s.look.Close()
	m, err := im.meter(ctx, s.Reader, s.size)
	if err != nil {
		return got, err
	}
	defer m.hold.end()
	got.Label = s.label
	check := func(size int64) error {
		err := s.check(size)
		if err == nil {
			err = s.look.Finish()
		}
		if got.SizeBytes, got.Type = size, s.look.typ; err == nil && im.accept != nil {
			err = im.accept(got)
		}
		return err
	}
	ok := false
	if s.key != "" {
		rest := func(p *partial) (io.Reader, error) { return s.from(m, p) }
		got.SHA256, got.SizeBytes, ok, err = im.store.putPartial(ctx, s.key, s.limit, rest, check)
	}
	switch {
	case ok:
	case s.part != nil:
		return Imported{}, cmp.Or(err, errBusy)
	default:
		got.SHA256, got.SizeBytes, err = im.put(ctx, io.TeeReader(m, s.look), s.limit, check)
	}
	if err != nil {
		return Imported{}, err
	}
	return got, nil
}

// from returns the rest of a source whose first bytes are stored already. The inspector sees those too.
func (s source) from(m *metered, p *partial) (io.Reader, error) {
	if s.part != nil {
		if err := s.part.begin(p); err != nil {
			return nil, err
		}
		if err := s.look.Feed(io.NewSectionReader(p.f, 0, p.done)); err != nil {
			return nil, fsFault("the bytes cannot be read", err)
		}
	} else {
		file := s.Reader.(io.ReadSeeker)
		if err := s.look.Feed(io.LimitReader(file, p.done)); err != nil {
			return nil, fsFault("the file cannot be read", err)
		}
		if _, err := file.Seek(p.done, io.SeekStart); err != nil {
			return nil, fsFault("the file cannot be read", err)
		}
	}
	if !m.known {
		if err := m.take(p.done, p.done); err != nil {
			return nil, err
		}
	}
	m.left -= p.done
	return io.TeeReader(m, s.look), m.hold.wrote(p.done, false)
}

// ImportText stores a text of at most MaxText bytes of valid UTF-8.
func (im *Importer) ImportText(ctx context.Context, text string) (Imported, error) {
	if limit := min(MaxText, im.maxBytes); int64(len(text)) > limit {
		return Imported{}, denied(ImportSize, fmt.Sprintf("at most %d bytes", limit), fmt.Sprintf("the text has %d bytes", len(text)),
			"import it as a file")
	}
	if !utf8.ValidString(text) {
		return Imported{}, fault.Invalid("", fault.Problem{Code: ImportText, Field: "text", Rule: "valid UTF-8",
			Msg: "it is not valid UTF-8", Hint: "import it as a file"})
	}
	size := int64(len(text))
	return im.take(ctx, source{strings.NewReader(text), im.inspect("", "text", size), size, size, "text",
		func(int64) error { return nil }, "", nil})
}

// ImportStream stores an upload, with the same size limit as a file. size is the number of bytes of r, negative where
// that is not known; name is only a hint for the type; no file of that name is opened. With a part, r continues where
// the upload was cut, and its bytes are kept when it is cut; nil: r is all of it.
func (im *Importer) ImportStream(ctx context.Context, r io.Reader, size int64, name string, part *Part) (Imported, error) {
	key := ""
	if part != nil && !im.dry {
		key = part.key()
		if size >= 0 {
			size += part.Offset
		}
	}
	if size > im.maxBytes {
		return Imported{}, fault.New(fault.Policy, "artifact_too_large",
			fmt.Sprintf("it has more than the allowed %d bytes", im.maxBytes))
	}
	files.Watcher(ctx).Expect(max(size, 0))
	return im.take(ctx, source{r, im.inspect(name, "upload", 0), max(size, unknownSize), im.maxBytes, "upload", func(size int64) error {
		if size > 0 {
			return nil
		}
		return fault.Invalid("", fault.Problem{Code: ImportSize, Field: "upload", Rule: "at least one byte",
			Msg: "the upload is empty"})
	}, key, part})
}

func badName(path string) string {
	switch {
	case !utf8.ValidString(path):
		return "is not valid UTF-8"
	case strings.ContainsFunc(path, unicode.IsControl):
		return "contains control characters"
	}
	return ""
}

func (im *Importer) openFault(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.NotFound, "import_missing", "there is no file "+path+" on the gateway's host").
			WithNext("check the spelling of the path")
	case errors.Is(err, unix.ELOOP):
		return denied(ImportSymlink, "no symlink below the root", path+" is a symlink or is reached through one",
			"give the path of the file itself")
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return denied(ImportKind, "only a regular file", path+" is a socket or a device, not a regular file", "name a file")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return denied(ImportAccess, "readable by the gateway's user", path+" is not readable", "make the file readable for the gateway's user")
	}
	return fsFault("the file cannot be opened", err)
}

func denied(code, rule, msg, hint string, next ...fault.Step) error {
	return &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: code, Field: "path", Rule: rule,
		Msg: msg, Hint: hint, Next: next}}}
}

func changed(path string) error {
	return fault.New(fault.Validation, "import_changed", path+" changed while it was read").
		WithNext("import it again when nothing writes to it")
}

func unchanged(f *os.File, before unix.Stat_t, size int64, path string) error {
	var after unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &after); err != nil {
		return fsFault("the file cannot be examined", err)
	}
	if size != before.Size || after.Size != before.Size || after.Mtim != before.Mtim || after.Ctim != before.Ctim {
		return changed(path)
	}
	return nil
}
