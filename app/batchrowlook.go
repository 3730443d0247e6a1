package app

import (
	"cmp"
	"context"
	"path"
	"strings"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// BatchRowsArgs are the arguments of batch.rows.
type BatchRowsArgs struct {
	BatchArgs
	State    string `json:"state,omitzero" enum:"waiting,refused,queued,running,blocked,succeeded,failed,cancelled"`
	Sample   string `json:"sample,omitzero" max:"128"`
	AfterRow int    `json:"after_row,omitzero" min:"0" about:"only rows behind this one, for the next page"`
	Outputs  bool   `json:"outputs,omitzero"`
	Limit    int    `json:"limit,omitzero" min:"1" max:"200"`
}

// BatchOutput is an output of a row's run.
type BatchOutput struct {
	Role       string `json:"role"`
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	SizeBytes  int64  `json:"size_bytes"`
	SHA256     string `json:"checksum_sha256"`
	Name       string `json:"name"`          // the file name for downloads: begins with the row's label or sample
	Gone       bool   `json:"gone,omitzero"` // its bytes were removed
}

// BatchRowDoc is a row of a batch.
type BatchRowDoc struct {
	Row     int           `json:"row"`
	Sample  string        `json:"sample"`
	Label   string        `json:"label,omitzero"`
	Tags    []string      `json:"tags"`
	RunID   *string       `json:"run_id"` // null: not submitted
	State   string        `json:"state"`
	Reason  string        `json:"reason"` // why it is not submitted, or how its run ended
	Outputs []BatchOutput `json:"outputs,omitzero"`
}

// BatchRowsAnswer is a page of rows.
type BatchRowsAnswer struct {
	CallRunID
	BatchID  string        `json:"batch_id"`
	Name     string        `json:"name"`
	ToolID   string        `json:"tool_id"`
	Total    int64         `json:"total"` // rows of the batch
	Rows     []BatchRowDoc `json:"rows"`
	AfterRow *int          `json:"after_row"` // for the next page; null: this is the last
}

func (g *Gateway) batchRows(ctx context.Context, c gate.Call, a BatchRowsArgs) (out BatchRowsAnswer, err error) {
	b, err := g.batchOf(ctx, c, a.BatchArgs)
	if err != nil {
		return out, err
	}
	limit := cmp.Or(a.Limit, 50)
	rows, err := g.Ledger.BatchRows(ctx, b.ID, ledger.RowFilter{State: a.State, Sample: a.Sample, After: a.AfterRow, Limit: limit + 1})
	if err != nil {
		return out, err
	}
	out = BatchRowsAnswer{BatchID: b.ID, Name: b.Name, ToolID: b.ToolID, Total: b.Rows, Rows: []BatchRowDoc{}}
	if len(rows) > limit {
		rows = rows[:limit]
		out.AfterRow = new(rows[limit-1].N)
	}
	var outputs map[string][]run.Output
	if a.Outputs {
		if outputs, err = g.outputsOf(ctx, rows); err != nil {
			return out, err
		}
	}
	for _, r := range rows {
		d := BatchRowDoc{Row: r.N, Sample: r.Sample, Label: r.Label, Tags: r.Tags, RunID: known(cmp.Or(r.RunID, r.WaitingID)),
			State: r.State, Reason: r.Message}
		if r.RunID != "" {
			if err := g.describeRow(ctx, c, outputs[r.RunID], &d); err != nil {
				return out, err
			}
		}
		out.Rows = append(out.Rows, d)
	}
	return out, nil
}

// outputsOf returns the declared outputs of the rows that succeeded, by run.
func (g *Gateway) outputsOf(ctx context.Context, rows []ledger.BatchRow) (map[string][]run.Output, error) {
	var ids []string
	for _, r := range rows {
		if r.State == string(run.Succeeded) {
			ids = append(ids, r.RunID)
		}
	}
	return g.Ledger.Declared(ctx, ids)
}

// describeRow adds how the run of a row ended, and its outputs.
func (g *Gateway) describeRow(ctx context.Context, c gate.Call, outputs []run.Output, d *BatchRowDoc) error {
	if d.State != "succeeded" && d.Reason == "" {
		v, err := g.Ledger.View(ctx, *d.RunID)
		if err != nil {
			return err
		}
		d.Reason = g.Gate.Registry().Hide(c.Caller.Transport, v.Reason())
	}
	for _, o := range outputs {
		d.Outputs = append(d.Outputs, BatchOutput{o.Role, o.Artifact.ID, o.Artifact.Type, o.Artifact.SizeBytes, o.Artifact.SHA256,
			rowName(cmp.Or(d.Label, d.Sample), o.Relpath), o.Artifact.Removed+o.Artifact.Erased != ""})
	}
	return nil
}

// rowName returns the file name of an output for downloads.
func rowName(sample, relpath string) string {
	base := path.Base(relpath)
	if strings.HasPrefix(base, sample) {
		return base
	}
	return sample + "." + base
}
