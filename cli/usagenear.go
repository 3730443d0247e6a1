package cli

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"slurmgate/plan"
)

// nearVerb adds the verb most similar to a misspelt one to kong's error, which has none below a verb with a default,
// such as runs.
func nearVerb(at *kong.Node, args []string, err error) error {
	if !strings.HasPrefix(err.Error(), "unexpected argument") || strings.Contains(err.Error(), "did you mean") {
		return err
	}
	for _, word := range args {
		if strings.HasPrefix(word, "-") {
			continue
		}
		var known []string
		var next *kong.Node
		for _, c := range at.Children {
			if c.Name == word {
				next = c
			}
			if !c.Hidden {
				known = append(known, c.Name)
			}
		}
		if next != nil {
			at = next
			continue
		}
		if near := plan.Nearest(word, known); near != "" {
			return fmt.Errorf("%w, did you mean %q?", err, near)
		}
		return err
	}
	return err
}
