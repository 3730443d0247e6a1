package toolpack

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack/jinja"
)

var executionFields = []string{"kind", "cmd", "pipe", "stdin", "stdout", "module", "script", "node", "php", "result", "payload", "args",
	"phpBinary", "url", "method", "headers", "timeoutMs"}

// fieldsOf are the fields of each kind, kind itself left out (LOAD-05).
var fieldsOf = map[string][]string{
	"cli":    {"cmd", "pipe", "stdin", "stdout"},
	"python": {"module", "script", "result", "payload"},
	"node":   {"script", "node", "module", "result", "payload", "args"},
	"php":    {"php", "script", "result", "payload", "phpBinary"},
	"http":   {"url", "method", "headers", "timeoutMs"},
}

var (
	pythonModule = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	nodeModule   = regexp.MustCompile(`^(@[a-z0-9._-]+/)?[A-Za-z0-9_][A-Za-z0-9_./-]*(:[A-Za-z_$][A-Za-z0-9_$]*)?$`)
	phpBinary    = regexp.MustCompile(`^(/([A-Za-z0-9_-][A-Za-z0-9._-]*/)*)?php[0-9.]{0,16}$`)
	headerName   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
)

func (d *draft) execution(v yamldoc.Value) {
	o := v.Object(executionFields...)
	x := &d.def.Execution
	x.Kind = o.Need("kind").OneOf("EXECUTION-KIND", "cli", "python", "node", "php", "http")
	own, known := fieldsOf[x.Kind]
	if !known {
		return
	}
	for _, f := range executionFields[1:] {
		if f := o.Opt(f); f.Exists() && !slices.ContainsFunc(own, func(name string) bool { return o.Opt(name).Path() == f.Path() }) {
			f.Fail("EXECUTION", "only "+strings.Join(own, ", ")+" for kind "+x.Kind,
				"this field belongs to another kind of execution", "remove it")
		}
	}
	switch x.Kind {
	case "cli":
		d.cli(o)
	case "python":
		d.oneProgram(o, "module", "script")
		if m := o.Opt("module"); m.Exists() {
			x.Module = m.Match(pythonModule, "EXECUTION", "pkg.mod:callable")
		}
		x.Script = d.script(o.Opt("script"))
	case "node":
		d.oneProgram(o, "script", "node", "module")
		if m := o.Opt("module"); m.Exists() {
			if x.Module = m.Match(nodeModule, "EXECUTION", "a module, or FILE:export"); strings.Contains(x.Module, "..") {
				m.Fail("EXECUTION", "a module, or FILE:export", `it contains ".."`, "")
			}
		}
		x.Script = d.script(o.Opt("script")) + d.script(o.Opt("node"))
		d.nodeArgs(o.Opt("args"))
	case "php":
		d.oneProgram(o, "script", "php")
		x.Script = d.script(o.Opt("script")) + d.script(o.Opt("php"))
		if b := o.Opt("phpBinary"); b.Exists() {
			x.PHP = b.Match(phpBinary, "EXECUTION", "php, php8.4 or the like, or its absolute path in the image")
		}
	case "http":
		d.http(o)
	}
}

// oneProgram requires that exactly one of the fields names the program.
func (d *draft) oneProgram(o yamldoc.Object, fields ...string) {
	if !slices.ContainsFunc(fields, func(f string) bool { return o.Opt(f).Exists() }) {
		o.Fail("EXECUTION", "one of "+strings.Join(fields, ", "), "no program is given", "")
	}
	first := ""
	for _, f := range fields {
		switch {
		case !o.Opt(f).Exists():
		case first == "":
			first = f
		default:
			o.Opt(f).Fail("EXECUTION", "only one of "+strings.Join(fields, ", "), first+" is already given", "remove one of the two")
		}
	}
	if r := o.Opt("result"); r.Exists() {
		d.def.Execution.Result = d.word(r)
	}
	if o.Opt("payload").OneOf("EXECUTION", payloadRequest, payloadArguments) == payloadArguments {
		d.def.Execution.Payload = payloadArguments
	}
}

// nodeArgs reads what a node script gets behind the paths of its arguments and its result.
func (d *draft) nodeArgs(v yamldoc.Value) {
	x := &d.def.Execution
	for _, e := range v.List() {
		s := e.Text()
		if s == "" || strings.ContainsFunc(s, unicode.IsControl) {
			e.Fail("EXECUTION", "a text on one line", "the text is empty or contains control characters", "")
		}
		d.noTemplate(s, e.Path())
		x.Args = append(x.Args, s)
	}
	if x.Module != "" && v.Exists() {
		v.Fail("EXECUTION", "args of a script", "a module's function gets no args", "remove them, or write script instead of module")
	}
}

func (d *draft) script(v yamldoc.Value) string {
	s := d.word(v)
	if strings.ContainsFunc(s, unicode.IsSpace) && !jinja.HasSyntax(s) {
		words := strings.Fields(s)
		v.Fail("EXECUTION", "one file below "+toolDir+" of the image", `"`+clip(s)+`" is more than one word`,
			"write "+clip(words[len(words)-1])+" alone: the gateway starts its interpreter")
	} else if s != "" {
		if msg := plan.CheckRelPath("x/"+s, "x"); msg != "" {
			v.Fail("EXECUTION", "a safe relative path", msg, "")
		}
	}
	return s
}

func (d *draft) word(v yamldoc.Value) string {
	s := v.Text()
	if v.Exists() {
		if msg := plan.CheckWord(s); msg != "" && len(s) <= plan.MaxWord {
			v.Fail("EXECUTION", "a string without leading, trailing or double spaces", msg, "")
		}
		d.noTemplate(s, v.Path())
	}
	return s
}

func (d *draft) http(o yamldoc.Object) {
	x := &d.def.Execution
	at := o.Need("url")
	x.URL, x.Method, x.Headers = at.Text(), "POST", map[string]string{}
	u, err := url.Parse(x.URL)
	if at.Exists() && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "") {
		at.Fail("EXECUTION", "an absolute http or https URL without user or fragment", `"`+clip(x.URL)+`" is not such a URL`, "")
	}
	if m := o.Opt("method"); m.Exists() {
		x.Method = m.OneOf("EXECUTION", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
	}
	if v := o.Opt("timeoutMs"); v.Exists() {
		if ms := v.Int(1, maxSafe); ms > 0 {
			d.def.TimeoutMs = min(d.def.TimeoutMs, ms)
		}
	}
	for _, e := range o.Opt("headers").UnlessNull().Entries() {
		value := e.Text()
		if !headerName.MatchString(e.Key) || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			e.Fail("EXECUTION", "an HTTP header: a token, and a value on one line", "it is not a valid HTTP header", "")
		}
		x.Headers[e.Key] = value
	}
}
