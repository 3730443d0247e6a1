package artifact

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// format is what every file of a type has. Detection and checks share it.
type format struct {
	typ    string
	magics []string // the file begins with one of these; for a VCF file this may be after inflating
	names  []string // endings of file names that claim the type
	check  rule     // of the file's bytes; for a type that ends in _GZ of what they inflate to
	empty  bool     // a file of no bytes is one
}

// A rule follows a file's structure in bounded memory and says what is wrong with it. It need not read to the end. An error of the reader
// other than io.EOF may be returned in any form: whoever made the reader knows it.
type rule func(r *bufio.Reader) error

// formats are the types that bytes can prove or disprove. A type that ends in _GZ is gzip besides. For the others – TEXT, TSV, CSV, MD,
// HTML, LOG, UNKNOWN and a domain's own – there is no rule that every file satisfies, so nothing is checked.
var formats = []format{
	{typ: "BAM", names: []string{".bam"}, check: checkBAM},
	{typ: "BAI", magics: []string{"BAI\x01"}, names: []string{".bai"}},
	{typ: "VCF", magics: []string{magicVCF}, names: []string{".vcf", ".vcf.gz"}},
	{typ: "FASTQ", check: checkFASTQ, empty: true},
	{typ: "FASTQ_GZ", names: []string{".fastq.gz", ".fq.gz"}, check: checkFASTQ},
	{typ: "ZIP", magics: []string{"PK\x03\x04", "PK\x05\x06"}, names: []string{".zip"}, check: checkZIP}, // the second is an empty archive
	{typ: "PNG", magics: []string{"\x89PNG\r\n\x1a\n"}, names: []string{".png"}, check: checkPNG},
	{typ: "PDF", magics: []string{"%PDF-"}, names: []string{".pdf"}, check: checkPDF},
	{typ: "H5AD", magics: []string{magicHDF5}, names: []string{".h5ad"}, check: checkHDF5},
	{typ: "JSON", check: checkJSON},
}

const (
	magicGzip = "\x1f\x8b\x08"
	magicHDF5 = "\x89HDF\r\n\x1a\n"
	magicVCF  = "##fileformat=VCF"
	suffixGz  = "_GZ"
	typeGzip  = "gzip" // no artifact type: what a name that ends in .gz claims
)

func formatOf(typ string) format {
	for _, f := range formats {
		if f.typ == typ {
			return f
		}
	}
	return format{typ: typ}
}

// claimed is the type that a file's name claims; empty where it claims none that can be checked.
func claimed(name string) string {
	name = strings.ToLower(name)
	for _, f := range formats {
		for _, end := range f.names {
			if strings.HasSuffix(name, end) {
				return f.typ
			}
		}
	}
	if strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".bgz") {
		return typeGzip
	}
	return ""
}

// Checks says how much of a file [NewChecker] looks at.
type Checks struct {
	Full   bool  // inflate a gzip file to its end however large it is; without it only files up to MaxInflated
	Rows   bool  // count lines
	Blocks bool  // inflate the blocks of a BAM file too
	Size   int64 // of the file in bytes where it is known, else 0
}

// MaxInflated is how large a gzip file may be to be inflated as it is imported, in bytes.
const MaxInflated = 64 << 20

// Checker holds the bytes of a file against its type while they pass through Write, in bounded memory. Close it.
type Checker struct {
	*follower
	lines lines
}

// NewChecker checks a file against a type.
func NewChecker(typ string, opt Checks) *Checker {
	c := &Checker{}
	c.follower = follow(func(r *bufio.Reader) error {
		var w io.Writer
		if opt.Rows {
			w = &c.lines
		}
		return check(r, typ, opt, w)
	})
	return c
}

// Lines is how many lines the file has, of a gzip file the inflated ones. The last line need not have an end. It is known after a Finish
// without an error, if it was asked for.
func (c *Checker) Lines() int64 { return c.lines.n }

// bufferSize is that of every reader a rule gets. A BGZF block's header, at most 12 bytes and 64 KiB, fits, and so does the head for
// [Detect].
const bufferSize = HeadBytes + 64

// follower applies a rule, in a goroutine of its own, to the bytes that are written to it.
type follower struct {
	w       *io.PipeWriter
	verdict func() error // waits
}

var errStopped = errors.New("stopped")

func follow(check rule) *follower {
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := check(bufio.NewReaderSize(r, bufferSize))
		r.CloseWithError(errStopped) // a writer does not wait for a rule that has ended
		result <- err
	}()
	return &follower{w, sync.OnceValue(func() error { return <-result })}
}

// Write takes the next bytes. It never fails: what is wrong is what Finish says.
func (f *follower) Write(p []byte) (int, error) {
	_, _ = f.w.Write(p)
	return len(p), nil
}

// feed writes all of r, as far as the rule reads.
func (f *follower) feed(r io.Reader) error {
	_, err := io.Copy(f.w, r)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return err
}

// Finish says what is wrong with the file, whose bytes have all been written; nil when nothing was found.
func (f *follower) Finish() error {
	f.w.Close()
	return f.verdict()
}

// Close ends the check, whether or not all bytes were written. It never fails.
func (f *follower) Close() error {
	f.w.CloseWithError(errStopped)
	_ = f.verdict()
	return nil
}

// check holds a file against a type. What it contains, inflated where the type says so, is copied to text, which may be nil.
func check(r *bufio.Reader, typ string, opt Checks, text io.Writer) error {
	f := formatOf(typ)
	head, _ := r.Peek(12)
	packed := strings.HasPrefix(string(head), magicGzip)
	wantGzip := strings.HasSuffix(typ, suffixGz) || typ == typeGzip
	switch {
	case len(head) == 0 && !f.empty && (wantGzip || f.magics != nil || f.check != nil):
		return errors.New("it is empty")
	case wantGzip && !packed:
		return errors.New("its first bytes are not gzip's")
	case wantGzip, packed && typ == "VCF":
		blocks := rule(nil)
		if bgzfSize(gzipExtra(r)) > 0 {
			blocks = checkBGZF
		}
		if !opt.Full && opt.Size > MaxInflated {
			return apply(blocks, r, nil)
		}
		return inflated(r, blocks, opt.Full, leastInflated, func(r *bufio.Reader) error {
			if !startsWithAny(r, f.magics) {
				return errors.New("what it inflates to does not begin as it should")
			}
			return apply(f.check, r, text)
		})
	case typ == "BAM" && opt.Blocks:
		return inflated(r, checkBAM, true, leastInflated, func(*bufio.Reader) error { return nil })
	case !startsWithAny(r, f.magics):
		return fmt.Errorf("its first bytes are not %s's", typ)
	}
	return apply(f.check, r, text)
}

// apply applies a rule, if there is one, and copies what it reads and the rest to text.
func apply(check rule, r *bufio.Reader, text io.Writer) error {
	if text != nil {
		r = bufio.NewReaderSize(io.TeeReader(r, text), bufferSize)
	}
	if check != nil {
		if err := check(r); err != nil {
			return err
		}
	}
	if text == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// startsWithAny reports whether what r reads next is one of the words; any text if there are none.
func startsWithAny(r *bufio.Reader, words []string) bool {
	for _, word := range words {
		if b, _ := r.Peek(len(word)); string(b) == word {
			return true
		}
	}
	return words == nil
}

// lines counts the lines that are written to it.
type lines struct {
	n    int64
	open bool // the last line has no end so far
}

func (l *lines) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	l.n += int64(bytes.Count(p, []byte("\n")))
	if l.open {
		l.n--
	}
	if l.open = p[len(p)-1] != '\n'; l.open {
		l.n++
	}
	return len(p), nil
}
