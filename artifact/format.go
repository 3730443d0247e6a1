package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// format is what every file of a type has. Detection and checks share it.
type format struct {
	typ    string
	magics []string      // the file begins with one of these; for a VCF file this may be after inflating
	names  []string      // endings of file names that claim the type
	walk   func() walker // of the file's bytes; for a type that ends in _GZ of what they inflate to
	empty  bool          // a file of no bytes is one
}

// A walker follows a file's structure as its bytes pass, in bounded memory. The first error says what is wrong and ends the walk.
type walker interface {
	write(p []byte) error
	end() error // no bytes are left
}

// formats are the types that bytes can prove or disprove. A type that ends in _GZ is gzip besides. For the others – TEXT, TSV, CSV, MD,
// HTML, LOG, UNKNOWN and a domain's own – there is no rule that every file satisfies, so nothing is checked.
var formats = []format{
	{typ: "BAM", names: []string{".bam"}, walk: func() walker { return &bamWalk{} }},
	{typ: "BAI", magics: []string{"BAI\x01"}, names: []string{".bai"}},
	{typ: "VCF", magics: []string{magicVCF}, names: []string{".vcf", ".vcf.gz"}},
	{typ: "FASTQ", walk: func() walker { return &fastqWalk{} }, empty: true},
	{typ: "FASTQ_GZ", names: []string{".fastq.gz", ".fq.gz"}, walk: func() walker { return &fastqWalk{} }},
	{typ: "ZIP", magics: []string{"PK\x03\x04", "PK\x05\x06"}, names: []string{".zip"}, walk: newZipEnd}, // the second is an empty archive
	{typ: "PNG", magics: []string{"\x89PNG\r\n\x1a\n"}, names: []string{".png"}, walk: func() walker { return &pngWalk{} }},
	{typ: "PDF", magics: []string{"%PDF-"}, names: []string{".pdf"}, walk: newPDFEnd},
	{typ: "H5AD", magics: []string{magicHDF5}, names: []string{".h5ad"}, walk: func() walker { return &hdf5Walk{} }},
	{typ: "JSON", walk: func() walker { return &jsonWalk{} }},
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
	typ   string
	opt   Checks
	head  []byte // the first bytes, until it is known what to look for
	ready bool
	parts []walker
	lines *lines
	inner *inflater
	err   error
}

// headNeeded is enough to see a magic number and a gzip header with its extra field.
const headNeeded = 512

// NewChecker checks a file against a type.
func NewChecker(typ string, opt Checks) *Checker { return &Checker{typ: typ, opt: opt} }

// Write takes the next bytes. It never fails: what is wrong is what Finish says.
func (c *Checker) Write(p []byte) (int, error) {
	n := len(p)
	if !c.ready {
		take := min(n, headNeeded-len(c.head))
		c.head = append(c.head, p[:take]...)
		if p = p[take:]; len(c.head) == headNeeded {
			c.begin()
		}
	}
	if c.ready {
		c.pass(p)
	}
	return n, nil
}

// begin looks at the head, chooses what follows the rest, and passes the head on.
func (c *Checker) begin() {
	c.ready = true
	f := formatOf(c.typ)
	packed := strings.HasPrefix(string(c.head), magicGzip)
	wantGzip := strings.HasSuffix(c.typ, suffixGz) || c.typ == typeGzip
	if c.opt.Rows {
		c.lines = &lines{}
	}
	switch {
	case len(c.head) == 0 && !f.empty && (wantGzip || f.magics != nil || f.walk != nil):
		c.err = errors.New("it is empty")
		return
	case wantGzip && !packed:
		c.err = errors.New("its first bytes are not gzip's")
		return
	case wantGzip, packed && c.typ == "VCF":
		c.inflate(f)
	default:
		if f.magics != nil && !startsWithAny(c.head, f.magics) {
			c.err = fmt.Errorf("its first bytes are not %s's", c.typ)
			return
		}
		if f.walk != nil {
			c.parts = append(c.parts, f.walk())
		}
		if c.lines != nil {
			c.parts = append(c.parts, c.lines)
		}
		if c.opt.Blocks && c.typ == "BAM" {
			c.inner = newInflater(nil, true, nil)
			c.parts = append(c.parts, c.inner)
		}
	}
	head := c.head
	c.head = nil
	c.pass(head)
}

func (c *Checker) inflate(f format) {
	if isBGZF(gzipExtra(c.head)) {
		c.parts = append(c.parts, &bgzfWalk{})
	}
	if !c.opt.Full && c.opt.Size > MaxInflated {
		return
	}
	var parts []walker
	if f.walk != nil {
		parts = append(parts, f.walk())
	}
	if c.lines != nil {
		parts = append(parts, c.lines)
	}
	c.inner = newInflater(f.magics, c.opt.Full, parts)
	c.parts = append(c.parts, c.inner)
}

func (c *Checker) pass(p []byte) {
	for _, part := range c.parts {
		if c.err == nil && len(p) > 0 {
			c.err = part.write(p)
		}
	}
}

// Finish says what is wrong with the file, whose bytes have all been written; nil when nothing was found.
func (c *Checker) Finish() error {
	if !c.ready {
		c.begin()
	}
	for _, part := range c.parts {
		if c.err == nil {
			c.err = part.end()
		}
	}
	return c.err
}

// Lines is how many lines the file has, of a gzip file the inflated ones. The last line need not have an end. It is known after a Finish
// without an error, if it was asked for.
func (c *Checker) Lines() int64 {
	if c.lines == nil {
		return 0
	}
	return c.lines.n
}

// Close ends the check, whether or not all bytes were written. It never fails.
func (c *Checker) Close() error {
	if c.inner != nil {
		c.inner.stop()
	}
	return nil
}

func startsWithAny(b []byte, magics []string) bool {
	for _, m := range magics {
		if bytes.HasPrefix(b, []byte(m)) {
			return true
		}
	}
	return false
}

// lines counts lines.
type lines struct {
	n    int64
	open bool // the last line has no end so far
}

func (l *lines) write(p []byte) error {
	l.n += int64(bytes.Count(p, []byte("\n")))
	if l.open {
		l.n--
	}
	if l.open = p[len(p)-1] != '\n'; l.open {
		l.n++
	}
	return nil
}

func (l *lines) end() error { return nil }
