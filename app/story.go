package app

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// RunStory is everything the ledger knows about a run.
type RunStory struct {
	CallRunID                       // of this call; the run itself is run_id
	RunID           string          `json:"run_id"`
	ToolID          string          `json:"tool_id"`
	ToolVersion     string          `json:"tool_version"`
	ContractVersion string          `json:"contract_version"`
	ProjectID       string          `json:"project_id"`
	Site            string          `json:"site"`
	ExecutedAs      string          `json:"executed_as,omitempty"` // the cluster's Unix user whose job it is; absent: the gateway's own
	Principal       *string         `json:"principal"`             // whose call made it; null: made before this was recorded
	PrincipalID     *string         `json:"principal_id"`
	AskedAlso       []AskerDoc      `json:"asked_also"` // who asked for it later, or retried it
	PolicyHash      string          `json:"policy_hash"`
	ParamsHash      string          `json:"params_hash"`
	PlanHash        string          `json:"plan_hash"`
	State           run.State       `json:"state"`
	Phase           run.Phase       `json:"phase"`
	Reason          string          `json:"reason"`
	Detail          string          `json:"detail"`
	Waits           *run.Wait       `json:"waits"`               // in the gateway, and behind whom; null: for nothing there
	WaitsFor        []run.WaitsFor  `json:"waits_for,omitempty"` // outputs of other runs; absent: none
	Attempt         int             `json:"attempt"`
	JobName         string          `json:"job_name"`
	SlurmJobID      string          `json:"slurm_job_id"`
	Cluster         string          `json:"cluster"`
	SlurmState      string          `json:"slurm_state"`
	Node            string          `json:"node"`
	ExitCode        *int            `json:"exit_code"`
	Usage           json.RawMessage `json:"usage"` // as the job itself recorded it
	Image           string          `json:"image"` // name in images.lock.yaml, if it has one now, and digest
	Binds           []plan.Bind     `json:"binds"` // folders of the site the run reads; nothing verifies their content
	Attempts        []AttemptDoc    `json:"attempts"`
	CreatedAt       time.Time       `json:"created_at"`
	StartedAt       *time.Time      `json:"started_at"`
	FinishedAt      *time.Time      `json:"finished_at"`
	Params          json.RawMessage `json:"params"`
	Inputs          []ArtifactDoc   `json:"inputs"`
	Outputs         []ArtifactDoc   `json:"outputs"`
	Sends           []SendDoc       `json:"sends"`
	Events          []ledger.Entry  `json:"events"`
	Call            *run.CallEnd    `json:"call,omitempty"` // how a call of a service worker ended; absent for a job, and while it runs
	Warnings        []string        `json:"warnings"`
	NextSteps       []fault.Step    `json:"next_steps"`
	Workspace       string          `json:"workspace"` // shown to the shell only; never to a chat (ARC-01)
	WorkspaceGone   *time.Time      `json:"workspace_removed_at"`
}

// AttemptDoc is one attempt and what its job used: according to accounting if measured there, else to the job's own record.
type AttemptDoc struct {
	Attempt        int             `json:"attempt"`
	Ending         run.Ending      `json:"ending"`
	Placement      *plan.Placement `json:"placement"` // where it went, with what the site added; null on the gateway's own host
	Resources      plan.Resources  `json:"resources"` // the plan's, or what a retry raised them to; zero for a worker's call
	SlurmState     string          `json:"slurm_state"`
	Node           string          `json:"node"`
	Avoids         []run.Avoided   `json:"avoids"` // nodes it does not use, because earlier attempts failed by their fault
	ExitCode       *int            `json:"exit_code"`
	StartedAt      *time.Time      `json:"started_at"`
	EndedAt        *time.Time      `json:"ended_at"`
	ElapsedSeconds *float64        `json:"elapsed_seconds"`
	CPUSeconds     *float64        `json:"cpu_seconds"`
	CPUEfficiency  *float64        `json:"cpu_efficiency"` // of the CPUs allocated, 0 to 1
	MaxRSSBytes    *int64          `json:"max_rss_bytes"`  // null: not measured
	MemEfficiency  *float64        `json:"mem_efficiency"` // of the requested memory, 0 to 1
	Source         string          `json:"usage_source"`   // accounting, job or empty
}

