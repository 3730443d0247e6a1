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
func Check(data []byte) error { return check(data, true) }

// check is [Check]; twins tells whether keys that differ only in case are refused. Nobody may send them, but what the gateway itself
// writes can hold them: the roles of a run from the time when a plan could name its outputs so.
func check(data []byte, twins bool) error {
	if len(data) > MaxDocumentBytes {
		return bad("JSON-SIZE", "", fmt.Sprintf("at most %d bytes", MaxDocumentBytes), fmt.Sprintf("the document has %d bytes", len(data)))
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data)) // a Buffer is read in place
	var open []keys                                 // one for each open object or array
	for {
		tok, err := d.ReadToken()
		if err != nil {
			return syntax(data, d, err)
		}
		switch tok.Kind() {
		case '{', '[':
			open = append(open, keys{object: tok.Kind() == '{'})
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			// A string at an odd position of an object is a key.
			if n := len(open); n > 0 && open[n-1].object {
				if _, length := d.StackIndex(d.StackDepth()); twins && length%2 == 1 {
					key := tok.String()
					if was, twin := open[n-1].add(key); twin {
						return here(data, d, fault.Problem{Code: "JSON-CASE-TWIN", Rule: "keys of one object differ in more than case",
							Msg: fmt.Sprintf("the keys %s and %s differ only in case", quoted(was), quoted(key)), Hint: "rename or remove one of them"})
					}
				}
			}
		case '0':
			if lit := tok.String(); !safeNumber(lit) {
				return here(data, d, fault.Problem{Code: "JSON-NUMBER", Rule: "numbers within ±(2^53-1)",
					Msg:  "the number " + clip(lit) + " is too large to be read exactly",
					Hint: "write a smaller number, or a string where the schema takes one"})
			} else if vanishes(lit) {
				return here(data, d, fault.Problem{Code: "JSON-NUMBER", Rule: "numbers other than 0 are not read as 0",
					Msg:  "the number " + clip(lit) + " is so close to 0 that it would become 0",
					Hint: "write 0, or a string where the schema takes one"})
			}
		}
		if len(open) > maxDepth {
			return here(data, d, fault.Problem{Code: "JSON-DEPTH", Rule: fmt.Sprintf("at most %d levels", maxDepth),
				Msg: "objects and arrays are nested too deep"})
		}
		if d.StackDepth() == 0 {
			// One value; anything but white space behind it is refused.
			end := d.InputOffset()
			if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
				return placed(data, end, fault.Problem{Code: "JSON-TRAILING", Rule: "one JSON value and nothing after it",
					Msg: "text follows the end of the JSON value", Hint: "remove it"})
			}
			return nil
		}
	}
}

// keys are the keys of an open object, to find those that differ only in case. The decoder itself finds equal ones.
type keys struct {
	object bool
	few    []string          // as they stand
	many   map[string]string // by their lower-case form, when there are more than a few
}

const fewKeys = 8

// add records a key and returns the earlier key it is a twin of.
func (k *keys) add(key string) (twin string, found bool) {
	low := strings.ToLower(key)
	if k.many == nil && len(k.few) < fewKeys {
		for _, was := range k.few {
			if was != key && strings.ToLower(was) == low {
				return was, true
			}
		}
		k.few = append(k.few, key)
		return "", false
	}
	if k.many == nil {
		k.many = map[string]string{}
		for _, was := range k.few {
			k.many[strings.ToLower(was)] = was
		}
	}
	if was, ok := k.many[low]; ok && was != key {
		return was, true
	}
	k.many[low] = key
	return "", false
}

// safeNumber reports whether a double can represent the number, exactly if it is an integer.
func safeNumber(lit string) bool {
	if len(lit) <= 15 && strings.Trim(lit, "0123456789") == "" {
		return true
	}
	f, err := strconv.ParseFloat(lit, 64)
	return err == nil && !math.IsInf(f, 0) && math.Abs(f) <= maxSafeInteger
}

// vanishes reports whether a number other than 0 is 0 as a double.
func vanishes(lit string) bool {
	mantissa, _, _ := strings.Cut(strings.ToLower(lit), "e")
	if !strings.ContainsAny(mantissa, "123456789") {
		return false
	}
	f, err := strconv.ParseFloat(lit, 64)
	return err == nil && f == 0
}

// Decode checks data (see [Check]) and decodes it into v, refusing unknown fields and null for a string.
// Field names are matched exactly.
func Decode(data []byte, v any) error {
	if err := Check(data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(true), json.WithUnmarshalers(noNull)); err != nil {
		return semantic(data, err)
	}
	return nil
}

// noNull refuses null where a string is expected: read as "" it would be an argument nobody wrote. What is
// optional is a pointer, and null there stays nil.
var noNull = json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *string) error {
	if d.PeekKind() == 'n' {
		return errors.New("null is not a string")
	}
	return errors.ErrUnsupported // not null: decode as usual
})

// Canonical returns the RFC 8785 bytes of a JSON document that [Check] accepts.
func Canonical(data []byte) ([]byte, error) { return canonical(data, true) }

func canonical(data []byte, twins bool) ([]byte, error) {
	if err := check(data, twins); err != nil {
		return nil, err
	}
	v := jsontext.Value(bytes.Clone(data))
	if err := v.Canonicalize(); err != nil {
		return nil, bad("JSON-SYNTAX", "", "canonical JSON (RFC 8785)", err.Error())
	}
	return v, nil
}

// Marshal returns the RFC 8785 bytes of a Go value. Unlike a document from outside, it may have keys that differ only in case.
func Marshal(v any) ([]byte, error) {
	if m, ok := v.(map[string]any); ok {
		if b, ok := flat(m); ok {
			return b, nil
		}
	}
	raw, err := json.Marshal(v, json.FormatNilSliceAsNull(false), json.FormatNilMapAsNull(false))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "plan.Marshal", "", "cannot encode", err)
	}
	return canonical(raw, false)
}

// dotted turns a JSON pointer into the spelling used in messages: /io/inputs/0/role → io.inputs[0].role.
func dotted(ptr string) string {
	if ptr == "" {
		return ""
	}
	var b strings.Builder
	for part := range strings.SplitSeq(ptr[1:], "/") {
		part = pointerEscapes.Replace(part)
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

var pointerEscapes = strings.NewReplacer("~1", "/", "~0", "~")

// clip makes foreign text safe and short enough for a message.
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
