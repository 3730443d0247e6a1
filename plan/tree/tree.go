// Package tree reads and writes the manifest of a directory artifact: which files are in it, and which bytes they have. The manifest is an
// object of the store; its own SHA-256 is the checksum of the artifact.
//
//	slurmgate-directory 1
//	<64 hex> <bytes> <path>        one line for each file, each path once
//
// Paths are relative and have the characters of a plan's paths. They are in the order of a walk that takes the names
// in each folder sorted by their bytes, so the same files give the same manifest. Folders appear only through their
// files: an empty one has no line. A manifest is read as a stream, and one that breaks any of these rules is refused.
package tree

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Bounds of a directory.
const (
	MaxFiles = 200_000 // files in one directory artifact, and in all directories that are inputs of a run
	MaxDepth = 32      // parts of a path
)

const header = "slurmgate-directory 1\n"

// maxLine bounds a line in bytes: checksum, size, path, two blanks and the newline.
const maxLine = 64 + 1 + 19 + 1 + plan.MaxRelPath + 1

// Code is the code of the fault about an invalid manifest.
const Code = "directory_manifest"

// File is one file of a directory.
type File struct {
	SHA256 string // 64 hex
	Size   int64  // bytes
	Path   string // relative
}

// Sum is the total of a directory.
type Sum struct {
	Files int
	Bytes int64 // of the files
}

// CheckPath reports what is wrong with the path of a file in a directory; "" if nothing. The rules are those of a
// plan's paths, with at most MaxDepth parts.
func CheckPath(path string) string {
	const below = "in"
	if msg := plan.CheckRelPath(below+"/"+path, below); msg != "" {
		return msg
	}
	if strings.Count(path, "/") >= MaxDepth {
		return fmt.Sprintf("it is more than %d folders deep", MaxDepth)
	}
	return ""
}

// Compare orders paths as in a manifest: part by part. A folder's files directly follow the place of a file with its
// name.
func Compare(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch x, y := a[i], b[i]; {
		case x == y:
		case x == '/':
			return -1
		case y == '/':
			return 1
		case x < y:
			return -1
		default:
			return 1
		}
	}
	return len(a) - len(b)
}

// order checks each file against the previous one.
type order struct {
	last string
	sum  Sum
}

func (o *order) add(f File) error {
	msg := CheckPath(f.Path)
	switch {
	case msg != "":
		return fmt.Errorf("the path %s: %s", fault.Quote(f.Path, 200), msg)
	case !plan.IsSHA256(f.SHA256):
		return errors.New("a checksum is 64 lower-case hex digits")
	case f.Size < 0:
		return errors.New("a size is not negative")
	case o.sum.Files == MaxFiles:
		return fmt.Errorf("it has more than %d files", MaxFiles)
	case f.Size > math.MaxInt64-o.sum.Bytes:
		return errors.New("its files are larger than any disk")
	case o.sum.Files > 0 && o.last == f.Path:
		return fmt.Errorf("the path %s appears twice", fault.Quote(f.Path, 200))
	case o.sum.Files > 0 && Compare(o.last, f.Path) > 0:
		return fmt.Errorf("the path %s is not in order", fault.Quote(f.Path, 200))
	case o.sum.Files > 0 && strings.HasPrefix(f.Path, o.last+"/"):
		return fmt.Errorf("the path %s is below a file", fault.Quote(f.Path, 200))
	}
	o.last = f.Path
	o.sum.Files++
	o.sum.Bytes += f.Size
	return nil
}

// Writer writes a manifest.
type Writer struct {
	w     *bufio.Writer
	order order
}

// NewWriter starts a manifest.
func NewWriter(w io.Writer) *Writer {
	b := bufio.NewWriterSize(w, 64<<10)
	_, _ = b.WriteString(header) // its error comes again with the next write
	return &Writer{w: b}
}

