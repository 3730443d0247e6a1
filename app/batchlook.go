package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// BatchArgs are the arguments of operations on one batch.
type BatchArgs struct {
	Batch     string `json:"batch" kind:"batch" arg:"" help:"A batch's name or id."`
	ProjectID string `json:"project_id,omitzero" kind:"project" name:"project" help:"Project name or id." placeholder:"NAME"`
}

// BatchStatusArgs are the arguments of batch.status.
type BatchStatusArgs struct {
	BatchArgs
	WaitSeconds int `json:"wait_seconds,omitzero" min:"0" max:"30" about:"seconds to wait for the batch to finish"`
}

// batchOf finds a batch that the caller may act on with the tool's capabilities. A batch of a project that it cannot
// see is not found.
func (g *Gateway) batchOf(ctx context.Context, c gate.Call, a BatchArgs) (b ledger.Batch, err error) {
	if !strings.HasPrefix(a.Batch, "batch_") {
		list, err := g.batchesOf(ctx, c, a)
		if err == nil && len(list) > 1 {
			var names []string
			for _, x := range list {
				names = append(names, x.Name)
			}
			err = fault.New(fault.Validation, "batch_has_steps", fmt.Sprintf("%s has %d steps, each a separate batch", a.Batch, len(list))).
				WithNext("name one of them: " + strings.Join(names, ", "))
		}
		if err != nil {
			return b, err
		}
		return list[0], nil
	}
	if b, err = g.Ledger.Batch(ctx, a.Batch); err != nil || c.Caller.CanAll(c.Needs, b.ProjectID) {
		return b, err
	}
	if c.Caller.Sees(b.ProjectID) {
		_, err = g.projectOf(c, b.ProjectID) // the error names what is missing
		return b, err
	}
	return b, fault.New(fault.NotFound, "batch_not_found", "there is no batch "+a.Batch).WithSteps(fault.Do("batch.list"))
}

// batchesOf finds a batch, or the batches of all steps with a common name.
func (g *Gateway) batchesOf(ctx context.Context, c gate.Call, a BatchArgs) ([]ledger.Batch, error) {
	if strings.HasPrefix(a.Batch, "batch_") {
		b, err := g.batchOf(ctx, c, a)
		return []ledger.Batch{b}, err
	}
	projects, err := g.projectsListed(c, a.ProjectID)
	if err != nil {
		return nil, err
	}
	b, err := g.Ledger.BatchNamed(ctx, projects, a.Batch)
	if !fault.Is(err, fault.NotFound) {
		return []ledger.Batch{b}, err
	}
	list, err1 := g.Ledger.ChainNamed(ctx, projects, a.Batch)
	if err1 != nil || len(list) == 0 {
		return nil, cmp.Or(err1, err)
	}
	return list, nil
}

// BatchDoc is a batch as lists show it.
type BatchDoc struct {
	BatchID   string           `json:"batch_id"`
	Name      string           `json:"name"`
	ProjectID string           `json:"project_id"`
	ToolID    string           `json:"tool_id"`
	Principal string           `json:"principal"`
	CreatedAt time.Time        `json:"created_at"`
	Rows      int64            `json:"rows"`
	Counts    map[string]int64 `json:"counts"`         // rows by state; states without rows are absent
	Todo      int64            `json:"todo"`           // rows that the gateway is still submitting, retrying or cancelling
	Over      bool             `json:"over"`           // all its rows have ended
	Step      string           `json:"step,omitempty"` // of a batch with several steps; absent: it has no steps
}

// stepsDoc describes a batch, or the batches of all steps with a common name as one.
func stepsDoc(list []ledger.Batch) BatchDoc {
	sum := batchDoc(list[0])
	if len(list) == 1 {
		return sum
	}
	sum.BatchID, sum.Name, sum.Step, sum.Counts = list[0].Chain, list[0].Chain, "", maps.Clone(sum.Counts)
	if sum.Counts == nil {
		sum.Counts = map[string]int64{}
	}
	for _, b := range list[1:] {
		d := batchDoc(b)
		sum.ToolID += ", " + d.ToolID
		sum.Rows, sum.Todo, sum.Over = sum.Rows+d.Rows, sum.Todo+d.Todo, sum.Over && d.Over
		for state, n := range d.Counts {
			sum.Counts[state] += n
		}
	}
	return sum
}

func batchDoc(b ledger.Batch) BatchDoc {
	d := BatchDoc{b.ID, b.Name, b.ProjectID, b.ToolID, b.Principal.Name, b.CreatedAt, b.Rows, b.Counts, b.Todo, b.Todo == 0, b.Step}
	for _, s := range []string{"waiting", "queued", "running", "blocked"} {
		d.Over = d.Over && b.Counts[s] == 0
	}
	return d
}

// BatchCauseDoc is one reason why rows did not succeed.
type BatchCauseDoc struct {
	State   string   `json:"state"`
	Cause   string   `json:"cause"`
	Reason  string   `json:"reason"`
	Rows    int64    `json:"rows"`
	Samples []string `json:"samples"` // up to five of the rows' samples
	Step    string   `json:"step,omitempty"`
}

// BatchStatusAnswer is the answer of batch.status.
type BatchStatusAnswer struct {
	CallRunID
	BatchDoc
	Steps            []BatchDoc      `json:"steps,omitempty"` // of a batch with steps, in their order
	Causes           []BatchCauseDoc `json:"causes"`
	Waits            *BatchWait      `json:"waits"` // why no rows are submitted for now; null: nothing prevents it
	PollAfterSeconds *int            `json:"poll_after_seconds"`
	NextSteps        []fault.Step    `json:"next_steps"`
}

