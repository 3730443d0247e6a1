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

const (
	batchName       = `^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$`
	batchNameSchema = `{"type":"string","pattern":"` + batchName + `","not":{"pattern":"^batch_"},"description":"the batch's name, unique in its project"}`
	batchSchema     = `{"type":"string","minLength":1,"maxLength":128,"description":"a batch's name or id (batch_…)"}`
)

// CheckBatchName returns the fault of a name that no batch can have, for those who want to know before they import files.
func CheckBatchName(name string) error {
	if regexp.MustCompile(batchName).MatchString(name) && !strings.HasPrefix(name, "batch_") {
		return nil
	}
	return fault.Invalid("", fault.Problem{Code: "BATCH-NAME", Field: "name", Msg: fmt.Sprintf("got %.200q", name),
		Rule: "up to 100 letters, digits and ._+-, not beginning with batch_ or a sign"})
}

// batches are the operations on groups of runs.
func (g *Gateway) batches() []Operation {
	batch, project := prop("batch", batchSchema), prop("project_id", projectSchema)
	states := prop("state", `{"enum":["waiting","refused","queued","running","blocked","succeeded","failed","cancelled"]}`)
	return []Operation{{
		ID: "batch.run", Title: "Run a tool over a sample sheet", Verb: "batch run",
		Description: "Runs a tool once for each of rows, or of a sample sheet (CSV or TSV text, or an artifact with it, whose first line names " +
			"the columns). A row has the tool's parameters and inputs (artifact ids, run_…:role, batch_…:role by sample; in a sheet's cell separated by ;), sample, tags and label. " +
			"Every mistake is reported at once, and nothing starts. The same name with the same rows is the same batch.",
		Effect: gate.Execute, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Limit: 10 * time.Minute,
		Each:  "rows",
		Input: object("name", prop("tool_id", `{"type":"string","maxLength":128}`), prop("name", batchNameSchema), project,
			prop("rows", rowsSchema),
			prop("steps", `{"type":"string","minLength":1,"description":"instead of tool_id: steps: [{name: a, tool: x.y, set: {}}, {name: b, tool: x.z, from: {in: a.role}}]"}`),
			prop("sheet", `{"type":"string","minLength":1,"description":"the sheet as text, CSV or TSV, up to 32 KiB"}`),
			prop("sheet_artifact_id", artifactSchema),
			prop("set", `{"type":"object","description":"arguments of the tool for all rows; a row's own come before them"}`)),
		Does: look(g, g.runBatch), DryRun: does(g.rehearseBatch), Starts: batchTools, Covers: g.coversBatch,
	}, {
		ID: "batch.status", Title: "Show how a batch stands", Verb: "batch status",
		Description: "Returns how a batch stands: rows by state, and the failures grouped by cause, the most frequent first.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("batch", batch, project,
			prop("wait_seconds", `{"type":"integer","minimum":0,"maximum":30,"description":"seconds to wait for the batch to finish"}`)),
		Does: look(g, g.batchStatus),
	}, {
		ID: "batch.rows", Title: "List the rows of a batch", Verb: "batch status",
		Description: "Lists rows of a batch in the order of its sheet: sample, run, state, why it failed; with outputs, its outputs too.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("batch", batch, project, states, prop("sample", `{"type":"string","maxLength":128}`),
			prop("after_row", `{"type":"integer","minimum":0,"description":"only rows behind this one, for the next page"}`),
			prop("outputs", yesNo), prop("limit", limitSchema)),
		Does: look(g, g.batchRows),
	}, {
		ID: "batch.table", Title: "Compare the samples of a batch", Verb: "batch table",
		Description: "Returns one table across the samples of a batch from their JSON or TSV outputs: a row for each sample, a column for each " +
			"field. sort_by puts the worst first: smallest first, or largest with descending.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Limit: time.Minute,
		Input: object("batch", batch, project, prop("role", `{"type":"string","maxLength":64,"description":"the output to read; by default the first that is JSON, TSV or CSV"}`),
			prop("fields", `{"type":"array","maxItems":20,"items":{"type":"string","maxLength":200},"description":"the fields to show; by default the first 12"}`),
			prop("sort_by", `{"type":"string","maxLength":200,"description":"a field; smallest first"}`), prop("descending", yesNo),
			prop("limit", `{"type":"integer","minimum":1,"maximum":200,"description":"rows to show, 20 by default"}`)),
		Does: look(g, g.batchTable),
	}, {
		ID: "batch.list", Title: "List batches", Verb: "batch list",
		Description: "Lists batches, newest first, with their rows by state.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("", project, prop("cursor", cursorSchema), prop("limit", limitSchema)),
		Does:  look(g, g.listBatches),
	}, {
		ID: "batch.retry", Title: "Retry what failed in a batch", Verb: "batch retry",
		Description: "Opens a new attempt of each run of a batch that failed, and submits rows again that were refused; with cancelled also " +
			"what was cancelled. Rows that succeeded are left alone.",
		Effect: gate.Execute, Repeat: gate.IdempotentWithKey, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Engine,
		Faces: everywhere,
		Input: object("batch", batch, project, prop("cancelled", yesNo)), Does: look(g, g.retryBatch), DryRun: look(g, g.rehearseBatchVerb),
	}, {
		ID: "batch.cancel", Title: "Cancel a batch", Verb: "batch cancel",
		Description: "Cancels a batch: rows that were not submitted never will be, and its runs are cancelled, except those that other callers " +
			"asked for or another batch has. What is finished is left unchanged.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Input: object("batch", batch, project), Does: look(g, g.cancelBatch), DryRun: look(g, g.rehearseBatchVerb),
	}}
}

