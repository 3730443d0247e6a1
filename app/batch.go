package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/toolpack"
)

const batchName = `^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$`

// CheckBatchName returns the fault of a name that no batch can have, for callers that check it before they import
// files.
func CheckBatchName(name string) error {
	if regexp.MustCompile(batchName).MatchString(name) && !strings.HasPrefix(name, "batch_") {
		return nil
	}
	return fault.Invalid("", fault.Problem{Code: "BATCH-NAME", Field: "name",
		Msg:  fault.Quote(name, 200) + " cannot be the name of a batch",
		Rule: "up to 100 letters, digits and ._+-, not beginning with batch_ or a sign"})
}

// batches returns the operations on groups of runs.
func (g *Gateway) batches() []Operation {
	return []Operation{{
		ID: "batch.run", Title: "Run a tool over a sample sheet", Verb: "batch run",
		Description: "Runs a tool once for each of rows, or of a sample sheet (CSV or TSV text, or an artifact with it, whose first line names " +
			"the columns). A row has the tool's parameters and inputs (artifact ids, run_…:role, batch_…:role by sample; in a sheet's cell separated by ;), sample, tags and label. " +
			"All mistakes are reported at once; then nothing starts. The same name with the same rows is the same batch.",
		Chat: gate.Chat{Has: true, First: true, Seldom: []string{"sheet_artifact_id", "steps"}, Handles: gate.HandlesInCells,
			Correct: "Call batch_run again with all rows, also those that are right."},
		Effect: gate.Execute, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Limit: 10 * time.Minute, Checks: true,
		Each: "rows",
		Does: withProvenance(g, g.runBatch), DryRun: does(g.rehearseBatch), Starts: g.startsBatch, Covers: g.coversBatch,
		Shows: shows(g.addSheet),
	}, {
		ID: "batch.status", Title: "Show how a batch stands", Verb: "batch status",
		Description: "Returns how a batch stands: rows by state, and the failures grouped by cause, the most frequent first.",
		Chat:        gate.Chat{Has: true, First: true},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.batchStatus),
	}, {
		ID: "batch.rows", Title: "List the rows of a batch", Verb: "batch status",
		Description: "Lists rows of a batch in the order of its sheet: sample, run, state, why it failed; with outputs, its outputs too.",
		Chat:        gate.Chat{Has: true, Bound: "limit", Most: 12},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.batchRows),
	}, {
		ID: "batch.table", Title: "Compare the samples of a batch", Verb: "batch table",
		Description: "Returns one table across the samples of a batch from their JSON or TSV outputs: a row for each sample, a column for each " +
			"field. sort_by puts the worst first: smallest first, or largest with descending.",
		Chat:   gate.Chat{Has: true, First: true, Bound: "limit", Most: 12, Seldom: []string{"role"}},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Limit: time.Minute,
		Does:  withProvenance(g, g.batchTable),
	}, {
		ID: "batch.list", Title: "List batches", Verb: "batch list",
		Description: "Lists batches, newest first, with their rows by state.",
		Chat:        gate.Chat{Has: true, Bound: "limit", Most: 6},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.listBatches),
	}, {
		ID: "batch.retry", Title: "Retry what failed in a batch", Verb: "batch retry",
		Description: "Opens a new attempt of each run of a batch that failed, and submits rows again that were refused; with cancelled also " +
			"what was cancelled. Rows that succeeded are left alone.",
		Chat:   gate.Chat{Has: true},
		Effect: gate.Execute, Repeat: gate.IdempotentWithKey, Capability: gate.CapSlurm, Needs: Engine,
		Faces: everywhere,
		Does:  withProvenance(g, g.retryBatch), DryRun: withProvenance(g, g.rehearseBatchRetry),
		Starts: g.startsBatchRetry, Covers: g.coversBatchRetry, Shows: shows(g.addRows),
	}, {
		ID: "batch.cancel", Title: "Cancel a batch", Verb: "batch cancel",
		Description: "Cancels a batch that you asked for: rows that were not submitted never will be, and its runs are cancelled, except those " +
			"that were asked for in another way too. A batch that others asked for too continues for them. What is finished is left unchanged.",
		Chat: gate.Chat{Has: true, Seldom: []string{"for_all", "for_principal"}}, Destructive: true,
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Does: withProvenance(g, g.cancelBatch), DryRun: withProvenance(g, g.rehearseBatchCancel),
	}}
}

