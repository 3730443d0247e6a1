package mcp

import (
	"bytes"
	"encoding/json"
)

// maxID bounds the id of a request, in bytes.
const maxID = 128

// idFinder scans a JSON object of any length, without storing it, for the value of its member "id": a request that is too long is answered
// with that id, because clients wait for their own id, and many write it last.
type idFinder struct {
	depth             int
	inString, escaped bool
	value             bool   // what follows the colon
	name, part        []byte // of the current member, at the object's own level
	id                []byte
}

func (f *idFinder) read(p []byte) {
	for _, c := range p {
		switch {
		case f.inString:
			f.keep(c)
			switch {
			case f.escaped:
				f.escaped = false
			case c == '\\':
				f.escaped = true
			case c == '"':
				f.inString = false
			}
		case c == '"':
			f.inString = true
			f.keep(c)
		case c == '{' || c == '[':
			f.keep(c) // makes it an invalid id
			f.depth++
		case c == '}' || c == ']':
			if f.depth == 1 {
				f.end()
			}
			f.depth--
		case c == ',' && f.depth == 1:
			f.end()
		case c == ':' && f.depth == 1:
			f.value, f.name, f.part = true, f.part, nil
		case bytes.IndexByte([]byte(" \t\r\n"), c) < 0:
			f.keep(c)
		}
	}
}

func (f *idFinder) keep(c byte) {
	if f.depth == 1 && len(f.part) <= maxID {
		f.part = append(f.part, c)
	}
}

func (f *idFinder) end() {
	if f.value && string(f.name) == `"id"` {
		f.id = f.part
	}
	f.value, f.name, f.part = false, nil, nil
}

// found is the id, as a request may have it; null when there is none.
func (f *idFinder) found() json.RawMessage {
	if len(f.id) > 0 && len(f.id) <= maxID && json.Valid(f.id) && isID(f.id) {
		return f.id
	}
	return json.RawMessage("null")
}
