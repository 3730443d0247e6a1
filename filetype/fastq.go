package filetype

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
)

// fastq reads a FASTQ file record by record, as kseq does: a line that begins with @, lines of sequence until one that begins with +,
// lines of quality until they are as long as the sequence. Unlike kseq it ignores nothing but empty lines. A file without a record passes:
// a filter may let nothing through. No line is buffered, however long it is.
type fastq struct {
	r      *bufio.Reader
	line   int64 // lines before the current one
	begun  bool  // the current line has a first byte
	ended  bool  // the file has ended
	record int64 // number of the current record, or of the last one
	from   int64 // lines before the current record
	part   fastqPart

	bases, quals int64 // length of the sequence and of the quality, so far
	first        int64 // length of the first line of quality; -1 when it has not ended
}

// fastqPart is the part of a record that is being read.
type fastqPart int

const (
	fastqName     fastqPart = iota // the line that begins with @
	fastqSequence                  // lines of sequence
	fastqQuality                   // the line that begins with +, or lines of quality
)

// notBase and notQuality are 1 for each byte that a sequence or a quality does not consist of.
var notBase, notQuality = func() (base, quality [256]uint8) {
	for c := range 256 {
		if !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '.' || c == '-' || c == '*') {
			base[c] = 1
		}
		if c < '!' || c > '~' {
			quality[c] = 1
		}
	}
	return base, quality
}()

func checkFASTQ(r *bufio.Reader) error {
	q := fastq{r: r}
	for !q.ended {
		if err := q.next(); err != nil {
			return err
		}
	}
	return nil
}

// readLine passes the pieces of a line to f, without its end.
func (q *fastq) readLine(f func(b []byte) error) error {
	q.begun = false
	for {
		b, err := q.r.ReadSlice('\n')
		full := err == bufio.ErrBufferFull
		if err != nil && err != io.EOF && !full {
			return err
		}
		b = bytes.TrimSuffix(b, []byte("\n"))
		if n := len(b) - 1; n >= 0 && b[n] == '\r' {
			if b = b[:n]; full { // it belongs to the end of the line only if a newline follows
				_ = q.r.UnreadByte()
			}
		}
		if len(b) > 0 {
			if err := f(b); err != nil {
				return err
			}
			q.begun = true
		}
		if !full {
			if q.ended = err == io.EOF; !q.ended {
				q.line++
			}
			return nil
		}
	}
}

// next reads an empty line, a record, or the end of the file.
func (q *fastq) next() error {
	q.part, q.bases, q.quals, q.first = fastqName, 0, 0, -1
	if err := q.readLine(q.name); err != nil || !q.begun {
		return err
	}
	for plus := false; !plus; {
		if q.ended {
			return q.errorf("the file ends before its line with +")
		}
		q.part = fastqSequence
		if err := q.readLine(func(b []byte) error {
			if plus = plus || !q.begun && b[0] == '+'; plus {
				q.part = fastqQuality
				return nil
			}
			return q.sequence(b)
		}); err != nil {
			return err
		}
	}
	for {
		switch {
		case q.ended && q.quals == q.bases:
			return nil
		case q.ended && q.first < 0:
			return q.errorf("the file ends within its quality, after %d of %d characters", q.quals, q.bases)
		case q.ended:
			return q.mismatch()
		}
		if err := q.readLine(q.quality); err != nil {
			return err
		}
		if !q.ended && q.first < 0 {
			q.first = q.quals
		}
		if !q.ended && q.quals == q.bases {
			return nil
		}
	}
}

func (q *fastq) name(b []byte) error {
	switch {
	case q.begun:
	case b[0] != '@' && q.record > 0:
		return fmt.Errorf("no record follows record %d: line %d begins with %q, not with @", q.record, q.line+1, b[0])
	case b[0] != '@':
		return fmt.Errorf("it does not begin with a record: line %d begins with %q, not with @", q.line+1, b[0])
	default:
		q.record++
		q.from = q.line
	}
	return nil
}

func (q *fastq) sequence(b []byte) error {
	if !q.begun && (b[0] == '@' || b[0] == '>') {
		return q.errorf("line %d begins with %c, but no line with + and the quality came before it", q.line+1, b[0])
	}
	q.bases += int64(len(b))
	return q.only(&notBase, b, "a sequence")
}

func (q *fastq) quality(b []byte) error {
	if q.quals += int64(len(b)); q.quals > q.bases {
		return q.mismatch()
	}
	err := q.only(&notQuality, b, "a quality")
	if err != nil && q.first >= 0 { // this line was never meant as one
		return q.mismatch()
	}
	return err
}

// only refuses bytes for which not is 1. One pass without a branch finds whether there are any.
func (q *fastq) only(not *[256]uint8, b []byte, what string) error {
	var found uint8
	for _, c := range b {
		found |= not[c]
	}
	if found == 0 {
		return nil
	}
	i := slices.IndexFunc(b, func(c byte) bool { return not[c] != 0 })
	return q.errorf("line %d has a byte that does not belong in %s: %q", q.line+1, what, b[i:i+1])
}

func (q *fastq) mismatch() error {
	if q.first >= 0 {
		return q.errorf("its sequence has %d letters, but its first line of quality has %d characters, and the next lines do not complete it",
			q.bases, q.first)
	}
	return q.errorf("its sequence has %d letters, and its quality is longer", q.bases)
}

func (q *fastq) errorf(format string, args ...any) error {
	return fmt.Errorf("record %d, which begins at line %d: %w", q.record, q.from+1, fmt.Errorf(format, args...))
}

// looksFASTQ reads the first record as far as it is there. Of one that the head ends within, the quality must have begun, unless it is
// longer than half the head.
func looksFASTQ(b []byte, _, _ bool) bool {
	name, _, _ := bytes.Cut(b, []byte("\n"))
	if len(bytes.TrimSuffix(name, []byte("\r"))) < 2 || name[0] != '@' || !isText(name) {
		return false
	}
	q := fastq{r: bufio.NewReader(bytes.NewReader(b))}
	err := q.next()
	return err == nil || q.ended && (q.part == fastqQuality && (q.begun || q.quals == 0) || q.part != fastqName && len(b) >= HeadBytes/2)
}