// BatchRunArgs are the arguments of batch.run.
type BatchRunArgs struct {
	ToolID    string                     `json:"tool_id,omitzero" max:"128"`
	Steps     string                     `json:"steps,omitzero" min:"1" max:"65536" about:"instead of tool_id: steps: [{name: a, tool: x.y, set: {}}, {name: b, tool: x.z, from: {in: a.role}}]"`
	Name      string                     `json:"name" kind:"batch_name"`
	ProjectID string                     `json:"project_id,omitzero" kind:"project"`
	Sheet     string                     `json:"sheet,omitzero" min:"1" about:"the sheet as text, CSV or TSV, up to 32 KiB"`
	SheetID   string                     `json:"sheet_artifact_id,omitzero" kind:"artifact"`
	Rows      []Row                      `json:"rows,omitzero" count:"1-10000" about:"in place of sheet: an object for each run, e.g. {\"sample\":\"S1\",\"reads\":\"art_…\"}; up to 32 KiB"`
	Set       map[string]json.RawMessage `json:"set,omitzero" about:"arguments of the tool for all rows; a row's own come before them"`
}

// BatchStarted is the answer of batch.run.
type BatchStarted struct {
	CallRunID
	BatchID string        `json:"batch_id"` // of several steps, their common name
	Name    string        `json:"name"`
	Rows    int64         `json:"rows"`
	Existed bool          `json:"replayed"` // the same batch was started before
	Steps   []StepStarted `json:"steps,omitempty" help:"the batch of each step; absent: there are none"`
	Samples int           `json:"samples"`
	// Warnings list what the rows probably do not mean.
	Warnings []string `json:"warnings"`
}

// StepStarted is the batch of a step.
type StepStarted struct {
	Step    string `json:"step"`
	BatchID string `json:"batch_id"`
	Name    string `json:"name"`
	ToolID  string `json:"tool_id"`
	Rows    int64  `json:"rows"`
}

// Unchanged reports whether the call started nothing.
func (a BatchStarted) Unchanged() bool { return a.Existed }

// BatchPlan describes what batch.run would do.
type BatchPlan struct {
	Rows     int     `json:"rows"`
	New      int     `json:"new_runs"`
	Replays  int     `json:"replayed_runs"` // runs that exist already, in any state
	Shared   int     `json:"shared_rows"`   // rows that ask for the run of another row
	CPUHours float64 `json:"cpu_hours"`     // upper bound of what the new runs reserve
	GPUHours float64 `json:"gpu_hours"`
	MemGiBH  float64 `json:"mem_gib_hours"`
	Samples  int     `json:"samples"`
	// Warnings list what the rows probably do not mean.
	Warnings []string `json:"warnings"`
}

// batchAsked is a checked request for a batch.
type batchAsked struct {
	batch ledger.Batch
	rows  []ledger.BatchRow
	plan  BatchPlan
	seen  map[string]bool // the runs that plan counts
	kinds []gate.Coverage // the coverage of its runs, each distinct one once, where policy wants an approval
}

// batchPack returns the toolpack of a batch and the description of its tool that its callers see.
func (g *Gateway) batchPack(c gate.Call, id string) (*toolpack.Pack, ToolDoc, error) {
	doc, err := g.showTool(context.Background(), c, ToolArgs{ToolID: id})
	if err != nil {
		return nil, doc, err
	}
	for _, p := range g.jobPacks() {
		if p.ID() != id {
			continue
		}
		return p, doc, nil
	}
	return nil, doc, fault.New(fault.Validation, "batch_tool",
		id+" does not run as a job; only tools whose calls become jobs run over a sheet").
		WithSteps(fault.Do("tool.list"))
}