// BatchRunArgs are the arguments of batch.run.
type BatchRunArgs struct {
	ToolID    string                     `json:"tool_id,omitzero"`
	Steps     string                     `json:"steps,omitzero"` // instead of ToolID: the text of a steps file
	Name      string                     `json:"name"`
	ProjectID string                     `json:"project_id,omitzero"`
	Sheet     string                     `json:"sheet,omitzero"`
	SheetID   string                     `json:"sheet_artifact_id,omitzero"`
	Rows      []Row                      `json:"rows,omitzero"`
	Set       map[string]json.RawMessage `json:"set,omitzero"`
}

// BatchStarted is the answer of batch.run.
type BatchStarted struct {
	CallRunID
	BatchID string        `json:"batch_id"` // of several steps their common name
	Name    string        `json:"name"`
	Rows    int64         `json:"rows"`
	Existed bool          `json:"replayed"`        // the same was asked for before
	Steps   []StepStarted `json:"steps,omitempty"` // the batch of each step
}

// StepStarted is the batch of a step.
type StepStarted struct {
	Step    string `json:"step"`
	BatchID string `json:"batch_id"`
	Name    string `json:"name"`
	ToolID  string `json:"tool_id"`
	Rows    int64  `json:"rows"`
}

// Unchanged reports whether nothing was started.
func (a BatchStarted) Unchanged() bool { return a.Existed }

// BatchPlan is what batch.run would do.
type BatchPlan struct {
	Rows     int     `json:"rows"`
	New      int     `json:"new_runs"`
	Replays  int     `json:"replayed_runs"` // that are there already, in whatever state
	Shared   int     `json:"shared_rows"`   // rows that ask for the run of another row
	CPUHours float64 `json:"cpu_hours"`     // that the new runs reserve at most
	GPUHours float64 `json:"gpu_hours"`
	MemGiBH  float64 `json:"mem_gib_hours"`
}

// asked is a request for a batch, checked.
type batchAsked struct {
	batch ledger.Batch
	rows  []ledger.BatchRow
	plan  BatchPlan
	seen  map[string]bool // runs that plan counts
	kinds []gate.Coverage // what runs of it are, once each, where policy wants an approval
}

