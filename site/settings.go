package site

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"slurmgate/policy/yamldoc"
)

// The tags of a field describe a setting. The comment above the field is its comment in site-configs/template.yaml,
// which a test writes.
//
// default   its value where the file leaves it out; for a list its items, separated by commas
//	min, max  the bounds of a number
// enum      the allowed words, separated by commas
//	is        the name of a form, which the text, or each item of the list, has; with ? the text may be empty

// each visits every setting below v, which is at a field of the site file.
func each(field string, v reflect.Value, visit func(field string, tag reflect.StructTag, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			each(field, v.Elem(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			each(fmt.Sprintf("%s[%d]", field, i), v.Index(i), visit)
		}
	case reflect.Struct:
		known, order := yamldoc.Fields(v.Type())
		for _, name := range order {
			at, value := strings.TrimPrefix(field+"."+name, "."), v.FieldByIndex(known[name])
			visit(at, v.Type().FieldByIndex(known[name]).Tag, value)
			each(at, value, visit)
		}
	}
}

// setDefaults sets every setting that was left out and has the tag default.
func (s *Site) setDefaults() {
	each("", reflect.ValueOf(s).Elem(), func(field string, tag reflect.StructTag, v reflect.Value) {
		def := tag.Get("default")
		if _, given := s.at[field]; def == "" || given || !v.IsZero() {
			return
		}
		switch v.Kind() {
		case reflect.String:
			v.SetString(def)
		case reflect.Slice:
			v.Set(reflect.ValueOf(strings.Split(def, ",")))
		default:
			v.SetInt(number(def))
		}
	})
}

// settings checks every setting of this file against its tags.
func (c *checker) settings() {
	s := c.site
	each("", reflect.ValueOf(s).Elem(), func(field string, tag reflect.StructTag, v reflect.Value) {
		if section, _, _ := strings.Cut(field, "."); (s.cluster || len(s.Sites) > 0) && s.foreign(section) {
			return
		}
		if low := tag.Get("min"); low != "" {
			c.bounds(field, v.Int(), number(low), number(tag.Get("max")))
		}
		if words := tag.Get("enum"); words != "" {
			c.oneOf(field, v.String(), strings.Split(words, ",")...)
		}
		form, optional := strings.CutSuffix(tag.Get("is"), "?")
		switch {
		case form == "" || optional && v.IsZero():
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				c.is(form, fmt.Sprintf("%s[%d]", field, i), v.Index(i).String())
			}
		default:
			c.is(form, field, v.String())
		}
	})
}

// number parses a number of a tag; a test checks that it is one.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
