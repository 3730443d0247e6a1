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

// runs returns the operations that read runs from the ledger.
func (g *Gateway) runs() []Operation {
	return []Operation{{
		ID: "run.provenance", Title: "Look up a provenance_run_id", Verb: "runs show",
		Description: "Returns which call answered with this provenance_run_id: its tool, canonical parameters and snapshot, and when it was " +
			"made. Works as long as the record of the call is retained.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.lookUpCall),
	}, {
		ID: "run.list", Title: "List runs", Verb: "runs list",
		Description: "Lists runs, newest first.",
		Chat:        gate.Chat{Has: true, First: true, Bound: "limit", Most: 6, Seldom: []string{"id_prefix"}},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.listRuns),
	}, {
		ID: "run.show", Title: "Show a run", Verb: "runs show",
		Description: "Returns everything about a run: identity, plan, policy, inputs, attempts, sends, events, outputs, resource usage.",
		Chat:        gate.Chat{Instead: "slurm.job.get"},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Does: ofRun(g, withProvenance(g, g.showRun)),
	}, {
		ID: "run.diff", Title: "Compare two runs", Verb: "runs diff",
		Description: "Returns why two runs are not the same run: which parts of their identities differ, and where.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.diffRuns),
	}}
}

// RunRow is one run in a list.
type RunRow struct {
	RunID      string     `json:"run_id"`
	ToolID     string     `json:"tool_id"`
	ProjectID  string     `json:"project_id"`
	Site       string     `json:"site"`
	ExecutedAs string     `json:"executed_as,omitempty"` // the cluster's Unix user who owns the job; absent: the gateway's own
	Principal  *string    `json:"principal" help:"whose call made the run; null: made before this was recorded"`
	State      run.State  `json:"state"`
	Phase      run.Phase  `json:"phase"`
	Reason     string     `json:"reason"`
	SlurmJobID string     `json:"slurm_job_id"`
	Waits      *run.Wait  `json:"waits"` // what it waits for in the gateway, and behind which runs; null: nothing
	CreatedAt  time.Time  `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// RunListArgs are the arguments of run.list.
type RunListArgs struct {
	State     run.State `json:"state,omitzero" enum:",queued,running,blocked,succeeded,failed,cancelled" default:"" help:"Only runs in this state." placeholder:"STATE"`
	ToolID    string    `json:"tool_id,omitzero" max:"128" name:"tool" help:"Only runs of this tool." placeholder:"ID"`
	ProjectID string    `json:"project_id,omitzero" kind:"project" name:"project" help:"Only runs of this project (name or id)." placeholder:"NAME"`
	Principal string    `json:"principal,omitzero" kind:"principal" help:"Only runs that this principal asked for: its name (user:alice, token:ci), its id, a login name, or me." placeholder:"NAME"` // see [principalAsked]
	IDPrefix  string    `json:"id_prefix,omitzero" kind:"run_prefix" kong:"-"`
	Since     time.Time `json:"since,omitzero" kong:"-"`
	Until     time.Time `json:"until,omitzero" kong:"-"`
	Sample    string    `json:"sample,omitzero" min:"1" max:"128" about:"of a row of a batch" help:"Only runs of this sample: of a row of a batch." placeholder:"NAME"`
	Tag       string    `json:"tag,omitzero" min:"1" max:"128" about:"of a row of a batch" help:"Only runs of a row of a batch with this tag." placeholder:"TAG"`
	Batch     string    `json:"batch,omitzero" kind:"batch" help:"Only runs of this batch (name or id)." placeholder:"NAME"`
	Page
}

// RunList is one page of runs.
type RunList struct {
	CallRunID
	Listed
	Runs   []RunRow `json:"runs"`
	Cursor *string  `json:"cursor"`
	// Waiting lists the runs that wait for outputs of others, or ended before they started, newest first; where a
	// prefix of an id is given also those that have started under such an id. It is on the first page only, and not
	// included in Total. Absent: there are none.
	Waiting      []RunRow `json:"waiting,omitempty"`
	WaitingTotal int64    `json:"waiting_total,omitempty"`
}

func (g *Gateway) listRuns(ctx context.Context, c gate.Call, a RunListArgs) (out RunList, err error) {
	f := ledger.Filter{State: a.State, ToolID: a.ToolID, Principal: principalAsked(c, a.Principal),
		IDPrefix: a.IDPrefix, Sample: a.Sample, Tag: a.Tag, Cursor: a.Cursor, Limit: a.Limit}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return out, err
	}
	if a.Batch != "" {
		b, err := g.batchOf(ctx, c, BatchArgs{Batch: a.Batch, ProjectID: a.ProjectID})
		if err != nil {
			return out, err
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
		return out, err
	}
	if page.Total.N == 0 && a.ToolID != "" {
		if err := g.noSuchTool(ctx, c, a.ToolID, f.Projects); err != nil {
			return out, err
		}
	}
	out = RunList{Listed: listedOf(page.Total), Runs: []RunRow{}, Cursor: known(page.Cursor)}
	for _, r := range page.Runs {
		out.Runs = append(out.Runs, g.runRow(r))
	}
	if a.Cursor != "" {
		return out, nil
	}
	waiting, n, err := g.Ledger.Waitings(ctx, f)
	for _, r := range waiting {
		out.Waiting = append(out.Waiting, g.runRow(r))
	}
	out.WaitingTotal = n
	return out, err
}

// runRow describes a run in a list.
func (g *Gateway) runRow(r ledger.Row) RunRow {
	return RunRow{r.ID, r.ToolID, r.ProjectID, r.Site, r.ExecutedAs, known(r.Principal.Name), r.State, r.Phase, r.Reason, r.JobID,
		g.waits(r), r.CreatedAt, r.FinishedAt}
}

// waits describes what a run of a list waits for in the gateway.
func (g *Gateway) waits(r ledger.Row) *run.Wait {
	if g.Sites == nil { // a list without the engines: no run progresses
		return nil
	}
	return g.Sites.Waits(run.Run{ID: r.ID, Site: r.Site, ExecutedAs: r.ExecutedAs, ProjectID: r.ProjectID, Principal: r.Principal,
		Phase:    r.Phase,
		ToolName: g.toolName(r.ToolID), PackHash: "any"})
}

// nameBusiest adds the name of the caller with the most waiting runs in the project of a run: callers who may read
// the run may see that.
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
	A string `json:"a" arg:"" ids:"run" help:"Run id, or the beginning of one."`
	B string `json:"b" arg:"" ids:"run" help:"Another run id, or the beginning of one."`
}

// RunDiff is the difference between the identities of two runs.
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

func (g *Gateway) diffRuns(ctx context.Context, _ gate.Call, args DiffArgs) (out RunDiff, err error) {
	a, err := g.startedRun(ctx, args.A)
	if err != nil {
		return out, err
	}
	b, err := g.startedRun(ctx, args.B)
	if err != nil {
		return out, err
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
			return out, err
		}
		y, err := doc.read(ctx, doc.b)
		if err != nil {
			return out, err
		}
		changes, err := plan.Diff(x, y, maxChanges+1)
		if err != nil {
			return out, err
		}
		for _, c := range changes {
			c.Path = doc.name + "." + c.Path
			out.Changes = append(out.Changes, c)
		}
	}
	if out.More = len(out.Changes) > maxChanges; out.More {
		out.Changes = out.Changes[:maxChanges]
	}
	return out, nil
}
