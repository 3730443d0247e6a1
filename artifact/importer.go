package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
)

// Codes of what the import boundary refuses.
const (
	ImportPath    = "IMPORT-PATH"    // not an absolute path in its plain spelling
	ImportName    = "IMPORT-NAME"    // not UTF-8, or with control characters
	ImportRoot    = "IMPORT-ROOT"    // below none of the allowed roots
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
	Roots    []string // absolute folders; none: no file may be imported, text may
	MaxBytes int64    // of one file, text or stream
	Types    []string // artifact types of the domain in addition to those every gateway knows, to be detected by content

	Full bool // inflate gzip files of any size to compare their checksums; without it those up to [MaxInflated]

	// Own are folders of the gateway itself, nothing below which may be imported wherever the roots are: the ledger, the artifacts' bytes,
	// and the workspaces are of all projects, and the gateway's user may read them all. One that does not exist yet counts from when it does.
	Own []string
}

// Importer is the import boundary: the one way in which a path of the gateway's host becomes an artifact.
type Importer struct {
	store    *Store
	put      func(ctx context.Context, r io.Reader, limit int64, check func(size int64) error) (sum string, size int64, err error)
	roots    []importRoot // longest name first
	names    []string     // as configured
	maxBytes int64
	types    []string
	own      []string
	full     bool
	as       string // the type callers say; empty: it is detected
}

// importRoot is one spelling of an allowed root and the folder it stood for when the importer was made.
type importRoot struct{ name, resolved string }

// Imported is what an import stored. Label is a suggestion that satisfies the rule for labels.
type Imported struct {
	SHA256    string
	SizeBytes int64
	Type      string
	Label     string
}

// NewImporter resolves the roots, once: a symlink in a root's own path is followed now and not again.
func NewImporter(store *Store, p ImportPolicy) (*Importer, error) {
	im := &Importer{store: store, put: store.put, names: slices.Clone(p.Roots), maxBytes: p.MaxBytes, types: slices.Clone(p.Types),
		own: slices.Clone(p.Own), full: p.Full}
	var problems []fault.Problem
	if p.MaxBytes <= 0 {
		problems = append(problems, fault.Problem{Code: ImportSize, Field: "max_bytes", Rule: "at least 1", Msg: fmt.Sprintf("got %d",
			p.MaxBytes)})
	}
	for i, name := range p.Roots {
		resolved, msg := resolveRoot(name)
		if msg != "" {
			problems = append(problems, fault.Problem{Code: ImportRoot, Field: fmt.Sprintf("roots[%d]", i),
				Rule: "an existing absolute folder other than /", Msg: msg})
			continue
		}
		im.roots = append(im.roots, importRoot{name, resolved})
		if resolved != name {
			im.roots = append(im.roots, importRoot{resolved, resolved})
		}
	}
	if problems != nil {
		return nil, fault.Invalid("artifact.NewImporter", "the import policy cannot be used", problems...)
	}
	slices.SortStableFunc(im.roots, func(a, b importRoot) int { return len(b.name) - len(a.name) })
	return im, nil
}

// Rehearsal is an importer with the same boundary that stores nothing: it reports the result an import would have. It reads
// every byte.
func (im *Importer) Rehearsal() *Importer {
	dry := *im
	dry.put = measure
	return &dry
}

func resolveRoot(name string) (resolved, msg string) {
	if !filepath.IsAbs(name) || filepath.Clean(name) != name {
		return "", fmt.Sprintf("%q is not a clean absolute path", name)
	}
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", err.Error()
	}
	info, err := os.Stat(resolved)
	switch {
	case err != nil:
		return "", err.Error()
	case !info.IsDir():
		return "", name + " is not a folder"
	case resolved == "/":
		return "", "/ cannot be a root: it is the whole filesystem"
	}
	return resolved, ""
}

// ImportFile stores the bytes of a file. The path must be absolute, in its plain spelling, below an
// allowed root, and free of symlinks below it; the file must be regular and at most MaxBytes large. All this
// is asked of the descriptor whose bytes are then read, and a file that changes meanwhile is a
// Validation fault with code import_changed.
//
// A file with several names is taken like any other: with fs.protected_hardlinks, the default, only those
// can give a file another name who own it or may read and write it.
func (im *Importer) ImportFile(ctx context.Context, path string) (Imported, error) {
	const op = "artifact.ImportFile"
	root, rel, err := im.locate(path)
	if err != nil {
		return Imported{}, err
	}
	if im.isOwn(filepath.Join(root.resolved, rel)) {
		return Imported{}, denied(ImportOwn, "outside the gateway's own folders", path+" is inside one",
			"a run's files are already artifacts: use their art_ ids")
	}
	f, err := im.open(root, rel)
	if err != nil {
		return Imported{}, im.openFault(path, err)
	}
	defer f.Close()
	var before unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &before); err != nil {
		return Imported{}, fsFault(op, "the file cannot be examined", err)
	}
	switch {
	case before.Mode&unix.S_IFMT != unix.S_IFREG:
		return Imported{}, denied(ImportKind, "only a regular file", path+" is "+files.Kind(before.Mode)+", not a regular file", "name a file")
	case before.Size > im.maxBytes:
		return Imported{}, denied(ImportSize, fmt.Sprintf("at most %d bytes", im.maxBytes), fmt.Sprintf("%s has %d bytes", path, before.Size), "")
	}
	name := filepath.Base(path)
	got, err := im.take(ctx, f, im.inspect(name, "path", before.Size), im.maxBytes, labelOf(name), func(size int64) error {
		return unchanged(f, before, size, path)
	})
	if fault.CodeOf(err) == "artifact_too_large" { // it had an allowed size before
		err = changed(path)
	}
	return got, err
}

