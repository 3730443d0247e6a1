package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Other systems read any YAML; the files of a domain have none of its shorthand. So it is written out: aliases, merge keys and anchors go.

const maxNodes = 100_000 // of a document when it is written out

// readYAML reads one YAML or JSON mapping and writes its shorthand out.
func readYAML(data []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it is no mapping")
	}
	left := maxNodes
	return writtenOut(doc.Content[0], 0, &left)
}

func writtenOut(n *yaml.Node, depth int, left *int) (*yaml.Node, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
		depth++
		if depth > 200 {
			break
		}
	}
	if *left--; *left < 0 || depth > 200 {
		return nil, errors.New("it is too large or too deep when its aliases are written out")
	}
	out := *n
	out.Anchor, out.Alias, out.Content = "", nil, nil
	if n.Kind != yaml.MappingNode {
		for _, c := range n.Content {
			c, err := writtenOut(c, depth+1, left)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, c)
		}
		return &out, nil
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		v, err := writtenOut(n.Content[i+1], depth+1, left)
		if err != nil {
			return nil, err
		}
		k := *n.Content[i]
		k.Anchor = ""
		switch {
		case k.ShortTag() != "!!merge":
			out.Content = append(out.Content, &k, v)
		case v.Kind == yaml.SequenceNode:
			merged = append(merged, v.Content...)
		default:
			merged = append(merged, v)
		}
	}
	for _, m := range merged {
		for i := 0; m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
			if value(&out, m.Content[i].Value) == nil {
				out.Content = append(out.Content, m.Content[i], m.Content[i+1])
			}
		}
	}
	return &out, nil
}

func writeYAML(n *yaml.Node) []byte {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil // of no tree that was read
	}
	return b.Bytes()
}

func writeJSON(n *yaml.Node) []byte {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil
	}
	return append(data, '\n')
}

// value returns the value of a key of a mapping; nil without one.
func value(m *yaml.Node, key string) *yaml.Node {
	for i := 0; m != nil && m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

// walk calls f for every mapping of a tree.
func walk(n *yaml.Node, f func(m *yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind == yaml.MappingNode {
		f(n)
	}
	for _, c := range n.Content {
		walk(c, f)
	}
}

// fields is a mapping of a file that is being converted.
type fields struct {
	c    *conversion
	file string
	path string // of the mapping, with a dot behind it
	m    *yaml.Node
}

func (f fields) get(key string) *yaml.Node { return value(f.m, key) }

func (f fields) text(key string) string {
	if n := f.get(key); n != nil {
		return n.Value
	}
	return ""
}

// under returns the mapping of a key; nil for any other value.
func (f fields) under(key string) *fields {
	if n := f.get(key); n != nil && n.Kind == yaml.MappingNode {
		return &fields{f.c, f.file, f.path + key + ".", n}
	}
	return nil
}

func (f fields) kept(key, text string)    { f.c.keep(f.file, f.path+key, text) }
func (f fields) changed(key, text string) { f.c.change(f.file, f.path+key, text) }

func (f fields) set(key, text string) {
	f.m.Content = append(f.m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
		&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
}

// remove takes a field out and notes the reason.
func (f fields) remove(key, why string) {
	for i := 0; i+1 < len(f.m.Content); i += 2 {
		if f.m.Content[i].Value == key {
			f.m.Content = slices.Delete(f.m.Content, i, i+2)
			f.changed(key, "removed: "+why)
			return
		}
	}
}

// renamed changes fields to their current names, unless those exist.
func (f fields) renamed(names map[string]string) {
	for i := 0; i+1 < len(f.m.Content); i += 2 {
		key := f.m.Content[i]
		if now, old := names[key.Value]; old && f.get(now) == nil {
			f.changed(key.Value, "is "+now)
			key.Value = now
		}
	}
}

// only removes the fields that are not listed.
func (f fields) only(known []string, why string) {
	for i := 0; i+1 < len(f.m.Content); {
		if key := f.m.Content[i].Value; !slices.Contains(known, key) {
			f.remove(key, why)
			continue
		}
		i += 2
	}
}
