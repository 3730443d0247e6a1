package toolpack

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// bundle puts a schema and all files it refers to into one document: the files become $defs, and references point there.
// So clients get a self-contained schema, and it is the one that is enforced.
func (s *schemaFiles) bundle(root *schemaDoc) map[string]any {
	// A schema that is only a reference is replaced by its target.
	doc, ptr, tree := root, "", root.tree
	for range 64 {
		o, ok := tree.(map[string]any)
		ref, isRef := o["$ref"].(string)
		if !ok || !isRef || len(o) > 1 {
			break
		}
		doc, ptr, _ = s.resolve(doc, ref)
		tree, _ = at(doc.tree, ptr)
	}
	b := bundler{files: s, names: map[*schemaDoc]string{}, used: map[string]bool{}}
	if ptr == "" {
		b.root = doc
	}
	top, ok := tree.(map[string]any)
	if !ok {
		return map[string]any{"allOf": []any{tree}}
	}
	if own, ok := top["$defs"].(map[string]any); ok {
		for k := range own {
			b.used[k] = true
		}
	}
	out := b.rewrite(top, doc).(map[string]any)
	defs := map[string]any{}
	if own, ok := out["$defs"].(map[string]any); ok {
		maps.Copy(defs, own)
	}
	for i := 0; i < len(b.queue); i++ {
		d := b.queue[i]
		defs[b.names[d]] = b.rewrite(d.tree, d)
	}
	if len(defs) > 0 {
		out["$defs"] = defs
	}
	return out
}

type bundler struct {
	files *schemaFiles
	root  *schemaDoc // the document that is the bundle's root; nil when the root is a part of one
	names map[*schemaDoc]string
	used  map[string]bool
	queue []*schemaDoc
}

var notWord = regexp.MustCompile(`[^A-Za-z0-9]+`)

// rewrite copies a schema of d and turns its references into pointers within the bundle.
func (b *bundler) rewrite(tree any, d *schemaDoc) any {
	out := copied(tree)
	visit(out, "", func(o map[string]any, _ string) {
		delete(o, "$schema")
		delete(o, "$id")
		ref, ok := o["$ref"].(string)
		if !ok {
			return
		}
		to, ptr, _ := b.files.resolve(d, ref)
		if o["$ref"] = "#" + ptr; to != b.root {
			o["$ref"] = "#/$defs/" + b.name(to) + ptr
		}
	})
	return out
}

func (b *bundler) name(d *schemaDoc) string {
	if n, ok := b.names[d]; ok {
		return n
	}
	base := strings.Trim(notWord.ReplaceAllString(strings.TrimSuffix(d.rel, ".json"), "_"), "_")
	n := base
	for i := 2; b.used[n]; i++ {
		n = fmt.Sprintf("%s_%d", base, i)
	}
	b.used[n], b.names[d] = true, n
	b.queue = append(b.queue, d)
	return n
}

// at follows a JSON pointer.
func at(tree any, ptr string) (any, bool) {
	if ptr == "" {
		return tree, true
	}
	for part := range strings.SplitSeq(ptr[1:], "/") {
		part = pointerUnescape.Replace(part)
		switch t := tree.(type) {
		case map[string]any:
			next, ok := t[part]
			if !ok {
				return nil, false
			}
			tree = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(t) {
				return nil, false
			}
			tree = t[i]
		default:
			return nil, false
		}
	}
	return tree, true
}

var (
	pointerEscape   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")
)

func escape(s string) string { return pointerEscape.Replace(s) }
