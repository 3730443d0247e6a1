package toolpack

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// schemaFiles reads the schema files of one domain, each once, and checks them.
type schemaFiles struct {
	fsys fs.FS
	base string // how messages name the domain's folder
	docs map[string]*schemaDoc
}

// schemaDoc is a schema document: a file, or the part of a toolpack that is a schema.
type schemaDoc struct {
	rel      string          // path of the file it is in
	raw      []byte          // nil for a part of a toolpack
	pack     *draft          // nil for a file
	yaml     *yamldoc.Reader // of a YAML file
	field    string          // in the toolpack
	tree     any
	problems []fault.Problem
}

// file reads a schema file. A file that cannot be used has problems and no tree.
func (s *schemaFiles) file(rel string) *schemaDoc {
	if d, ok := s.docs[rel]; ok {
		return d
	}
	d := &schemaDoc{rel: rel}
	s.docs[rel] = d
	raw, msg := readFile(s.fsys, rel)
	if msg != "" {
		return nil
	}
	d.raw = raw
	if ext := path.Ext(rel); ext == ".yaml" || ext == ".yml" {
		d.yaml = &yamldoc.Reader{File: s.name(rel), Prefix: "PACK-SCHEMA", Case: yamldoc.Camel}
		tree := d.yaml.Parse(raw).JSON()
		if d.problems = d.yaml.Problems(); len(d.problems) == 0 {
			d.tree = tree
			d.problems = s.check(d)
		}
		return d
	}
	if err := plan.Check(raw); err != nil {
		for _, p := range fault.ProblemsOf(plan.InFile(err, s.name(rel), raw)) {
			p.Code = "PACK-SCHEMA-JSON"
			d.problems = append(d.problems, p)
		}
		return d
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		d.problems = append(d.problems,
			fault.Problem{Code: "PACK-SCHEMA-JSON", Rule: "valid JSON", Msg: clip(err.Error()), File: s.name(rel), Line: 1})
		return d
	}
	d.tree = tree
	d.problems = append(d.problems, s.check(d)...)
	return d
}

// name returns the name of a file for messages; characters that are unfit for a terminal are escaped.
func (s *schemaFiles) name(rel string) string {
	if strings.ContainsFunc(rel, func(c rune) bool { return !unicode.IsPrint(c) }) || !utf8.ValidString(rel) {
		rel = clip(rel)
	}
	return path.Join(s.base, rel)
}

// problem makes a problem at a place of the document.
func (s *schemaFiles) problem(d *schemaDoc, code, ptr, rule, msg, hint string) fault.Problem {
	p := fault.Problem{Code: "PACK-" + code, Field: plan.Dotted(ptr), Rule: rule, Msg: msg, Hint: hint, File: s.name(d.rel)}
	if d.yaml != nil {
		p.Line, p.Column = d.yaml.Place(p.Field)
		return p
	}
	if d.pack == nil {
		p.Line, p.Column = plan.Position(d.raw, p.Field)
		return p
	}
	if p.Field = d.field + "." + p.Field; strings.HasSuffix(p.Field, ".") {
		p.Field = d.field
	}
	p.Line, p.Column = d.pack.Place(p.Field)
	return p
}

// check applies the rules that need no other document: the metaschema of its draft, known keywords only, and none that changes what a
// reference means. Then the document is one of 2020-12.
func (s *schemaFiles) check(d *schemaDoc) []fault.Problem {
	var out []fault.Problem
	visit(d.tree, "", func(o map[string]any, ptr string) {
		pattern := func(re, ptr string) {
			if msg := checkPattern(re); msg != "" {
				out = append(out, s.problem(d, "SCHEMA", ptr, "a regular expression (RE2) of bounded size", msg, ""))
			}
		}
		if re, ok := o["pattern"].(string); ok {
			pattern(re, ptr+"/pattern")
		}
		by, _ := o["patternProperties"].(map[string]any)
		for _, re := range slices.Sorted(maps.Keys(by)) {
			pattern(re, ptr+"/patternProperties/"+escape(re))
		}
	})
	if len(out) > 0 {
		return out
	}
	draft, msg := draftOf(d.tree)
	if msg != "" {
		return append(out, s.problem(d, "SCHEMA-DRAFT", "/$schema", draft2020+", "+draft07+"#, or no $schema", msg,
			"write the schema in draft 2020-12"))
	}
	known, name := keywords, "2020-12"
	if draft == draft07 {
		known, name = keywords07, "draft-07"
	}
	if err := metaschemas[draft]().Validate(d.tree); err != nil {
		for _, v := range violations(err) {
			out = append(out, s.problem(d, "SCHEMA", v.ptr, "a schema that its metaschema ("+name+") accepts", v.msg, ""))
		}
		return out
	}
	visit(d.tree, "", func(o map[string]any, ptr string) {
		if v, ok := o["$schema"]; ok && ptr != "" && v != draft && v != draft+"#" {
			out = append(out, s.problem(d, "SCHEMA-DRAFT", ptr+"/$schema", "one draft in a document",
				fmt.Sprintf(`the draft "%s" differs from the document's`, clip(fmt.Sprint(v))), "move this part to a separate file"))
		}
		for _, k := range []string{"$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$vocabulary"} {
			// A document's own $id is a name: other documents refer to it by its file.
			if id, ok := o[k]; ok && !(k == "$id" && ptr == "" && !strings.HasPrefix(fmt.Sprint(id), "#")) {
				out = append(out, s.problem(d, "SCHEMA-ID", ptr+"/"+k, "references by file and JSON pointer",
					"the keyword "+k+" is not supported", "remove it"))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(o)) {
			if msg, hint := unknownKeyword(k, known); msg != "" {
				out = append(out, s.problem(d, "SCHEMA-KEYWORD", ptr+"/"+escape(k), "keywords of JSON Schema "+name, msg, hint))
			}
		}
		if k, msg := contradiction(o); k != "" {
			out = append(out, s.problem(d, "SCHEMA", ptr+"/"+k, "a schema that some value satisfies", msg, ""))
		}
	})
	if draft == draft07 && len(out) == 0 {
		d.tree = copied(d.tree)
		visit(d.tree, "", func(o map[string]any, _ string) { rewrite07(o) })
	}
	return out
}

// The keywords of 2020-12 and draft-07 whose values are schemas. Walking only these keeps data (enum, const, default) out.
var (
	schemaWords = []string{"additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains", "propertyNames",
		"not", "if", "then", "else", "contentSchema", "additionalItems"}
	schemaLists = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemaMaps  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)

// visit calls f for every schema object in the tree, in a fixed order.
func visit(tree any, ptr string, f func(o map[string]any, ptr string)) {
	o, ok := tree.(map[string]any)
	if !ok {
		return
	}
	f(o, ptr)
	for _, k := range schemaWords {
		visit(o[k], ptr+"/"+k, f)
	}
	for _, k := range schemaLists {
		list, _ := o[k].([]any)
		for i, c := range list {
			visit(c, fmt.Sprintf("%s/%s/%d", ptr, k, i), f)
		}
	}
	for _, k := range schemaMaps {
		m, _ := o[k].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			visit(m[name], ptr+"/"+k+"/"+escape(name), f)
		}
	}
}

