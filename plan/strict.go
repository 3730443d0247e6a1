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

// Check reads one JSON document and refuses ambiguous ones: duplicate keys, keys that differ only in case, numbers a
// double cannot hold exactly as integers, lone surrogates, invalid UTF-8, deep nesting and trailing data (ABI-08). It
// returns a Validation fault naming the place.
func Check(data []byte) error {
	_, err := parse(data, MaxDocumentBytes, true, false)
	return err
}

// parse is [Check]; twins makes it refuse keys that differ only in case. Callers may not send them, but documents of
// the gateway itself can have them: the roles of a run from the time when a plan could name its outputs so. Their
// encoder has refused equal keys already. With keep it returns the value in the form of [Doc].
func parse(data []byte, limit int, twins, keep bool) (any, error) {
	if len(data) > limit {
		return nil, bad("JSON-SIZE", "", fmt.Sprintf("at most %d bytes", limit), fmt.Sprintf("the document has %d bytes", len(data)))
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(!twins)) // a Buffer is read in place
	var open []level
	for {
		tok, err := d.ReadToken()
		if err != nil {
			return nil, syntax(data, d, err)
		}
		var v any
		switch kind := tok.Kind(); kind {
		case '{', '[':
			open = append(open, newLevel(kind == '{', keep))
			if len(open) > maxDepth {
				return nil, here(data, d, fault.Problem{Code: "JSON-DEPTH", Rule: fmt.Sprintf("at most %d levels", maxDepth),
					Msg: "objects and arrays are nested too deep"})
			}
			continue
		case '}', ']':
			v = open[len(open)-1].value()
			open = open[:len(open)-1]
		case '"':
			if n := len(open); n > 0 && open[n-1].expectsKey() {
				if was, twin := open[n-1].add(tok.String(), twins); twin {
					return nil, here(data, d, fault.Problem{Code: "JSON-CASE-TWIN", Rule: "keys that differ in more than case",
						Msg:  fmt.Sprintf("the keys %s and %s differ only in case", quoted(was), quoted(tok.String())),
						Hint: "rename or remove one of them"})
				}
				continue
			}
			if keep {
				v = tok.String()
			}
		case '0':
			if v, err = number(tok.String()); err != nil {
				p := fault.ProblemsOf(err)[0]
				return nil, here(data, d, p)
			}
		case 't', 'f':
			v = kind == 't'
		}
		if n := len(open); n > 0 {
			open[n-1].put(v)
			continue
		}
		// One value; anything but white space after it is refused.
		end := d.InputOffset()
		if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
			return nil, placed(data, end, fault.Problem{Code: "JSON-TRAILING", Rule: "one JSON value and nothing after it",
				Msg: "text follows the end of the JSON value", Hint: "remove it"})
		}
		return v, nil
	}
}

// number reads a number that a double holds: exactly if it is an integer, and not as 0 if it is not 0.
func number(lit string) (float64, error) {
	if len(lit) <= 15 && strings.Trim(lit, "0123456789") == "" {
		n, err := strconv.Atoi(lit)
		return float64(n), err
	}
	f, err := strconv.ParseFloat(lit, 64)
	mantissa, _, _ := strings.Cut(strings.ToLower(lit), "e")
	switch {
	case err != nil, math.Abs(f) > maxSafeInteger:
		return 0, fault.Invalid("", fault.Problem{Code: "JSON-NUMBER", Rule: "numbers within ±(2^53-1)",
			Msg:  "the number " + clip(lit) + " is too large to be read exactly",
			Hint: "write a smaller number, or a string where the schema takes one"})
	case f == 0 && strings.ContainsAny(mantissa, "123456789"):
		return 0, fault.Invalid("", fault.Problem{Code: "JSON-NUMBER", Rule: "0, or a number that is not read as 0",
			Msg:  "the number " + clip(lit) + " is so close to 0 that it would become 0",
			Hint: "write 0, or a string where the schema takes one"})
	}
	return f, nil
}

// level is an open object or array. The decoder itself finds equal keys; those that differ only in case are found here.
type level struct {
	object, keep bool
	keyed        bool              // a key was read, and its value follows
	key          string            // the last key
	few          []string          // keys as written
	many         map[string]string // keys by their lower-case form, when there are more than a few
	members      map[string]any
	items        []any
}

const fewKeys = 8

func newLevel(object, keep bool) level {
	l := level{object: object, keep: keep}
	if keep && object {
		l.members = map[string]any{}
	}
	return l
}

func (l *level) expectsKey() bool { return l.object && !l.keyed }

// put adds the value of the last key, or the next item.
func (l *level) put(v any) {
	l.keyed = false
	switch {
	case !l.keep:
	case l.object:
		l.members[l.key] = v
	default:
		l.items = append(l.items, v)
	}
}

func (l *level) value() any {
	if l.object {
		return l.members
	}
	return l.items
}

// add records a key and returns the earlier key it is a twin of.
func (l *level) add(key string, twins bool) (twin string, found bool) {
	l.key, l.keyed = key, true
	if !twins {
		return "", false
	}
	low := strings.ToLower(key)
	if l.many == nil && len(l.few) < fewKeys {
		for _, was := range l.few {
			if was != key && strings.ToLower(was) == low {
				return was, true
			}
		}
		l.few = append(l.few, key)
		return "", false
	}
	if l.many == nil {
		l.many = map[string]string{}
		for _, was := range l.few {
			l.many[strings.ToLower(was)] = was
		}
	}
	if was, ok := l.many[low]; ok && was != key {
		return was, true
	}
	l.many[low] = key
	return "", false
}

// Decode checks data (see [Check]) and decodes it into v, refusing unknown fields and null for a string.
// Field names are matched exactly.
func Decode(data []byte, v any) error {
	if err := Check(data); err != nil {
		return err
	}
	return Doc{Bytes: data}.Into(v)
}

var strict = json.JoinOptions(json.RejectUnknownMembers(true), json.WithUnmarshalers(noNull))

// noNull refuses null where a string is expected: read as "" it would be an argument that was not written. Optional
// values are pointers, and null there stays nil.
var noNull = json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *string) error {
	if d.PeekKind() == 'n' {
		return errors.New("null is not a string")
	}
	return errors.ErrUnsupported // not null: decode as usual
})

// Dotted turns a JSON pointer into the spelling used in messages: /io/inputs/0/role → io.inputs[0].role.
func Dotted(ptr string) string {
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

func clip(s string) string { return fault.Clip(s) }

func bad(code, field, rule, msg string) *fault.Error {
	return fault.Invalid("", fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
}
