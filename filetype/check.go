package filetype

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// A rule follows a file's structure in bounded memory and returns what is wrong with it. It need not read to the end.
// An error of the reader other than io.EOF may be returned in any form: the reader's caller has it too.
type rule func(r *bufio.Reader) error

// Checks says how much of a file [NewChecker] checks.
type Checks struct {
	Full   bool  // inflate a gzip file to its end however large it is; without it only files up to MaxInflated
	Rows   bool  // count lines
	Blocks bool  // inflate the blocks of a BAM file too
	Size   int64 // of the file in bytes where it is known, else 0
}

// MaxInflated is the largest gzip file that is inflated as it is imported, in bytes.
const MaxInflated = 64 << 20

// Checker holds the bytes of a file against its type while they pass through Write, in bounded memory. Close it.
type Checker struct {
	*Follower
	lines lines
}

// NewChecker checks a file against a type.
func NewChecker(typ string, opt Checks) *Checker {
	c := &Checker{}
	c.Follower = Follow(func(r *bufio.Reader) error {
		var w io.Writer
		if opt.Rows {
			w = &c.lines
		}
		return check(r, typ, opt, w)
	})
	return c
}

// Lines returns how many lines the file has, of a gzip file the inflated ones. The last line need not have an end. It
// is valid after a Finish without an error, if Checks.Rows was set.
func (c *Checker) Lines() int64 { return c.lines.n }

// bufferSize is that of every reader a rule gets. A BGZF block's header, at most 12 bytes and 64 KiB, fits, and so does the head for
// [Detect].
const bufferSize = HeadBytes + 64

// Follower applies a rule, in its own goroutine, to the bytes that are written to it. Close it.
type Follower struct {
	w       *io.PipeWriter
	verdict func() error // waits
}

var errStopped = errors.New("stopped")

// Follow makes a follower.
func Follow(check rule) *Follower {
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := check(bufio.NewReaderSize(r, bufferSize))
		r.CloseWithError(errStopped) // a writer does not wait for a rule that has ended
		result <- err
	}()
	return &Follower{w, sync.OnceValue(func() error { return <-result })}
}

// Write takes the next bytes. It never fails: Finish returns the errors.
func (f *Follower) Write(p []byte) (int, error) {
	_, _ = f.w.Write(p)
	return len(p), nil
}

// Feed writes all of r, as far as the rule reads.
func (f *Follower) Feed(r io.Reader) error {
	_, err := io.Copy(f.w, r)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return err
}

// Finish returns what is wrong with the file, whose bytes have all been written; nil when nothing was found.
func (f *Follower) Finish() error {
	f.w.Close()
	return f.verdict()
}

// Close ends the check, whether or not all bytes were written. It never fails.
func (f *Follower) Close() error {
	f.w.CloseWithError(errStopped)
	_ = f.verdict()
	return nil
}

// check checks a file against a type. Its content, inflated where the type is compressed, is copied to text, which
// may be nil.
func check(r *bufio.Reader, typ string, opt Checks, text io.Writer) error {
	t := Of(typ)
	head, _ := r.Peek(12)
	packed := strings.HasPrefix(string(head), magicGzip)
	wantGzip := t.isGzip() || typ == typeGzip
	switch {
	case len(head) == 0 && (wantGzip || !t.empty && (t.magics != nil || t.check != nil)):
		return errors.New("it is empty")
	case wantGzip && !packed:
		return errors.New("it does not begin with a gzip header")
	case wantGzip, packed && t.MayGzip:
		blocks := rule(nil)
		if bgzfSize(gzipExtra(r)) > 0 {
			blocks = checkMixed
		}
		if !opt.Full && opt.Size > MaxInflated {
			return apply(blocks, r, nil)
		}
		return inflated(r, blocks, opt.Full, leastInflated, func(r *bufio.Reader) error {
			if !startsWithAny(r, t.magics) {
				return fmt.Errorf("what it inflates to does not begin with %s", t.beginnings())
			}
			return apply(t.check, r, text)
		})
	case t.blocks != "" && opt.Blocks:
		return inflated(r, t.check, true, leastInflated, func(*bufio.Reader) error { return nil })
	case !startsWithAny(r, t.magics):
		return fmt.Errorf("it does not begin with %s", t.beginnings())
	}
	return apply(t.check, r, text)
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

// beginnings returns the possible beginnings of files of the type, for a message.
func (t Type) beginnings() string {
	var all []string
	for _, m := range t.magics {
		all = append(all, strconv.Quote(m))
	}
	return strings.Join(all, " or ")
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