func (g *Gateway) attempts(ctx context.Context, runID string, p plan.Params) ([]AttemptDoc, error) {
	list, err := g.Ledger.Attempts(ctx, runID)
	if err != nil {
		return nil, err
	}
	out := []AttemptDoc{}
	for _, a := range list {
		if a.Placement == nil && !p.Docker && p.Worker == nil { // the params name it all
			a.Placement = &p.Spec.Placement
		}
		res := p.Spec.Resources
		if a.Resources != nil {
			res = *a.Resources
		}
		d := AttemptDoc{Attempt: a.N, Placement: a.Placement, Resources: res, Ending: a.Ending, SlurmState: a.SlurmState, Node: a.Node,
			Avoids:    append([]run.Avoided{}, a.Avoid...),
			ExitCode:  a.ExitCode,
			StartedAt: a.StartedAt, EndedAt: a.EndedAt}
		used, err := g.Ledger.Usage(ctx, a.Token)
		if err != nil {
			return nil, err
		}
		d.use(used, a.Usage, res)
		out = append(out, d)
	}
	return out, nil
}

// use fills in what the job used. Slurm records whole seconds, the job itself hundredths.
func (d *AttemptDoc) use(accounted *run.Usage, own json.RawMessage, asked plan.Resources) {
	var job struct {
		Elapsed float64 `json:"elapsed_seconds"`
		User    float64 `json:"user_seconds"`
		System  float64 `json:"system_seconds"`
	}
	cpus := asked.CPUs
	if json.Unmarshal(own, &job) == nil && job.Elapsed > 0 {
		cpu := job.User + job.System
		d.Source, d.ElapsedSeconds, d.CPUSeconds = "job", &job.Elapsed, &cpu
	}
	if accounted != nil {
		d.Source = "accounting"
		elapsed := float64(accounted.ElapsedSeconds)
		d.ElapsedSeconds, d.CPUSeconds = &elapsed, &accounted.CPUSeconds
		cpus = max(cpus, accounted.AllocCPUs)
		if accounted.MaxRSSBytes > 0 {
			d.MaxRSSBytes = &accounted.MaxRSSBytes
			share := float64(accounted.MaxRSSBytes) / float64(int64(asked.MemMB)<<20)
			d.MemEfficiency = &share
		}
	}
	if d.ElapsedSeconds != nil && *d.ElapsedSeconds > 0 && cpus > 0 {
		share := min(1, *d.CPUSeconds/(*d.ElapsedSeconds*float64(cpus)))
		d.CPUEfficiency = &share
	}
}

// SendDoc is one start of sbatch.
type SendDoc struct {
	Send      int             `json:"send"`
	StartedAt time.Time       `json:"started_at"`
	EndedAt   *time.Time      `json:"ended_at"`
	Outcome   run.SendOutcome `json:"outcome"`
	Text      string          `json:"text"`
}

func (g *Gateway) showRun(ctx context.Context, c gate.Call, a RunArgs) (RunStory, any, error) {
	s, seq, err := g.settledStory(ctx, a.RunID)
	if err != nil {
		return s, nil, err
	}
	if c.Caller.Transport == gate.Local { // only a shell on this host gets a path of this host
		s.Workspace = g.Sites.RunDir(s.Site, a.RunID)
	}
	s.Detail = *g.hide(c, &s.Detail)
	if err := g.withNames(ctx, c, a.RunID, s.Outputs); err != nil {
		return s, nil, err
	}
	g.nameBusiest(s.Waits)
	measured := 0 // accounting reports usage later, which is not an event of the run
	for _, at := range s.Attempts {
		if at.Source == "accounting" {
			measured++
		}
	}
	params := map[string]any{"run_id": a.RunID, "ledger_seq": seq, "attempts_measured": measured, "workspace_removed_at": s.WorkspaceGone}
	var names []string
	for _, o := range s.Outputs {
		if o.DownloadName != "" {
			names = append(names, o.Role+"="+o.DownloadName)
		}
	}
	if len(names) > 0 { // the caller's own
		params["download_names"] = names
	}
	if n := len(s.AskedAlso); n > 0 { // no event of the run either
		params["asked_also"] = n
	}
	return s, params, nil
}

// settledStory is the story of a run at one event. It takes several queries, so it is read again if the run changed in between.
func (g *Gateway) settledStory(ctx context.Context, runID string) (s RunStory, seq int64, err error) {
	for range 20 {
		if seq, err = g.Ledger.Seq(ctx, runID); err != nil {
			return s, seq, err
		}
		if s, err = g.story(ctx, runID); err != nil {
			return s, seq, err
		}
		if n := len(s.Events); n > 0 && s.Events[n-1].Seq == seq {
			return s, seq, nil
		}
	}
	return s, seq, fault.New(fault.Transport, "run_changing", "the run changes faster than it can be read").
		WithSteps(fault.Do("run.show", "run_id", runID))
}

