package toolpack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"slurmgate/fault"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack/jinja"
)

// What a pack requires of its outputs and of standard error in addition to the output schema: the minimum size and number
// of lines of an output, conditions on the content of a JSON output, and lines of standard error that are a failure or a
// warning.

// condition is an expression over the content of a JSON output that must be true.
type condition struct {
	Expr    string `json:"expr"`
	Message string `json:"message"`
}

// stderrRule says what it means when a line of standard error matches a pattern.
type stderrRule struct {
	Pattern string `json:"pattern"` // RE2, of one line
	Is      string `json:"is"`      // failure or warning
	Message string `json:"message"`
}

const (
	objValue       = "value" // the content, in an expression
	maxConditions  = 32      // of an output
	maxStderrRules = 32
	maxRuleMessage = 300 // bytes

	verifyFull = "full" // of an input: all there is to check of its bytes
)

// unlined are the types that have no lines. The lines of a gzip file are those of its uncompressed content.
var unlined = []string{"BAM", "BAI", "H5AD", "ZIP", "PDF", "PNG", "JSON"}

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
		if slices.Contains(unlined, o.Type) {
			v.Fail("CHECK", "an output of a type that has lines", "a "+o.Type+" file has no lines", "use minBytes, or checks for a JSON output")
		}
	}
	checks := f.Opt("checks")
	if checks.Exists() && o.Type != "" && o.Type != "JSON" {
		checks.Fail("CHECK", "checks on the content of a JSON output", "the type of this output is "+clip(o.Type), "")
		return
	}
	list := checks.List()
	if len(list) > maxConditions {
		checks.Fail("CHECK", fmt.Sprintf("at most %d checks", maxConditions), fmt.Sprintf("there are %d", len(list)), "")
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
		v.Fail("TEXT", "a sentence that says what is wrong", "it is empty", "")
	}
	d.noTemplate(s, v.Path())
	return s
}

// stderr reads the rules for lines of standard error.
func (d *draft) stderr(v yamldoc.Value) {
	list := v.List()
	if len(list) > maxStderrRules {
		v.Fail("STDERR", fmt.Sprintf("at most %d patterns", maxStderrRules), fmt.Sprintf("there are %d", len(list)), "")
		return
	}
	for _, e := range list {
		o := e.Object("pattern", "is", "message")
		p := o.Need("pattern")
		rule := stderrRule{Pattern: p.Text(), Is: o.Need("is").OneOf("STDERR", "failure", "warning"), Message: d.ruleMessage(o.Need("message"))}
		if p.Exists() {
			if msg := checkLinePattern(rule.Pattern); msg != "" {
				p.Fail("STDERR", "a regular expression (RE2) for a line of standard error", msg, "")
			}
		}
		d.def.Stderr = append(d.def.Stderr, rule)
	}
}

func checkLinePattern(pattern string) string {
	if msg := checkPattern(pattern); msg != "" {
		return msg
	}
	if re, err := regexp.Compile(pattern); err != nil || re.MatchString("") {
		return "the pattern matches every line"
	}
	return ""
}

// rules are a pack's checks, ready for use.
type rules struct {
	inputs     map[string]input
	outputs    map[string]output
	conditions map[string][]*jinja.Template
	stderr     []*regexp.Regexp
	stderrOf   []stderrRule // the rule of each pattern
}

// readRules makes the rules of a definition ready for use. msg says what this version cannot use.
func readRules(def definition) (r rules, msg string) {
	r = rules{inputs: map[string]input{}, outputs: map[string]output{}, conditions: map[string][]*jinja.Template{}, stderrOf: def.Stderr}
	for _, in := range def.Inputs {
		r.inputs[in.Role] = in
	}
	for _, o := range def.Outputs {
		r.outputs[o.Role] = o
		for _, c := range o.Checks {
			parsed, err := parseCondition(c.Expr)
			if err != nil {
				return r, "the check " + clip(c.Expr) + ": " + clip(err.Error())
			}
			r.conditions[o.Role] = append(r.conditions[o.Role], parsed)
		}
	}
	for _, s := range def.Stderr {
		re, err := regexp.Compile(s.Pattern)
		if err != nil {
			return r, "the pattern " + clip(s.Pattern) + ": " + clip(err.Error())
		}
		r.stderr = append(r.stderr, re)
	}
	return r, ""
}

// Verify reports whether the bytes of an input are checked to their end before a job gets them.
func (c *Contract) Verify(role string) bool { return c.rules.inputs[role].Verify == verifyFull }

// Least is the minimum number of bytes and lines of the output with a role.
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

// Stderr says what a line of standard error means by the first pattern that matches it: a failure or a warning, with the
// pack's message. Both are empty if no pattern matches.
func (c *Contract) Stderr(line string) (is, message string) {
	for i, re := range c.rules.stderr {
		if re.MatchString(line) {
			return c.rules.stderrOf[i].Is, c.rules.stderrOf[i].Message
		}
	}
	return "", ""
}