func (g *Gateway) batchStatus(ctx context.Context, c gate.Call, a BatchStatusArgs) (out BatchStatusAnswer, err error) {
	list, err := g.batchesOf(ctx, c, a.BatchArgs)
	if err != nil {
		return out, err
	}
	if a.WaitSeconds > 0 && !stepsDoc(list).Over {
		if list, err = g.awaitBatches(ctx, list, time.Duration(a.WaitSeconds)*time.Second); err != nil {
			return out, err
		}
	}
	out = BatchStatusAnswer{BatchDoc: stepsDoc(list), Causes: []BatchCauseDoc{}, NextSteps: []fault.Step{}}
	for _, b := range list {
		if len(list) > 1 {
			out.Steps = append(out.Steps, batchDoc(b))
		}
		if b.Counts["failed"]+b.Counts["refused"]+b.Counts["blocked"]+b.Counts["cancelled"] > 0 {
			causes, err := g.Ledger.BatchCauses(ctx, b.ID)
			if err != nil {
				return out, err
			}
			for _, x := range causes {
				x.Reason = g.Gate.Registry().Hide(c.Caller.Transport, fault.ClipTo(run.PlainDetail(x.Reason), 400))
				out.Causes = append(out.Causes, BatchCauseDoc{x.State, x.Cause, x.Reason, x.Rows, x.Samples, b.Step})
			}
		}
		if w, ok := g.loop.pauses()[b.ID]; ok && b.Todo > 0 && out.Waits == nil {
			w.Message = g.Gate.Registry().Hide(c.Caller.Transport, w.Message)
			out.Waits = &w
		}
	}
	if !out.Over {
		out.PollAfterSeconds = new(10)
	} else if out.NextSteps, err = g.afterBatches(ctx, list, out.BatchDoc); err != nil {
		return out, err
	}
	return out, nil
}

// afterBatches returns the steps to take once batches have ended: find why something failed, retry it, compare the
// outputs or fetch them.
func (g *Gateway) afterBatches(ctx context.Context, list []ledger.Batch, sum BatchDoc) ([]fault.Step, error) {
	steps := []fault.Step{}
	one := func(b ledger.Batch, s run.State) ([]ledger.BatchRow, error) {
		return g.Ledger.BatchRows(ctx, b.ID, ledger.RowFilter{State: string(s), Limit: 1})
	}
	for _, b := range list { // a later step fails because of an earlier one
		rows, err := one(b, run.Failed)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 && rows[0].RunID != "" {
			steps = append(steps, fault.Do("slurm.job.logs", "run_id", rows[0].RunID))
			if b.Counts["failed"] > 1 {
				steps = append(steps, fault.Do("batch.rows", "batch", b.Name, "state", "failed"))
			}
			break
		}
	}
	again := sum.Counts["refused"] > 0
	for _, b := range list {
		helps, err := g.Ledger.RetryHelps(ctx, b.ID)
		if err != nil {
			return nil, err
		}
		again = again || helps
	}
	if again {
		steps = append(steps, fault.Do("batch.retry", "batch", sum.Name))
	}
	var fetch []fault.Step
	for _, b := range slices.Backward(list) {
		rows, err := one(b, run.Succeeded)
		if err != nil {
			return nil, err
		}
		outputs, err := g.outputsOf(ctx, rows)
		if err != nil {
			return nil, err
		}
		for _, of := range outputs {
			if slices.ContainsFunc(of, inTable) {
				return append(steps, fault.Do("batch.table", "batch", b.Name)), nil
			}
			if len(fetch) == 0 {
				fetch = append(fetch, fault.Do("batch.rows", "batch", b.Name, "outputs", true))
			}
		}
	}
	return append(steps, fetch...), nil
}

// awaitBatches waits until batches have ended, for most at the longest, and returns their latest state.
func (g *Gateway) awaitBatches(ctx context.Context, list []ledger.Batch, most time.Duration) ([]ledger.Batch, error) {
	resume, ok := gate.Wait(ctx)
	if !ok {
		return list, fault.New(fault.Transport, "too_many_waits", "too many of your calls wait already").
			WithNext("repeat it without wait_seconds").WithRetry(10)
	}
	defer resume()
	for until := time.Now().Add(most); ; {
		if stepsDoc(list).Over || !time.Now().Before(until) {
			return list, nil
		}
		select {
		case <-ctx.Done():
			return list, nil // the latest known state is an answer
		case <-time.After(500 * time.Millisecond):
		}
		for i := range list {
			b, err := g.Ledger.Batch(ctx, list[i].ID)
			if err != nil {
				return list, err
			}
			list[i] = b
		}
	}
}

// BatchList is a page of batches.
type BatchList struct {
	CallRunID
	Listed
	Batches []BatchDoc `json:"batches"`
	Cursor  *string    `json:"cursor"`
}

// BatchListArgs are the arguments of batch.list.
type BatchListArgs struct {
	ProjectID string `json:"project_id,omitzero" kind:"project" name:"project" help:"Only this project (name or id)." placeholder:"NAME"`
	Principal string `json:"principal,omitzero" kind:"principal" help:"Only batches that this principal asked for: its name, its id, a login name, or me." placeholder:"NAME"` // see [principalAsked]
	Page
}

func (g *Gateway) listBatches(ctx context.Context, c gate.Call, a BatchListArgs) (out BatchList, err error) {
	projects, err := g.projectsListed(c, a.ProjectID)
	if err != nil {
		return out, err
	}
	list, cursor, total, err := g.Ledger.Batches(ctx, projects, principalAsked(c, a.Principal), a.Cursor, cmp.Or(a.Limit, 20))
	if err != nil {
		return out, err
	}
	out = BatchList{Listed: Listed{total, true}, Batches: []BatchDoc{}, Cursor: known(cursor)}
	for _, b := range list {
		out.Batches = append(out.Batches, batchDoc(b))
	}
	return out, nil
}
