package toolpack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack/jinja"
)

// What a pack requires of its outputs and of standard error in addition to the output schema: the minimum size and number
// of lines of an output, conditions on the content of a JSON output, and lines of an output or of standard error that are a
// failure or a warning.

// condition is an expression over the content of a JSON output that must be true.
type condition struct {
	Expr    string `json:"expr"`
	Message string `json:"message"`
}

// lineRule classifies a line of an output, or of standard error, that matches a pattern.
type lineRule struct {
	File    string `json:"file,omitzero"` // in an output that is a directory
	Pattern string `json:"pattern"`       // RE2, of one line
	Is      string `json:"is"`            // failure or warning
	Message string `json:"message"`
}

const (
	objValue       = "value" // the content, in an expression
	maxConditions  = 32      // of an output
	maxLineRules   = 32      // of an output, and of standard error
	maxRuleMessage = 300     // bytes

	verifyFull = "full"   // of an input: all there is to check of its bytes
	roleStderr = "stderr" // that no pack can declare
)

// rulesOf reads the checks of an output.
func (d *draft) rulesOf(f yamldoc.Object, o *output) {
	if v := f.Opt("minBytes"); v.Exists() {
		o.MinBytes = v.Int(1, maxSafe)
		if most := d.def.Limits.MaxOutputBytes; most > 0 && o.MinBytes > most {
			v.Fail("CHECK", "at most limits.maxOutputBytes",
				fmt.Sprintf("%d bytes are more than limits.maxOutputBytes allows, which is %d", o.MinBytes, most), "")
		}
	}
	if v := f.Opt("minRows"); v.Exists() {
		o.MinRows = v.Int(1, maxSafe)
		if filetype.Of(o.Type).NoLines {
			v.Fail("CHECK", "an output of a type that has lines", "a "+o.Type+" file has no lines", "use minBytes, or checks for a JSON output")
		}
	}
	d.linesOf(f.Opt("lines"), o)
	checks := f.Opt("checks")
	if checks.Exists() && o.Type != "" && o.Type != "JSON" {
		checks.Fail("CHECK", "only for an output of type JSON",
			"the content of an output of type "+clip(o.Type)+" cannot be checked", "")
		return
	}
	list := checks.List()
	if len(list) > maxConditions {
		checks.Fail("CHECK", fmt.Sprintf("at most %d checks", maxConditions),
			fmt.Sprintf("%d checks are too many", len(list)), "")
		return
	}
	for _, v := range list {
		c := v.Object("expr", "message")
		expr := c.Need("expr")
		one := condition{Expr: expr.Text(), Message: d.ruleMessage(c.Need("message"))}
		if expr.Exists() {
			if msg := checkCondition(one.Expr); msg != "" {
				expr.Fail("CHECK-EXPR", "an expression over value, the content of the output", msg, "")
			}
		}
		o.Checks = append(o.Checks, one)
	}
}

// checkCondition reports what is wrong with an expression; "" if nothing.
func checkCondition(expr string) string {
	c, err := parseCondition(expr)
	if err != nil {
		return clip(err.Error())
	}
	if _, err := c.Holds(nil); err == nil {
		return "the expression does not use value"
	}
	return ""
}

func parseCondition(expr string) (*jinja.Template, error) {
	return jinja.ParseCondition(expr, jinja.Names{Values: []string{objValue}})
}

func (d *draft) ruleMessage(v yamldoc.Value) string {
	s := prose(v, maxRuleMessage)
	if v.Exists() && s == "" {
		v.Fail("TEXT", "a sentence that says what is wrong", "the text is empty", "")
	}
	d.noTemplate(s, v.Path())
	return s
}

// stderr reads the rules for lines of standard error.
func (d *draft) stderr(v yamldoc.Value) {
	for _, e := range lineRules(v, "STDERR") {
		d.def.Stderr = append(d.def.Stderr, d.lineRule(e.Object("pattern", "is", "message"), "STDERR"))
	}
}

// linesOf reads the rules for lines of an output: of a directory those of a file in it.
func (d *draft) linesOf(v yamldoc.Value, o *output) {
	if v.Exists() && !filetype.Of(o.Type).PlainLines() {
		v.Fail("LINES", "lines of an output of plain text, or of a file in a directory",
			"an output of type "+o.Type+" is not judged by lines",
			"use checks for a JSON output; have the program write its log into an output of type LOG or TEXT")
		return
	}
	for _, e := range lineRules(v, "LINES") {
		fields := e.Object("file", "pattern", "is", "message")
		file := fields.Opt("file")
		if o.Type == plan.Directory {
			file = fields.Need("file")
		}
		rule := d.lineRule(fields, "LINES")
		rule.File = file.Text()
		d.noTemplate(rule.File, file.Path())
		switch msg := plan.CheckRelPath("out/"+rule.File, "out"); {
		case !file.Exists():
		case o.Type != plan.Directory:
			file.Fail("LINES", "only for an output of type DIRECTORY",
				"an output of type "+clip(o.Type)+" is one file", "leave file out")
		case msg != "":
			file.Fail("LINES", "the path of a file in the directory", msg, "")
		case strings.ContainsAny(rule.File, "*?["):
			file.Fail("LINES", "the path of one file in the directory", "it contains *, ? or [, but patterns are not supported", "")
		}
		o.Lines = append(o.Lines, rule)
	}
}

