package policy

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slurmgate/plan"
	"slurmgate/policy/programs"
	"slurmgate/policy/yamldoc"
)

// The tags of a field describe a setting. The comment above the field is its comment in
// site-configs/policies.yaml.template, which a test of package site writes.
//
// default   its value where the file leaves it out; absent: the presence of the section has a meaning
//	default   its value where the file leaves it out; absent: the section means something by being there
//	min, max  the bounds of a number
// enum      the allowed words, separated by commas; code is that of the problem of another one
//	is        the name of the form of each item of a list
//	key       the name of the form of each key of a mapping
//	ax        keys of the section in AX's form, see [Policy.readAX]
// example   the value that the template shows for a setting without a default

// form is the allowed form of a text, and the problem of a text without it.
type form struct {
	code, rule string
	ok         func(string) bool
}

// forms has the forms that the tags is and key name.
var forms = map[string]form{
	"tool":   {"TOOL-NAME", "tool names such as samtools_flagstat: the id with _ for each dot", toolName.MatchString},
	"digest": {"IMAGE", "sha256:<64 hex digits>", digest.MatchString},
	"image":  {"IMAGE", "the name of an image in images.lock.yaml, or sha256:<64 hex digits>", imageKey.MatchString},
	"slurm":  {"SLURM-NAME", "Slurm names: letters, digits, _ . + -", plan.IsSlurmName},
	"constraint": {"SLURM-NAME", "features (letters, digits, _ . -) and whole constraints",
		func(s string) bool { return feature.MatchString(s) || plan.IsConstraint(s) }},
	"site": {"SITE-NAME", "names of sites: " + plan.SiteNameRule, plan.IsSiteName},
	"kind": {"IMPORT-KIND", "one of " + strings.Join(ImportKinds(), ", "), func(s string) bool { return slices.Contains(ImportKinds(), s) }},
	"type": {"TYPE", "artifact types, e.g. BAM", plan.IsTypeName},
	"env": {"ENV", "names of variables, none that decides which code a program loads",
		func(s string) bool { return plan.IsEnvName(s) && !programs.ChangesCode(s) }},
	"variable": {"ENV", "names of variables, none that decides which code a program loads or that the gateway, Slurm or the container's " +
		"runtime sets", func(s string) bool { return plan.IsEnvName(s) && !programs.FindsCode(s) && !programs.Reserved(s) }},
	"program": {"ENTRY-PROGRAM", "base names of programs, no shell and none that starts others or runs code given in an argument",
		func(s string) bool { return program.MatchString(s) && !programs.Starts(s) && !programs.Codes(s) }},
	"project": {"PROJECT", "names or ids of projects", func(s string) bool { return plan.CheckProject(s) == "" }},
	"host":    {"EGRESS", "host:port", plan.IsHostPort},
}

var (
	toolName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,127}$`)
	digest   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	imageKey = regexp.MustCompile(`^([a-z0-9][a-z0-9._-]{0,127}|sha256:[0-9a-f]{64})$`)
	program  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`)
	feature  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
)

// read fills the policy from the document.
func (p *Policy) read(doc yamldoc.Value) {
	o := fillSection(doc, `ax:"timeouts"`, reflect.ValueOf(p).Elem())
	if !isAX(doc) {
		o.Need("version")
	}
	p.readAX(doc)
	p.Local.Allowed = o.Opt("local").Exists()
	allowed := p.Sites.Allowlist
	for _, name := range p.Sites.Prefer {
		if allowed != nil && !slices.Contains(*allowed, name) {
			p.doc.Add("SITE-NAME", "sites.prefer", "only sites of sites.allowlist", `"`+name+`" is not in sites.allowlist`, "")
		}
	}
}

const mostListed = 1024 // items of a list

// fill sets a field to a value of the document, or to its default where the document has none.
func fill(v yamldoc.Value, tag reflect.StructTag, to reflect.Value) {
	switch to.Kind() {
	case reflect.Struct:
		fillSection(v, tag, to)
	case reflect.Pointer:
		if v.Exists() {
			to.Set(reflect.New(to.Type().Elem()))
			fill(v, tag, to.Elem())
		}
	case reflect.Slice:
		f := forms[tag.Get("is")]
		list := v.Words(f.code, f.rule, f.ok)
		if len(list) > mostListed {
			v.Fail("SIZE", fmt.Sprintf("at most %d entries", mostListed), fmt.Sprintf("the list has %d entries, which are too many", len(list)), "")
		}
		to.Set(reflect.ValueOf(append([]string{}, list...)))
	case reflect.Map:
		to.Set(reflect.MakeMap(to.Type()))
		for _, e := range v.Entries() {
			if f := forms[tag.Get("key")]; !f.ok(e.Key) {
				e.Fail(f.code, f.rule, `"`+clip(e.Key)+`" is not allowed here`, "")
			}
			item := reflect.New(to.Type().Elem()).Elem()
			fill(e.Value, tag, item)
			to.SetMapIndex(reflect.ValueOf(e.Key), item)
		}
	case reflect.String:
		fillText(v, tag, to)
	case reflect.Bool:
		to.SetBool(v.Bool())
	default:
		to.SetInt(number(tag.Get("default")))
		if v.Exists() {
			to.SetInt(v.Int(number(tag.Get("min")), number(tag.Get("max"))))
		}
	}
}

func fillSection(v yamldoc.Value, tag reflect.StructTag, to reflect.Value) yamldoc.Object {
	known, order := yamldoc.Fields(to.Type())
	o := v.Object(append(order, strings.Fields(tag.Get("ax"))...)...)
	for _, name := range order {
		fill(o.Opt(name), to.Type().FieldByIndex(known[name]).Tag, to.FieldByIndex(known[name]))
	}
	return o
}

func fillText(v yamldoc.Value, tag reflect.StructTag, to reflect.Value) {
	words, isOne := tag.Lookup("enum")
	switch {
	case !v.Exists():
		to.SetString(tag.Get("default"))
	case tag.Get("ax") != "" && v.IsMap():
		to.SetString(tag.Get("default")) // readAX reads it
	case isOne:
		to.SetString(v.OneOf(tag.Get("code"), strings.Split(words, ",")...))
	default:
		to.SetString(v.Text())
	}
}

// number parses a number of a tag; a test checks that it is one.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
