package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/toolpack"
)

// askBatch checks a request for a batch, or for one of each step, as a submit of each of its rows would be, without any effect.
func (g *Gateway) askBatch(ctx context.Context, c gate.Call, a BatchRunArgs, dry bool) (out []batchAsked, err error) {
	if (a.ToolID == "") == (a.Steps == "") {
		return nil, fault.Invalid("", fault.Problem{Code: "BATCH-TOOL", Field: "tool_id", Rule: "either tool_id or steps",
			Msg: "tool_id and steps are both given, or both missing"})
	}
	if a.Steps != "" {
		sheet, err := g.sheet(ctx, a)
		if err != nil {
			return nil, err
		}
		return g.askSteps(ctx, c, a, sheet, dry)
	}
	p, doc, err := g.batchPack(c, a.ToolID)
	if err != nil {
		return nil, err
	}
	rows, wrong, err := g.batchRequests(ctx, a, doc)
	if err != nil {
		return nil, err
	}
	one := g.newAsked(c, a.Name, doc)
	if err := g.askRows(ctx, c, p, rows, g.newBatchRefs(c), a.ProjectID, dry, &one, &wrong); err != nil {
		return nil, err
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return []batchAsked{one}, g.identifyBatch(ctx, c, &one)
}

func (g *Gateway) newAsked(c gate.Call, name string, doc ToolDoc) batchAsked {
	return batchAsked{batch: ledger.Batch{Name: name, ToolID: doc.ToolID, ToolVersion: doc.Version, Principal: askerOf(c)},
		seen: map[string]bool{}}
}

// askRows checks the rows of a batch, and adds their mistakes to wrong. It stops once wrong has as many as one answer
// lists.
func (g *Gateway) askRows(ctx context.Context, c gate.Call, p *toolpack.Pack, rows []sheetArgs, refs *batchRefs, inProject string, dry bool,
	out *batchAsked, wrong *mistakes) (err error) {
	if inProject != "" {
		if inProject, err = g.projectOf(c, inProject); err != nil {
			return err
		}
	}
	for i, r := range rows {
		if wrong.n >= maxProblems {
			wrong.unchecked = len(rows) - i
			break
		}
		order, err := g.askRow(ctx, c, p, r, refs, dry)
		if err == nil && out.batch.ProjectID == "" {
			out.batch.ProjectID = order.Params.ProjectID
		}
		switch project := order.Params.ProjectID; {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && slices.Contains([]fault.Kind{fault.Transport, fault.Internal, fault.Timeout}, fault.KindOf(err)):
			return err
		case err != nil:
			wrong.add(rowProblems(r.line, err)...)
			continue
		case project != out.batch.ProjectID || inProject != "" && project != inProject:
			wrong.add(sheetProblem("SHEET-PROJECT", r.line, "", "all rows in one project",
				"the inputs of the row belong to another project, "+project))
			continue
		}
		if g.Policy.NeedsConsent(p.ToolName()) {
			if err := out.isOfKind(g.coversOrder(order)); err != nil {
				return err
			}
		}
		if r.args, err = g.pinReferences(ctx, order.Params.ProjectID, p, r.args); err != nil {
			return err
		}
		out.rows = append(out.rows, ledger.BatchRow{N: r.line, Sample: r.sample, Label: r.label, Tags: r.tags, Args: r.args})
		if dry {
			if err := out.plan.add(ctx, g.Sites, order, out.seen); err != nil {
				return err
			}
		}
	}
	out.plan.Rows = len(out.rows)
	out.plan.Samples, out.plan.Warnings = rowWarnings(rows, p.Inputs())
	return nil
}

// askSteps checks a request for a batch of each step.
func (g *Gateway) askSteps(ctx context.Context, c gate.Call, a BatchRunArgs, sheet Sheet, dry bool) (out []batchAsked, err error) {
	steps, err := ReadSteps("steps", []byte(a.Steps))
	if err != nil {
		return nil, err
	}
	if len(a.Set) > 0 {
		return nil, fault.Invalid("", fault.Problem{Code: "BATCH-SET", Field: "set", Rule: "only with tool_id",
			Msg: "the steps themselves have the arguments for all rows", Hint: "write them into set of the step"})
	}
	tools := StepTools{Steps: steps}
	var packs []*toolpack.Pack
	for _, s := range steps {
		p, doc, err := g.batchPack(c, s.Tool)
		if err != nil {
			return nil, fault.Wrap("", "", "step "+s.Name, err)
		}
		packs, tools.Tools = append(packs, p), append(tools.Tools, doc)
	}
	_, problems := sheet.Places(tools.Place)
	if problems = append(tools.Problems(), problems...); len(problems) > 0 {
		return nil, BadSheet(problems)
	}
	refs, ids, project := g.newBatchRefs(c), map[string]string{}, a.ProjectID
	for i, s := range steps {
		set := map[string]json.RawMessage{}
		for name, v := range s.Set {
			p, _ := tools.Tools[i].Place(name)
			set[p.Name] = v
		}
		for _, in := range s.From {
			p, _ := tools.Tools[i].Place(in.Param)
			set[p.Name] = in.value(ids)
		}
		rows, wrong := tools.requests(i, sheet, set)
		one := g.newAsked(c, a.Name+"."+s.Name, tools.Tools[i])
		one.batch.Chain, one.batch.Step = a.Name, s.Name
		if err := g.askRows(ctx, c, packs[i], rows, refs, project, dry, &one, &wrong); err != nil {
			return nil, err
		}
		if wrong.n > 0 { // the checks below would only repeat them
			for k := range wrong.list {
				wrong.list[k].Field += " (step " + s.Name + ")"
			}
			return nil, wrong.err()
		}
		project = one.batch.ProjectID
		if err := g.identifyBatch(ctx, c, &one); err != nil {
			return nil, err
		}
		// The id is derived from the request, because rows of later steps contain it.
		hash := plan.Hash([]byte(one.batch.ProjectID + "|" + one.batch.Name + "|" + one.batch.RowsHash))
		one.batch.ID = "batch_" + strings.TrimPrefix(hash, "sha256:")[:16]
		ids[s.Name] = one.batch.ID
		refs.add(one.batch, packs[i], one.rows)
		out = append(out, one)
	}
	return out, nil
}

// value returns the argument of a step's input, given the batches of the earlier steps.
func (in StepInput) value(ids map[string]string) json.RawMessage {
	var list []string
	for _, of := range in.Of {
		list = append(list, ids[of.Step]+":"+of.Role)
	}
	var v any = list
	if !in.List {
		v = list[0]
	}
	raw, _ := json.Marshal(v) // texts: cannot fail
	return raw
}

// askRow checks one row and returns its order.
func (g *Gateway) askRow(ctx context.Context, c gate.Call, p *toolpack.Pack, r sheetArgs, refs *batchRefs, dry bool) (run.Order, error) {
	if err := g.noSecretIn(r); err != nil {
		return run.Order{}, err
	}
	args, err := refs.supposed(ctx, p, r)
	if err != nil {
		return run.Order{}, err
	}
	ctx = context.WithValue(ctx, supposedRunsKey{}, refs.runs)
	call, err := g.Gate.Check(ctx, c.Caller, p.ID(), args, dry)
	if err != nil {
		return run.Order{}, err
	}
	call.Request.Actor = c.Request.Actor
	order, _, err := g.packOrder(ctx, call, p)
	return order, err
}

// noSecretIn refuses a row whose sample, label or tags hold a secret. The gate checks its arguments.
func (g *Gateway) noSecretIn(r sheetArgs) error {
	for column, text := range map[string]string{sampleColumn: r.sample, labelColumn: r.label, tagsColumn: strings.Join(r.tags, "\n")} {
		if kind := g.Secrets.Kind(text); kind != "" {
			return fault.Invalid("", fault.Problem{Code: "secret_in_args", Field: column, Rule: "no secret in an argument",
				Msg: "this looks like a secret (" + kind + ")"})
		}
	}
	return nil
}

// rowProblems returns the problems of a row with its place in the sheet.
func rowProblems(line int, err error) []fault.Problem {
	found := fault.ProblemsOf(err)
	if len(found) == 0 {
		return []fault.Problem{sheetProblem(strings.ToUpper(strings.ReplaceAll(fault.CodeOf(err), "_", "-")), line, "",
			"what a run of the tool alone needs too",
			fault.Prose(err))}
	}
	out := make([]fault.Problem, len(found))
	for i, x := range found {
		out[i] = x
		out[i].Field = sheetProblem("", line, strings.TrimPrefix(strings.TrimPrefix(x.Field, "args"), "."), "", "").Field
	}
	return out
}

// add counts a row.
func (b *BatchPlan) add(ctx context.Context, sites *run.Sites, o run.Order, seen map[string]bool) error {
	id, exists, err := sites.Known(ctx, o)
	if err != nil {
		return err
	}
	switch {
	case seen[id]:
		b.Shared++
	case exists:
		b.Replays++
	default:
		b.New++
		x := o.Params.Spec.Resources
		hours := float64(x.TimeLimitSeconds) / 3600
		b.CPUHours += float64(x.CPUs) * hours
		b.MemGiBH += float64(x.MemMB) / 1024 * hours
		if x.GPUs != nil {
			b.GPUHours += float64(*x.GPUs) * hours
		}
	}
	seen[id] = true
	return nil
}

// identifyBatch sets the id of a batch, the hash of its request, and the caller whose rights submit its rows.
func (g *Gateway) identifyBatch(ctx context.Context, c gate.Call, b *batchAsked) (err error) {
	var rows []any
	for _, r := range b.rows {
		rows = append(rows, []any{r.Sample, r.Label, r.Tags, r.Args})
	}
	canonical, err := json.Marshal(map[string]any{"tool_id": b.batch.ToolID, "rows": rows})
	if err == nil {
		b.batch.ID, b.batch.RowsHash = "batch_"+strings.ToLower(rand.Text()[:16]), plan.Hash(canonical)
		b.batch.Asking = g.asking(ctx, c)
		b.batch.Caller, err = json.Marshal(g.batchCallerOf(ctx, c))
	}
	return err
}
