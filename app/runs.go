package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// runs are the operations that read runs from the ledger.
func (g *Gateway) runs() []Operation {
	return []Operation{{
		ID: "run.provenance", Title: "Look up a provenance_run_id", Verb: "runs show",
		Description: "Returns which call answered with this provenance_run_id: its tool, canonical parameters and snapshot, and when it was " +
			"made. Works as long as the record of the call is retained.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("run_id", prop("run_id", runIDSchema)), Does: look(g, g.lookUpCall),
	}, {
		ID: "run.list", Title: "List runs", Verb: "runs list",
		Description: "Lists runs, newest first.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("", prop("state", `{"enum":["queued","running","blocked","succeeded","failed","cancelled"]}`),
			prop("tool_id", `{"type":"string","maxLength":128}`), prop("project_id", projectSchema),
			prop("principal", principalSchema), prop("id_prefix", idPrefixSchema("run_")), prop("since", timeSchema),
			prop("until", timeSchema), prop("sample", `{"type":"string","minLength":1,"maxLength":128,"description":"of a row of a batch"}`),
			prop("tag", `{"type":"string","minLength":1,"maxLength":128,"description":"of a row of a batch"}`), prop("batch", batchSchema),
			prop("cursor", cursorSchema), prop("limit", limitSchema)),
		Does: look(g, g.listRuns),
	}, {
		ID: "run.show", Title: "Show a run", Verb: "runs show",
		Description: "Returns everything about a run: identity, plan, policy, inputs, attempts, sends, events, outputs, resource usage.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Input: object("run_id", prop("run_id", runIDSchema)), Does: ofRun(g, look(g, g.showRun)),
	}, {
		ID: "run.diff", Title: "Compare two runs", Verb: "runs diff",
		Description: "Returns why two runs are not the same run: which parts of their identities differ, and where.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("a b", prop("a", runIDSchema), prop("b", runIDSchema)), Does: look(g, g.diffRuns),
	}}
}

