package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"slurmgate/export"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// exportMaxMB is the size in MiB above which an artifact goes into an archive by reference, unless the caller names another.
const exportMaxMB = 1024

// exporting are the operations on archives of runs.
func (g *Gateway) exporting() []Operation {
	return []Operation{{
		ID: "run.export", Title: "Export a run", Verb: "export",
		Description: "Describes the archive of a finished run: an RO-Crate with its plan, policy, script, inputs, outputs, logs, history, " +
			"signed receipt, and a Nextflow module that repeats it. The bytes come over HTTP (path), or with `slurmgate export`. Artifacts larger than " +
			"max_size_mb (default 1024), or all with by_reference, are named and not included.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("run_id", prop("run_id", runIDSchema), prop("by_reference", yesNo),
			prop("max_size_mb", `{"type":"integer","minimum":1,"maximum":1073741824}`)),
		Does: ofRun(g, look(g, g.describeExport)),
	}, g.batchExporting()}
}

// ExportArgs are the arguments of run.export.
type ExportArgs struct {
	RunID       string `json:"run_id"`
	ByReference bool   `json:"by_reference,omitzero"`
	MaxMB       int64  `json:"max_size_mb,omitzero"`
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

func (g *Gateway) describeExport(ctx context.Context, _ gate.Call, a ExportArgs) (out Exported, params any, err error) {
	x, err := g.Export(ctx, a)
	if err != nil {
		return out, nil, err
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
	return out, map[string]any{"run_id": a.RunID, "attempt": r.Attempt, "by_reference": a.ByReference, "max_size_mb": a.MaxMB,
		"size_bytes": out.SizeBytes}, nil
}

// query are the arguments in a path.
func (a ExportArgs) query() string {
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

// Export makes the archive of a run, for a caller whom the gate has allowed run.export. It holds what was recorded up to the run's end and
// nothing later.
func (g *Gateway) Export(ctx context.Context, a ExportArgs) (*export.Archive, error) {
	return g.exportRun(ctx, a, nil)
}

// exportRun makes the archive of a run; shared are the inputs, by checksum, that are in the archive of a batch instead.
func (g *Gateway) exportRun(ctx context.Context, a ExportArgs, shared map[string]bool) (*export.Archive, error) {
	switch w, err := g.Ledger.Waiting(ctx, a.RunID); {
	case err == nil && w.State != ledger.WaitingStarted:
		return nil, notStarted(w)
	case err == nil:
		a.RunID = w.Became
	case !fault.Is(err, fault.NotFound):
		return nil, err
	}
	v, err := g.Ledger.View(ctx, a.RunID)
	if err != nil {
		return nil, err
	}
	if !v.Run.State.Terminal() || v.Run.FinishedAt == nil {
		return nil, notOver(v)
	}
	x := &exporter{Gateway: g, v: v, hide: func(s string) string { return g.Gate.Registry().Hide(gate.MCP, s) }}
	if err := x.collect(ctx); err != nil {
		return nil, err
	}
	now, err := g.Ledger.View(ctx, a.RunID)
	if err != nil {
		return nil, err
	}
	if now.Run.Rev != v.Run.Rev {
		return nil, notOver(now) // somebody retried it meanwhile
	}
	return export.New(x.rec, export.Options{ByReference: a.ByReference, MaxBytes: a.maxBytes(), Shared: shared}, g.exported)
}

func (a ExportArgs) maxBytes() int64 { return cmp.Or(a.MaxMB, exportMaxMB) << 20 }

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
