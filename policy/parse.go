package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Parse reads a policies.yaml. file names it in messages; env looks up the value of ${NAME}. Every broken rule is reported,
// in one Validation fault with lines.
func Parse(file string, data []byte, env func(string) (string, bool)) (*Policy, error) {
	r := &yamldoc.Reader{File: file, Prefix: "POLICY"}
	doc := r.Parse(data)
	left := maxExpanded
	var long error
	doc.Rewrite("ENV-UNDEFINED", "${NAME} names a variable that is set; $${ is a literal ${", func(s string) (string, error) {
		if long != nil {
			return s, nil // the document is refused anyway
		}
		out, err := expand(s, left, env)
		if errors.As(err, new(tooLong)) {
			long = err
			return s, nil
		}
		left -= len(out)
		return out, err
	})
	if long != nil {
		r.Add("SIZE", "", fmt.Sprintf("at most %d bytes of text, with the values of variables", maxExpanded), long.Error(),
			"use long variables less often")
	}
	p := &Policy{file: file, doc: r}
	p.read(doc)
	tree := doc.JSON()
	if len(r.Problems()) == 0 {
		var err error
		if p.Snapshot, err = yamldoc.Canonical(tree); err != nil {
			r.Add("JSON", "", "a document that is also I-JSON", fault.First(err), "")
		}
		p.Hash = plan.Hash(p.Snapshot)
	}
	if bad := r.Problems(); len(bad) > 0 {
		return nil, &fault.Error{Kind: fault.Validation, Code: bad[0].Code, Problems: bad,
			Msg: "the policy " + file + " is invalid", Next: "correct the named lines; nothing is allowed until then"}
	}
	return p, nil
}

// maxExpanded bounds the total size of a policy's texts in bytes: a short file may name a long variable many times.
const maxExpanded = yamldoc.MaxBytes

// tooLong is the error about a text that exceeds its bound.
type tooLong string

func (t tooLong) Error() string { return string(t) + " makes the policy too long" }

var variable = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}?`)

// expand replaces each ${NAME} by its value, which is not expanded again. $${ stands for ${. It never builds a result
// of more than most bytes: it then fails with [tooLong].
func expand(s string, most int, env func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for at := variable.FindStringSubmatchIndex(s); at != nil; at = variable.FindStringSubmatchIndex(s) {
		value, what := "${", "an escaped ${"
		if at[2] >= 0 {
			name, known := s[at[2]:at[3]], false
			if at[1] == at[3] || !plan.IsEnvName(name) {
				return "", errors.New("${ must be followed by a variable name and }")
			}
			if value, known = env(name); !known {
				return "", fmt.Errorf("the environment variable %s is not set", name)
			}
			what = "the value of " + name
		}
		if b.Len()+at[0]+len(value) > most {
			return "", tooLong(what)
		}
		b.WriteString(s[:at[0]] + value)
		s = s[at[1]:]
	}
	if b.Len()+len(s) > most {
		return "", tooLong("the text with the values of variables")
	}
	return b.String() + s, nil
}

// shown lists allowed values for a message.
func shown(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	list = slices.Sorted(slices.Values(list))
	if len(list) > 20 {
		return strings.Join(list[:20], ", ") + fmt.Sprintf(" and %d more", len(list)-20)
	}
	return strings.Join(list, ", ")
}
