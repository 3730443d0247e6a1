package site

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/policy/yamldoc"
)

// place is a line and a column, both from 1; 0 when unknown.
type place struct{ line, column int }

// parse fills the site from a file and checks it. fatal reports that the file has not even keys and values.
func (s *Site) parse(data []byte, more ...Check) (problems []fault.Problem, fatal bool) {
	r := &yamldoc.Reader{File: s.file, Prefix: "SITE"}
	doc := r.Parse(data)
	s.put(doc, reflect.ValueOf(s).Elem())
	read := r.Problems()
	if !doc.Exists() || slices.ContainsFunc(read, func(p fault.Problem) bool { return p.Code == "SITE-TYPE" && p.Field == "" }) {
		return read, true
	}
	s.fill()
	problems = slices.Clone(read)
	// A value of the wrong type is already reported; problems of the default in its place would mislead.
	for _, p := range s.check(more...) {
		if !reported(read, p.Field) {
			problems = append(problems, p)
		}
	}
	slices.SortStableFunc(problems, func(a, b fault.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return problems, false
}

// reported reports whether the field, or a section it is in, is among the problems.
func reported(problems []fault.Problem, field string) bool {
	for at := field; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if slices.ContainsFunc(problems, func(p fault.Problem) bool { return p.Field == at }) {
			return true
		}
	}
	return false
}

// put reads a value of the file into a value of the site.
func (s *Site) put(v yamldoc.Value, to reflect.Value) {
	var at place
	at.line, at.column = v.Place()
	s.at[v.Path()] = at
	switch to.Kind() {
	case reflect.Struct:
		if v.IsText() {
			switch root := to.Addr().Interface().(type) {
			case *Root:
				root.Path = v.Text()
				return
			case *InPlace:
				root.Path = v.Text()
				return
			}
		}
		known, order := yamldoc.Fields(to.Type())
		if v.Path() == "" {
			known, order = s.topKeys()
		}
		o := v.Object(order...)
		for _, name := range order {
			if f := o.Opt(name); f.Exists() {
				s.put(f, to.FieldByIndex(known[name]))
			}
		}
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		s.put(v, to.Elem())
	case reflect.Slice:
		items := v.List()
		to.Set(reflect.MakeSlice(to.Type(), len(items), len(items)))
		for i, item := range items {
			s.put(item, to.Index(i))
		}
	case reflect.Map: // its keys are data
		to.Set(reflect.ValueOf(textsOf(v)))
	case reflect.String:
		to.SetString(v.Text())
	case reflect.Bool:
		to.SetBool(v.Bool())
	default:
		to.SetInt(v.Int(math.MinInt64, math.MaxInt64))
	}
}