// lineRules lists the rules in a field.
func lineRules(v yamldoc.Value, code string) []yamldoc.Value {
	list := v.List()
	if len(list) > maxLineRules {
		v.Fail(code, fmt.Sprintf("at most %d patterns", maxLineRules), fmt.Sprintf("%d patterns are too many", len(list)), "")
		return nil
	}
	return list
}

func (d *draft) lineRule(o yamldoc.Object, code string) lineRule {
	p := o.Need("pattern")
	rule := lineRule{Pattern: p.Text(), Is: o.Need("is").OneOf(code, "failure", "warning"), Message: d.ruleMessage(o.Need("message"))}
	if p.Exists() {
		if msg := checkLinePattern(rule.Pattern); msg != "" {
			p.Fail(code, "a regular expression (RE2) for one line", msg, "")
		}
	}
	return rule
}

// checkLinePattern returns what is wrong with a pattern of lines; "" for a valid one.
func checkLinePattern(pattern string) string {
	if msg := checkPattern(pattern); msg != "" {
		return msg
	}
	if re, err := regexp.Compile(pattern); err != nil || re.MatchString("") {
		return "the pattern matches every line"
	}
	if re, err := syntax.Parse(pattern, syntax.Perl); err != nil || breaksLine(re) {
		return "the pattern has a line break, which no line contains"
	}
	return ""
}

// breaksLine reports whether an expression has a line break.
func breaksLine(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.ContainsFunc(re.Rune, func(r rune) bool { return r == '\n' || r == '\r' }) ||
		slices.ContainsFunc(re.Sub, breaksLine)
}

// rules are a pack's checks, ready for use.
type rules struct {
	inputs     map[string]input
	outputs    map[string]output
	conditions map[string][]*jinja.Template
	lines      map[string][]lineMatcher // by role; those of standard error under its own
}

// lineMatcher is a rule for lines, ready for use.
type lineMatcher struct {
	lineRule
	re *regexp.Regexp
}

// readRules compiles the rules of a definition. msg names what this version does not support.
func readRules(def definition) (r rules, msg string) {
	r = rules{inputs: map[string]input{}, outputs: map[string]output{}, conditions: map[string][]*jinja.Template{},
		lines: map[string][]lineMatcher{}}
	linesOf := map[string][]lineRule{roleStderr: def.Stderr}
	for _, in := range def.Inputs {
		r.inputs[in.Role] = in
	}
	for _, o := range def.Outputs {
		r.outputs[o.Role], linesOf[o.Role] = o, o.Lines
		for _, c := range o.Checks {
			parsed, err := parseCondition(c.Expr)
			if err != nil {
				return r, "the check " + clip(c.Expr) + ": " + clip(err.Error())
			}
			r.conditions[o.Role] = append(r.conditions[o.Role], parsed)
		}
	}
	for role, list := range linesOf {
		for _, rule := range list {
			re, err := regexp.Compile(rule.Pattern)
			if err != nil {
				return r, "the pattern " + clip(rule.Pattern) + ": " + clip(err.Error())
			}
			r.lines[role] = append(r.lines[role], lineMatcher{rule, re})
		}
	}
	return r, ""
}

// Verify reports whether the bytes of an input are checked to their end before a job gets them.
func (c *Contract) Verify(role string) bool { return c.rules.inputs[role].Verify == verifyFull }

// Least returns the minimum number of bytes and lines of the output with a role.
func (c *Contract) Least(role string) (bytes, rows int64) {
	o := c.rules.outputs[role]
	return o.MinBytes, o.MinRows
}

// Asks reports whether there are conditions for the content of an output.
func (c *Contract) Asks(role string) bool {
	return len(c.rules.conditions[role]) > 0 || role == c.result && role != ""
}

// CheckValue checks the content of a JSON output against the pack's conditions. The first one that does not hold is a Tool
// fault with code OUTPUT-EXPR.
func (c *Contract) CheckValue(role string, content json.RawMessage) error {
	const code = "OUTPUT-EXPR"
	if role == c.result && role != "" {
		if err := c.judge(content); err != nil {
			return err
		}
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return fault.Wrap(fault.Tool, code, "the output is not valid JSON", err)
	}
	vars := map[string]any{objValue: plainValue(tree)}
	for i, parsed := range c.rules.conditions[role] {
		check := c.rules.outputs[role].Checks[i]
		holds, err := parsed.Holds(vars)
		switch {
		case err != nil:
			return fault.New(fault.Tool, code, check.Message+" (the check "+clip(check.Expr)+" cannot be evaluated: "+clip(err.Error())+")")
		case !holds:
			return fault.New(fault.Tool, code, check.Message+" (the check "+clip(check.Expr)+" is false)")
		}
	}
	return nil
}

// LineFiles lists the files of an output that the pack has patterns of lines for: "" is the file of an output that is no directory, and
// standard error is the file of the role stderr.
func (c *Contract) LineFiles(role string) (paths []string) {
	for _, m := range c.rules.lines[role] {
		if !slices.Contains(paths, m.File) {
			paths = append(paths, m.File)
		}
	}
	return paths
}

// Line classifies a line of such a file by the first pattern that matches it: a failure or a warning, with the pack's
// message. Both are "" if no pattern matches.
func (c *Contract) Line(role, path, line string) (is, message string) {
	for _, m := range c.rules.lines[role] {
		if m.File == path && m.re.MatchString(line) {
			return m.Is, m.Message
		}
	}
	return "", ""
}
