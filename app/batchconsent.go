package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
)

// Where policy wants a person's approval for each run of a tool, a batch of that tool needs one approval for all
// rows: the call that starts the batch asks for it, and it is bound to the rows. The rows' own calls need none as
// long as they start what was shown, see [gate.UnderApproval].

// maxKinds is the number of distinct coverages, besides the arguments, that the runs of a batch may have: a person
// cannot read more.
const maxKinds = 20

// startsBatch returns the tools that a call of batch.run starts.
func (g *Gateway) startsBatch(_ context.Context, c gate.Call) (names []string, err error) {
	var a BatchRunArgs
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	steps, _ := ReadSteps("steps", []byte(a.Steps)) // the handler reports what is wrong
	for _, s := range steps {
		names = append(names, g.toolName(s.Tool))
	}
	return append(names, g.toolName(a.ToolID)), nil
}

// isOfKind records the coverage of a run of the batch.
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

// coversBatch returns the coverage of a call that starts a batch.
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
		return gate.Coverage{Waits: true}, err // the same request again starts nothing
	}
	var rows []string
	var kinds []gate.Coverage
	for _, x := range asked {
		rows, kinds = append(rows, x.batch.RowsHash), append(kinds, x.kinds...)
	}
	out = coversKinds(kinds)
	out.ProjectID, out.ParamsHash = asked[0].batch.ProjectID, plan.Hash([]byte(strings.Join(rows, "|")))
	return out, nil
}

// coversKinds returns the coverage of a call that starts many runs: what they have in common, and the most of each
// resource.
func coversKinds(kinds []gate.Coverage) (out gate.Coverage) {
	all := func(of func(gate.Coverage) string) string {
		var list []string
		for _, k := range kinds {
			if s := of(k); s != "" && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
		return strings.Join(list, " and ")
	}
	out.Tool = all(func(k gate.Coverage) string { return k.Tool })
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
	return out
}

func batchIDs(list []ledger.Batch) (ids []string) {
	for _, b := range list {
		ids = append(ids, b.ID)
	}
	return ids
}

// startsBatchRetry returns the tools that a call of batch.retry starts.
func (g *Gateway) startsBatchRetry(ctx context.Context, c gate.Call) (names []string, err error) {
	var a BatchRetryArgs
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	list, err := g.ownBatches(ctx, c, a.BatchArgs)
	for _, b := range list {
		names = append(names, g.toolName(b.ToolID))
	}
	return names, err
}

// coversBatchRetry returns the coverage of a call that retries the runs of a batch. Rows that never became a run are
// submitted under the approval of the batch.
func (g *Gateway) coversBatchRetry(ctx context.Context, c gate.Call) (out gate.Coverage, err error) {
	var a BatchRetryArgs
	if err := c.Into(&a); err != nil {
		return out, err
	}
	list, err := g.ownBatches(ctx, c, a.BatchArgs)
	if err != nil {
		return out, err
	}
	rows, hash, err := g.rowsToRetry(ctx, batchIDs(list), a.Cancelled)
	if err != nil || len(rows) == 0 {
		return gate.Coverage{Waits: true}, err
	}
	var of batchAsked
	for _, r := range rows {
		v, err := g.Ledger.View(ctx, r.RunID)
		if err == nil {
			err = of.isOfKind(g.coversAttempt(ctx, v, plan.MoreResources{}))
		}
		if err != nil {
			return out, fault.Wrap("", "", fmt.Sprintf("row %d (%s)", r.N, r.RunID), err)
		}
	}
	out = coversKinds(of.kinds)
	out.ProjectID, out.ParamsHash, out.Batches = list[0].ProjectID, hash, batchIDs(list)
	return out, nil
}

// rowsToRetry returns the rows with a run that a retry of batches would repeat, and a hash of them.
func (g *Gateway) rowsToRetry(ctx context.Context, batches []string, cancelled bool) (rows []ledger.RetryRow, hash string, err error) {
	if rows, err = g.Ledger.RetryRows(ctx, batches, cancelled); err != nil {
		return nil, "", err
	}
	doc, err := plan.Marshal(rows)
	return rows, plan.Hash(doc), err
}

// retryApproval returns the approval that a call of batch.retry uses up; nil: it needs none.
func (g *Gateway) retryApproval(ctx context.Context, c gate.Call, list []ledger.Batch, cancelled bool) (*ledger.RetryApproval, error) {
	if c.Covered == nil {
		if c.Unapproved { // there was no run to retry, and the ledger refuses any
			return &ledger.RetryApproval{}, nil
		}
		return nil, nil
	}
	rows, hash, err := g.rowsToRetry(ctx, batchIDs(list), cancelled)
	if err == nil && hash != c.Covered.ParamsHash {
		rows = nil
	}
	return &ledger.RetryApproval{ID: c.ApprovalID, Rows: rows}, err
}

// batchesThere reports whether all requested batches exist already. Another batch of the same name is an error.
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
