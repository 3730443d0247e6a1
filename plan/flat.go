package plan

import (
	"slices"
	"strconv"
	"strings"
)

// flat gives the canonical bytes of an object whose members are plain words, whole numbers, truth values and null. Most of what is
// recorded is such an object, and needs no encoder and no second look. ok is false for everything else.
func flat(m map[string]any) (canonical []byte, ok bool) {
	names := make([]string, 0, len(m))
	size := 2
	for name, v := range m {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" { // no upper case, so no two differ only in case
			return nil, false
		}
		names = append(names, name)
		size += len(name) + 24
		if s, ok := v.(string); ok {
			size += len(s)
		}
	}
	slices.Sort(names)
	b := append(make([]byte, 0, size), '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), '"', ':')
		switch v := m[name].(type) {
		case nil:
			b = append(b, "null"...)
		case bool:
			b = strconv.AppendBool(b, v)
		case string:
			if !plain(v) {
				return nil, false
			}
			b = append(append(append(b, '"'), v...), '"')
		case int:
			if b, ok = appendWhole(b, int64(v)); !ok {
				return nil, false
			}
		case int64:
			if b, ok = appendWhole(b, v); !ok {
				return nil, false
			}
		default:
			return nil, false
		}
	}
	return append(b, '}'), true
}

// plain reports whether a string needs no escaping in JSON.
func plain(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._:;,/()=+-") == ""
}

func appendWhole(b []byte, n int64) ([]byte, bool) {
	const most = 1<<53 - 1
	return strconv.AppendInt(b, n, 10), -most <= n && n <= most
}
