package app

import (
	"cmp"
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
	ExecutedAs      string          `json:"executed_as,omitempty"` // the cluster's Unix user who owns the job; absent: the gateway's own
	Principal       *string         `json:"principal"`             // whose call created it; null: created before this was recorded
	PrincipalID     *string         `json:"principal_id"`
	AskedAlso       []AskerDoc      `json:"asked_also"` // who else asked for it, or retried it, including those who withdrew
	Askings         []AskerDoc      `json:"askings"`    // all of them, in the order of asking
	PolicyHash      string          `json:"policy_hash"`
	ParamsHash      string          `json:"params_hash"`
	PlanHash        string          `json:"plan_hash"`
	State           run.State       `json:"state"`
	Phase           run.Phase       `json:"phase"`
	Reason          string          `json:"reason"`
	Detail          string          `json:"detail"`
	Waits           *run.Wait       `json:"waits"`               // what it waits for in the gateway, and behind which runs; null: nothing
	WaitsFor        []run.WaitsFor  `json:"waits_for,omitempty"` // outputs of other runs; absent: none
	Attempt         int             `json:"attempt"`
	JobName         string          `json:"job_name"`
	SlurmJobID      string          `json:"slurm_job_id"`
	Cluster         string          `json:"cluster"`
	SlurmState      string          `json:"slurm_state"`
	Node            string          `json:"node"`
	ExitCode        *int            `json:"exit_code"`
	Usage           json.RawMessage `json:"usage"` // as recorded by the job itself
	Image           string          `json:"image"` // its current name in images.lock.yaml, if it has one, and digest
	Binds           []plan.Bind     `json:"binds"` // folders of the site that the run reads; their content is not verified
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
	Placement      *plan.Placement `json:"placement"` // as reported by Slurm, else as sent; null on the gateway's own host
	Resources      plan.Resources  `json:"resources"` // the plan's, or what a retry raised them to; zero for a worker's call
	SlurmState     string          `json:"slurm_state"`
	Node           string          `json:"node"`
	Avoids         []run.Avoided   `json:"avoids"` // nodes excluded because earlier attempts failed there by the node's fault
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

func attemptDocs(r ledger.RunRecord, p plan.Params) []AttemptDoc {
	out := []AttemptDoc{}
	for _, a := range r.Attempts {
		if a.Placement == nil && !p.Docker && p.Worker == nil { // the params have all of it
			a.Placement = &p.Spec.Placement
		}
		if a.Placement != nil && a.Partition != "" { // a plugin of the site or an administrator may have changed it
			at := *a.Placement
			at.Partition, at.Account = a.Partition, cmp.Or(a.Account, at.Account)
			a.Placement = &at
		}
		res := p.Spec.Resources
		if a.Resources != nil {
			res = *a.Resources
		}
		d := AttemptDoc{Attempt: a.N, Placement: a.Placement, Resources: res, Ending: a.Ending, SlurmState: a.SlurmState, Node: a.Node,
			Avoids:    append([]run.Avoided{}, a.Avoid...),
			ExitCode:  a.ExitCode,
			StartedAt: a.StartedAt, EndedAt: a.EndedAt}
		d.use(r.Used[a.Token], a.Usage, res)
		out = append(out, d)
	}
	return out
}

// use adds what the job used. Slurm records whole seconds, the job itself hundredths.
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

func (g *Gateway) showRun(ctx context.Context, c gate.Call, a RunArgs) (RunStory, error) {
	s, err := g.story(ctx, a.RunID)
	if err != nil {
		return s, err
	}
	if c.Caller.Transport == gate.Local { // only a shell on this host gets a path of this host
		s.Workspace = g.Sites.RunDir(s.Site, s.RunID)
	}
	s.Detail = *g.hide(c, &s.Detail)
	if err := g.withNames(ctx, c, s.RunID, s.Outputs); err != nil {
		return s, err
	}
	g.nameBusiest(s.Waits)
	return s, nil
}

func (g *Gateway) story(ctx context.Context, runID string) (RunStory, error) {
	r, err := g.Ledger.RunRecord(ctx, runID)
	if err != nil {
		return RunStory{}, err
	}
	p, err := plan.DecodeParams(r.Params)
	if err != nil {
		return RunStory{}, err
	}
	s := RunStory{RunID: r.Run.ID, ToolID: r.Run.ToolID, ToolVersion: r.Run.ToolVersion, ContractVersion: r.Run.ContractVersion,
		ProjectID: r.Run.ProjectID, Site: r.Run.Site, ExecutedAs: r.Run.ExecutedAs,
		Principal: known(r.Run.Principal.Name), PrincipalID: known(r.Run.Principal.ID), Askings: askerDocs(r.Askers),
		AskedAlso:  askerDocs(slices.DeleteFunc(r.Askers, func(a run.Asker) bool { return a.Principal == r.Run.Principal })),
		PolicyHash: r.Run.PolicyHash, ParamsHash: r.Run.ParamsHash, PlanHash: r.Run.PlanHash, State: r.Run.State, Phase: r.Run.Phase,
		Reason: r.Run.Reason, Detail: r.Detail(), Waits: g.Sites.Waits(r.Run), WaitsFor: r.WaitsFor(),
		Attempt: r.Run.AttemptN, JobName: r.Submission.JobName, SlurmJobID: r.Submission.JobID, Cluster: r.Submission.Cluster,
		SlurmState: r.Attempt.SlurmState, Node: r.Attempt.Node, ExitCode: r.Run.ExitCode, Usage: r.Attempt.Usage,
		Image: p.Spec.Execution.Container.Image, Binds: append([]plan.Bind{}, p.Tool.Asked()...), Attempts: attemptDocs(r, p),
		CreatedAt: r.Run.CreatedAt, StartedAt: r.Attempt.StartedAt, FinishedAt: r.Run.FinishedAt, Params: r.Params,
		Inputs: linkedDocs(r.Inputs), Outputs: linkedDocs(r.Outputs), Sends: []SendDoc{}, Events: r.Events, Warnings: forgeable(r),
		NextSteps: run.NextSteps(r.View), WorkspaceGone: r.GoneSince}
	if s.Usage == nil {
		s.Usage = json.RawMessage("null")
	}
	if p.Worker != nil && r.Run.State.Terminal() {
		end, err := run.EndOf(r.View)
		if err != nil {
			return s, err
		}
		s.Call = &end
	}
	if name := g.Domain.Lock().NameOf(s.Image); name != "" {
		s.Image = name + "@" + s.Image
	}
	if r.Submission.ScriptSHA != "" {
		setStrengths(s.Inputs, r.Attempt.Inputs)
	}
	for _, k := range r.Sends {
		s.Sends = append(s.Sends, SendDoc{k.K, k.StartedAt, k.EndedAt, k.Outcome, k.Text})
	}
	return s, g.nameReferences(ctx, s.Inputs, r.Run.ProjectID)
}

// forgeable returns the run's warnings, and where jobs belong to users a warning of who could have forged its
// outputs.
func forgeable(r ledger.RunRecord) []string {
	list := r.Warnings()
	if r.Run.ExecutedAs != "" && r.Waiting == nil {
		list = append(list, "executed as "+r.Run.ExecutedAs+", who could have forged how this run ended and what it made")
	}
	for _, u := range r.Users {
		list = append(list, "an input was made by a run executed as "+u+", who could have forged it")
	}
	return list
}