func (g *Gateway) story(ctx context.Context, runID string) (RunStory, error) {
	v, err := g.Ledger.View(ctx, runID)
	if err != nil {
		return RunStory{}, err
	}
	s := RunStory{RunID: v.Run.ID, ToolID: v.Run.ToolID, ToolVersion: v.Run.ToolVersion, ContractVersion: v.Run.ContractVersion,
		ProjectID: v.Run.ProjectID, Site: v.Run.Site, ExecutedAs: v.Run.ExecutedAs,
		Principal: known(v.Run.Principal.Name), PrincipalID: known(v.Run.Principal.ID),
		PolicyHash: v.Run.PolicyHash, ParamsHash: v.Run.ParamsHash, PlanHash: v.Run.PlanHash, State: v.Run.State, Phase: v.Run.Phase,
		Reason: v.Run.Reason, Detail: run.PlainDetail(v.Run.Detail), Waits: g.Sites.Waits(v.Run),
		Attempt: v.Run.AttemptN, JobName: v.Submission.JobName, SlurmJobID: v.Submission.JobID, Cluster: v.Submission.Cluster,
		SlurmState: v.Attempt.SlurmState, Node: v.Attempt.Node,
		ExitCode: v.Run.ExitCode, Usage: v.Attempt.Usage, CreatedAt: v.Run.CreatedAt, StartedAt: v.Attempt.StartedAt,
		FinishedAt: v.Run.FinishedAt, Warnings: v.Run.Warnings, Sends: []SendDoc{}, NextSteps: run.NextSteps(v)}
	if s.Warnings, err = g.forgeable(ctx, v.Run); err != nil {
		return s, err
	}
	if s.Usage == nil {
		s.Usage = json.RawMessage("null")
	}
	askers, err := g.Ledger.Askers(ctx, v.Run.ID)
	if err != nil {
		return s, err
	}
	s.AskedAlso = askerDocs(askers)
	if s.WorkspaceGone, err = g.Ledger.WorkspaceGone(ctx, v.Run.ID); err != nil {
		return RunStory{}, err
	}
	if s.Params, err = g.Ledger.Params(ctx, v.Run.ParamsHash); err != nil {
		return s, err
	}
	p, err := plan.DecodeParams(s.Params)
	if err != nil {
		return s, err
	}
	if p.Worker != nil && v.Run.State.Terminal() {
		end, err := run.EndOf(v)
		if err != nil {
			return s, err
		}
		s.Call = &end
	}
	s.Image = p.Spec.Execution.Container.Image
	if name := g.Domain.Lock().NameOf(s.Image); name != "" {
		s.Image = name + "@" + s.Image
	}
	s.Binds = append([]plan.Bind{}, p.Tool.Asked()...)
	if s.Attempts, err = g.attempts(ctx, v.Run.ID, p); err != nil {
		return s, err
	}
	inputs, err := g.Ledger.Inputs(ctx, v.Run.ID)
	if err != nil {
		return s, err
	}
	outputs, err := g.Ledger.Outputs(ctx, v.Run.ID)
	if err != nil {
		return s, err
	}
	s.Inputs, s.Outputs = linkedDocs(inputs), linkedDocs(outputs)
	if err := g.nameReferences(ctx, s.Inputs, v.Run.ProjectID); err != nil {
		return s, err
	}
	if v.Submission.ScriptSHA != "" {
		tellStrengths(s.Inputs, v.Attempt.Strengths)
	}
	sends, err := g.Ledger.Sends(ctx, v.Submission.Token)
	if err != nil {
		return s, err
	}
	for _, k := range sends {
		s.Sends = append(s.Sends, SendDoc{k.K, k.StartedAt, k.EndedAt, k.Outcome, k.Text})
	}
	s.Events, err = g.Ledger.Events(ctx, v.Run.ID)
	return s, err
}

// forgeable are the run's warnings, with whose word its outputs rest on where jobs belong to users.
func (g *Gateway) forgeable(ctx context.Context, r run.Run) ([]string, error) {
	users, err := g.Ledger.UsersBefore(ctx, r.ID)
	list := slices.Clip(r.Warnings)
	if r.ExecutedAs != "" {
		list = append(list, "executed as "+r.ExecutedAs+", who could have forged how this run ended and what it made")
	}
	for _, u := range users {
		list = append(list, "an input was made by a run executed as "+u+", who could have forged it")
	}
	return list, err
}
