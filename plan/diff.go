package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Change is one place in which two JSON documents differ. A side without a value there is nil.
type Change struct {
	Path string          `json:"path"` // slurm.io.inputs[0].role; "" for the whole document
	A    json.RawMessage `json:"a"`
	B    json.RawMessage `json:"b"`
}

// Diff lists where two canonical documents differ, in order of their paths, at most limit places. Objects are
// compared by member and lists by position; for a value on one side only, the outermost one is listed.
func Diff(a, b json.RawMessage, limit int) ([]Change, error) {
	if !json.Valid(a) || !json.Valid(b) {
		return nil, errors.New("a document to compare is not JSON")
	}
	d := differ{limit: limit}
	d.compare("", a, b)
	return d.found, nil
}

type differ struct {
	found []Change
	limit int
}

func (d *differ) compare(path string, a, b json.RawMessage) {
	if len(d.found) >= d.limit || bytes.Equal(a, b) {
		return
	}
	var x, y map[string]json.RawMessage
	var l, m []json.RawMessage
	switch {
	case both(a, b, &x, &y) && x != nil && y != nil:
		names := maps.Clone(x)
		maps.Copy(names, y)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			d.compare(strings.TrimPrefix(path+"."+name, "."), x[name], y[name])
		}
	case both(a, b, &l, &m) && l != nil && m != nil:
		n := max(len(l), len(m))
		l, m = append(l, make([]json.RawMessage, n-len(l))...), append(m, make([]json.RawMessage, n-len(m))...)
		for i := range l {
			d.compare(fmt.Sprintf("%s[%d]", path, i), l[i], m[i])
		}
	default:
		d.found = append(d.found, Change{path, a, b})
	}
}

// both decodes two values of one kind; false where either is of another kind, or absent.
func both(a, b json.RawMessage, x, y any) bool {
	return json.Unmarshal(a, x) == nil && json.Unmarshal(b, y) == nil
}
