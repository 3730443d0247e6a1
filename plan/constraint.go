package plan

import (
	"regexp"
	"strings"
)

// ConstraintRule describes what [IsConstraint] accepts.
const ConstraintRule = "feature names joined by & or |, with *COUNT after a name or a group in (…), and groups that match as a " +
	"whole in […]; no blanks, at most 256 characters"

// constraint matches what sbatch accepts for --constraint: names, counts, parentheses, and brackets, which may
// contain parentheses. Neither nests in its own kind. It has no blank, quote or leading dash, so it is one value in
// every context.
var constraint = func() *regexp.Regexp {
	const name, count, op = `[A-Za-z0-9][A-Za-z0-9_.-]*`, `(\*[1-9][0-9]{0,4})?`, `[&|]`
	list := func(item string) string { return item + `(` + op + item + `)*` }
	item := name + count
	group := `(` + item + `|\(` + list(item) + `\)` + count + `)`
	return regexp.MustCompile(`^` + list(`(`+group+`|\[`+list(group)+`\])`) + `$`)
}()

// IsConstraint reports whether s can be the constraint of a placement.
func IsConstraint(s string) bool { return len(s) <= 256 && constraint.MatchString(s) }

// Features returns the names of features in a constraint.
func Features(constraint string) []string {
	var out []string
	for part := range strings.FieldsFuncSeq(constraint, func(c rune) bool { return strings.ContainsRune("&|()[]", c) }) {
		if name, _, _ := strings.Cut(part, "*"); name != "" { // a count after a group has no name
			out = append(out, name)
		}
	}
	return out
}
