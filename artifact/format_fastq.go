package artifact

import (
	"bytes"
	"fmt"
	"slices"
)

// fastqWalk goes from record to record of a FASTQ file, as kseq reads it: a line that begins with @, lines of sequence until one that
// begins with +, lines of quality until they are as long as the sequence. Unlike kseq it ignores nothing but empty lines. A file without a
// record passes: a filter may let nothing through. No line is buffered, however long it is.
type fastqWalk struct {
	part   fastqPart
	begun  bool  // the current line has a first byte
	cr     bool  // a carriage return came last, which belongs to the end of the line if a newline follows
	line   int64 // lines before the current one
	record int64 // number of the current record, or of the last one
	from   int64 // lines before the current record

	bases, quals int64 // length of the sequence and of the quality, so far
	first        int64 // length of the first line of quality
}

// fastqPart is what the current line belongs to.
type fastqPart int

const (
	fastqBetween  fastqPart = iota // a record begins here, or the file ends
	fastqName                      // the line that begins with @
	fastqSequence                  // of the letters, or the line that begins with + if its first byte is not known yet
	fastqPlus                      // the line that begins with +
	fastqQuality
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

func (w *fastqWalk) write(p []byte) error {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			return w.piece(p)
		}
		if err := w.piece(p[:end]); err != nil {
			return err
		}
		w.endLine()
		p = p[end+1:]
	}
	return nil
}

// piece takes the next bytes of a line.
func (w *fastqWalk) piece(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if w.cr {
		w.cr = false
		if err := w.content([]byte{'\r'}); err != nil {
			return err
		}
	}
	if last := len(b) - 1; b[last] == '\r' {
		w.cr = true
		b = b[:last]
	}
	if len(b) == 0 {
		return nil
	}
	return w.content(b)
}

func (w *fastqWalk) content(b []byte) error {
	if !w.begun {
		w.begun = true
		if err := w.beginLine(b[0]); err != nil {
			return err
		}
	}
	switch w.part {
	case fastqSequence:
		w.bases += int64(len(b))
		return w.only(&notBase, b, "a sequence")
	case fastqQuality:
		if w.quals += int64(len(b)); w.quals > w.bases {
			return w.mismatch()
		}
		err := w.only(&notQuality, b, "a quality")
		if err != nil && w.first >= 0 { // this line was never meant as one
			return w.mismatch()
		}
		return err
	}
	return nil
}

// beginLine looks at the first byte of a line.
func (w *fastqWalk) beginLine(c byte) error {
	switch {
	case w.part == fastqBetween && c != '@':
		after := "it does not begin with a record"
		if w.record > 0 {
			after = fmt.Sprintf("no record follows record %d", w.record)
		}
		return fmt.Errorf("%s: line %d begins with %q, not with @", after, w.line+1, c)
	case w.part == fastqBetween:
		w.part = fastqName
		w.record++
		w.from, w.bases, w.quals, w.first = w.line, 0, 0, -1
	case w.part == fastqSequence && c == '+':
		w.part = fastqPlus
	case w.part == fastqSequence && (c == '@' || c == '>'):
		return w.errorf("line %d begins with %c, but no line with + and the quality came before it", w.line+1, c)
	}
	return nil
}

func (w *fastqWalk) endLine() {
	switch w.part {
	case fastqName:
		w.part = fastqSequence
	case fastqPlus:
		w.part = fastqQuality
	case fastqQuality:
		if w.first < 0 {
			w.first = w.quals
		}
		if w.quals == w.bases {
			w.part = fastqBetween
		}
	}
	w.line++
	w.begun, w.cr = false, false
}

func (w *fastqWalk) end() error {
	switch {
	case w.part == fastqName, w.part == fastqSequence:
		return w.errorf("the file ends before its line with +")
	case w.part == fastqBetween, w.quals == w.bases:
		return nil
	case w.first >= 0:
		return w.mismatch()
	}
	return w.errorf("the file ends within its quality, after %d of %d characters", w.quals, w.bases)
}

// only refuses bytes for which not is 1. One pass without a branch finds whether there are any.
func (w *fastqWalk) only(not *[256]uint8, b []byte, what string) error {
	var found uint8
	for _, c := range b {
		found |= not[c]
	}
	if found == 0 {
		return nil
	}
	i := slices.IndexFunc(b, func(c byte) bool { return not[c] != 0 })
	return w.errorf("line %d has a byte that does not belong in %s: %q", w.line+1, what, b[i:i+1])
}

func (w *fastqWalk) mismatch() error {
	if w.first >= 0 {
		return w.errorf("its sequence has %d letters, but its first line of quality has %d characters, and the next lines do not complete it",
			w.bases, w.first)
	}
	return w.errorf("its sequence has %d letters, and its quality is longer", w.bases)
}

func (w *fastqWalk) errorf(format string, args ...any) error {
	return fmt.Errorf("record %d, which begins at line %d: %w", w.record, w.from+1, fmt.Errorf(format, args...))
}

// looksFASTQ reads the first record as far as it is there. Of one that the head ends within, the quality must have begun, unless it is
// longer than half the head.
func looksFASTQ(b []byte) bool {
	name, _, _ := bytes.Cut(b, []byte("\n"))
	if len(bytes.TrimSuffix(name, []byte("\r"))) < 2 || name[0] != '@' || !isText(name) {
		return false
	}
	var w fastqWalk
	for line := range bytes.Lines(b) {
		if w.write(line) != nil {
			return false
		}
		if w.part == fastqBetween {
			return true
		}
	}
	if w.part >= fastqPlus && (w.begun || w.quals == 0) {
		return true
	}
	return w.part != fastqName && len(b) >= HeadBytes/2
}
