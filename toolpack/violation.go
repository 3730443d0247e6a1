package toolpack

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/visible"
)

const maxViolations = 50

// violation is one rule of a schema that a document breaks.
type violation struct {
	code string // REQUIRED, UNKNOWN, TYPE, VALUE
	ptr  string // JSON pointer into the document
	rule string
	msg  string
}

// violations flattens the schema library's error into one entry for each broken rule.
func violations(err error) []violation {
	verr, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []violation{{code: "VALUE", msg: clip(err.Error())}}
	}
	var out []violation
	printer := message.NewPrinter(language.English)
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) > 0 {
			first := len(out)
			for _, c := range e.Causes {
				walk(c)
			}
			if _, any := e.ErrorKind.(*kind.AnyOf); any {
				out = append(out[:first], alternatives(out[first:])...)
			}
			return
		}
		ptr := ""
		for _, p := range e.InstanceLocation {
			ptr += "/" + escape(p)
		}
		switch k := e.ErrorKind.(type) {
		case *kind.Required:
			for _, name := range k.Missing {
				out = append(out, violation{"REQUIRED", ptr + "/" + escape(name), "required", "it is missing"})
			}
		case *kind.AdditionalProperties:
			slices.Sort(k.Properties)
			for _, name := range k.Properties {
				out = append(out, violation{"UNKNOWN", ptr + "/" + escape(name), "only what the schema declares", "the schema does not declare it"})
			}
		case *kind.FalseSchema:
			out = append(out, violation{"UNKNOWN", ptr, "only what the schema declares", "the schema does not allow it"})
		case *kind.Type:
			out = append(out, violation{"TYPE", ptr, strings.Join(k.Want, " or "), "it is " + k.Got})
		default:
			rule := "the schema's " + strings.Join(e.ErrorKind.KeywordPath(), " ")
			out = append(out, violation{"VALUE", ptr, rule, clip(e.ErrorKind.LocalizedString(printer))})
		}
	}
	walk(verr)
	// The library walks maps, whose order is random; a report always has the same order.
	slices.SortStableFunc(out, func(a, b violation) int {
		return cmp.Or(cmp.Compare(a.ptr, b.ptr), cmp.Compare(a.code, b.code), cmp.Compare(a.msg, b.msg))
	})
	if more := len(out) - maxViolations; more > 0 {
		out = append(out[:maxViolations], violation{"VALUE", "", "the schema", fmt.Sprintf("and %d more problems", more)})
	}
	return out
}

// alternatives joins the messages of an anyOf's branches about the same place.
func alternatives(of []violation) []violation {
	for _, v := range of {
		if v.ptr != of[0].ptr {
			return of
		}
	}
	for _, v := range of[1:] {
		of[0].msg += ", or " + v.msg
	}
	return of[:min(len(of), 1)]
}

// problems turns violations into problems whose codes start with prefix.
func problems(prefix string, err error) []fault.Problem {
	var out []fault.Problem
	for _, v := range violations(err) {
		out = append(out, fault.Problem{Code: prefix + "-" + v.code, Field: shortPlace(v.ptr), Rule: v.rule, Msg: v.msg})
	}
	return out
}

// maxPlace bounds the name of a place in a document, in bytes: keys may be as long as the document.
const maxPlace = 256

func shortPlace(ptr string) string { return plan.Dotted(visible.Clip(ptr, maxPlace)) }

func clip(s string) string { return fault.Clip(s) }
