package app

import (
	"context"
	"fmt"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

// Listed is how many there are in all, on every page.
type Listed struct {
	Total      int64 `json:"total"`
	TotalExact bool  `json:"total_exact"` // false: at least total; the rest was not counted
}

func cursorOf(c string) *string {
	if c == "" {
		return nil
	}
	return &c
}

func listedOf(t ledger.Total) Listed { return Listed{t.N, t.Exact} }

// noSuchTool refuses a filter by a tool that is not there and has no runs: the id is misspelt.
func (g *Gateway) noSuchTool(ctx context.Context, c gate.Call, id string, projects []string) error {
	if _, err := g.Gate.Registry().Find(id); err == nil {
		return nil
	}
	own, err := g.Ledger.List(ctx, ledger.Filter{Projects: projects, ToolID: id, Limit: 1})
	if err != nil || own.Total.N > 0 { // the other filters leave none of its runs
		return err
	}
	other, err := g.Ledger.List(ctx, ledger.Filter{Projects: projects, Limit: 1})
	if err != nil {
		return err
	}
	msg := fmt.Sprintf("no tool %q", id)
	if near := gate.NearTool(id, g.Gate.Offered(c.Caller)); near != "" {
		msg += "; did you mean " + near + "?"
	}
	return fault.New(fault.NotFound, "tool_not_found", fmt.Sprintf("%s (%d runs of other tools)", msg, other.Total.N)).
		WithSteps(fault.Do("tool.list"))
}