// sheet reads the sheet of a request.
func (g *Gateway) sheet(ctx context.Context, a BatchRunArgs) (s Sheet, err error) {
	if a.Rows != nil || (a.Sheet == "") == (a.SheetID == "") {
		return s, fault.Invalid("", fault.Problem{Code: "BATCH-SHEET", Field: "sheet",
			Rule: "exactly one of rows, sheet and sheet_artifact_id",
			Msg:  "rows, sheet and sheet_artifact_id are all missing, or several of them are given"})
	}
	if a.Sheet != "" {
		return ReadSheet(ctx, []byte(a.Sheet))
	}
	x, f, err := g.opened(ctx, a.SheetID)
	if err != nil {
		return s, err
	}
	defer f.Close()
	if x.SizeBytes > MaxSheetBytes {
		return s, SheetTooLarge(x.ID)
	}
	if err := gate.Hold(ctx, sheetFactor*x.SizeBytes); err != nil {
		return s, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return s, err
	}
	return ReadSheet(ctx, text)
}

// SheetTooLarge returns the error of a sheet that is longer than [MaxSheetBytes].
func SheetTooLarge(name string) error {
	return fault.New(fault.Validation, "sheet_too_large", fmt.Sprintf("%s has more than %d MiB, the most that a sheet may have", name,
		MaxSheetBytes>>20)).WithNext("split it into several batches")
}

func (g *Gateway) rehearseBatch(ctx context.Context, c gate.Call, a BatchRunArgs) (sum BatchPlan, err error) {
	asked, err := g.askBatch(ctx, c, a, true)
	for _, x := range asked {
		sum.Add(x.plan)
	}
	if err == nil {
		sum.Samples, sum.Warnings = asked[0].plan.Samples, asked[0].plan.Warnings
	}
	return sum, err
}

// runBatch records the rows of a batch; the gateway turns them into runs later, see [Gateway.StartLoop].
func (g *Gateway) runBatch(ctx context.Context, c gate.Call, a BatchRunArgs) (out BatchStarted, err error) {
	asked, err := g.askBatch(ctx, c, a, false)
	if err != nil {
		return out, err
	}
	var batches []ledger.Batch
	var rows [][]ledger.BatchRow
	for _, x := range asked {
		x.batch.ApprovalID = c.ApprovalID
		batches, rows = append(batches, x.batch), append(rows, x.rows)
	}
	if ctx, err = gate.Effect(ctx); err != nil {
		return out, err
	}
	if there, err := g.batchesThere(ctx, asked); err != nil {
		return out, err
	} else if c.Unapproved && !there {
		return out, fault.New(fault.Internal, "", "the batch was there and is not any more")
	}
	stored, created, err := g.Ledger.NewBatches(ctx, batches, rows)
	if err != nil {
		return out, err
	}
	out.Name, out.Existed, out.Samples, out.Warnings = a.Name, !created, asked[0].plan.Samples, asked[0].plan.Warnings
	var hashes []string
	for i, b := range stored {
		if b.RowsHash != batches[i].RowsHash {
			return out, nameTaken(b)
		}
		out.Rows, hashes = out.Rows+b.Rows, append(hashes, b.RowsHash)
		if out.BatchID = b.ID; b.Chain != "" {
			out.BatchID, out.Steps = a.Name, append(out.Steps, StepStarted{b.Step, b.ID, b.Name, b.ToolID, b.Rows})
		}
	}
	g.loop.wakeUp()
	out.Params = map[string]any{"batch_id": out.BatchID, "rows_hash": hashes[0]}
	if len(hashes) > 1 {
		out.Params = map[string]any{"batch_id": out.BatchID, "rows_hashes": hashes}
	}
	return out, nil
}

func nameTaken(b ledger.Batch) error {
	return fault.New(fault.Conflict, "batch_name_taken",
		fmt.Sprintf("the project has another batch named %s, with %d rows of %s", b.Name, b.Rows, b.ToolID)).
		WithNext("choose another name; rows that ask for the same find the same runs")
}

// Add adds the counts of another part of the same request.
func (b *BatchPlan) Add(p BatchPlan) {
	b.Rows, b.New, b.Replays, b.Shared = b.Rows+p.Rows, b.New+p.New, b.Replays+p.Replays, b.Shared+p.Shared
	b.CPUHours, b.GPUHours, b.MemGiBH = b.CPUHours+p.CPUHours, b.GPUHours+p.GPUHours, b.MemGiBH+p.MemGiBH
}
