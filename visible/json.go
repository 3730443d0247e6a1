package visible

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns the same JSON document with its hidden characters as \u escapes: programs read the exact text from it,
// and a terminal shows nothing that is hidden. doc is valid JSON.
func JSON(doc []byte) []byte {
	i := firstHidden(doc)
	if i == len(doc) {
		return doc
	}
	out := append(make([]byte, 0, len(doc)+64), doc[:i]...)
	for i < len(doc) {
		r, n := utf8.DecodeRune(doc[i:])
		switch {
		case r < ' ' || !Hidden(r): // JSON has control characters only between values, as white space
			out = append(out, doc[i:i+n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = escape(escape(out, high), low)
		default:
			out = escape(out, r)
		}
		i += n
	}
	return out
}

func firstHidden(doc []byte) int {
	for i := 0; i < len(doc); {
		r, n := rune(doc[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(doc[i:])
		}
		if r >= ' ' && Hidden(r) {
			return i
		}
		i += n
	}
	return len(doc)
}

func escape(out []byte, r rune) []byte {
	return append(out, `\u`+strconv.FormatInt(0x10000+int64(r), 16)[1:]...)
}

// Strings returns a JSON document whose texts are as [Text] shows them: for readers of the texts, not for programs
// that need the exact ones. An invalid document is returned unchanged.
func Strings(doc []byte) []byte {
	if firstHidden(doc) == len(doc) && bytes.IndexByte(doc, '\\') < 0 {
		return doc
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return doc
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(shown(v)) != nil {
		return doc
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func shown(v any) any {
	switch v := v.(type) {
	case string:
		return Text(v)
	case []any:
		for i := range v {
			v[i] = shown(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[Text(name)] = shown(item)
		}
		return out
	}
	return v
}
