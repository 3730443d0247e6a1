package app

import (
	"context"
	"fmt"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
)

// Listed is the total of a list, on every page.
type Listed struct {
	Total      int64 `json:"total" help:"how many there are in all pages"`
	TotalExact bool  `json:"total_exact" help:"false: there are at least total"`
}

// table returns a page of the list.
func (l Listed) table(noun, order string, columns ...string) blocks.Table {
	return blocks.Table{Noun: noun, Order: order, Total: l.Total, AtLeast: !l.TotalExact, Columns: blocks.Columns(columns...)}
}

// continues adds the call for the next page; without a cursor it adds nothing.
func continues(id string, cursor *string) (d blocks.Document) {
	if cursor != nil {
		d = append(d, blocks.More{Verb: id, Argument: "cursor", Value: *cursor})
	}
	return d
}

func listedOf(t ledger.Total) Listed { return Listed{t.N, t.Exact} }

// noSuchTool refuses a filter by a tool that is not registered and has no runs: its id is misspelt.
func (g *Gateway) noSuchTool(ctx context.Context, c gate.Call, id string, projects []string) error {
	if _, err := g.Gate.Registry().Find(id); err == nil {
		return nil
	}
	own, err := g.Ledger.List(ctx, ledger.Filter{Projects: projects, ToolID: id, Limit: 1})
	if err != nil || own.Total.N > 0 { // the tool has runs, but the other filters exclude them
		return err
	}
	other, err := g.Ledger.List(ctx, ledger.Filter{Projects: projects, Limit: 1})
	if err != nil {
		return err
	}
	near := plan.Suggestion(gate.NearTool(id, g.Gate.Offered(c.Caller)))
	return fault.New(fault.NotFound, "tool_not_found", fmt.Sprintf("no tool %q%s (%d runs of other tools)", id, near, other.Total.N)).
		WithSteps(fault.Do("tool.list"))
}