// take stores what a reader gives, unless check or the inspector refuses it.
func (im *Importer) take(ctx context.Context, r io.Reader, look *inspector, limit int64, label string, check func(size int64) error) (
	Imported, error) {
	defer look.Close()
	sum, size, err := im.put(ctx, io.TeeReader(r, look), limit, func(size int64) error {
		if err := check(size); err != nil {
			return err
		}
		return look.Finish()
	})
	if err != nil {
		return Imported{}, err
	}
	return Imported{SHA256: sum, SizeBytes: size, Type: look.typ, Label: label}, nil
}

// ImportText stores a text of at most MaxText bytes of valid UTF-8.
func (im *Importer) ImportText(ctx context.Context, text string) (Imported, error) {
	const op = "artifact.ImportText"
	if limit := min(MaxText, im.maxBytes); int64(len(text)) > limit {
		return Imported{}, denied(ImportSize, fmt.Sprintf("at most %d bytes", limit), fmt.Sprintf("the text has %d bytes", len(text)),
			"import it as a file")
	}
	if !utf8.ValidString(text) {
		return Imported{}, fault.Invalid(op, "", fault.Problem{Code: ImportText, Field: "text", Rule: "valid UTF-8",
			Msg: "it is not valid UTF-8", Hint: "import it as a file"})
	}
	size := int64(len(text))
	return im.take(ctx, strings.NewReader(text), im.inspect("", "text", size), size, "text", func(int64) error { return nil })
}

// ImportStream stores an upload, with the same size limit as a file. name is only a hint for the type; no file of that name is opened.
func (im *Importer) ImportStream(ctx context.Context, r io.Reader, name string) (Imported, error) {
	return im.take(ctx, r, im.inspect(name, "upload", 0), im.maxBytes, "upload", func(size int64) error {
		if size > 0 {
			return nil
		}
		return fault.Invalid("artifact.ImportStream", "", fault.Problem{Code: ImportSize, Field: "upload", Rule: "at least one byte",
			Msg: "the upload is empty"})
	})
}

// locate finds the root a path lies below. Nothing of the filesystem is looked at.
func (im *Importer) locate(path string) (importRoot, string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return importRoot{}, "", fault.Invalid("artifact.ImportFile", "", fault.Problem{Code: ImportPath, Field: "path",
			Rule: "an absolute path without . and .. and doubled slashes", Msg: fmt.Sprintf("got %.200q", path),
			Hint: "give a path on the gateway's host"})
	}
	if msg := badName(path); msg != "" {
		return importRoot{}, "", fault.Invalid("artifact.ImportFile", "", fault.Problem{Code: ImportName, Field: "path",
			Rule: "UTF-8 without control characters",
			Msg:  fmt.Sprintf("the file name %.200q %s", path, msg), Hint: "rename the file, or the folder it is in"})
	}
	for _, r := range im.roots {
		if rel, ok := strings.CutPrefix(path, r.name+"/"); ok {
			return r, rel, nil
		}
		if path == r.name {
			return importRoot{}, "", denied(ImportKind, "only a regular file", path+" is a folder", "name a file in it")
		}
	}
	hint := "put the file below one of them, or ask the administrator to add a root"
	allowed := strings.Join(im.names, ", ")
	if allowed == "" {
		allowed, hint = "none", "ask the administrator to add a root"
	}
	return importRoot{}, "", denied(ImportRoot, "below an allowed root ("+allowed+")", fmt.Sprintf("%.200q is not below one", path), hint)
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

// isOwn says whether a path is, or lies in, a folder of the gateway, by whatever name: a filesystem may be mounted in two places. It is
// asked before anything else of the path, so that the answer does not tell which workspaces there are.
func (im *Importer) isOwn(path string) bool {
	var own []os.FileInfo
	for _, name := range im.own {
		if info, err := os.Stat(name); err == nil {
			own = append(own, info)
		}
	}
	for ; path != "/"; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err == nil && slices.ContainsFunc(own, func(o os.FileInfo) bool { return os.SameFile(o, info) }) {
			return true
		}
	}
	return false
}

func (im *Importer) open(root importRoot, rel string) (*os.File, error) {
	slash, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(slash)
	folder, err := files.OpenBeneath(slash, root.resolved[1:], unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(folder)
	fd, err := files.OpenBeneath(folder, rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

func (im *Importer) openFault(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.NotFound, "artifact.ImportFile", "import_missing", "there is no file "+path+" on the gateway's host").
			WithNext("check the spelling of the path")
	case errors.Is(err, unix.ELOOP):
		return denied(ImportSymlink, "no symlink below the root", path+" is a symlink or lies behind one", "give the path of the file itself")
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return denied(ImportKind, "only a regular file", path+" is a socket or a device, not a regular file", "name a file")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return denied(ImportAccess, "readable by the gateway's user", path+" is not readable", "make the file readable for the gateway's user")
	}
	return fsFault("artifact.ImportFile", "the file cannot be opened", err)
}

func denied(code, rule, msg, hint string) error {
	return &fault.Error{Op: "artifact.Import", Kind: fault.Policy, Problems: []fault.Problem{{Code: code, Field: "path", Rule: rule,
		Msg: msg, Hint: hint}}}
}

func changed(path string) error {
	return fault.New(fault.Validation, "artifact.ImportFile", "import_changed", path+" changed while it was read").
		WithNext("import it again when nothing writes to it")
}

func unchanged(f *os.File, before unix.Stat_t, size int64, path string) error {
	var after unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &after); err != nil {
		return fsFault("artifact.ImportFile", "the file cannot be examined", err)
	}
	if size != before.Size || after.Size != before.Size || after.Mtim != before.Mtim || after.Ctim != before.Ctim {
		return changed(path)
	}
	return nil
}
