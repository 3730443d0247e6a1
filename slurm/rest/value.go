package rest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The methods of record read its values; each consumes exactly one. A value of the wrong type is skipped and makes the
// record odd; it concerns that record alone. Only an answer that is not JSON, or breaks off, is an error.

// maxValue bounds the memory for an answer, in bytes: one string and its buffer.
const maxValue = 1 << 20

// errLong reports a single string or number of more than maxValue bytes.
var errLong = errors.New("a value is longer than any of Slurm's")

// bounded is the source of a decoder. It fails before the decoder would buffer more than maxValue bytes.
type bounded struct {
	io.Reader
	read int64
	past func() int64 // bytes that the decoder has consumed
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.read-b.past() > maxValue {
		return 0, errLong
	}
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	return n, err
}

// newDecoder returns a decoder with bounded memory. The reader of an object must check for names that appear twice: a
// decoder that remembers all names would have no bound.
func newDecoder(r io.Reader) *jsontext.Decoder {
	b := &bounded{Reader: r}
	d := jsontext.NewDecoder(b, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	b.past = d.InputOffset
	return d
}

// record reads the values of one record and remembers what is wrong with it.
type record struct {
	*jsontext.Decoder
	name    []byte // of the member being read
	scratch []byte
	why     string // the first fault; empty: none
}

func (r *record) odd(format string, args ...any) {
	if r.why == "" {
		r.why = fmt.Sprintf(format, args...)
	}
}

// skipOdd skips a value of the wrong type and makes the record odd.
func (r *record) skipOdd(wanted string) error {
	r.odd("%s is no %s", r.name, wanted)
	return r.SkipValue()
}

// members calls f with the name of each member of an object. f must consume the member's value. Any other value is
// skipped and makes the record odd.
func (r *record) members(f func(name string) error) error {
	if r.PeekKind() != '{' {
		return r.skipOdd("object")
	}
	if err := expect(r.Decoder, '{'); err != nil {
		return err
	}
	for r.PeekKind() == '"' {
		name, err := r.key()
		if err == nil {
			err = f(name)
		}
		if err != nil {
			return err
		}
	}
	return expect(r.Decoder, '}')
}

// key reads the name of a member. It returns a name from names without an allocation, and "" for any other.
func (r *record) key() (string, error) {
	v, err := r.ReadValue()
	if err != nil {
		return "", err
	}
	if r.scratch, err = jsontext.AppendUnquote(r.scratch[:0], v); err != nil && len(r.scratch) == 0 {
		r.odd("a name cannot be read")
	}
	r.name = append(r.name[:0], r.scratch[:min(len(r.scratch), 40)]...)
	if known, ok := names[string(r.scratch)]; ok {
		return known, nil
	}
	return "", nil
}

// names lists the members that this package reads. All others are skipped and not stored.
var names = func() map[string]string {
	m := map[string]string{}
	for _, name := range strings.Fields(`job_id array_job_id array_task_id array_task_string job_state state_reason state_description restart_cnt
		nodes partition account time_limit exit_code current_working_directory working_directory submit_time start_time end_time cluster name user_name step_id sluid
		set infinite number return_code signal id array task_id task state current reason time submission start end elapsed total
		user seconds microseconds
		kill_request_user steps step tres requested allocated max type count`) {
		m[name] = name
	}
	return m
}()

// text reads a string and returns at most limit bytes of it. null is an empty string.
func (r *record) text(limit int) (text []byte, err error) {
	switch r.PeekKind() {
	case 'n':
		return nil, r.SkipValue()
	case '"':
		v, err := r.ReadValue()
		if err != nil {
			return nil, err
		}
		r.scratch, err = jsontext.AppendUnquote(r.scratch[:0], v)
		if err != nil && len(r.scratch) == 0 && len(v) > 2 { // invalid UTF-8 is replaced and returns an error
			r.odd("%s cannot be read", r.name)
		}
		return r.scratch[:min(len(r.scratch), limit)], nil
	}
	return nil, r.skipOdd("text")
}

// number is a number in a form of any version: plain, or an object with set, infinite and number. set is false for
// Slurm's NO_VAL numbers.
type number struct {
	n             int64
	set, infinite bool
}

// number reads a number.
func (r *record) number() (n number, err error) {
	switch r.PeekKind() {
	case 'n':
		return n, r.SkipValue()
	case '0':
		v, err := r.ReadValue()
		if err != nil {
			return n, err
		}
		whole, err := integer(string(v))
		if err != nil {
			r.odd("%s is no whole number", r.name)
			return n, nil
		}
		return plain(whole), nil
	case '{':
		return r.numberObject()
	}
	return n, r.skipOdd("number")
}

func (r *record) numberObject() (n number, err error) {
	var value number
	var seen [3]bool
	twice := func(i int) {
		if seen[i] {
			r.odd("a number has a member twice")
		}
		seen[i] = true
	}
	err = r.members(func(name string) error {
		switch name {
		case "set":
			twice(0)
			return r.flag(&n.set)
		case "infinite":
			twice(1)
			return r.flag(&n.infinite)
		case "number":
			twice(2)
			if r.PeekKind() == '{' {
				return r.skipOdd("number")
			}
			value, err = r.number()
			return err
		}
		return r.SkipValue()
	})
	if n.set && !seen[2] {
		r.odd("a number has no value")
	}
	return number{n: value.n, set: n.set && value.set, infinite: n.infinite || value.infinite}, err
}

// plain converts a plain number; NO_VAL, with or without a sign, and INFINITE have no value.
func plain(n int64) number {
	switch n {
	case 1<<32 - 2, -2:
		return number{}
	case 1<<32 - 1:
		return number{infinite: true}
	}
	return number{n: n, set: true}
}

func (r *record) flag(to *bool) error {
	switch kind := r.PeekKind(); kind {
	case 't', 'f':
		*to = kind == 't'
		return r.SkipValue()
	}
	return r.skipOdd("truth value")
}

// integer parses 12 and 12.0.
func integer(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, errors.New("no whole number")
	}
	return int64(f), nil
}

// elements calls f for each element of an array; f must consume it. null has no elements. Any other value is skipped
// and makes the record odd.
func (r *record) elements(f func() error) error {
	switch r.PeekKind() {
	case '[':
		return each(r.Decoder, func(*jsontext.Decoder) error { return f() })
	case 'n':
		return r.SkipValue()
	}
	return r.skipOdd("list")
}
