package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// A person who approves a call must have been shown all of it: its arguments, and what they refer to, such as the run
// that is retried or the sheet of a batch. A list shows that where it is short. Where it is longer,
// [Gateway.showApproval] shows it with a code that only its answer has, and the approval needs that code.

// shownAtOnce is the largest request, in bytes, that a list shows.
const shownAtOnce = 4096

// ApprovalShowArgs are the arguments of approval.show.
type ApprovalShowArgs struct {
	ApprovalID string `json:"approval_id" kind:"approval" arg:"" name:"approval" help:"Approval id, apr_…"`
}

// ApprovalShown is the answer of approval.show.
type ApprovalShown struct {
	approvalsAsked
	gate.Approval
}

func (g *Gateway) showApproval(ctx context.Context, c gate.Call, a ApprovalShowArgs) (out ApprovalShown, err error) {
	out.Approval, err = g.visibleApproval(ctx, c, a.ApprovalID)
	if err == nil && out.Status == gate.Pending {
		out.Shows, err = g.showsOf(ctx, out.Approval, math.MaxInt)
	}
	return out, err
}

// showing adds to d what an approval covers besides its arguments. It may stop early once that exceeds most bytes.
type showing func(ctx context.Context, d *gate.Shows, of gate.Approval, most int) error

// shows turns a function that takes the decoded arguments of the approved call into a showing.
func shows[A any](f func(ctx context.Context, d *gate.Shows, of gate.Approval, a A, most int) error) showing {
	return func(ctx context.Context, d *gate.Shows, of gate.Approval, most int) error {
		var a A
		if err := json.Unmarshal(of.Payload, &a); err != nil {
			return fault.Wrap(fault.Conflict, "approval_void", "the arguments of "+of.ID+" cannot be read", err)
		}
		return f(ctx, d, of, a, most)
	}
}

// showsOf returns all that an approval covers besides its arguments. Where that and the arguments exceed most bytes,
// the result has neither it nor the code, and Bytes is a lower bound of the size.
func (g *Gateway) showsOf(ctx context.Context, a gate.Approval, most int) (*gate.Shows, error) {
	d := &gate.Shows{Retries: []gate.Retried{}, Bytes: len(a.Payload)}
	var err error
	if o, _ := g.Find(a.ToolID); o.Shows != nil {
		err = o.Shows(ctx, d, a, most)
	}
	if err != nil {
		return d, err
	}
	if d.Bytes > most {
		return &gate.Shows{Retries: []gate.Retried{}, Bytes: d.Bytes}, nil
	}
	doc, err := plan.Marshal([]any{a.ID, a.Payload, a.Covers, d.Retries, d.Sheet})
	code := plan.Hash(doc)[len("sha256:"):][:12]
	d.Code = &code
	return d, err
}

func (g *Gateway) addRetried(ctx context.Context, d *gate.Shows, r gate.Retried, paramsHash string) (err error) {
	r.Params, err = g.Ledger.Params(ctx, paramsHash)
	d.Retries, d.Bytes = append(d.Retries, r), d.Bytes+len(r.Params)
	return err
}

// addRetry adds the attempt that a request of slurm.job.retry follows.
func (g *Gateway) addRetry(ctx context.Context, d *gate.Shows, of gate.Approval, a RetryArgs, _ int) error {
	return g.addRetried(ctx, d, gate.Retried{RunID: a.RunID, Attempt: of.Covers.Attempt - 1}, of.Covers.ParamsHash)
}

// addRows adds the rows that a request of batch.retry covers. If they differ from those that were asked for it fails
// with a Conflict: the request is void.
func (g *Gateway) addRows(ctx context.Context, d *gate.Shows, of gate.Approval, a BatchRetryArgs, most int) error {
	rows, hash, err := g.rowsToRetry(ctx, of.Covers.Batches, a.Cancelled)
	if err == nil && hash != of.Covers.ParamsHash {
		err = fault.New(fault.Conflict, "approval_void",
			"other rows of the batch have failed since "+of.ID+" was requested, or its rows run again").
			WithNext("the principal that requested it must make the call again, which requests a new approval")
	}
	for _, r := range rows {
		if err != nil || d.Bytes > most {
			return err
		}
		var v run.View
		if v, err = g.Ledger.View(ctx, r.RunID); err == nil {
			err = g.addRetried(ctx, d, gate.Retried{Row: r.N, Sample: r.Sample, RunID: r.RunID, Attempt: r.Attempt}, v.Run.ParamsHash)
		}
	}
	return err
}

// addSheet adds the sheet that a request of batch.run names.
func (g *Gateway) addSheet(ctx context.Context, d *gate.Shows, _ gate.Approval, a BatchRunArgs, most int) error {
	if a.SheetID == "" {
		return nil
	}
	x, f, err := g.opened(ctx, a.SheetID)
	if err != nil {
		return err
	}
	defer f.Close()
	if d.Bytes += int(x.SizeBytes); d.Bytes > most {
		return nil
	}
	data, err := io.ReadAll(f)
	text := string(data)
	d.Sheet = &text
	return err
}

// listed adds to approvals what a list shows of them. If what one refers to is gone, it cannot be approved.
func (g *Gateway) listed(ctx context.Context, list []gate.Approval) error {
	for i, a := range list {
		if a.Status != gate.Pending {
			continue
		}
		d, err := g.showsOf(ctx, a, shownAtOnce)
		if kind := fault.KindOf(err); err != nil && kind != fault.NotFound && kind != fault.Conflict {
			return err
		}
		list[i].Shows = d
	}
	return nil
}

// seen refuses an approval by a person who was not shown all of it. code is that of approval.show.
func (g *Gateway) seen(ctx context.Context, was gate.Approval, code string) error {
	d, err := g.showsOf(ctx, was, math.MaxInt)
	if err != nil || d.Bytes <= shownAtOnce && code == "" || code == plan.OrBlank(d.Code) {
		return err
	}
	return fault.New(fault.Validation, "approval_unseen", fmt.Sprintf("%s is about %d bytes, more than a list shows, and the code that "+
		"comes with all of them was not given", was.ID, d.Bytes)).WithNext("read all of it; it ends with the code to approve it with").
		WithSteps(fault.Do("approval.show", "approval_id", was.ID))
}