// Add writes the line of a file. Files come in the order of their paths.
func (w *Writer) Add(f File) error {
	if err := w.order.add(f); err != nil {
		return broken(err)
	}
	b := append(w.w.AvailableBuffer(), f.SHA256...)
	b = strconv.AppendInt(append(b, ' '), f.Size, 10)
	b = append(append(append(b, ' '), f.Path...), '\n')
	_, err := w.w.Write(b)
	return err
}

// Close ends the manifest and returns the total. A directory without a file is an error.
func (w *Writer) Close() (Sum, error) {
	if w.order.sum.Files == 0 {
		return Sum{}, broken(errNoFile)
	}
	return w.order.sum, w.w.Flush()
}

var errNoFile = errors.New("it lists no file")

// Reader reads a manifest.
type Reader struct {
	r     *bufio.Reader
	order order
	begun bool
}

// NewReader reads a manifest from the start of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next file; io.EOF after the last. A Validation fault with [Code] means that the text is not a
// manifest. Errors of the reader are returned unchanged.
func (r *Reader) Next() (File, error) {
	if !r.begun {
		line, err := r.line()
		if err != nil && err != io.EOF {
			return File{}, err
		}
		if string(line) != header[:len(header)-1] {
			return File{}, broken(errors.New("it does not begin with " + strings.TrimSpace(header)))
		}
		r.begun = true
	}
	line, err := r.line()
	if err == io.EOF && r.order.sum.Files == 0 {
		return File{}, broken(errNoFile)
	}
	if err != nil {
		return File{}, err
	}
	f, err := parse(line)
	if err == nil {
		err = r.order.add(f)
	}
	if err != nil {
		return File{}, broken(err)
	}
	return f, nil
}

// Sum returns the total of what was read so far.
func (r *Reader) Sum() Sum { return r.order.sum }

// line returns the next line without its newline, valid until the next call.
func (r *Reader) line() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	switch {
	case err == nil && len(line) <= maxLine:
		return line[:len(line)-1], nil
	case err == nil, errors.Is(err, bufio.ErrBufferFull):
		return nil, broken(errors.New("a line is too long"))
	case err == io.EOF && len(line) > 0:
		return nil, broken(errors.New("its last line has no end"))
	}
	return nil, err
}

func parse(line []byte) (f File, err error) {
	sum, rest, ok := bytes.Cut(line, []byte(" "))
	size, path, sized := bytes.Cut(rest, []byte(" "))
	f = File{SHA256: string(sum), Path: string(path)}
	f.Size, err = strconv.ParseInt(string(size), 10, 64)
	if !ok || !sized || err != nil || strconv.FormatInt(f.Size, 10) != string(size) {
		return f, errors.New("a line must be a checksum, a size in bytes and a path")
	}
	return f, nil
}

// Each calls f with every file of a manifest, and returns the total.
func Each(r io.Reader, f func(File) error) (Sum, error) {
	read := NewReader(r)
	for {
		file, err := read.Next()
		if err == io.EOF {
			return read.Sum(), nil
		}
		if err == nil {
			err = f(file)
		}
		if err != nil {
			return Sum{}, err
		}
	}
}

// Inputs returns the files of an input that is a directory, as separate inputs below its place: what is staged,
// pinned and verified.
func Inputs(in plan.Input, manifest io.Reader) (list []plan.Input, err error) {
	_, err = Each(manifest, func(f File) error {
		at := in.DestRelpath + "/" + f.Path
		if len(at) > plan.MaxRelPath {
			return fault.New(fault.Validation, Code, fmt.Sprintf("the file %s of input %s would have a path longer than %d bytes",
				fault.Quote(f.Path, 200), in.Role, plan.MaxRelPath)).WithNext("give the directory a shorter place, or shorten the names in it")
		}
		list = append(list, plan.Input{Role: in.Role, ArtifactID: in.ArtifactID, ChecksumSHA256: f.SHA256, DestRelpath: at})
		return nil
	})
	return list, err
}

func broken(err error) error {
	return fault.New(fault.Validation, Code, "the list of files of a directory artifact is not valid: "+err.Error()).
		WithNext("import the directory again")
}
