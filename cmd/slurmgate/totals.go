package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/fault"
	"slurmgate/ledger"
)

// listed is how many there are in all, on every page.
type listed struct {
	Total      int64 `json:"total"`
	TotalExact bool  `json:"total_exact"` // false: at least total; the rest was not counted
}

func listedOf(t ledger.Total) listed { return listed{t.N, t.Exact} }

// footer ends a list at the shell: how many of how many it shows.
func footer(w io.Writer, shown int, of listed, what string) {
	total := fmt.Sprint(of.Total)
	if !of.TotalExact {
		total = "at least " + total
	}
	if of.TotalExact && of.Total == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	if int64(shown) == of.Total && of.TotalExact {
		fmt.Fprintf(w, "%s %s\n", total, what)
		return
	}
	fmt.Fprintf(w, "%d of %s %s\n", shown, total, what)
}

// noSuchTool refuses a filter by a tool that is not there and has no runs: the id is misspelt.
func (g *gateway) noSuchTool(ctx context.Context, id string, projects []string) error {
	if _, err := g.gate.Registry().Find(id); err == nil {
		return nil
	}
	other, err := g.ledger.List(ctx, ledger.Filter{Projects: projects, Limit: 1})
	if err != nil {
		return err
	}
	msg := fmt.Sprintf("no tool %q", id)
	for _, t := range g.gate.Registry().List() {
		if t.Name() == strings.ReplaceAll(id, ".", "_") {
			msg += "; did you mean " + t.ID + "?"
		}
	}
	return fault.New(fault.NotFound, "run.list", "tool_not_found", fmt.Sprintf("%s (%d runs of other tools)", msg, other.Total.N)).
		WithSteps(fault.Do("tool.list"))
}
