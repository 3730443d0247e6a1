package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
	"slurmgate/toolpack"
)

// maxSteps bounds the steps of a file.
const maxSteps = 20

// Step is one tool of a steps file, which runs once for each row of the sheet.
type Step struct {
	Name string
	Tool string
	Set  map[string]json.RawMessage // arguments for all rows
	From []StepInput                // inputs from earlier steps, matched by the row's sample
	Line int
}

// StepInput is an input of a step, and the outputs that it takes: one, or the elements of a list.
type StepInput struct {
	Param string
	Of    []StepOutput
	List  bool
}

// StepOutput is an output of a step.
type StepOutput struct{ Step, Role string }

var (
	stepName   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	stepOutput = regexp.MustCompile(`^([a-z0-9][a-z0-9_-]{0,31})\.([A-Za-z0-9][A-Za-z0-9._-]{0,63})$`)
)

// ReadSteps reads a steps file: strict YAML with steps, each with name, tool, set and from. A step takes outputs of
// earlier steps. It reports all mistakes together, with their lines.
func ReadSteps(file string, text []byte) ([]Step, error) {
	r := &yamldoc.Reader{File: file, Prefix: "STEPS"}
	doc := r.Parse(text).Object("steps")
	var steps []Step
	need := doc.Need("steps")
	for _, v := range need.List() {
		if len(steps) == maxSteps {
			need.Fail("STEPS-COUNT", fmt.Sprintf("1 to %d steps", maxSteps), "there are more", "")
			break
		}
		o := v.Object("name", "tool", "set", "from")
		s := Step{Set: map[string]json.RawMessage{}}
		s.Line, _ = v.Place()
		name := o.Need("name")
		s.Name, s.Tool = name.Match(stepName, "STEPS-NAME", "lower-case letters, digits and _ -, at most 32"), o.Need("tool").Text()
		if slices.ContainsFunc(steps, func(x Step) bool { return x.Name == s.Name }) {
			name.Fail("STEPS-NAME", "each name once", fmt.Sprintf("there are two steps %q", s.Name), "")
		}
		if set := o.Opt("set"); set.Exists() {
			for _, e := range set.Entries() {
				if raw, err := yamldoc.Canonical(e.JSON()); err == nil {
					s.Set[e.Key] = raw
				}
			}
		}
		if from := o.Opt("from"); from.Exists() {
			for _, e := range from.Entries() {
				s.From = append(s.From, stepInput(e, s, steps))
			}
		}
		steps = append(steps, s)
	}
	if need.Exists() && len(r.Problems()) == 0 && len(steps) == 0 {
		need.Fail("STEPS-COUNT", fmt.Sprintf("1 to %d steps", maxSteps), "the list has no steps", "")
	}
	if bad := r.Problems(); len(bad) > 0 {
		return nil, &fault.Error{Kind: fault.Validation, Code: bad[0].Code, Msg: file + " is not a valid steps file; nothing was started",
			Problems: bad}
	}
	return steps, nil
}

// stepInput reads an input of a step, given the earlier steps.
func stepInput(e yamldoc.Entry, s Step, before []Step) StepInput {
	in := StepInput{Param: e.Key}
	values := []yamldoc.Value{e.Value}
	if !e.IsText() {
		values, in.List = e.List(), true
	}
	if _, both := s.Set[e.Key]; both {
		e.Fail("STEPS-TWICE", "each argument once, in set or in from", e.Key+" is in both", "remove one of them")
	}
	for _, v := range values {
		m := stepOutput.FindStringSubmatch(v.Text())
		if m == nil {
			if v.Exists() && v.IsText() {
				v.Fail("STEPS-FROM", "STEP.ROLE: an output of a step above",
					fmt.Sprintf("%q does not have the form STEP.ROLE", fault.Clip(v.Text())), "")
			}
			continue
		}
		var names []string
		for _, x := range before {
			names = append(names, x.Name)
		}
		if !slices.Contains(names, m[1]) {
			v.Fail("STEPS-FROM", "STEP.ROLE: an output of a step above", fmt.Sprintf("there is no step %q above %q", m[1], s.Name),
				plan.DidYouMean(m[1], names))
			continue
		}
		in.Of = append(in.Of, StepOutput{m[1], m[2]})
	}
	return in
}

// StepTools pairs steps with their tools as callers see them, in the order of the steps.
type StepTools struct {
	Steps []Step
	Tools []ToolDoc
}

// fed reports whether an earlier step sets a parameter of a step.
func (t StepTools) fed(i int, param string) bool {
	return slices.ContainsFunc(t.Steps[i].From, func(in StepInput) bool {
		p, problem := t.Tools[i].Place(in.Param)
		return problem == nil && p.Name == param
	})
}

