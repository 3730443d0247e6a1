package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Change is one place in which two JSON documents differ. A side that has nothing there is nil.
type Change struct {
	Path string          `json:"path"` // slurm.io.inputs[0].role; "" for the whole document
	A    json.RawMessage `json:"a"`
	B    json.RawMessage `json:"b"`
}

// Diff lists where two documents differ, in order of their paths, at most limit places. Objects are compared by member and
// lists by position; of what only one side has, the outermost value is listed.
func Diff(a, b json.RawMessage, limit int) ([]Change, error) {
	d := differ{limit: limit}
	x, err := d.read(a)
	if err != nil {
		return nil, err
	}
	y, err := d.read(b)
	if err != nil {
		return nil, err
	}
	d.compare("", x, y)
	return d.found, d.err
}

type differ struct {
	found []Change
	limit int
	err   error
}

// read keeps numbers as they are written.
func (d *differ) read(doc json.RawMessage) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// nothing is what a side has where it has no member.
type nothing struct{}

func (d *differ) compare(path string, a, b any) {
	if len(d.found) >= d.limit {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			names := map[string]bool{}
			for _, m := range []map[string]any{x, y} {
				for name := range m {
					names[name] = true
				}
			}
			for _, name := range slices.Sorted(maps.Keys(names)) {
				d.compare(join(path, name), member(x, name), member(y, name))
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			for i := range max(len(x), len(y)) {
				d.compare(fmt.Sprintf("%s[%d]", path, i), element(x, i), element(y, i))
			}
			return
		}
	default:
		if a == b {
			return
		}
	}
	c := Change{Path: path}
	c.A, c.B = d.text(a), d.text(b)
	d.found = append(d.found, c)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func member(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return nothing{}
}

func element(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nothing{}
}

func (d *differ) text(v any) json.RawMessage {
	if _, none := v.(nothing); none {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		d.err = err
	}
	return b
}
