package gate

import (
	"cmp"
	"math"
	"math/big"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compiled is a schema. Every call is checked against four, and nearly all are valid: [fits] finds that out in a
// fraction of the time that the library takes, which prepares to list violations.
type compiled struct {
	*jsonschema.Schema
	quick bool // fits supports all its keywords
}

// obeyed reports whether a document certainly obeys the schema.
func (s *compiled) obeyed(doc any) bool { return s.quick && fits(s.Schema, doc) }

// quickKeywords lists the keywords that [fits] supports, and those that do not restrict a value.
var quickKeywords = []string{"DraftVersion", "Location", "ID", "Anchor", "Bool", "Ref", "Types", "Enum", "Const", "AllOf", "AnyOf", "If",
	"Then", "Else", "Format", "Required", "Properties", "AdditionalProperties", "MinItems", "MaxItems", "Items2020", "MinLength", "MaxLength",
	"Pattern", "Minimum", "Maximum", "Title", "Description", "Default", "Comment", "ReadOnly", "WriteOnly", "Examples", "Deprecated"}

// isQuick reports whether [fits] supports all keywords of a schema and of those in it. A schema that contains itself
// is left to the library, which detects endless references.
func isQuick(s *jsonschema.Schema, around ...*jsonschema.Schema) bool {
	if s == nil {
		return true
	}
	fields := reflect.ValueOf(s).Elem()
	for i := range fields.NumField() {
		f := fields.Type().Field(i)
		if f.IsExported() && !fields.Field(i).IsZero() && !slices.Contains(quickKeywords, f.Name) {
			return false
		}
	}
	values := []any{}
	if s.Const != nil {
		values = append(values, *s.Const)
	}
	if s.Enum != nil {
		values = append(values, s.Enum.Values...)
	}
	for _, v := range values { // a number may be written in several ways
		switch v.(type) {
		case nil, bool, string:
		default:
			return false
		}
	}
	within := append(slices.Concat(s.AllOf, s.AnyOf), s.Ref, s.If, s.Then, s.Else, s.Items2020)
	for _, p := range s.Properties {
		within = append(within, p)
	}
	if s.DraftVersion != 2020 || slices.Contains(around, s) || !isSmall(s.Minimum) || !isSmall(s.Maximum) {
		return false
	}
	if others, is := s.AdditionalProperties.(*jsonschema.Schema); is {
		within = append(within, others)
	}
	around = append(around[:len(around):len(around)], s)
	return !slices.ContainsFunc(within, func(w *jsonschema.Schema) bool { return !isQuick(w, around...) })
}

// isSmall reports whether a float64 compares with a bound exactly.
func isSmall(bound *big.Rat) bool {
	return bound == nil || bound.IsInt() && bound.Num().IsInt64() && math.Abs(float64(bound.Num().Int64())) < 1<<53
}

// fits reports whether a value, as [plan.Read] returns it, is valid for a quick schema.
func fits(s *jsonschema.Schema, v any) bool {
	switch {
	case s.Bool != nil:
		return *s.Bool
	case s.Types != nil && !s.Types.IsEmpty() && *s.Types&typesOf(v) == 0,
		s.Enum != nil && !slices.Contains(s.Enum.Values, v), s.Const != nil && *s.Const != v,
		s.Format != nil && s.Format.Validate(v) != nil, s.Ref != nil && !fits(s.Ref, v):
		return false
	}
	for _, all := range s.AllOf {
		if !fits(all, v) {
			return false
		}
	}
	if len(s.AnyOf) > 0 && !slices.ContainsFunc(s.AnyOf, func(s *jsonschema.Schema) bool { return fits(s, v) }) {
		return false
	}
	if s.If != nil {
		then := s.Else
		if fits(s.If, v) {
			then = s.Then
		}
		if then != nil && !fits(then, v) {
			return false
		}
	}
	switch v := v.(type) {
	case string:
		return (s.MinLength == nil && s.MaxLength == nil || between(s.MinLength, utf8.RuneCountInString(v), s.MaxLength)) &&
			(s.Pattern == nil || s.Pattern.MatchString(v))
	case float64:
		return (s.Minimum == nil || v >= float64(s.Minimum.Num().Int64())) && (s.Maximum == nil || v <= float64(s.Maximum.Num().Int64()))
	case []any:
		return between(s.MinItems, len(v), s.MaxItems) &&
			(s.Items2020 == nil || !slices.ContainsFunc(v, func(item any) bool { return !fits(s.Items2020, item) }))
	case map[string]any:
		return fitsObject(s, v)
	}
	return true
}

func fitsObject(s *jsonschema.Schema, v map[string]any) bool {
	for _, key := range s.Required {
		if _, there := v[key]; !there {
			return false
		}
	}
	others, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for key, value := range v {
		p := cmp.Or(s.Properties[key], others)
		if p == nil && s.AdditionalProperties == false || p != nil && !fits(p, value) {
			return false
		}
	}
	return true
}

func between(least *int, n int, most *int) bool {
	return (least == nil || n >= *least) && (most == nil || n <= *most)
}

// The types of JSON as the library numbers them.
var nullType, booleanType, stringType, numberType, integerType, arrayType, objectType = typeNamed("null"), typeNamed("boolean"),
	typeNamed("string"), typeNamed("number"), typeNamed("number") | typeNamed("integer"), typeNamed("array"), typeNamed("object")

func typeNamed(name string) (t jsonschema.Types) {
	t.Add(name)
	return t
}

// typesOf returns the types of a value: a whole number has two.
func typesOf(v any) jsonschema.Types {
	switch v := v.(type) {
	case nil:
		return nullType
	case bool:
		return booleanType
	case string:
		return stringType
	case float64:
		if v == math.Trunc(v) {
			return integerType
		}
		return numberType
	case []any:
		return arrayType
	case map[string]any:
		return objectType
	}
	return 0
}