// place finds how one step uses a column; ok is false if it does not. STEP.NAME is an argument of that step, and does
// not describe the row.
func (t StepTools) place(i int, column string) (p ColumnPlace, ok bool) {
	name, alone := strings.CutPrefix(column, t.Steps[i].Name+".")
	p, problem := t.Tools[i].Place(name)
	if problem == nil && p.Name != "" && t.fed(i, p.Name) {
		if p = (ColumnPlace{}); describesRow(name) {
			p.Own = name
		}
	}
	if alone {
		p.Own = ""
	}
	return p, p.Name+p.Own != ""
}

// Place finds how the steps use a column of the sheet. If none uses it it returns a problem.
func (t StepTools) Place(column string) (p ColumnPlace, problem *fault.Problem) {
	var known []string
	for i := range t.Steps {
		if p, ok := t.place(i, column); ok {
			return p, nil
		}
		for _, name := range SchemaOfArgs(t.Tools[i].InputSchema).Names() {
			if !t.fed(i, name) && !slices.Contains(known, name) {
				known = append(known, name)
			}
		}
	}
	known = append(known, sampleColumn, tagsColumn, labelColumn)
	msg := fmt.Sprintf("no step takes %q", column) + plan.Suggestion(plan.Nearest(column, known))
	x := sheetProblem("SHEET-COLUMN", 1, column, "one of "+strings.Join(known, ", ")+", or STEP.NAME for one step", msg)
	return p, &x
}

// Problems returns the mistakes of steps that only the tools show.
func (t StepTools) Problems() (found []fault.Problem) {
	for i, s := range t.Steps {
		field := fmt.Sprintf("steps[%d]", i)
		for _, name := range slices.Sorted(maps.Keys(s.Set)) {
			if p, problem := t.Tools[i].Place(name); problem != nil || p.Name == "" {
				found = append(found, fault.Problem{Code: "STEPS-SET", Line: s.Line, Field: field + ".set." + name, Rule: "a parameter of " + s.Tool,
					Msg: fmt.Sprintf("%s has no parameter %q", s.Tool, name)})
			}
		}
		for _, in := range s.From {
			if !slices.ContainsFunc(t.Tools[i].Inputs, func(x PackInput) bool { return x.Param == in.Param || x.Role == in.Param }) {
				found = append(found, fault.Problem{Code: "STEPS-FROM", Line: s.Line, Field: field + ".from." + in.Param, Rule: "an input of " + s.Tool,
					Msg: fmt.Sprintf("%s has no input %q", s.Tool, in.Param)})
			}
			for _, of := range in.Of {
				j := slices.IndexFunc(t.Steps, func(x Step) bool { return x.Name == of.Step })
				if !slices.ContainsFunc(t.Tools[j].Outputs, func(o toolpack.OutputInfo) bool { return o.Role == of.Role }) {
					var roles []string
					for _, o := range t.Tools[j].Outputs {
						roles = append(roles, o.Role)
					}
					found = append(found, fault.Problem{Code: "STEPS-FROM", Line: s.Line, Field: field + ".from." + in.Param,
						Rule: "an output of " + t.Tools[j].ToolID + ": " + orNone(roles), Msg: fmt.Sprintf("%s has no output %q", t.Tools[j].ToolID, of.Role),
						Hint: plan.DidYouMean(of.Role, roles)})
				}
			}
		}
	}
	return found
}

// requests returns a request to one step for each row, from the columns that the step takes.
func (t StepTools) requests(i int, s Sheet, set map[string]json.RawMessage) ([]sheetArgs, mistakes) {
	return t.sheet(i, s).requests(func(column string) (ColumnPlace, *fault.Problem) {
		p, _ := t.place(i, column)
		return p, nil
	}, set)
}

// sheet returns the part of a sheet that a step takes. Columns for this step alone come last, because a later cell
// replaces an earlier one.
func (t StepTools) sheet(i int, s Sheet) (out Sheet) {
	out.Line = s.Line
	var takes []int
	for _, alone := range []bool{false, true} {
		for k, column := range s.Columns {
			if _, ok := t.place(i, column); ok && strings.HasPrefix(column, t.Steps[i].Name+".") == alone {
				takes, out.Columns = append(takes, k), append(out.Columns, column)
			}
		}
	}
	for _, r := range s.Rows {
		cells := make([]string, len(takes))
		for n, k := range takes {
			if k < len(r.Cells) {
				cells[n] = r.Cells[k]
			}
		}
		out.Rows = append(out.Rows, SheetRow{r.Line, cells})
	}
	return out
}
