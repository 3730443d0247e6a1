package site

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slurmgate/fault"
	"slurmgate/plan"
)

// decoder reads one YAML document into a Site and accepts nothing it would have to ignore or guess: each key once and known,
// each value of its type, no alias, no anchor, no merge, no second document.
type decoder struct {
	site     *Site
	problems []fault.Problem
	bad      map[string]bool // fields that have a problem
}

// reported reports whether the field, or a section it is in, is among the problems.
func (d *decoder) reported(field string) bool {
	for at := field; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if d.bad[at] {
			return true
		}
	}
	return false
}

// place is a line and a column, both from 1; 0 when unknown.
type place struct{ line, column int }

func of(n *yaml.Node) place { return place{n.Line, n.Column} }

func (d *decoder) add(code, field string, at place, rule, msg, hint string) {
	d.bad[field] = true
	d.problems = append(d.problems, fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg, Hint: hint,
		File: d.site.file, Line: at.line, Column: at.column})
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// read fills the site. It is fatal if nothing can be read.
func (d *decoder) read(data []byte) (fatal bool) {
	if len(data) > maxFile {
		d.add("SITE-SIZE", "", place{}, fmt.Sprintf("at most %d bytes", maxFile), "the file is larger", "")
		return true
	}
	broken := func(err error) bool {
		at := place{}
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			at.line, _ = strconv.Atoi(m[1])
		}
		msg := strings.TrimPrefix(yamlLine.ReplaceAllString(err.Error(), ""), "yaml: ")
		d.add("SITE-YAML", "", at, "well-formed YAML", msg, "")
		return true
	}
	r := yaml.NewDecoder(bytes.NewReader(data))
	var doc, rest yaml.Node
	if err := r.Decode(&doc); errors.Is(err, io.EOF) {
		d.add("SITE-YAML", "", place{1, 1}, "one YAML document", "the file is empty", "start from site-configs/template.yaml")
		return true
	} else if err != nil {
		return broken(err)
	}
	if err := r.Decode(&rest); err == nil {
		d.add("SITE-YAML", "---", of(&rest), "one YAML document", "a second document begins here", "remove the line --- and everything after it")
	} else if !errors.Is(err, io.EOF) {
		return broken(err)
	}
	d.value("", doc.Content[0], reflect.ValueOf(d.site).Elem())
	return d.bad[""] // not even keys and values
}

// value puts a node into v.
func (d *decoder) value(field string, n *yaml.Node, v reflect.Value) {
	d.site.at[field] = of(n)
	switch {
	case n.Kind == yaml.AliasNode:
		d.add("SITE-ALIAS", field, of(n), "no aliases", "the alias *"+n.Value+" is not supported", "write the value out")
		return
	case n.Anchor != "":
		d.add("SITE-ALIAS", field, of(n), "no anchors", "the anchor &"+n.Anchor+" is not supported", "remove it")
		return
	}
	if n.Tag == "!!null" {
		d.add("SITE-TYPE", field, of(n), typeName(v.Type()), "the key has no value", "remove the line to use the default")
		return
	}
	ok := true
	switch v.Kind() {
	case reflect.Struct:
		if ok = n.Kind == yaml.MappingNode && n.Tag == "!!map"; ok {
			d.mapping(field, n, v)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(field, n, v.Elem())
	case reflect.Slice:
		if ok = n.Kind == yaml.SequenceNode && n.Tag == "!!seq"; ok {
			v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
			for i, item := range n.Content {
				d.value(fmt.Sprintf("%s[%d]", field, i), item, v.Index(i))
			}
		}
	case reflect.String:
		if ok = n.Kind == yaml.ScalarNode && n.Tag == "!!str"; ok {
			v.SetString(n.Value)
		}
	case reflect.Bool:
		if ok = n.Kind == yaml.ScalarNode && n.Tag == "!!bool" && (n.Value == "true" || n.Value == "false"); ok {
			v.SetBool(n.Value == "true")
		}
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(n.Value, 10, v.Type().Bits())
		if ok = n.Kind == yaml.ScalarNode && n.Tag == "!!int" && err == nil; ok {
			v.SetInt(i)
		}
	default:
		panic("site: no rule for " + v.Type().String())
	}
	if !ok {
		got, hint := fmt.Sprintf("%q has the wrong type", n.Value), ""
		switch {
		case n.Kind == yaml.MappingNode:
			got = "it has keys and values"
		case n.Kind == yaml.SequenceNode:
			got = "it is a list"
		case v.Kind() == reflect.String:
			hint = fmt.Sprintf(`put it in quotes: "%s"`, n.Value)
		}
		d.add("SITE-TYPE", field, of(n), typeName(v.Type()), got, hint)
	}
}

func (d *decoder) mapping(field string, n *yaml.Node, v reflect.Value) {
	known, order := keysOf(v.Type())
	if field == "" {
		known, order = d.site.topKeys()
	}
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		name := key.Value
		at := strings.TrimPrefix(field+"."+name, ".")
		if key.Kind != yaml.ScalarNode || key.Tag != "!!str" {
			d.add("SITE-UNKNOWN-KEY", at, of(key), "a key of this section", "the key is not a plain word", "known keys: "+strings.Join(order, ", "))
			continue
		}
		if first, dup := seen[name]; dup {
			d.add("SITE-DUPLICATE-KEY", at, of(key), "each key once", fmt.Sprintf("the key %q is already in line %d", name, first),
				"remove one of the two")
			continue
		}
		seen[name] = key.Line
		index, ok := known[name]
		if !ok {
			d.add("SITE-UNKNOWN-KEY", at, of(key), "a key of this section", fmt.Sprintf("there is no key %q here", name),
				cmp.Or(plan.DidYouMean(name, order), "known keys: "+strings.Join(order, ", ")))
			continue
		}
		d.value(at, val, v.Field(index))
	}
}

// keysOf returns the keys of a section and their fields.
func keysOf(t reflect.Type) (known map[string]int, order []string) {
	known = map[string]int{}
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			known[name] = i
			order = append(order, name)
		}
	}
	return known, order
}

// Fields lists the path of every field of the site file, sections included, e.g. apptainer.binds[].source.
func Fields() []string {
	var list []string
	var walk func(at string, t reflect.Type)
	walk = func(at string, t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer:
			walk(at, t.Elem())
		case reflect.Slice:
			walk(at+"[]", t.Elem())
		case reflect.Struct:
			known, order := keysOf(t)
			for _, name := range order {
				path := strings.TrimPrefix(at+"."+name, ".")
				list = append(list, path)
				walk(path, t.Field(known[name]).Type)
			}
		}
	}
	walk("", reflect.TypeFor[Site]())
	slices.Sort(list)
	return list
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	}
	return "keys and values"
}
