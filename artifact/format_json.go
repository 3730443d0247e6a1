package artifact

import (
	"errors"
	"fmt"
)

// jsonWalk reads one JSON value (RFC 8259) byte by byte. It keeps nothing but the open brackets, so a file of any size is checked in
// bounded memory; strings must be UTF-8. Names that appear twice in an object are not noticed.
type jsonWalk struct {
	at    int64
	state jsonState
	open  []byte // the brackets that are open: { or [
	word  string // the rest of true, false or null
	hex   int    // hexadecimal digits still to come
	more  int    // continuation bytes still to come, the next from low to high
	low   byte
	high  byte
	name  bool // the string is a member's name
}

const maxJSONDepth = 10_000

type jsonState uint8

const (
	jsonValue  jsonState = iota // a value
	jsonFirst                   // a value, or ]
	jsonMember                  // a name, or }
	jsonName                    // a name
	jsonColon
	jsonNext // , or the closing bracket
	jsonDone
	jsonString
	jsonEscape
	jsonHex
	jsonWord
	jsonMinus // a digit
	jsonZero  // no further digit
	jsonInt
	jsonDot // a digit
	jsonFraction
	jsonE    // a sign or a digit
	jsonSign // a digit
	jsonExponent
)

var errJSON = errors.New("unexpected")

func (w *jsonWalk) write(p []byte) error {
	for i := 0; i < len(p); i++ {
		c := p[i]
		if w.state == jsonString && w.more == 0 && c >= ' ' && c < 0x80 && c != '"' && c != '\\' {
			continue
		}
		if err := w.byte(c); err != nil {
			if err == errJSON {
				err = fmt.Errorf("byte %d does not belong there: %q", w.at+int64(i)+1, string(rune(c)))
				if c >= 0x80 {
					err = fmt.Errorf("byte %d is not UTF-8, or not in a string", w.at+int64(i)+1)
				}
			}
			return err
		}
	}
	w.at += int64(len(p))
	return nil
}

func (w *jsonWalk) end() error {
	w.number()
	if w.state == jsonDone {
		return nil
	}
	if w.at == 0 {
		return errors.New("it is empty")
	}
	return errors.New("it is cut short: the JSON value does not end")
}

// number ends a number that needs no further digit.
func (w *jsonWalk) number() {
	switch w.state {
	case jsonZero, jsonInt, jsonFraction, jsonExponent:
		w.after()
	}
}

// after is the state behind a value.
func (w *jsonWalk) after() {
	if w.state = jsonNext; len(w.open) == 0 {
		w.state = jsonDone
	}
}

func (w *jsonWalk) byte(c byte) error {
	switch w.state {
	case jsonString:
		return w.text(c)
	case jsonEscape:
		return w.escape(c)
	case jsonHex:
		return w.digit16(c)
	case jsonWord:
		if c != w.word[0] {
			return errJSON
		}
		if w.word = w.word[1:]; w.word == "" {
			w.after()
		}
		return nil
	}
	if w.state >= jsonMinus {
		if taken := w.digit(c); taken {
			return nil
		}
		w.number()
	}
	if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
		if w.state >= jsonMinus {
			return errJSON // it needs a digit
		}
		return nil
	}
	return w.token(c)
}

// token takes a byte between strings, words and numbers.
func (w *jsonWalk) token(c byte) error {
	switch w.state {
	case jsonValue, jsonFirst:
		if c == ']' && w.state == jsonFirst {
			return w.close()
		}
		return w.value(c)
	case jsonMember, jsonName:
		switch {
		case c == '"':
			w.state, w.name = jsonString, true
			return nil
		case c == '}' && w.state == jsonMember:
			return w.close()
		}
	case jsonColon:
		if c == ':' {
			w.state = jsonValue
			return nil
		}
	case jsonNext:
		inObject := w.open[len(w.open)-1] == '{'
		switch {
		case c == ',' && inObject:
			w.state = jsonName
			return nil
		case c == ',':
			w.state = jsonValue
			return nil
		case c == '}' && inObject, c == ']' && !inObject:
			return w.close()
		}
	}
	return errJSON
}

func (w *jsonWalk) close() error {
	w.open = w.open[:len(w.open)-1]
	w.after()
	return nil
}

func (w *jsonWalk) value(c byte) error {
	switch {
	case c == '{' || c == '[':
		if len(w.open) == maxJSONDepth {
			return fmt.Errorf("it is nested deeper than %d levels", maxJSONDepth)
		}
		w.open = append(w.open, c)
		if w.state = jsonFirst; c == '{' {
			w.state = jsonMember
		}
	case c == '"':
		w.state, w.name = jsonString, false
	case c == '-':
		w.state = jsonMinus
	case c == '0':
		w.state = jsonZero
	case '1' <= c && c <= '9':
		w.state = jsonInt
	case c == 't':
		w.state, w.word = jsonWord, "rue"
	case c == 'f':
		w.state, w.word = jsonWord, "alse"
	case c == 'n':
		w.state, w.word = jsonWord, "ull"
	default:
		return errJSON
	}
	return nil
}

// digit takes a byte of a number; false when the number has none such here.
func (w *jsonWalk) digit(c byte) bool {
	isDigit := '0' <= c && c <= '9'
	switch s := w.state; {
	case s == jsonMinus && c == '0':
		w.state = jsonZero
	case s == jsonMinus && isDigit:
		w.state = jsonInt
	case isDigit && (s == jsonInt || s == jsonFraction || s == jsonExponent):
	case isDigit && s == jsonDot:
		w.state = jsonFraction
	case isDigit && (s == jsonE || s == jsonSign):
		w.state = jsonExponent
	case c == '.' && (s == jsonZero || s == jsonInt):
		w.state = jsonDot
	case (c == 'e' || c == 'E') && (s == jsonZero || s == jsonInt || s == jsonFraction):
		w.state = jsonE
	case (c == '+' || c == '-') && s == jsonE:
		w.state = jsonSign
	default:
		return false
	}
	return true
}

func (w *jsonWalk) escape(c byte) error {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		w.state = jsonString
	case 'u':
		w.state, w.hex = jsonHex, 4
	default:
		return errJSON
	}
	return nil
}

func (w *jsonWalk) digit16(c byte) error {
	if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
		return errJSON
	}
	if w.hex--; w.hex == 0 {
		w.state = jsonString
	}
	return nil
}

// text takes a byte of a string (Unicode 15, table 3-7).
func (w *jsonWalk) text(c byte) error {
	if w.more > 0 {
		if c < w.low || c > w.high {
			return errJSON
		}
		w.more--
		w.low, w.high = 0x80, 0xbf
		return nil
	}
	w.low, w.high = 0x80, 0xbf
	switch {
	case c == '"':
		if w.state = jsonColon; !w.name {
			w.after()
		}
	case c == '\\':
		w.state = jsonEscape
	case c < ' ':
		return errJSON
	case c < 0x80:
	case 0xc2 <= c && c <= 0xdf:
		w.more = 1
	case 0xe0 <= c && c <= 0xef:
		w.more = 2
		if c == 0xe0 {
			w.low = 0xa0
		} else if c == 0xed {
			w.high = 0x9f
		}
	case 0xf0 <= c && c <= 0xf4:
		w.more = 3
		if c == 0xf0 {
			w.low = 0x90
		} else if c == 0xf4 {
			w.high = 0x8f
		}
	default:
		return errJSON
	}
	return nil
}