// RunRow is one run in a list.
type RunRow struct {
	RunID      string     `json:"run_id"`
	ToolID     string     `json:"tool_id"`
	ProjectID  string     `json:"project_id"`
	Site       string     `json:"site"`
	ExecutedAs string     `json:"executed_as,omitempty"` // the cluster's Unix user whose job it is; absent: the gateway's own
	Principal  *string    `json:"principal"`             // whose call made it; null: made before this was recorded
	State      run.State  `json:"state"`
	Phase      run.Phase  `json:"phase"`
	Reason     string     `json:"reason"`
	SlurmJobID string     `json:"slurm_job_id"`
	Waits      *run.Wait  `json:"waits"` // in the gateway, and behind whom; null: for nothing there
	CreatedAt  time.Time  `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// RunListArgs are the arguments of run.list.
type RunListArgs struct {
	State     run.State `json:"state,omitzero"`
	ToolID    string    `json:"tool_id,omitzero"`
	ProjectID string    `json:"project_id,omitzero"`
	Principal string    `json:"principal,omitzero"` // see [principalAsked]
	IDPrefix  string    `json:"id_prefix,omitzero"` // what the run's id begins with
	Since     time.Time `json:"since,omitzero"`     // created at or after
	Until     time.Time `json:"until,omitzero"`     // created before
	Sample    string    `json:"sample,omitzero"`    // of a row of a batch
	Tag       string    `json:"tag,omitzero"`       // likewise
	Batch     string    `json:"batch,omitzero"`     // name or id of a batch
	Cursor    string    `json:"cursor,omitzero"`
	Limit     int       `json:"limit,omitzero"`
}

// RunList is one page of runs.
type RunList struct {
	CallRunID
	Listed
	Runs   []RunRow `json:"runs"`
	Cursor *string  `json:"cursor"`
	// Waiting are the runs that wait for outputs of others, or ended before they started, newest first; on the first page alone, and not
	// among Total. Absent: there are none.
	Waiting      []RunRow `json:"waiting,omitempty"`
	WaitingTotal int64    `json:"waiting_total,omitempty"`
}

// asked is a filter by principal. How often runs were asked for again belongs to the snapshot: it is no event.
type asked struct {
	Principal string `json:"principal"`
	Askers    int64  `json:"askers"`
}

// runListParams are the canonical params of a list of runs: the filter, and the ledger's newest event.
type runListParams struct {
	Projects []string   `json:"project_ids"` // null: every one
	State    run.State  `json:"state"`
	ToolID   string     `json:"tool_id"`
	IDPrefix string     `json:"id_prefix,omitzero"`
	Since    *time.Time `json:"since"`
	Until    *time.Time `json:"until"`
	Cursor   string     `json:"cursor"`
	Limit    int        `json:"limit"`
	Seq      int64      `json:"ledger_seq"`
	Asked    *asked     `json:"asked,omitzero"`
	Rows     *rowsOf    `json:"rows,omitzero"`
}

// rowsOf is a filter by rows of batches. How many runs it finds belongs to the snapshot: that a row became a run is no event.
type rowsOf struct {
	Sample string `json:"sample"`
	Tag    string `json:"tag"`
	Batch  string `json:"batch"`
	Total  int64  `json:"total"`
}

func (g *Gateway) listRuns(ctx context.Context, c gate.Call, a RunListArgs) (out RunList, params any, err error) {
	f := ledger.Filter{State: a.State, ToolID: a.ToolID, Principal: principalAsked(c, a.Principal),
		IDPrefix: a.IDPrefix, Sample: a.Sample, Tag: a.Tag, Cursor: a.Cursor, Limit: a.Limit}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return out, nil, err
	}
	if a.Batch != "" {
		b, err := g.batchOf(ctx, c, BatchArgs{Batch: a.Batch, ProjectID: a.ProjectID})
		if err != nil {
			return out, nil, err
		}
		f.Batch = b.ID
	}
	if !a.Since.IsZero() {
		f.Since = &a.Since
	}
	if !a.Until.IsZero() {
		f.Until = &a.Until
	}
	page, err := g.Ledger.List(ctx, f)
	if err != nil {
		return out, nil, err
	}
	if page.Total.N == 0 && a.ToolID != "" {
		if err := g.noSuchTool(ctx, c, a.ToolID, f.Projects); err != nil {
			return out, nil, err
		}
	}
	out = RunList{Listed: listedOf(page.Total), Runs: []RunRow{}, Cursor: cursorOf(page.Cursor)}
	for _, r := range page.Runs {
		out.Runs = append(out.Runs, RunRow{r.ID, r.ToolID, r.ProjectID, r.Site, r.ExecutedAs, known(r.Principal.Name), r.State, r.Phase,
			r.Reason, r.JobID, g.waits(r), r.CreatedAt, r.FinishedAt})
	}
	if a.Cursor == "" {
		if err := g.listWaiting(ctx, f, &out); err != nil {
			return out, nil, err
		}
	}
	var by *asked
	if f.Principal != "" {
		by = &asked{f.Principal, page.Askers}
	}
	var rows *rowsOf
	if f.Sample+f.Tag+f.Batch != "" {
		rows = &rowsOf{f.Sample, f.Tag, f.Batch, page.Total.N}
	}
	return out, runListParams{f.Projects, a.State, a.ToolID, a.IDPrefix, f.Since, f.Until, a.Cursor, a.Limit, page.Seq, by, rows}, nil
}

// listWaiting adds the runs that wait for outputs of others, or that ended before they started.
func (g *Gateway) listWaiting(ctx context.Context, f ledger.Filter, out *RunList) error {
	list, n, err := g.Ledger.Waitings(ctx, f)
	for _, w := range list {
		reason := w.Code
		switch w.State {
		case ledger.WaitingOn:
			reason = string(run.WaitingForInputs)
		case ledger.WaitingStarted: // found by its id
			reason = "it is " + w.Became
		}
		out.Waiting = append(out.Waiting, RunRow{RunID: w.ID, ToolID: w.ToolID, ProjectID: w.ProjectID, ExecutedAs: w.ExecutedAs,
			Principal: known(w.Principal.Name), State: waitingState(w), Phase: waitingPhase(w), Reason: reason, CreatedAt: w.CreatedAt,
			FinishedAt: w.FinishedAt})
	}
	out.WaitingTotal = n
	return err
}

// waits says what a run of a list waits for in the gateway.
func (g *Gateway) waits(r ledger.Row) *run.Wait {
	if g.Sites == nil { // a list without the engines: nothing moves
		return nil
	}
	return g.Sites.Waits(run.Run{ID: r.ID, Site: r.Site, ExecutedAs: r.ExecutedAs, ProjectID: r.ProjectID, Principal: r.Principal,
		Phase:    r.Phase,
		ToolName: g.toolName(r.ToolID), PackHash: "any"})
}

// nameBusiest adds the name of the caller who has most waiting in the project of a run: whoever may read the run may read that.
func (g *Gateway) nameBusiest(w *run.Wait) {
	if w == nil || w.Busiest == nil {
		return
	}
	if name := g.Caps().nameOf(w.Busiest.PrincipalID); name != "" {
		w.Busiest.Principal = name
		w.Text += fmt.Sprintf("; %s has %d waiting", name, w.Busiest.Waiting)
	}
}

// DiffArgs are the arguments of run.diff: two run ids.
type DiffArgs struct {
	A string `json:"a"`
	B string `json:"b"`
}

// RunDiff says why two runs are not the same.
type RunDiff struct {
	CallRunID
	Same    bool          `json:"same"`
	Parts   []PartDiff    `json:"parts"`   // the parts of the identity that differ
	Changes []plan.Change `json:"changes"` // where params and policies differ; paths begin with params or policy
	More    bool          `json:"more"`    // not all changes are listed
}

// PartDiff is a part of the identity in which two runs differ.
type PartDiff struct {
	Part string `json:"part"` // tool, contract_version, policy, params
	A    string `json:"a"`
	B    string `json:"b"`
}

const maxChanges = 100

func (g *Gateway) diffRuns(ctx context.Context, _ gate.Call, args DiffArgs) (out RunDiff, params any, err error) {
	a, err := g.Ledger.View(ctx, args.A)
	if err != nil {
		return out, nil, err
	}
	b, err := g.Ledger.View(ctx, args.B)
	if err != nil {
		return out, nil, err
	}
	out = RunDiff{Parts: []PartDiff{}, Changes: []plan.Change{}}
	for _, p := range []PartDiff{{"tool", a.Run.ToolName, b.Run.ToolName}, {"contract_version", a.Run.ContractVersion, b.Run.ContractVersion},
		{"policy", a.Run.PolicyHash, b.Run.PolicyHash}, {"params", a.Run.ParamsHash, b.Run.ParamsHash}} {
		if p.A != p.B {
			out.Parts = append(out.Parts, p)
		}
	}
	out.Same = len(out.Parts) == 0
	for _, doc := range []struct {
		name string
		a, b string
		read func(context.Context, string) (json.RawMessage, error)
	}{{"params", a.Run.ParamsHash, b.Run.ParamsHash, g.Ledger.Params}, {"policy", a.Run.PolicyHash, b.Run.PolicyHash, g.Ledger.Policy}} {
		if doc.a == doc.b {
			continue
		}
		x, err := doc.read(ctx, doc.a)
		if err != nil {
			return out, nil, err
		}
		y, err := doc.read(ctx, doc.b)
		if err != nil {
			return out, nil, err
		}
		changes, err := plan.Diff(x, y, maxChanges+1)
		if err != nil {
			return out, nil, err
		}
		for _, c := range changes {
			c.Path = doc.name + "." + c.Path
			out.Changes = append(out.Changes, c)
		}
	}
	if out.More = len(out.Changes) > maxChanges; out.More {
		out.Changes = out.Changes[:maxChanges]
	}
	return out, args, nil // identities never change, so the params need no snapshot
}
