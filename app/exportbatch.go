package app

import (
	"context"
	"fmt"

	"slurmgate/export"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
)

func (g *Gateway) batchExporting() Operation {
	return Operation{
		ID: "batch.export", Title: "Export a batch", Verb: "batch export",
		Description: "Describes the archive of a batch that is over: its rows, and the archive of each of its runs (run.export). The bytes " +
			"come over HTTP (path), or with `slurmgate export`. Artifacts larger than max_size_mb (default 1024), or all with by_reference, are " +
			"named and not included; an input of several runs is included once.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.describeBatchExport),
	}
}

// BatchExportArgs are the arguments of batch.export.
type BatchExportArgs struct {
	BatchArgs
	ExportBounds
}

// BatchExported is the answer of batch.export.
type BatchExported struct {
	CallRunID
	BatchID string           `json:"batch_id"`
	Name    string           `json:"name"`
	Rows    int64            `json:"rows"`
	Counts  map[string]int64 `json:"counts"` // rows by state; those that were refused, or cancelled before they were submitted, have no run
	File    string           `json:"file"`   // the archive's usual name
	Path    string           `json:"path"`   // GET returns the bytes
}

func (g *Gateway) describeBatchExport(ctx context.Context, c gate.Call, a BatchExportArgs) (out BatchExported, err error) {
	b, err := g.batchOf(ctx, c, a.BatchArgs)
	if err != nil {
		return out, err
	}
	d := batchDoc(b)
	if !d.Over {
		return out, batchNotOver(d)
	}
	return BatchExported{BatchID: b.ID, Name: b.Name, Rows: b.Rows, Counts: b.Counts, File: export.FileName(b.ID),
		Path: "/v1/batches/" + b.ID + "/export" + a.query()}, nil
}

func batchNotOver(d BatchDoc) error {
	return fault.New(fault.Conflict, "batch_not_over", fmt.Sprintf("batch %s is not over; an archive says how its runs ended", d.Name)).
		WithSteps(fault.Do("batch.status", "batch", d.Name))
}

// ExportBatch builds the archive of a batch, for a caller whom the gate has allowed batch.export of it. a.Batch is
// its id.
func (g *Gateway) ExportBatch(ctx context.Context, a BatchExportArgs) (*export.BatchArchive, error) {
	b, err := g.Ledger.Batch(ctx, a.Batch)
	if err != nil {
		return nil, err
	}
	if d := batchDoc(b); !d.Over {
		return nil, batchNotOver(d)
	}
	rows, err := g.Ledger.BatchRows(ctx, b.ID, ledger.RowFilter{Limit: MaxSheetRows})
	if err != nil {
		return nil, err
	}
	doc := export.Batch{BatchID: b.ID, Name: b.Name, Chain: b.Chain, Step: b.Step, ToolID: b.ToolID, ToolVersion: b.ToolVersion,
		Project: b.ProjectID, Principal: b.Principal.Name, CreatedAt: b.CreatedAt, Rows: []export.BatchRow{}}
	for _, w := range rows {
		doc.Rows = append(doc.Rows, export.BatchRow{Row: w.N, Sample: w.Sample, Label: w.Label, Tags: append([]string{}, w.Tags...), Args: w.Args,
			RunID: w.RunID, State: w.State, Code: w.Code, Message: g.Gate.Registry().Hide(gate.MCP, w.Message)})
	}
	args := ExportArgs{ExportBounds: a.ExportBounds}
	shared := map[string]bool{}
	if !a.ByReference {
		if shared, err = g.sharedInputs(ctx, rows, args.maxBytes()); err != nil {
			return nil, err
		}
	}
	signer, err := g.Ledger.Signer(ctx)
	if err != nil {
		return nil, err
	}
	return export.NewBatch(ctx, doc, signer, func(ctx context.Context, id string) (*export.Archive, error) {
		args := args
		args.RunID = id
		return g.exportRun(ctx, args, signer, shared)
	}, g.exported)
}

// sharedInputs returns the checksums of the files that several runs of a batch use, and that belong in the batch's
// archive.
func (g *Gateway) sharedInputs(ctx context.Context, rows []ledger.BatchRow, most int64) (map[string]bool, error) {
	shared, takenBy, seen := map[string]bool{}, map[string]string{}, map[string]bool{}
	for _, w := range rows {
		if w.RunID == "" || seen[w.RunID] {
			continue
		}
		seen[w.RunID] = true
		inputs, err := g.Ledger.Inputs(ctx, w.RunID)
		if err != nil {
			return nil, err
		}
		for _, in := range inputs {
			x := in.Artifact
			if x.Type == plan.Directory || x.SizeBytes > most || x.Erased != "" || !g.Store.Has(x.SHA256) {
				continue
			}
			if other, ok := takenBy[x.SHA256]; ok && other != w.RunID {
				shared[x.SHA256] = true
			}
			takenBy[x.SHA256] = w.RunID
		}
	}
	return shared, nil
}