// copied returns a copy of decoded JSON.
func copied(tree any) any {
	switch t := tree.(type) {
	case map[string]any:
		out := maps.Clone(t)
		for k, v := range out {
			out[k] = copied(v)
		}
		return out
	case []any:
		out := slices.Clone(t)
		for i, v := range out {
			out[i] = copied(v)
		}
		return out
	}
	return tree
}

// resolve follows a reference in d. msg is the reason if it cannot be followed.
func (s *schemaFiles) resolve(d *schemaDoc, ref string) (to *schemaDoc, ptr, msg string) {
	file, frag, _ := strings.Cut(ref, "#")
	for strings.HasPrefix(file, "./") {
		file = file[len("./"):]
	}
	to = d
	switch {
	case strings.Contains(file, ":") || strings.HasPrefix(file, "//"):
		return nil, "", "it leads out of the domain's folder, and nothing is fetched from a network; copy the schema into the folder"
	case strings.ContainsAny(file, "\\%?") || path.IsAbs(file) ||
		plan.CheckRelPath("x/"+strings.ReplaceAll(file, "../", ""), "x") != "" && file != "":
		return nil, "", "it is not a plain relative path"
	case file != "":
		rel := path.Join(path.Dir(d.rel), file)
		if rel == ".." || strings.HasPrefix(rel, "../") {
			return nil, "", "it leads out of the domain's folder; copy the file into the folder"
		}
		if to = s.file(rel); to == nil || to.raw == nil {
			return nil, "", "there is no readable file " + s.name(rel)
		}
		if to.tree == nil {
			return nil, "", "the file is not a usable JSON schema"
		}
	}
	if frag != "" && !strings.HasPrefix(frag, "/") || strings.Contains(frag, "%") {
		msg = "the part after # is not a JSON pointer"
		if frag = "/" + frag; !strings.Contains(frag, "%") {
			msg += "; write " + clip(file+"#"+frag)
		}
		return nil, "", msg
	}
	if _, ok := at(to.tree, frag); !ok {
		return nil, "", "there is nothing at #" + clip(frag)
	}
	return to, frag, ""
}

// contract checks a schema with everything it refers to and makes it ready for use. Problems of the pack itself
// and of files are returned; the contract is usable when there are none.
func (s *schemaFiles) contract(pack *draft, field string, isInput bool, doc any) (contract, []fault.Problem) {
	root := &schemaDoc{rel: pack.rel, pack: pack, field: field, tree: doc}
	out := s.check(root)
	seen, queue := map[*schemaDoc]bool{root: true}, []*schemaDoc{root}
	for len(queue) > 0 && len(out) == 0 {
		d := queue[0]
		queue = queue[1:]
		visit(d.tree, "", func(o map[string]any, ptr string) {
			ref, ok := o["$ref"].(string)
			if !ok {
				return
			}
			to, _, msg := s.resolve(d, ref)
			if msg != "" {
				const rule = "a JSON or YAML file below the domain's folder, relative to the file with the reference, and a JSON pointer"
				msg, hint, _ := strings.Cut(msg, "; ")
				out = append(out, s.problem(d, "REF", ptr+"/$ref", rule, msg, hint))
			}
			if to == nil {
				file, _, _ := strings.Cut(ref, "#")
				if f := s.docs[path.Join(path.Dir(d.rel), file)]; f != nil && f != d {
					out = append(out, f.problems...)
				}
				return
			}
			if !seen[to] {
				seen[to] = true
				queue = append(queue, to)
				out = append(out, to.problems...)
			}
		})
	}
	if len(out) > 0 {
		return contract{}, out
	}
	c, err := compile(s.bundle(root), isInput)
	if err != "" {
		msg, hint, _ := strings.Cut(err, "; ")
		out = append(out, s.problem(root, "SCHEMA", "", "a schema this gateway can use", msg, hint))
	}
	for _, name := range c.badDefaults {
		ptr := "/properties/" + escape(name) + "/default"
		if _, here := at(root.tree, path.Dir(ptr)); !here { // it is in a file the pack refers to
			ptr = ""
		}
		out = append(out, s.problem(root, "SCHEMA", ptr, "a schema this gateway can use",
			"the default of "+clip(name)+" violates its own schema", "correct the default or the schema"))
	}
	return c, out
}
