package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
)

// Limits of any JSON document read here.
const (
	MaxDocumentBytes = 1 << 20 // a plan or an argument object
	maxDepth         = 64
	maxSafeInteger   = 1<<53 - 1 // RFC 8785 section 3.2.2.3, I-JSON (RFC 7493 section 2.2)
)

// Check reads one JSON document and refuses what has no single meaning: duplicate keys, keys that differ
// only in case, numbers a double cannot hold exactly as integers, lone surrogates, invalid UTF-8, deep
// nesting and trailing data (ABI-08). It returns a Validation fault naming the place.
func Check(data []byte) error {
	if len(data) > MaxDocumentBytes {
		return bad("JSON-SIZE", "", fmt.Sprintf("at most %d bytes", MaxDocumentBytes), fmt.Sprintf("the document has %d bytes", len(data)))
	}
	d := jsontext.NewDecoder(bytes.NewReader(data))
	var folded []map[string]string // one set of lower-cased keys for each open object; nil for an array
	for {
		tok, err := d.ReadToken()
		if err != nil {
			return syntax(d, err)
		}
		switch tok.Kind() {
		case '{':
			folded = append(folded, map[string]string{})
		case '[':
			folded = append(folded, nil)
		case '}', ']':
			folded = folded[:len(folded)-1]
		case '"':
			// A string at an odd position of an object is a key.
			if n := len(folded); n > 0 && folded[n-1] != nil {
				if _, length := d.StackIndex(d.StackDepth()); length%2 == 1 {
					key := tok.String()
					low := strings.ToLower(key)
					if was, dup := folded[n-1][low]; dup && was != key {
						return bad("JSON-CASE-TWIN", pointer(d), "keys of one object differ in more than case", fmt.Sprintf("%q and %q", was, key))
					}
					folded[n-1][low] = key
				}
			}
		case '0':
			if err := checkNumber(tok.String(), pointer(d)); err != nil {
				return err
			}
		}
		if len(folded) > maxDepth {
			return bad("JSON-DEPTH", pointer(d), fmt.Sprintf("at most %d levels", maxDepth), "nested deeper")
		}
		if d.StackDepth() == 0 {
			// One value; anything but white space behind it is refused.
			if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
				return bad("JSON-TRAILING", "", "one JSON value and nothing behind it", "there is data after the value")
			}
			return nil
		}
	}
}

func checkNumber(lit, at string) error {
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil || math.IsInf(f, 0) || math.Abs(f) > maxSafeInteger {
		return bad("JSON-NUMBER", at, "numbers within ±(2^53-1)", "got "+clip(lit))
	}
	return nil
}

// Decode checks data (see [Check]) and decodes it into v, refusing unknown fields and null for a string.
// Field names are matched exactly.
func Decode(data []byte, v any) error {
	if err := Check(data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(true), json.WithUnmarshalers(noNull)); err != nil {
		var sem *json.SemanticError
		if errors.As(err, &sem) {
			at := dotted(string(sem.JSONPointer))
			if errors.Is(err, json.ErrUnknownName) {
				return bad("JSON-UNKNOWN-FIELD", at, "only the fields of the schema", "unknown field")
			}
			want := "the schema's type"
			if sem.GoType != nil {
				want = goKind(sem.GoType.Kind().String())
			}
			return bad("JSON-TYPE", at, want, "wrong type or value")
		}
		return bad("JSON-TYPE", "", "the schema's types", err.Error())
	}
	return nil
}

// noNull refuses null where a string is wanted: read as "" it would be an argument nobody wrote. What is
// optional is a pointer, and null there stays nil.
var noNull = json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *string) error {
	if d.PeekKind() == 'n' {
		return errors.New("null is not a string")
	}
	return errors.ErrUnsupported // not null: decode as usual
})

func goKind(k string) string {
	switch {
	case strings.HasPrefix(k, "int"), strings.HasPrefix(k, "uint"):
		return "an integer"
	case k == "bool":
		return "true or false"
	case k == "string":
		return "a string"
	case k == "slice":
		return "an array"
	}
	return "an object"
}

// Canonical gives the RFC 8785 bytes of a JSON document that [Check] accepts.
func Canonical(data []byte) ([]byte, error) {
	if err := Check(data); err != nil {
		return nil, err
	}
	v := jsontext.Value(bytes.Clone(data))
	if err := v.Canonicalize(); err != nil {
		return nil, bad("JSON-SYNTAX", "", "canonical JSON (RFC 8785)", err.Error())
	}
	return v, nil
}

// Marshal gives the RFC 8785 bytes of a Go value.
func Marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v, json.FormatNilSliceAsNull(false), json.FormatNilMapAsNull(false))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "plan.Marshal", "", "cannot encode", err)
	}
	return Canonical(raw)
}

func syntax(d *jsontext.Decoder, err error) error {
	rule, code := "valid JSON", "JSON-SYNTAX"
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		rule, code = "each key once", "JSON-DUPLICATE-KEY"
	case strings.Contains(err.Error(), "UTF-8"), strings.Contains(err.Error(), "surrogate"):
		rule, code = "valid UTF-8 without lone surrogates", "JSON-UNICODE"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return bad(code, pointer(d), rule, fmt.Sprintf("the document ends at byte %d", d.InputOffset()))
	}
	return bad(code, pointer(d), rule, fmt.Sprintf("not so near byte %d", d.InputOffset()))
}

func pointer(d *jsontext.Decoder) string { return dotted(string(d.StackPointer())) }

// dotted turns a JSON pointer into the spelling used in messages: /io/inputs/0/role → io.inputs[0].role.
func dotted(ptr string) string {
	if ptr == "" {
		return ""
	}
	var b strings.Builder
	for part := range strings.SplitSeq(ptr[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if _, err := strconv.Atoi(part); err == nil && b.Len() > 0 {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(clip(part))
	}
	return b.String()
}

// clip makes a foreign text safe and short enough to stand in a message.
func clip(s string) string {
	q := strconv.QuoteToGraphic(s)
	q = q[1 : len(q)-1]
	if len(q) > 80 {
		q = strings.ToValidUTF8(q[:77], "") + "..."
	}
	return q
}

func bad(code, field, rule, msg string) *fault.Error {
	return fault.Invalid("plan.Decode", "", fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
}
