package plan

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
)

// InFile adds to every problem of err its file, and the line and column of its field in data, the file's JSON text.
func InFile(err error, file string, data []byte) error {
	problems := fault.ProblemsOf(err)
	for i := range problems {
		p := &problems[i]
		if p.File = file; p.Line == 0 {
			p.Line, p.Column = Position(data, p.Field)
		}
	}
	return err
}

// Position returns the line and column (in characters, both from 1) of a field such as io.inputs[0].role in a JSON
// text, or of the nearest existing object or list around it.
func Position(data []byte, field string) (line, column int) {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	best, at := -1, int64(0)
	for {
		before := d.InputOffset()
		if _, err := d.ReadToken(); err != nil {
			return lineAndColumn(data, at)
		}
		path := Dotted(string(d.StackPointer()))
		if len(path) <= best || path != "" && field != path && !strings.HasPrefix(field, path+".") && !strings.HasPrefix(field, path+"[") {
			continue
		}
		if best, at = len(path), before+int64(gap(data[before:])); path == field {
			return lineAndColumn(data, at)
		}
	}
}

// gap counts the bytes before the next token.
func gap(text []byte) int { return len(text) - len(bytes.TrimLeft(text, " \t\r\n,:")) }

func lineAndColumn(data []byte, offset int64) (line, column int) {
	before := data[:max(0, min(offset, int64(len(data))))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[start:])
}

// here returns a problem at the token just read.
func here(data []byte, d *jsontext.Decoder, p fault.Problem) error {
	p.Field = pointer(d)
	p.Line, p.Column = Position(data, p.Field)
	return fault.Invalid("", p)
}

// placed returns a problem at the text that follows an offset, after white space.
func placed(data []byte, offset int64, p fault.Problem) error {
	offset = max(0, min(offset, int64(len(data))))
	p.Line, p.Column = lineAndColumn(data, offset+int64(len(data[offset:])-len(bytes.TrimLeft(data[offset:], " \t\r\n"))))
	return fault.Invalid("", p)
}

// syntax returns the problem of a token that cannot be read.
func syntax(data []byte, d *jsontext.Decoder, err error) error {
	p := fault.Problem{Code: "JSON-SYNTAX", Field: pointer(d), Rule: "valid JSON"} // the field is the last that could be read
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if p.Msg = "the text ends in the middle of a value"; len(bytes.TrimSpace(data)) == 0 {
			p.Msg = "the text is empty"
		}
		return placed(data, int64(len(data)), p)
	}
	offset, why := d.InputOffset(), err
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset, why = e.ByteOffset, e.Err
		if e.JSONPointer != "" {
			p.Field = Dotted(string(e.JSONPointer))
		}
	}
	text := strings.TrimPrefix(why.Error(), "jsontext: ")
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		name := p.Field[strings.LastIndexByte(p.Field, '.')+1:]
		p.Code, p.Rule, p.Msg, p.Hint = "JSON-DUPLICATE-KEY", "each key once", `the key "`+name+`" appears twice`, "remove one of the two"
	case strings.Contains(text, "UTF-8"):
		p.Code, p.Rule, p.Msg, p.Hint = "JSON-UNICODE", "valid UTF-8", "the text contains a byte that is not UTF-8", "save it as UTF-8"
	case strings.Contains(text, "surrogate"):
		p.Code, p.Rule, p.Msg, p.Hint = "JSON-UNICODE", "surrogates in pairs", `an unpaired surrogate (\ud800 to \udfff)`,
			"write the character itself"
	default:
		if p.Msg = clip(text); strings.Contains(text, "','") {
			p.Hint = "remove the comma before a } or ]"
		}
	}
	return placed(data, offset, p)
}

// semantic returns the problem of valid JSON that does not fit a Go type.
func semantic(err error) error {
	p := fault.Problem{Code: "JSON-TYPE", Rule: "the schema's types", Msg: "the value has another type"}
	var sem *json.SemanticError
	if !errors.As(err, &sem) {
		return fault.Invalid("", p)
	}
	p.Field = Dotted(string(sem.JSONPointer))
	if errors.Is(err, json.ErrUnknownName) {
		name := p.Field[strings.LastIndexByte(p.Field, '.')+1:]
		p.Code, p.Rule, p.Msg = "JSON-UNKNOWN-FIELD", "only the fields of the schema", `there is no field "`+name+`" here`
		if known := fieldsOf(sem.GoType); len(known) > 0 {
			p.Rule = "only the fields " + strings.Join(known, ", ")
			p.Hint = DidYouMean(name, known)
		}
		p.Hint = cmp.Or(p.Hint, "remove it")
		return fault.Invalid("", p)
	}
	if sem.GoType != nil {
		p.Rule = goKind(sem.GoType)
	}
	switch sem.JSONKind {
	case '{':
		p.Msg = "it is an object"
	case '[':
		p.Msg = "it is an array"
	case '"':
		p.Msg = "it is a string"
	case 'n', 0: // [noNull] sets no kind
		p.Msg = "it is null"
	case 't', 'f':
		p.Msg = "it is " + sem.JSONKind.String()
	case '0':
		p.Msg = "it is the number " + clip(string(sem.JSONValue))
	}
	return fault.Invalid("", p)
}

func fieldsOf(t reflect.Type) (names []string) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func goKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return goKind(t.Elem())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	case reflect.Float64:
		return "a number"
	}
	return "an object"
}

func pointer(d *jsontext.Decoder) string { return Dotted(string(d.StackPointer())) }
