package app

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// ArgSchema is a node of a tool's input schema.
type ArgSchema struct {
	root  map[string]any
	value any // nil: the schema does not describe it
}

// SchemaOfArgs returns the node of all arguments. Its schema is empty if schema is not JSON.
func SchemaOfArgs(schema []byte) ArgSchema {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil {
		return ArgSchema{}
	}
	return ArgSchema{root, root}
}

// resolved returns the schema of the node, after following references.
func (n ArgSchema) resolved() map[string]any {
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

// Property returns the schema of a property; ok is false where the schema does not name it.
func (n ArgSchema) Property(name string) (p ArgSchema, ok bool) {
	s := n.resolved()
	properties, _ := s["properties"].(map[string]any)
	if v, ok := properties[name]; ok {
		return ArgSchema{n.root, v}, true
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		return ArgSchema{n.root, more}, true
	}
	return ArgSchema{}, false
}

// Names returns the properties that the schema names, sorted.
func (n ArgSchema) Names() []string {
	properties, _ := n.resolved()["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

// Closed reports whether the schema allows no other properties.
func (n ArgSchema) Closed() bool { return n.resolved()["additionalProperties"] == false }

// Items returns the schema of the elements of a list; ok is false where they may be anything.
func (n ArgSchema) Items() (element ArgSchema, ok bool) {
	for _, s := range append([]any{n.value}, n.branches()...) {
		if v, ok := (ArgSchema{n.root, s}).resolved()["items"]; ok {
			return ArgSchema{n.root, v}, true
		}
	}
	return ArgSchema{n.root, true}, false
}

// branches returns the schemas of which one must hold.
func (n ArgSchema) branches() []any {
	s := n.resolved()
	one, _ := s["oneOf"].([]any)
	anyOf, _ := s["anyOf"].([]any)
	return slices.Concat(one, anyOf)
}

// Types returns the types that the schema allows.
func (n ArgSchema) Types() []string {
	most := 1000
	return typesOf(n.root, n.value, &most)
}

// IsArtifact reports whether the schema requires the id of an artifact.
func (n ArgSchema) IsArtifact() bool {
	for _, s := range append([]any{n.value}, n.branches()...) {
		pattern, _ := (ArgSchema{n.root, s}).resolved()["pattern"].(string)
		if strings.HasPrefix(pattern, "^art_") || strings.HasPrefix(pattern, "^(art_") {
			return true
		}
	}
	return false
}

// Unsaid reports whether the schema does not describe the node.
func (n ArgSchema) Unsaid() bool { return n.value == nil }
