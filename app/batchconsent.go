package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// Where policy wants a person's approval for each run of a tool, a batch of it needs one for all: the call that starts it asks for it, and
// it is bound to the rows. The rows' own calls ask for none, as long as they start what was shown: see [gate.UnderApproval].

// maxKinds bounds what differs between the runs of a batch beside their arguments: nobody could read more.
const maxKinds = 20

// batchTools are the tools of a call of batch.run.
func batchTools(c gate.Call) (ids []string) {
	var a BatchRunArgs
	if err := c.Into(&a); err != nil {
		return nil // the handler says what is wrong
	}
	steps, _ := ReadSteps("steps", []byte(a.Steps))
	for _, s := range steps {
		ids = append(ids, s.Tool)
	}
	return append(ids, a.ToolID)
}

// isOfKind notes what a run of the batch is.
func (b *batchAsked) isOfKind(c gate.Coverage, err error) error {
	if err != nil {
		return err
	}
	c.ParamsHash = ""
	if slices.ContainsFunc(b.kinds, func(x gate.Coverage) bool { return x.Kind() == c.Kind() }) {
		return nil
	}
	if b.kinds = append(b.kinds, c); len(b.kinds) > maxKinds {
		return fault.New(fault.Policy, "batch_consent", fmt.Sprintf("the rows differ in more than %d ways in resources or place, "+
			"more than a person who approves them can read", maxKinds)).WithNext("split the sheet by resources and place")
	}
	return nil
}

// coversBatch is that of a call that starts a batch.
func (g *Gateway) coversBatch(ctx context.Context, c gate.Call) (out gate.Coverage, err error) {
	var a BatchRunArgs
	if err := c.Into(&a); err != nil {
		return out, err
	}
	asked, err := g.askBatch(ctx, c, a, false)
	if err != nil {
		return out, err
	}
	if there, err := g.batchesThere(ctx, asked); err != nil || there {
		return gate.Coverage{Waits: true}, err // the same again starts nothing
	}
	var rows []string
	var kinds []gate.Coverage
	for _, x := range asked {
		rows, kinds = append(rows, x.batch.RowsHash), append(kinds, x.kinds...)
	}
	all := func(of func(gate.Coverage) string) string {
		var list []string
		for _, k := range kinds {
			if s := of(k); s != "" && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
		return strings.Join(list, " and ")
	}
	out.ProjectID, out.ParamsHash = asked[0].batch.ProjectID, plan.Hash([]byte(strings.Join(rows, "|")))
	out.Site = all(func(k gate.Coverage) string { return k.Site })
	out.Partition = all(func(k gate.Coverage) string { return k.Partition })
	out.Account = all(func(k gate.Coverage) string { return k.Account })
	out.QOS = all(func(k gate.Coverage) string { return k.QOS })
	out.ExecutedAs = all(func(k gate.Coverage) string { return k.ExecutedAs })
	out.Constraint = all(func(k gate.Coverage) string { return k.Constraint })
	out.Image = all(func(k gate.Coverage) string { return k.Image })
	out.ImageDigest = all(func(k gate.Coverage) string { return k.ImageDigest })
	out.PackHash = all(func(k gate.Coverage) string { return k.PackHash })
	for _, k := range kinds {
		out.Kinds = append(out.Kinds, k.Kind())
		if r := *k.Resources; out.Resources == nil {
			out.Resources = &r
		} else { // the most of each
			m := out.Resources
			m.TimeLimitSeconds, m.CPUs, m.MemMB = max(m.TimeLimitSeconds, r.TimeLimitSeconds), max(m.CPUs, r.CPUs), max(m.MemMB, r.MemMB)
			if r.GPUs != nil && (m.GPUs == nil || *r.GPUs > *m.GPUs) {
				m.GPUs, m.GPUType = r.GPUs, r.GPUType
			}
		}
	}
	return out, nil
}

// batchesThere reports whether all batches that are asked for are there. Another batch of the same name is an error.
func (g *Gateway) batchesThere(ctx context.Context, asked []batchAsked) (bool, error) {
	for _, x := range asked {
		switch b, err := g.Ledger.BatchNamed(ctx, []string{x.batch.ProjectID}, x.batch.Name); {
		case fault.Is(err, fault.NotFound):
			return false, nil
		case err != nil:
			return false, err
		case b.RowsHash != x.batch.RowsHash:
			return false, nameTaken(b)
		}
	}
	return len(asked) > 0, nil
}
