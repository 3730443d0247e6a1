package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"slurmgate/export"
	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
)

// exportMaxMB is the size in MiB above which an archive has an artifact only by reference, unless the caller sets
// another.
const exportMaxMB = 1024

// exporting returns the operations on archives of runs.
func (g *Gateway) exporting() []Operation {
	return []Operation{{
		ID: "run.export", Title: "Export a run", Verb: "export",
		Description: "Describes the archive of a finished run: an RO-Crate with its plan, policy, script, inputs, outputs, logs, history, " +
			"signed receipt, and a Nextflow module that repeats it. The bytes come over HTTP (path), or with `slurmgate export`. Artifacts larger than " +
			"max_size_mb (default 1024), or all with by_reference, are named and not included.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: ofRun(g, withProvenance(g, g.describeExport)),
	}, g.batchExporting()}
}

// ExportBounds select the artifacts that an archive has only by reference.
type ExportBounds struct {
	ByReference bool  `json:"by_reference,omitzero" name:"by-reference" help:"Name the artifacts, with their checksums, instead of including them."`
	MaxMB       int64 `json:"max_size_mb,omitzero" min:"1" max:"1073741824" name:"max-size-mb" help:"Name artifacts larger than this many MiB instead of including them. Default: 1024." placeholder:"N"`
}

// ExportArgs are the arguments of run.export.
type ExportArgs struct {
	RunID string `json:"run_id" ids:"run"`
	ExportBounds
}

// Exported is the answer of run.export.
type Exported struct {
	CallRunID
	RunID       string              `json:"run_id"`
	State       string              `json:"state"`
	File        string              `json:"file"` // the archive's usual name
	SizeBytes   int64               `json:"size_bytes"`
	Files       int                 `json:"files"`
	Signed      bool                `json:"signed"`       // it has a receipt
	ByReference []ExportedReference `json:"by_reference"` // artifacts that are not in it
	Notes       []string            `json:"notes"`
	Path        string              `json:"path"` // GET returns the bytes
}

// ExportedReference is an artifact that an archive names and does not include.
type ExportedReference struct {
	ArtifactID string `json:"artifact_id"`
	Role       string `json:"role"`
	SizeBytes  int64  `json:"size_bytes"`
	Why        string `json:"why"`
}

func (g *Gateway) describeExport(ctx context.Context, _ gate.Call, a ExportArgs) (out Exported, err error) {
	x, err := g.Export(ctx, a)
	if err != nil {
		return out, err
	}
	r := x.Run()
	out = Exported{RunID: r.RunID, State: r.State, File: x.Name(), SizeBytes: x.Size(), Files: x.Files(), Signed: x.Signed(),
		ByReference: []ExportedReference{}, Notes: append([]string{}, r.Missing...), Path: "/v1/runs/" + r.RunID + "/export"}
	for _, a := range slices.Concat(r.Inputs, r.Outputs) {
		if a.File == "" {
			out.ByReference = append(out.ByReference, ExportedReference{a.ArtifactID, a.Role, a.SizeBytes, a.Why})
		}
	}
	out.Path += a.query()
	return out, nil
}

// query encodes the bounds as the query of a path.
func (a ExportBounds) query() string {
	var query []string
	if a.ByReference {
		query = append(query, "by_reference=true")
	}
	if a.MaxMB > 0 {
		query = append(query, fmt.Sprint("max_size_mb=", a.MaxMB))
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + strings.Join(query, "&")
}

// Export builds the archive of a run, for a caller whom the gate has allowed run.export. It holds what was recorded
// up to the run's end and nothing later.
func (g *Gateway) Export(ctx context.Context, a ExportArgs) (*export.Archive, error) {
	signer, err := g.Ledger.Signer(ctx)
	if err != nil {
		return nil, err
	}
	return g.exportRun(ctx, a, signer, nil)
}

// exportRun builds the archive of a run. shared are the inputs, by checksum, that the archive of a batch has instead.
func (g *Gateway) exportRun(ctx context.Context, a ExportArgs, signer receipt.Signer, shared map[string]bool) (*export.Archive, error) {
	r, err := g.Ledger.RunRecord(ctx, a.RunID)
	switch {
	case err != nil:
		return nil, err
	case r.Waiting != nil:
		return nil, run.NotStarted(r.View)
	}
	if !r.Run.State.Terminal() || r.Run.FinishedAt == nil {
		return nil, notOver(r.View)
	}
	x := &exporter{Gateway: g, of: r, hide: func(s string) string { return g.Gate.Registry().Hide(gate.MCP, s) }}
	x.rec.Signer = signer
	if err := x.collect(ctx); err != nil {
		return nil, err
	}
	return export.New(x.rec, export.Options{ByReference: a.ByReference, MaxBytes: a.maxBytes(), Shared: shared}, g.exported)
}

func (a ExportBounds) maxBytes() int64 { return cmp.Or(a.MaxMB, exportMaxMB) << 20 }

func (g *Gateway) exported(_ context.Context, sha256 string) (io.ReadCloser, error) {
	return g.Store.Open(sha256)
}

func notOver(v run.View) error {
	e := fault.New(fault.Conflict, "run_not_over", fmt.Sprintf("the run is not over (%s, %s); an archive says how a run ended", v.Run.State,
		v.Run.Phase))
	if v.Run.State == run.Blocked {
		return e.WithSteps(run.NextSteps(v)...)
	}
	return e.WithSteps(fault.Do("slurm.job.collect", "run_id", v.Run.ID, "wait_seconds", run.LongWait))
}
