package cli

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// node is a place in a tool's input schema.
type node struct {
	root  map[string]any
	value any // nil: nothing is said of it
}

func rootOf(schema []byte) node {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil {
		return node{}
	}
	return node{root, root}
}

// resolved is the schema itself, where it is a reference to one.
func (n node) resolved() map[string]any {
	for range 100 {
		s, ok := n.value.(map[string]any)
		ref, isRef := s["$ref"].(string)
		if !ok || !isRef {
			return s
		}
		n.value = referred(n.root, ref)
	}
	return nil
}

// property is the schema of a property; ok is false where the schema does not name it.
func (n node) property(name string) (p node, ok bool) {
	s := n.resolved()
	properties, _ := s["properties"].(map[string]any)
	if v, ok := properties[name]; ok {
		return node{n.root, v}, true
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		return node{n.root, more}, true
	}
	return node{}, false
}

// names are the properties that the schema names, sorted.
func (n node) names() []string {
	properties, _ := n.resolved()["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

// closed reports whether the schema allows no other properties.
func (n node) closed() bool { return n.resolved()["additionalProperties"] == false }

// items is the schema of the elements of a list; ok is false where they may be anything.
func (n node) items() (element node, ok bool) {
	for _, s := range append([]any{n.value}, n.branches()...) {
		if v, ok := (node{n.root, s}).resolved()["items"]; ok {
			return node{n.root, v}, true
		}
	}
	return node{n.root, true}, false
}

// branches are the schemas of which one must hold.
func (n node) branches() []any {
	s := n.resolved()
	one, _ := s["oneOf"].([]any)
	anyOf, _ := s["anyOf"].([]any)
	return slices.Concat(one, anyOf)
}

// types are the types that the schema allows.
func (n node) types() []string {
	most := 1000
	return typesOf(n.root, n.value, &most)
}

// isArtifact reports whether the schema wants the id of an artifact.
func (n node) isArtifact() bool {
	for _, s := range append([]any{n.value}, n.branches()...) {
		pattern, _ := (node{n.root, s}).resolved()["pattern"].(string)
		if strings.HasPrefix(pattern, "^art_") || strings.HasPrefix(pattern, "^(art_") {
			return true
		}
	}
	return false
}
