package gate

import (
	"maps"
	"slices"
	"strings"

	"slurmgate/fault"
)

// A chat sees no path of the gateway's host but those it has named itself.

// concealedError returns an error's body without what the face of its call may not show.
func (r *Registry) concealedError(by Transport, e *ErrorBody) *ErrorBody {
	e.Message = r.Hide(by, e.Message)
	if steps, _ := e.Details["next"].([]fault.Step); len(steps) > 0 {
		e.Details["next"] = r.hideSteps(by, steps)
	}
	problems, _ := e.Details["problems"].([]fault.Problem)
	for i := range problems {
		p := &problems[i]
		p.Msg, p.Rule, p.Hint, p.Next = r.Hide(by, p.Msg), r.Hide(by, p.Rule), r.Hide(by, p.Hint), r.hideSteps(by, p.Next)
	}
	return e
}

func (r *Registry) hideSteps(by Transport, steps []fault.Step) (out []fault.Step) {
	for _, s := range steps {
		shown := fault.Do(s.Verb)
		for k, v := range s.Args {
			if text, ok := v.(string); ok {
				v = r.Hide(by, text)
			}
			shown.Args[k] = v
		}
		out = append(out, shown)
	}
	return out
}

// Conceal names the gateway's own folders, by path: a chat sees no path of its host but those it has named itself. Call it before the
// registry is used.
func (r *Registry) Conceal(folders map[string]string) {
	paths := slices.Collect(maps.Keys(folders))
	slices.SortFunc(paths, func(a, b string) int { return len(b) - len(a) }) // the innermost first
	var pairs []string
	for _, p := range paths {
		if p != "" && p != "/" {
			pairs = append(pairs, p, folders[p])
		}
	}
	r.hidden = strings.NewReplacer(pairs...)
}

// Hide returns the text of a program or of a run's script for display: without the gateway's folders to a chat,
// unchanged to the other faces.
func (r *Registry) Hide(by Transport, text string) string {
	if by != MCP {
		return text
	}
	return r.hidden.Replace(text)
}
