package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
)

// Doc is a parsed JSON document: its canonical bytes (RFC 8785) and its value. Neither is ever changed.
type Doc struct {
	Bytes []byte
	Value any // map[string]any, []any, string, float64, bool or nil
}

// Read reads a document that [Check] accepts.
func Read(data []byte) (Doc, error) { return read(data, MaxDocumentBytes, true) }

// ReadUpTo is Read for a document that may be longer or must be shorter than [MaxDocumentBytes].
func ReadUpTo(data []byte, limit int) (Doc, error) { return read(data, limit, true) }

func read(data []byte, limit int, twins bool) (Doc, error) {
	v, err := parse(data, limit, twins, true)
	if err != nil {
		return Doc{}, err
	}
	canonical, _ := appendCanonical(make([]byte, 0, len(data)), v, 0) // a document that was read can be written
	return Doc{canonical, v}, nil
}

// Of returns the document of a Go value. Unlike one from outside, it may have keys that differ only in case.
func Of(v any) (Doc, error) {
	raw, err := json.Marshal(v, json.FormatNilSliceAsNull(false), json.FormatNilMapAsNull(false))
	if err != nil {
		return Doc{}, fault.Wrap(fault.Internal, "", "cannot encode", err)
	}
	return read(raw, MaxDocumentBytes, false)
}

// With returns the document with another value of a member, which is a string; a document that is not an object is returned unchanged.
func (d Doc) With(name, value string) Doc {
	members, ok := d.Value.(map[string]any)
	if !ok {
		return d
	}
	members = maps.Clone(members)
	members[name] = value
	canonical, _ := appendCanonical(make([]byte, 0, len(d.Bytes)+len(name)+len(value)+4), members, 0) // as in [read]
	return Doc{canonical, members}
}

// Into decodes the document, which was checked before, refusing unknown fields and null for a string.
func (d Doc) Into(v any) error {
	if err := json.Unmarshal(d.Bytes, v, strict); err != nil {
		return semantic(err)
	}
	return nil
}

// Canonical returns the RFC 8785 bytes of a JSON document that [Check] accepts.
func Canonical(data []byte) ([]byte, error) {
	d, err := Read(data)
	return d.Bytes, err
}

// Marshal returns the RFC 8785 bytes of a Go value.
func Marshal(v any) ([]byte, error) {
	if m, ok := v.(map[string]any); ok { // most records are such maps: no encoder and no second pass
		if b, ok := appendCanonical(nil, m, 0); ok && len(b) <= MaxDocumentBytes {
			return b, nil
		}
	}
	d, err := Of(v)
	return d.Bytes, err
}

// appendCanonical appends a value with the types of [Doc], or integers. ok is false for everything else, and for
// values that [Check] would refuse.
func appendCanonical(b []byte, v any, depth int) (_ []byte, ok bool) {
	if depth > maxDepth {
		return b, false
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), true
	case bool:
		return strconv.AppendBool(b, v), true
	case string:
		b, err := jsontext.AppendQuote(b, v)
		return b, err == nil
	case float64:
		return appendFloat(b, v)
	case int:
		return appendFloat(b, float64(v))
	case int64:
		return appendFloat(b, float64(v))
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, ok = appendCanonical(b, item, depth+1); !ok {
				return b, false
			}
		}
		return append(b, ']'), true
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.SortFunc(names, compareUTF16)
		b = append(b, '{')
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			if b, ok = appendCanonical(b, name, depth); !ok {
				return b, false
			}
			if b, ok = appendCanonical(append(b, ':'), v[name], depth+1); !ok {
				return b, false
			}
		}
		return append(b, '}'), true
	}
	return b, false
}

func appendFloat(b []byte, f float64) ([]byte, bool) {
	switch {
	case !(math.Abs(f) <= maxSafeInteger):
		return b, false
	case f == math.Trunc(f):
		return strconv.AppendInt(b, int64(f), 10), true // -0 is 0
	}
	return append(b, jsontext.Float(f).String()...), true
}

// compareUTF16 orders names as in canonical JSON. The order is that of their bytes except where a rune beyond U+FFFF
// meets one from U+E000 on, whose first bytes are from 0xEE on: UTF-16 has the former as surrogates, which come
// before.
func compareUTF16(a, b string) int {
	for i := range min(len(a), len(b)) {
		if x, y := a[i], b[i]; x != y {
			if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
				x, y = y, x
			}
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
}