// batchPack is the toolpack of a batch, and what its callers are shown of it.
func (g *Gateway) batchPack(c gate.Call, id string) (*toolpack.Pack, ToolDoc, error) {
	doc, _, err := g.showTool(context.Background(), c, ToolArgs{ToolID: id})
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

// sheetText is the sheet of a request.
func (g *Gateway) sheetText(ctx context.Context, a BatchRunArgs) ([]byte, error) {
	if a.Rows != nil || (a.Sheet == "") == (a.SheetID == "") {
		return nil, fault.Invalid("", fault.Problem{Code: "BATCH-SHEET", Field: "sheet", Rule: "one of rows, sheet and sheet_artifact_id",
			Msg: "the call has several or none of them"})
	}
	if a.Sheet != "" {
		return []byte(a.Sheet), nil
	}
	x, f, err := g.opened(ctx, a.SheetID)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if x.SizeBytes > maxSheetBytes {
		return nil, fault.New(fault.Validation, "sheet_too_large", fmt.Sprintf("%s has %d bytes; a sheet has at most %d", x.ID, x.SizeBytes,
			maxSheetBytes)).WithNext("split it into several batches")
	}
	text, err := io.ReadAll(f)
	if kind := ""; err == nil {
		if kind = g.Secrets.Kind(string(text)); kind != "" {
			err = fault.Invalid("the sheet contains what looks like a secret; nothing was started", fault.Problem{Code: "secret_in_args",
				Field: "sheet_artifact_id", Rule: "no secret in an argument", Msg: "this looks like a secret (" + kind + ")"})
		}
	}
	return text, err
}

func (g *Gateway) rehearseBatch(ctx context.Context, c gate.Call, a BatchRunArgs) (sum BatchPlan, err error) {
	asked, err := g.askBatch(ctx, c, a, true)
	for _, x := range asked {
		sum.Add(x.plan)
	}
	return sum, err
}

// runBatch records the rows of a batch; the gateway makes runs of them, see [Gateway.RunBatches].
func (g *Gateway) runBatch(ctx context.Context, c gate.Call, a BatchRunArgs) (out BatchStarted, params any, err error) {
	asked, err := g.askBatch(ctx, c, a, false)
	if err != nil {
		return out, nil, err
	}
	var batches []ledger.Batch
	var rows [][]ledger.BatchRow
	for _, x := range asked {
		x.batch.ApprovalID = c.ApprovalID
		batches, rows = append(batches, x.batch), append(rows, x.rows)
	}
	if there, err := g.batchesThere(ctx, asked); err != nil {
		return out, nil, err
	} else if c.Unapproved && !there {
		return out, nil, fault.New(fault.Internal, "", "the batch was there and is not any more")
	}
	stored, created, err := g.Ledger.NewBatches(ctx, batches, rows)
	if err != nil {
		return out, nil, err
	}
	out.Name, out.Existed = a.Name, !created
	var hashes []string
	for i, b := range stored {
		if b.RowsHash != batches[i].RowsHash {
			return out, nil, nameTaken(b)
		}
		out.Rows, hashes = out.Rows+b.Rows, append(hashes, b.RowsHash)
		if out.BatchID = b.ID; b.Chain != "" {
			out.BatchID, out.Steps = a.Name, append(out.Steps, StepStarted{b.Step, b.ID, b.Name, b.ToolID, b.Rows})
		}
	}
	g.batchLoop.poke()
	params = map[string]any{"batch_id": out.BatchID, "rows_hash": hashes[0]}
	if len(hashes) > 1 {
		params = map[string]any{"batch_id": out.BatchID, "rows_hashes": hashes}
	}
	return out, params, nil
}

func nameTaken(b ledger.Batch) error {
	return fault.New(fault.Conflict, "batch_name_taken",
		fmt.Sprintf("the project has another batch named %s, with %d rows of %s", b.Name, b.Rows, b.ToolID)).
		WithNext("choose another name; rows that ask for the same find the same runs")
}

// Add counts another part of the same request.
func (b *BatchPlan) Add(p BatchPlan) {
	b.Rows, b.New, b.Replays, b.Shared = b.Rows+p.Rows, b.New+p.New, b.Replays+p.Replays, b.Shared+p.Shared
	b.CPUHours, b.GPUHours, b.MemGiBH = b.CPUHours+p.CPUHours, b.GPUHours+p.GPUHours, b.MemGiBH+p.MemGiBH
}
