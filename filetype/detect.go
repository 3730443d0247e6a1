package filetype

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// HeadBytes is how much of a file's beginning [Detect] reads. A shorter head is taken for the whole file.
const HeadBytes = 64 << 10

// Detect returns the artifact type of a file from its first bytes and, where these leave a choice, from its name. The
// result is one of the types of every gateway, or one of own, the domain's: those are found by content where the
// table has a row for them, and are TEXT or UNKNOWN elsewhere. A compressed VCF is a VCF, as the tools that read one
// read the other.
func Detect(head []byte, name string, own ...string) string {
	b := beginningOf(head[:min(len(head), HeadBytes)])
	for _, t := range table {
		if t.own && !slices.Contains(own, t.Name) || !t.matches(b, name) {
			continue
		}
		if t.named && !t.hasEnding(name) {
			return Unknown
		}
		return t.Name
	}
	return Unknown
}

// Inspect finds the type of a file from its first bytes and its name, unless typ is set, and checks its bytes. own
// are the domain's types. The bytes were checked against the type claimed, which is another one where the name claims
// that.
func Inspect(r *bufio.Reader, name, typ string, own []string, opt Checks) (found, claimed string, err error) {
	head, _ := r.Peek(HeadBytes)
	if found = typ; found == "" {
		found = Detect(head, name, own...)
		claimed = claimOf(name)
	}
	inside := found != Unknown && strings.HasPrefix(string(head), magicGzip) // it was recognised inside
	if claimed == "" || claimed == typeGzip && inside {
		claimed = found
	}
	err = check(r, claimed, opt, nil)
	if err == nil && claimed != found && claimed != typeGzip {
		err = errors.New("its content is something else")
		if claimed == "FASTQ_GZ" {
			err = errors.New("it does not begin with a FASTQ record")
		}
	}
	return found, claimed, err
}

// Rewrite returns the command that writes a file of a type anew; "" where the error of its check shows that the content is not whole.
func Rewrite(typ string, err error) string {
	if !errors.As(err, new(rewritable)) {
		return ""
	}
	return cmp.Or(Of(typ).anew, "zcat FILE | gzip > NEW.gz")
}

// beginning is the first bytes of a file's content.
type beginning struct {
	content []byte // of a gzip file what it inflates to
	gzip    bool
	blocked bool // gzip in blocks, BGZF
	empty   bool // a whole gzip file of nothing
	text    bool
}

// beginningOf reads the beginning of a file, inflated from a gzip file. What is inflated is bounded, whatever the
// head promises.
func beginningOf(head []byte) (b beginning) {
	b.content, b.gzip = head, bytes.HasPrefix(head, []byte(magicGzip))
	if b.gzip {
		b.content = nil
		if zr, err := gzip.NewReader(bytes.NewReader(head)); err == nil {
			b.blocked = bgzfSize(zr.Extra) > 0
			// The head may end within the stream: the bytes before the error count.
			b.content, err = io.ReadAll(io.LimitReader(zr, HeadBytes))
			b.empty = err == nil && len(b.content) == 0
		}
	}
	b.text = isText(b.content)
	return b
}

// matches reports whether a file with this beginning is of the type. A gzip file without content is of the type in
// its name: of a negative control no read may be left.
func (t Type) matches(b beginning, name string) bool {
	switch {
	case t.blocks != "":
		return b.blocked && bytes.HasPrefix(b.content, []byte(t.blocks))
	case b.gzip != t.isGzip() && !(b.gzip && t.MayGzip):
		return false
	case t.magics != nil:
		return slices.ContainsFunc(t.magics, func(m string) bool { return bytes.HasPrefix(b.content, []byte(m)) })
	case b.empty:
		return t.empty && t.hasEnding(name)
	case t.looks == nil, !b.text && (t.own || !b.gzip):
		return false
	}
	return t.looks(b.content, t.hasEnding(name), filepath.Ext(name) == "")
}

// IsBinary reports whether a file should be described rather than quoted: its head has a known binary type, a NUL, or more than one byte in
// ten that is not text. Text in an old 8-bit encoding is quoted.
func IsBinary(head []byte) bool {
	if Of(Detect(head, "")).Binary || bytes.HasPrefix(head, []byte(magicGzip)) || bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	odd := 0
	for b := head; len(b) > 0; {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 || r < ' ' && !strings.ContainsRune("\t\n\r\f\b\x1b", r) {
			odd++
		}
		b = b[n:]
	}
	return odd*10 > len(head)
}

// isText reports whether b is UTF-8, perhaps cut within its last rune, without NUL.
func isText(b []byte) bool {
	if bytes.IndexByte(b, 0) >= 0 {
		return false
	}
	if utf8.Valid(b) {
		return true
	}
	for cut := 1; cut < utf8.UTFMax && cut <= len(b) && len(b) >= HeadBytes; cut++ {
		if tail := b[len(b)-cut:]; utf8.RuneStart(tail[0]) {
			return !utf8.FullRune(tail) && utf8.Valid(b[:len(b)-cut])
		}
	}
	return false
}
