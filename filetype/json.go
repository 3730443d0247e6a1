package filetype

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/transform"
)

// checkJSON reads one JSON value in UTF-8 (RFC 8259). It holds nothing of it, however long its strings and numbers are: decoders hold
// each of them whole. Names that appear twice in an object and halves of surrogate pairs are not noticed.
func checkJSON(r *bufio.Reader) error {
	j := jsonText{in: bufio.NewReaderSize(transform.NewReader(r, encoding.UTF8Validator), bufferSize)}
	err := j.value()
	switch {
	case errors.Is(err, encoding.ErrInvalidUTF8):
		return errors.New("it is not UTF-8")
	case err == io.EOF:
		return errors.New("it is cut short: the JSON value does not end")
	}
	return err
}

// maxJSONDepth is how deep arrays and objects may be nested; most readers have this bound or a lower one.
const maxJSONDepth = 10_000

type jsonText struct {
	in   *bufio.Reader
	at   int64  // bytes read
	open []byte // the ends of what is open, ] or }
}

// jsonWant is the expected next token.
type jsonWant int

const (
	wantValue jsonWant = iota
	wantValueOrEnd
	wantName
	wantNameOrEnd
	wantColon
	wantComma // or the end of what is open
)

// value reads one value, and white space to the end of the file. io.EOF means that the file ended too early.
func (j *jsonText) value() error {
	for want := wantValue; ; {
		c, err := j.token()
		if done := want == wantComma && len(j.open) == 0; done {
			switch err {
			case nil:
				return fmt.Errorf("byte %d does not belong there: a second value", j.at)
			case io.EOF:
				return nil
			}
		}
		if err != nil {
			return err
		}
		end := len(j.open) > 0 && c == j.open[len(j.open)-1]
		switch {
		case end && (want == wantValueOrEnd || want == wantNameOrEnd || want == wantComma):
			j.open = j.open[:len(j.open)-1]
			want = wantComma
		case want == wantComma && c == ',':
			if want = wantValue; j.open[len(j.open)-1] == '}' {
				want = wantName
			}
		case want == wantColon && c == ':':
			want = wantValue
		case (want == wantName || want == wantNameOrEnd) && c == '"':
			err = j.rest()
			want = wantColon
		case want != wantValue && want != wantValueOrEnd:
			return j.odd(c)
		case c == '{' || c == '[':
			if len(j.open) == maxJSONDepth {
				return fmt.Errorf("byte %d does not belong there: exceeded max depth of %d", j.at, maxJSONDepth)
			}
			j.open = append(j.open, c+2) // ASCII has the end two places after the beginning
			if want = wantValueOrEnd; c == '{' {
				want = wantNameOrEnd
			}
		default:
			err = j.scalar(c)
			want = wantComma
		}
		if err != nil {
			return err
		}
	}
}

func (j *jsonText) odd(c byte) error {
	return fmt.Errorf("byte %d does not belong there: invalid character %q", j.at, rune(c))
}

func (j *jsonText) byte() (byte, error) {
	c, err := j.in.ReadByte()
	if err == nil {
		j.at++
	}
	return c, err
}

// token returns the next byte that is not white space.
func (j *jsonText) token() (byte, error) {
	for {
		c, err := j.byte()
		if err != nil || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, err
		}
	}
}

// scalar reads what begins with c.
func (j *jsonText) scalar(c byte) error {
	switch {
	case c == '"':
		return j.rest()
	case c == '-' || '0' <= c && c <= '9':
		return j.number(c)
	}
	for _, word := range []string{"true", "false", "null"} {
		if word[0] == c {
			return j.word(word[1:])
		}
	}
	return j.odd(c)
}

func (j *jsonText) word(rest string) error {
	for i := range len(rest) {
		if c, err := j.byte(); err != nil || c != rest[i] {
			return j.unless(err, c)
		}
	}
	return nil
}

// unless returns an error of the reader, or that c is odd.
func (j *jsonText) unless(err error, c byte) error {
	if err != nil {
		return err
	}
	return j.odd(c)
}

// rest reads a string after its first quotation mark.
func (j *jsonText) rest() error {
	for {
		c, err := j.byte()
		switch {
		case err != nil || c < ' ':
			return j.unless(err, c)
		case c == '"':
			return nil
		case c != '\\':
			continue
		}
		c, err = j.byte()
		switch {
		case err != nil || !strings.ContainsRune(`"\/bfnrtu`, rune(c)):
			return j.unless(err, c)
		case c != 'u':
			continue
		}
		for range 4 {
			if c, err = j.byte(); err != nil || !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
				return j.unless(err, c)
			}
		}
	}
}

// number reads a number that begins with c, and leaves what follows it.
func (j *jsonText) number(c byte) (err error) {
	if c == '-' {
		if c, err = j.byte(); err != nil || c < '0' || c > '9' {
			return j.unless(err, c)
		}
	}
	if c != '0' {
		j.digits()
	}
	if j.has(".") {
		if err = j.someDigits(); err != nil {
			return err
		}
	}
	if j.has("eE") {
		j.has("+-")
		return j.someDigits()
	}
	return nil
}

// has reads the next byte if it is one of these.
func (j *jsonText) has(these string) bool {
	b, _ := j.in.Peek(1)
	if len(b) == 0 || !strings.ContainsRune(these, rune(b[0])) {
		return false
	}
	_, _ = j.byte()
	return true
}

func (j *jsonText) digits() {
	for {
		c, err := j.in.ReadByte()
		if err != nil {
			return
		}
		if c < '0' || c > '9' {
			_ = j.in.UnreadByte()
			return
		}
		j.at++
	}
}

func (j *jsonText) someDigits() error {
	if c, err := j.byte(); err != nil || c < '0' || c > '9' {
		return j.unless(err, c)
	}
	j.digits()
	return nil
}
